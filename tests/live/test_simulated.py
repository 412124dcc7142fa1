"""The live part in deterministic simulation: invariants hold with faults, and planted bugs break them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from builders.paths import ROOT
from simulated.campaign import Outcome, plan_of, run_plan
from simulated.planted import PLANTED, Planted

SEEDS, BLOCK = 200, 25
"""Seeds with which the invariants must hold, and how many a test runs."""

MOST = 2000
"""Seeds within which a planted bug must be found."""

SAME = (3, 11, 19)
"""Seeds that are run in other processes as well."""


def digest_of(outcome: Outcome) -> str:
    return f"{outcome.plan.seed} {outcome.broken} {outcome.history.digest}"


def test_a_seed_makes_the_same_history_in_other_processes() -> None:
    """Also where sets have another order."""
    code = f"""
from simulated.campaign import plan_of, run_plan
for seed in {SAME}:
    outcome = run_plan(plan_of(seed))
    print(seed, outcome.broken, outcome.history.digest)
"""
    path = os.pathsep.join([str(ROOT / "tests"), *filter(None, sys.path)])
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert texts == {"".join(digest_of(run_plan(plan_of(seed))) + "\n" for seed in SAME)}


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_the_invariants_hold(first: int) -> None:
    """The command ``python -m simulated SEED`` tells more of a seed that fails here."""
    outcomes = [run_plan(plan_of(seed)) for seed in range(first, first + BLOCK)]
    assert [(one.plan.seed, one.what) for one in outcomes if one.broken] == []
    assert all(one.ended or not one.plan.jobs for one in outcomes), "the jobs of each seed have left"


@pytest.mark.parametrize("planted", [pytest.param(planted, id=name) for name, planted in PLANTED.items()])
def test_a_planted_bug_is_found(planted: Planted) -> None:
    assert planted.found_with(MOST) is not None
