"""Imports: contracts, closures, circles; and few lines ask what kind of cluster they are on."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import TypingError

import skedge
from builders.paths import ROOT
from skedge.core.engine.lanes import bring_to
from skedge.core.kernel.kernel import Kernel
from skedge.prepare import prepare_policy
from skedge.testing import small_scenario

PLANTED = [
    ("policies/gangs/srtf.py", "from skedge.core.kernel.kernel import Kernel"),
    ("policies/aonline/policy.py", "from skedge.core.kernel.storage import Storage"),
    ("policies/dorm/policy.py", "from skedge.core.kernel.state import State"),
    ("policies/drf/policy.py", "import time"),
    ("analysis/verify/rules.py", "from skedge.core.kernel.kernel import Kernel"),
    ("analysis/metrics/metrics.py", "from skedge.core.record.record import Record"),
    ("core/events.py", "import random"),
    ("core/model/speed.py", "from skedge.sim.world import SimulatedWorld"),
    ("optimum/linear.py", "from skedge.live.cluster.engine import Engine"),
    ("recorded_run.py", "from skedge.cli.main import app"),
    ("live/worker/agent.py", "from skedge.live.world.inbox import Inbox"),
    ("live/journal/journal.py", "from skedge.live.controller.settings import Settings"),
]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What lint-imports says of a copy of the sources with every violation in it."""
    copy = tmp_path_factory.mktemp("planted")
    shutil.copytree(ROOT / "src" / "skedge", copy / "skedge", ignore=shutil.ignore_patterns("__pycache__"))
    for file, line in PLANTED:
        path = copy / "skedge" / file
        path.write_text(path.read_text("utf-8") + f"\n{line}  # planted\n", "utf-8")
    command = [
        str(Path(sys.executable).with_name("lint-imports")),
        "--config",
        str(ROOT / "pyproject.toml"),
        "--no-cache",
    ]
    env = {**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "400"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=copy)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("file", "line"), PLANTED)
def test_a_planted_import_is_refused(said: str, file: str, line: str) -> None:
    importer = "skedge." + file.removesuffix(".py").replace("/", ".")
    imported = line.split()[1]
    assert f"{importer} -> {imported}" in said


# --- what an import brings along, and circles of imports

SOURCES = ROOT / "src"
MOST_IMPORTED = {"skedge.cli.trace": 60, "skedge.core.policy": 15}
"""Most modules and packages of skedge that a module may import, directly or not, itself counted."""

REARRANGED = "skedge.core"
"""The folder within which circles are being removed."""


def sources(folder: Path) -> dict[str, ast.Module]:
    """Syntax tree of each module below `folder`, by name; a package has the name without ``__init__``."""
    paths = {path: ".".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("*.py")}
    return {name.removesuffix(".__init__"): ast.parse(path.read_text("utf-8")) for path, name in paths.items()}


def statements(node: ast.AST, *, typing: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports below `node`, those in functions, too; with `typing` also those for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif typing or not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from statements(child, typing=typing)


def imports(trees: Mapping[str, ast.Module], packages: set[str], name: str, *, typing: bool = False) -> set[str]:
    """The modules among `trees` that module `name` imports."""
    imported = set()
    for statement in statements(trees[name], typing=typing):
        if isinstance(statement, ast.Import):
            imported |= {alias.name for alias in statement.names}
            continue
        parents = name.split(".") if name in packages else name.split(".")[:-1]
        base = parents[: len(parents) - statement.level + 1] if statement.level else []
        module = ".".join([*base, *filter(None, [statement.module])])
        for alias in statement.names:
            inner = f"{module}.{alias.name}"
            imported.add(inner if inner in trees else module)
    return {module for module in imported if module in trees} - {name}


def packages_of(trees: Mapping[str, ast.Module]) -> set[str]:
    """The packages among `trees`: names with names below them."""
    return {name.rpartition(".")[0] for name in trees} - {""}


def closure(trees: Mapping[str, ast.Module], start: str) -> set[str]:
    """The modules that `start` imports, directly or not, with their packages, and itself."""
    packages, reached, left = packages_of(trees), set[str](), [start]
    while left:
        name = left.pop()
        if name and name not in reached:
            reached.add(name)
            left += [name.rpartition(".")[0], *imports(trees, packages, name)]
    return reached


def circles(trees: Mapping[str, ast.Module]) -> list[list[str]]:
    """Groups of modules each of which imports all the others, directly or not; imports for types count, too."""
    packages = packages_of(trees)
    graph = {name: imports(trees, packages, name, typing=True) for name in trees}
    while True:  # modules that import none of the others, or that none of the others imports, are in no circle
        ends = {name for name, imported in graph.items() if not imported} | set(graph) - set().union(*graph.values())
        if not ends:
            break
        graph = {name: imported - ends for name, imported in graph.items() if name not in ends}
    groups: list[list[str]] = []
    for name in graph:
        if not any(name in group for group in groups):
            after = _reached(graph, name)
            group = sorted(other for other in after if name in _reached(graph, other))
            groups += [group] if group else []
    return groups


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """The modules that one reaches from `start` along at least one import."""
    reached, left = set[str](), [*graph[start]]
    while left:
        name = left.pop()
        if name not in reached:
            reached.add(name)
            left += graph[name]
    return reached


@pytest.mark.parametrize("module", MOST_IMPORTED)
def test_few_modules_are_imported_with(module: str) -> None:
    """By the sources, with imports in functions; and by Python, when it imports the module."""
    expected = closure(sources(SOURCES), module)
    code = f"import sys, {module}; print(*(name for name in sys.modules if name.split('.')[0] == 'skedge'))"
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert set(done.stdout.split()) <= expected
    assert len(expected) <= MOST_IMPORTED[module], sorted(expected)


def test_a_run_is_read_without_the_report() -> None:
    code = "import sys, skedge.recorded_run, skedge.prepare; print(*sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert "skedge.analysis.verify.verify" in done.stdout
    assert "skedge.report" not in done.stdout


def test_no_module_hides_a_public_name() -> None:
    """Python sets an imported module as an attribute of its package."""
    assert set(skedge.__all__) & {name.removeprefix("skedge.") for name in sources(SOURCES)} == set()


def test_no_circle_of_imports_crosses_folders() -> None:
    crossing = [
        group
        for group in circles(sources(SOURCES))
        if len({name.rpartition(".")[0] for name in group}) > 1
        and not all(name.startswith(REARRANGED) for name in group)
    ]
    assert crossing == []


def test_a_planted_circle_and_what_it_brings_along_are_seen() -> None:
    texts = {
        "p": "", "p.a": "from .b.c import x", "p.b": "", "p.d": "import p.b.c",
        "p.b.c": "if TYPE_CHECKING:\n    from p.e import y\ndef f():\n    from ..e import z", "p.e": "from p import a",
    }  # fmt: skip
    trees = {name: ast.parse(text) for name, text in texts.items()}
    assert circles(trees) == [["p.a", "p.b.c", "p.e"]]
    assert closure(trees, "p.d") == set(texts)


def shown() -> dict[str, np.ndarray]:
    """Arrays that a view shows, by name."""
    scenario = small_scenario(0)
    view = Kernel(scenario, prepare_policy("aonline", scenario)).view
    belief = view.belief(np.arange(scenario.cluster.lanes))
    arrays = {f"belief.{name}": array for name, array in belief._asdict().items() if isinstance(array, np.ndarray)}
    names = ("chunk_time", "work", "workers", "in_service", "capacity", "free_workers", "ps_job", "free_bytes")
    return arrays | {name: getattr(view, name) for name in names}


@pytest.mark.parametrize("name", shown())
def test_what_a_view_shows_cannot_be_written(name: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        shown()[name][...] = 7


def test_a_compiled_function_that_writes_the_belief_does_not_compile() -> None:
    scenario = small_scenario(0)
    view = Kernel(scenario, prepare_policy("aonline", scenario)).view
    with pytest.raises(TypingError, match="Cannot modify readonly array"):
        bring_to(view.belief(np.arange(1)), np.arange(1), 5)


# --- the kind of a cluster is asked where books, rules, measures and worlds are chosen

MOST_ASKS = 15
ASKS = re.compile(
    r"""
    \btransfer_cost\ is\b                                  # are these sites?
    | \bcluster\.kind\b | \bself\.kind\ [!=]=\ "(slots|resources|sites)
    | \b(if|elif|and|or|not|while)\ (\w+\.)*(cluster|self)\.(resources|kind)\b
    | \b(cluster|self)\.resources\ (if|else|and|or)\b
    | isinstance\([\w.]*\bps,\ tuple\)
    | \bhas_(slots|sites)\b
    | \.(pool|sites|work)\ is\ (not\ )?None
    """,
    re.VERBOSE,
)
NO_ASK = re.compile(r"^\s*(def |has_\w+: |\"\"\")")
"""Definitions, and the forms of a file, which are of one server."""


def asks() -> list[str]:
    """The lines in the sources that ask for the kind of cluster."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        if path.name != "schema.py"
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if ASKS.search(line) and not NO_ASK.match(line)
    ]


def test_few_lines_ask_for_the_kind_of_cluster() -> None:
    """``pytest -s`` prints them."""
    found = asks()
    print("", *found, sep="\n")  # noqa: T201 - the list is what this test is for
    assert len(found) <= MOST_ASKS


@pytest.mark.parametrize(
    "line",
    [
        "if scenario.cluster.transfer_cost is None:",
        'if cluster.kind != "slots":',
        "unlimited = server == cloud or self.cluster.resources if x else 1",
        "if isinstance(order.ps, tuple):",
        "if kernel.books.pool is not None:",
        "end = NEVER if self.sites is None else self.sites.end",
        "if kind_of(cluster).has_slots:",
        "return 1 if not self.cluster.resources else 2",
    ],
)
def test_a_line_that_asks_is_seen(line: str) -> None:
    """The forms in which it was asked before."""
    assert ASKS.search(line)
