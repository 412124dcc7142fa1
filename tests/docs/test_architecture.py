"""The contracts on imports refuse what they are meant to, and few lines ask what kind of cluster they are on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import TypingError

from builders.paths import ROOT
from skedge.core.engine.lanes import bring_to
from skedge.core.kernel.kernel import Kernel
from skedge.run import prepared
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
    ("optimum/linear.py", "from skedge.live.engine import Engine"),
    ("run.py", "from skedge.cli.main import app"),
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


def shown() -> dict[str, np.ndarray]:
    """Arrays that a view shows, by name."""
    scenario = small_scenario(0)
    view = Kernel(scenario, prepared("aonline", scenario)).view
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
    view = Kernel(scenario, prepared("aonline", scenario)).view
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
