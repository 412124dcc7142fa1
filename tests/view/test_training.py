"""The curves of a job in `skedge view`: derived by hand from a small record."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from skedge.core.errors import InputError
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.core.record.schedule import Schedule
from skedge.simulate import run
from skedge.testing import small_scenario
from skedge.view.training import MOST, block_means, training


def record(rows: list[tuple[int, int, int, float, bool]]) -> tuple[Scenario, Schedule]:
    """Runs of the first job as (from [s], until [s], workers, share of the work, preempted)."""
    scenario = small_scenario(0)
    whole = float(scenario.jobs.chunks[0] * scenario.jobs.minibatches[0])
    schedule = run(scenario, "srtf").schedule
    one = schedule.runs.head(1)
    made = [
        one.with_columns(
            job=pl.lit(0, pl.Int32),
            start=pl.lit(start * SECOND, pl.Int64), end=pl.lit(end * SECOND, pl.Int64),
            workers=pl.lit(workers, pl.Int32), work=pl.lit(share * whole), preempted=pl.lit(preempted),
        )
        for start, end, workers, share, preempted in rows
    ]  # fmt: skip
    return scenario, replace(schedule, runs=pl.concat([schedule.runs.head(0), *made]))


def test_workers_progress_and_pauses_are_those_of_the_runs() -> None:
    """2 workers, joined by 1; a pause from 30 s to 50 s; then 3."""
    scenario, schedule = record([(0, 30, 2, 0.4, True), (10, 30, 1, 0.1, True), (50, 60, 3, 0.5, False)])
    found = training(scenario, schedule, scenario.jobs.ids[0], {})
    assert found["workers"] == [(0, 2), (10, 3), (30, 0), (50, 3), (60, 0)]
    assert found["done"] == [(30, pytest.approx(0.5)), (60, pytest.approx(1))]
    assert found["pauses"] == [(30, 50)]
    assert (found["preempted"], found["losses"], found["accuracy"]) == (2, [], None)


def test_workers_that_are_handed_over_at_once_are_no_step() -> None:
    scenario, schedule = record([(0, 30, 2, 0.5, True), (30, 60, 2, 0.5, False)])
    assert training(scenario, schedule, scenario.jobs.ids[0], {})["workers"] == [(0, 2), (60, 0)]


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    rows = [(2 * i, 2 * i + 1, 1, 1 / 1000, True) for i in range(1000)]
    found = training(*record(rows), small_scenario(0).jobs.ids[0], {"losses": [(i, float(i)) for i in range(10_000)]})
    for name in ("workers", "done", "losses"):
        assert len(found[name]) == MOST
    assert (found["workers"][0], found["workers"][-1]) == ((0, 1), (1999, 0))
    assert len(found["pauses"]) == 999
    assert found["losses"][-1] == (9999, pytest.approx(9989.5))


def test_means_of_few_pairs_are_the_pairs() -> None:
    assert block_means([(1, 3.0), (2, 1.0)], 5) == [(1, 3), (2, 1)]
    assert block_means([(1, 3.0), (2, 1.0)], 1) == [(2, 2)]
    assert block_means([], 5) == []


def test_a_job_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(InputError, match="there is no such job"):
        training(*record([]), "nobody", {})
