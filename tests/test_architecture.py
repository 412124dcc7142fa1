"""The contracts on imports in pyproject.toml refuse what they are meant to: each violation is planted and found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import TypingError

from skedge.core.kernel import Kernel
from skedge.core.lanes.lanes import bring_to
from skedge.run import prepared
from skedge.testing import small_scenario

ROOT = Path(__file__).resolve().parents[1]
PLANTED = [
    ("policies/gangs/srtf.py", "from skedge.core.kernel import Kernel"),
    ("policies/aonline/policy.py", "from skedge.core.books.slots import Slots"),
    ("policies/drf/policy.py", "import time"),
    ("analysis/verify/rules.py", "from skedge.core.kernel import Kernel"),
    ("analysis/metrics/metrics.py", "from skedge.core.record import Record"),
    ("core/events.py", "import random"),
    ("core/speed.py", "from skedge.sim.world import SimulatedWorld"),
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
