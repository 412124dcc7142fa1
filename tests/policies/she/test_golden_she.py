from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from builders.product import Run, play
from golden.she_cases import CASES, HOUR, Case
from reference.batch import Setting, a_online
from skedge.core.registry import make_policy

all_cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def product(case: Case) -> Run:
    """Playing a run verifies it."""
    return play(case.scenario, make_policy(case.policy))


def of_job(table: pl.DataFrame, job: int) -> list[dict[str, Any]]:
    return table.filter(pl.col("job") == job).rows(named=True)


@all_cases
def test_jobs_run_where_and_when_a_hand_put_them(case: Case) -> None:
    """Workers by server, the PS's server, start, completion, xi."""
    run = product(case)
    ids, servers = run.scenario.jobs.ids, run.scenario.cluster.server_ids
    for name, expected in case.jobs.items():
        runs = of_job(run.schedule.runs, ids.index(name))
        if expected is None:
            assert runs == []
            assert of_job(run.schedule.jobs, ids.index(name))[0]["reason"].startswith("never_fits")
            continue
        assert {row["server"]: row["workers"] for row in runs} == {servers[s]: n for s, n in enumerate(expected.y) if n}
        assert {(row["start"], row["compute_from"], row["end"]) for row in runs} == {
            (expected.start * HOUR, expected.start * HOUR, expected.completion * HOUR)
        }
        assert {row["colocated"] for row in runs} == {expected.kind == "C"}
        assert [row["server"] for row in of_job(run.schedule.ps, ids.index(name))] == [servers[expected.ps_server]]


@all_cases
def test_batches_offer_and_accept_whom_a_hand_did(case: Case) -> None:
    """J_i in order with eta; what is accepted says which COST; the plan is on record."""
    run = product(case)
    ids, decisions = run.scenario.jobs.ids, run.schedule.decisions
    said = decisions.filter(pl.col("verb").is_in(["allocate", "postpone"])).unique(
        ["time", "job"], keep="first", maintain_order=True
    )
    batches: dict[int, dict[str, float]] = {}
    for row in said.rows(named=True):
        eta = max(0.0, row["value"] or 0.0)
        batches.setdefault(row["time"] // HOUR, {})[ids[row["job"]]] = eta
        expected = case.jobs[ids[row["job"]]]
        if row["verb"] == "allocate":
            assert expected is not None
            assert row["reason"] == {"C": "one_server", "D": "spread"}[expected.kind]
            assert 1 - eta == pytest.approx(expected.cost, abs=1e-9)
            assert row["time"] == 2 ** (expected.batch - 1) * HOUR
    assert [(tau, list(etas)) for tau, etas in batches.items()] == [(tau, list(etas)) for tau, etas in case.batches]
    for tau, etas in case.batches:
        assert batches[tau] == pytest.approx(etas, abs=1e-9)


@all_cases
def test_the_total_completion_time_is_that_of_the_hand(case: Case) -> None:
    jct = product(case).schedule.jobs["jct"].drop_nulls()
    assert jct.sum() == case.total_jct * HOUR


@all_cases
def test_the_plain_path_gives_the_same(case: Case) -> None:
    """The oracle that the property tests use, on the hand-walked cases."""
    given = dict(part.split("=") for part in case.policy.partition(":")[2].split(","))
    setting = Setting(T=int(given["T"]), F1=float(given.get("F1", 1)), F2=float(given.get("F2", 1)))
    decisions, never = a_online(case.scenario, setting)
    ids = case.scenario.jobs.ids
    assert {ids[job] for job in never} == {name for name, expected in case.jobs.items() if expected is None}
    assert [(d.tau, ids[d.job], pytest.approx(d.eta, abs=1e-9)) for d in decisions] == [
        (tau, name, eta) for tau, etas in case.batches for name, eta in etas.items()
    ]
    for d in decisions:
        expected = case.jobs[ids[d.job]]
        if d.plan is not None:
            assert expected is not None
            assert (d.plan.kind, d.plan.y, d.plan.ps_server) == (expected.kind, expected.y, expected.ps_server)
            assert (d.tau, d.tau + d.plan.d) == (expected.start, expected.completion)


def test_the_prices_on_record_are_those_of_the_hand() -> None:
    """Case "prices": after job 1 0.05 in slots 4-7; after job 2 0.65 for workers and 0.2 for PSs in slot 4."""
    run = product(CASES["prices"])
    ids = run.scenario.jobs.ids
    rows = [
        (ids[r["job"]], r["resource"], r["from"] // HOUR, r["to"] // HOUR, r["price"])
        for r in run.schedule.prices.filter(pl.col("made_at") == 4 * HOUR).rows(named=True)
    ]
    expected = [
        ("1", "worker:0", 4, 8, 0.05), ("1", "ps:0", 4, 8, 0.05),
        ("2", "worker:0", 4, 5, 0.65), ("2", "ps:0", 4, 5, 0.2),
        ("4", "worker:0", 4, 5, 2.0), ("4", "worker:0", 5, 6, 0.2),
        ("4", "ps:0", 4, 5, 0.65), ("4", "ps:0", 5, 6, 0.2),
    ]  # fmt: skip
    assert [row[:4] for row in rows] == [row[:4] for row in expected]
    assert [row[4] for row in rows] == pytest.approx([row[4] for row in expected])
