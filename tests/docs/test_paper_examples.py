"""The papers put together in docs/examples decide as the policies do, and run as scripts."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from builders.paths import ROOT
from builders.sites import SLOT, scenario_of
from golden.pdors_cases import CASES
from skedge.core.model.latency import Exponential, Linear, Piecewise
from skedge.policies.okita.alg1 import OkitaParams
from skedge.policies.okita.sites import SiteJob, Sites
from skedge.simulate import run

FOLDER = ROOT / "docs" / "examples"
NAMES = ("okita", "pdors")


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The examples, importable."""
    monkeypatch.syspath_prepend(FOLDER)
    yield
    for name in NAMES:
        sys.modules.pop(name, None)


def draw(seed: int) -> tuple[Sites, list[SiteJob]]:
    """Three sites of which each holds every job's PS and a worker, and five jobs that compete for them."""
    rng = np.random.default_rng(seed)
    capacity, cost = rng.integers(4, 9, (3, 2)).astype(float), rng.integers(1, 9, (3, 3)) / 100
    cost = np.triu(cost, 1) + np.triu(cost, 1).T
    latencies = (Linear(3.0), Exponential(2.0, 0.25), Piecewise(5.0, 60.0, 3))
    jobs = [
        SiteJob(
            i, int(rng.integers(0, 3)), rate=float(rng.integers(2, 6)), chunk_mb=float(rng.integers(20, 60)),
            exchange_mb=float(rng.integers(30, 300)), data=tuple(rng.integers(4, 15, 3).tolist()),
            worker=tuple(rng.integers(1, 3, 2).tolist()), ps=(1, 1), latency=latencies[seed % 3],
        )
        for i in range(5)
    ]  # fmt: skip
    return Sites(capacity, cost), jobs


@pytest.mark.parametrize("seed", range(12))
def test_alg_1_of_okita_line_by_line_is_the_policy(seed: int) -> None:
    """Last slots and total cost are those of a simulated run, which is verified on its own."""
    from okita import okita

    sites, jobs = draw(seed)
    simulated = run(scenario_of(sites, jobs), "okita")
    assert simulated.verify() == []
    ends = okita(sites, jobs, OkitaParams())
    completions = dict(simulated.jobs.select("id", "completion").iter_rows())
    assert {str(i): last for i, (last, _) in ends.items()} == {i: end // SLOT - 1 for i, end in completions.items()}
    costs = simulated.metrics["cost_latency"] + simulated.metrics["cost_bandwidth"]
    assert sum(total for _, total in ends.values()) == pytest.approx(costs)


def test_alg_1_of_pd_ors_step_by_step_has_the_plans_worked_out_by_hand() -> None:
    """The first golden case: three jobs are admitted, the fourth finds the slots full; the dual is 114.57."""
    from pdors import pd_ors

    case = CASES["prices_spread_work"]
    plans, answers, ledger = pd_ors(case.jobs, case.jobs, np.array(case.capacity, float), case.horizon)
    expected = {i: outcome.payoff for i, outcome in enumerate(case.outcomes) if outcome is not None}
    assert {i: plan.payoff for i, plan in plans.items()} == pytest.approx(expected)
    assert answers[3].reason.startswith("no_room")
    assert sum(plan.payoff for plan in plans.values()) + ledger.value == pytest.approx(case.dual)


def test_the_example_of_okita_prints_a_total_that_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FOLDER / "okita.py"), run_name="__main__")
    *jobs, total = (float(cost) for cost in re.findall(r"cost ([\d.]+)", capsys.readouterr().out))
    assert len(jobs) == 4
    assert total == pytest.approx(sum(jobs), abs=0.2)


def test_the_example_of_pd_ors_shows_both_cases_and_a_rejection(capsys: pytest.CaptureFixture[str]) -> None:
    """Plans on one machine and on several; a job worth less than it costs; utility below the dual (weak duality)."""
    runpy.run_path(str(FOLDER / "pdors.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert {"internal", "external", "too_dear"} <= set(re.findall(r"\w+", out))
    admitted = [float(utility) for utility in re.findall(r"admitted: utility ([\d.]+)", out)]
    utility, dual = (float(x) for x in re.findall(r"[\d.]+", out.splitlines()[-1].replace("(10)", "")))
    assert utility == pytest.approx(sum(admitted), abs=0.01)
    assert utility < dual


@pytest.mark.parametrize("name", NAMES)
def test_the_function_of_a_paper_is_a_screenful(name: str) -> None:
    functions = [
        node for node in ast.parse((FOLDER / f"{name}.py").read_text("utf-8")).body if isinstance(node, ast.FunctionDef)
    ]
    assert [(node.end_lineno or 0) - node.lineno < 30 for node in functions] == [True]
