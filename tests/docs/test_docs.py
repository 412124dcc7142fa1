"""The page on writing a policy: its examples are files, they run, and they register as it says."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builders.paths import ROOT
from skedge.cli.main import COMMANDS
from skedge.core.errors import PolicyError
from skedge.core.registry import make_policy, registered
from skedge.explanation.explain import explain
from skedge.explanation.wait_reason import TOKENS
from skedge.recorded_run import Run
from skedge.scenario.file import load_cluster_file, read_spec
from skedge.simulate import run
from skedge.testing import check_policy, small_scenario

DOCS = ROOT / "docs"
PAGE = (DOCS / "write-a-policy.md").read_text(encoding="utf-8")
FILES = sorted((DOCS / "examples").glob("least_loaded*.py"))
EXAMPLES = {path.name: path.read_text(encoding="utf-8") for path in FILES}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def code_lines(source: str) -> set[int]:
    """Lines of a source that hold code: not blank, no comment, no docstring."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for t in tokens if t.type not in skipped for line in range(t.start[0], t.end[0] + 1)}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The examples, importable."""
    monkeypatch.syspath_prepend(DOCS / "examples")
    yield
    for name in EXAMPLES:
        sys.modules.pop(name.removesuffix(".py"), None)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The examples as an installed package, by the pyproject.toml that the page shows."""
    project = tomllib.loads(blocks("toml")[0])["project"]
    for name, source in EXAMPLES.items():
        (tmp_path / name).write_text(source, encoding="utf-8")
    info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in of.items())
        for group, of in project["entry-points"].items()
    ]
    info.joinpath("entry_points.txt").write_text("\n".join(points))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in EXAMPLES:
        sys.modules.pop(name.removesuffix(".py"), None)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_page_shows_the_example_file_word_for_word(name: str) -> None:
    """Copying from the page and copying the file give the same."""
    assert EXAMPLES[name] in blocks("python")
    assert f"(examples/{name})" in PAGE


def test_the_complete_example_has_at_most_30_lines_of_code() -> None:
    """What a first policy takes is a screenful."""
    assert len(code_lines(EXAMPLES["least_loaded.py"])) <= 30


def test_code_lines_are_counted_without_docstrings_comments_and_blank_lines() -> None:
    """The counter of the test above, on six lines of which two are code."""
    assert code_lines('"""Doc\nstring."""\n\n# comment\nx = 1\ny = (x)\n') == {5, 6}


@pytest.mark.parametrize("block", [b for b in blocks("python") if b not in EXAMPLES.values()])
def test_every_other_python_block_of_the_page_runs(block: str, examples: None) -> None:
    """A block stands for itself: nothing but the examples has to be there."""
    exec(compile(block, "write-a-policy.md", "exec"), {})  # noqa: S102 - our own page


def test_every_file_that_the_page_links_to_is_there() -> None:
    """Links are relative to the page."""
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert (DOCS / link).is_file(), link


def test_the_page_names_every_order_event_field_and_clause() -> None:
    """Its tables leave nothing out that a policy may use or be held to."""
    from skedge.core import events, policy

    for order in events.Decision.__args__:  # type: ignore[attr-defined]
        assert f"`{order.__name__}(" in PAGE
    for field in events.Event._fields:
        assert f"`{field}`" in PAGE or field == "chunks"  # the kernel's alone
    for_compiled_searches = {"belief", "delays", "next_seq", "cluster", "engine"}
    for name in set(vars(policy.View)) - for_compiled_searches:
        assert name.startswith("_") or f"`{name}" in PAGE, name
    clauses = re.findall(r"^        ``(.+)``$", check_policy.__doc__ or "", re.MULTILINE)
    assert len(clauses) == 7
    assert all(f"| {clause} |" in PAGE for clause in clauses)


TUTORIAL = (DOCS / "tutorials" / "a-policy.md").read_text(encoding="utf-8")


def test_the_lines_that_the_pages_count_are_counted() -> None:
    """The tutorial's whole scheduler."""
    scheduler = re.search(r'^```python title="fewest.py"\n(.*?)^```$', TUTORIAL, re.MULTILINE | re.DOTALL)
    assert scheduler is not None
    assert "a scheduler in twenty lines" in TUTORIAL
    assert len(scheduler[1].splitlines()) <= 20


def test_the_classes_and_files_that_the_page_names_are_there_and_are_what_it_says() -> None:
    """Bases and parameters of gangs, and the two policies that stand for what it recommends."""
    from skedge.policies.drf.on_slots import DrfOnSlots
    from skedge.policies.gangs.base import GangParams, GangPolicy
    from skedge.policies.gangs.edge import EdgePolicy
    from skedge.policies.gangs.srtf import Srtf

    for base in (GangPolicy, GangParams, EdgePolicy):
        assert f"`{base.__module__}.{base.__name__}`" in PAGE
    assert issubclass(Srtf, GangPolicy)
    assert GangPolicy.Parameters is GangParams
    assert issubclass(DrfOnSlots, EdgePolicy)
    named = re.findall(r"`(skedge/\S+\.py)`", PAGE)
    assert {path for path in named if not (ROOT / "src" / path).is_file()} == set()
    assert "skedge/policies/drf/on_slots.py" in named


def test_the_numbers_of_the_page_are_right() -> None:
    """Two methods besides a name, three optional things, 2**62 for no limit, the lanes' parameters."""
    from skedge.core.model.size import UNLIMITED
    from skedge.core.policy import LaneRule

    assert "It is a class with a name and two methods" in PAGE
    tree = ast.parse(EXAMPLES["least_loaded.py"])
    policy = next(node for node in tree.body if isinstance(node, ast.ClassDef))
    methods = {node.name for node in policy.body if isinstance(node, ast.FunctionDef)}
    assert {"start", "decide"} <= methods
    assert "adds three optional things" in PAGE
    optional = PAGE.partition("adds three optional things")[2].partition("```")[0]
    assert len(re.findall(r"^- \*\*", optional, re.MULTILINE)) == 3
    assert ("2**62 if unlimited" in PAGE, UNLIMITED) == (True, 2**62)
    assert 'LaneRule(preemptive=False, rank="custom")' in PAGE
    assert LaneRule(preemptive=False, rank="custom").rank == "custom"


def test_the_columns_of_jobs_that_the_page_names_are_there() -> None:
    """Every name in the row of `jobs` is a column that policies see."""
    from skedge.core.model.job_fields import JobColumns

    row = next(line for line in PAGE.splitlines() if line.startswith("| `jobs` |"))
    columns = set(JobColumns.__dataclass_fields__)
    assert set(re.findall(r"`(\w+)`", row)) - {"jobs"} <= columns
    assert {"user", "gpu_type", "workers"} <= set(re.findall(r"`(\w+)`", row))


def test_the_examples_keep_the_contract(examples: None) -> None:
    """check_policy finds nothing, also where the cloud takes what would wait."""
    from least_loaded_more import Spill

    check_policy(Spill)
    check_policy(lambda: Spill(spill_s=1.0))


def test_least_loaded_begins_each_chunk_where_it_can_begin_first(examples: None) -> None:
    """By hand: chunks of 4 s, lanes with delays 0 and 10 s: at 0, 4, 8 s, then far at 10 s, then near at 12 s."""
    from least_loaded import LeastLoaded

    from skedge.core.model.cluster import Cluster, Job, Server, job_table
    from skedge.core.model.scenario import Jobs, Scenario

    cluster = Cluster([Server(name, capacity={"worker:gpu": 1, "ps:cpu": 1}) for name in ("near", "far")])
    job = Job("j", 0.0, epochs=1, chunks=5, minibatches=1, minibatch_s=4.0, upload_s={"near": 0.0, "far": 10.0})
    table, given = job_table([job])
    result = run(Scenario(cluster, Jobs(table, cluster, given)), LeastLoaded())
    rows = result.schedule.runs.select("server", "start").sort("start").rows()
    assert rows == [("near", 0), ("near", 4_000_000), ("near", 8_000_000), ("far", 10_000_000), ("near", 12_000_000)]


def test_an_installed_package_adds_its_policies_by_name(installed: None) -> None:
    """make_policy, a run and the list know them; parameters are read and checked."""
    assert {"least_loaded", "spill", "aonline"} <= set(registered())
    assert make_policy("spill:spill_s=600").params.spill_s == 600.0  # type: ignore[attr-defined]
    with pytest.raises(PolicyError, match="spill_s = '-1'"):
        make_policy("spill:spill_s=-1")
    result = run(small_scenario(0), "least_loaded")
    assert result.policy == "least_loaded"
    assert result.verify() == []


def test_the_command_line_takes_an_installed_policy(
    installed: None, skedge: Callable[..., Any], busy: Path, tmp_path: Path
) -> None:
    """It is listed with its parameters, compared beside ours, run, and its decisions explained with its terms."""
    listed = {row["name"]: row for row in skedge("policies", "--json").json}
    assert listed["spill"]["parameters"] == [{"name": "spill_s", "default": "none", "type": "number | none"}]
    report = tmp_path / "c.html"
    told = skedge(
        "compare", busy, "--policies", "srtf,least_loaded", "--seeds", 1, "--processes", 1, "--report", report
    )
    assert (told.code, report.is_file(), "least_loaded" in told.out) == (0, True, True)
    assert skedge("run", busy, "--policy", "spill:spill_s=60", "--out", tmp_path / "r").code == 0
    for name in ("0", "12"):
        said = skedge("explain", tmp_path / "r", name, "--json").json
        waits = said["terms"]["waiting_s"]
        assert said["verb"] == "dispatch"
        assert (said["reason"] == "waits_too_long") == (waits > 60)
    assert "waiting_s" in skedge("explain", tmp_path / "r", "12").out


def test_a_calibrated_constant_is_kept_with_the_run(installed: None, tmp_path: Path) -> None:
    """The median of the chunk times, in run.json, makes the run again."""
    import numpy as np

    scenario = small_scenario(0)
    result = run(scenario, "spill")
    median = float(np.median(scenario.chunk_time[:, 0])) / 1e6
    assert result.meta["params"] == {"spill_s": median}
    loaded = Run.load(result.save(tmp_path / "r"))
    again = run(loaded.scenario, loaded.policy)
    assert all(again.schedule.tables()[name].equals(table) for name, table in loaded.schedule.tables().items())
    assert explain(loaded, "3").terms is not None


def test_a_broken_package_is_shown_and_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skedge: Callable[..., Any]
) -> None:
    """A policy whose module cannot be imported says so in the list; ours are there all the same."""
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    info.joinpath("entry_points.txt").write_text("[skedge.policies]\nbroken = no_such_module:Policy\n")
    monkeypatch.syspath_prepend(tmp_path)
    told = skedge("policies", "--json")
    about = {row["name"]: row["about"] for row in told.json}
    assert told.code == 0
    assert about["broken"] == "cannot be loaded: No module named 'no_such_module'"
    assert "aonline" in about


# -- the operator's guide ---------------------------------------------------------------------------------------------

GUIDE = (DOCS / "service.md").read_text(encoding="utf-8")


def test_the_guides_examples_are_files_that_load() -> None:
    shown = re.findall(r"^```yaml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert shown == [(DOCS / "examples" / name).read_text(encoding="utf-8") for name in ("cluster.yaml", "job.yaml")]
    assert load_cluster_file(DOCS / "examples" / "cluster.yaml").cluster.server_ids == ["north", "south", "cloud"]
    assert read_spec(DOCS / "examples" / "job.yaml")["name"] == "digits"
    block = re.search(r"^```python\n(# /// script\n.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert block is not None
    assert (DOCS / "examples" / "script" / "line.py").read_text(encoding="utf-8").startswith(block[1])


def test_the_guide_has_every_command_of_the_service() -> None:
    listed = {cell.split()[0] for cell in re.findall(r"^\| `skedge (.*?)`", GUIDE, re.MULTILINE)}
    modules = ("service:", "requests:", "whatif:", "tokens:", "notify:", "journal:")
    assert listed | {"uncordon"} == {name for name, (target, _) in COMMANDS.items() if target.startswith(modules)}


def test_the_guide_has_every_reason_token() -> None:
    assert dict(re.findall(r"^\| `((?!skedge_)[a-z_]+)` \| (.*?) \|$", GUIDE, re.MULTILINE)) == TOKENS


# --- paths that pages name

NAMED_PATH = re.compile(r"`((?:src|tests|benchmarks|docs|\.\.)/[\w./*-]+)`")

WRITTEN = {"docs/figures"}
"""What commands write: `make reproduce`."""


def missing_paths(text: str) -> list[str]:
    """Paths of the repository in code spans that do not exist, or lead out of it."""
    named = [path for path in NAMED_PATH.findall(text) if path not in WRITTEN]
    return [path for path in named if path.startswith("..") or not any(ROOT.glob(path))]


def test_every_path_that_a_page_names_exists() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
    assert [(page.name, path) for page in pages for path in missing_paths(page.read_text("utf-8"))] == []


def test_a_planted_path_is_seen() -> None:
    assert missing_paths("`tests/test_verify*.py`, `../shared/x.py`, `tests/analysis`") == [
        "tests/test_verify*.py",
        "../shared/x.py",
    ]
