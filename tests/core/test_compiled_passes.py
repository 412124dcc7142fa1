"""Compiled passes of the gang path against their clear forms, on records with and without planted changes."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.corruptions import corrupt
from builders.thorough import thorough_except
from reference import elastic
from reference.supplies import supplies as supplies_by_columns
from skedge.analysis.columns import Columns, columns, elastic_jobs
from skedge.analysis.supplies import supplies
from skedge.analysis.verify.elastic import check_begins
from skedge.analysis.verify.names import known_rows
from skedge.analysis.verify.rules import Findings
from skedge.core.engine.ledger import DEMAND
from skedge.core.model.cluster import Ints
from skedge.policies.gangs.preemptive import merged
from skedge.policies.gangs.srtf import rank
from skedge.recorded_run import Run
from skedge.simulate import run
from skedge.testing import small_scenario

bounded = settings(max_examples=200, deadline=None, derandomize=True, database=None)
TIMES = st.lists(st.integers(0, 6), max_size=12)


def cells(*policies: str) -> list[Any]:
    """Each policy with both settings of `data`, one of which is thorough."""
    data = ("kept", "last_place")
    return thorough_except(zip(policies, cycle(data), strict=False), product(policies, data))


def records(policy: str, data: str) -> list[Run]:
    """Runs on three small scenarios where data are `kept`, or only in the last place."""
    made = (small_scenario(seed) for seed in range(3))
    return [run(replace(s, physics=replace(s.physics, data=data)), policy) for s in made]


def with_changes(of: Run, count: int) -> list[Columns]:
    """The record, and `count` corruptions of it, without the rows that are impossible."""
    rng, found = np.random.default_rng(3), [columns(of.scenario, of.schedule)]
    while len(found) <= count:
        corrupted = corrupt(of, rng, 2)
        if corrupted is not None:
            found.append(known_rows(of.scenario, corrupted.schedule, Findings(of.scenario, 1)))
    return found


@pytest.mark.parametrize(("policy", "data"), cells("preemptive", "drf"))
def test_workers_that_begin_one_by_one_are_checked_in_one_pass(policy: str, data: str) -> None:
    """The same violations as following every job, worker by worker; some changes are found."""
    seen = 0
    for of in records(policy, data):
        for c in with_changes(of, 60):
            passed, followed = Findings(of.scenario, 50), Findings(of.scenario, 50)
            check_begins(c, passed, supplies(c), 0)
            each = elastic_jobs(c)
            runs = c.gangs.frame.with_columns(server=c.gangs["server"])
            runs = runs.filter(each[c.gangs["job"]]).sort("job", "start", "server", "compute_from")
            brought = supplies(c)
            elastic.follow_jobs(c, followed, runs, brought.filter(each[brought["job"].to_numpy()]), 0)
            assert passed.all() == followed.all()
            seen += len(followed.all()) > 0
    assert seen > 10


@pytest.mark.parametrize(("policy", "data"), cells("preemptive", "batch", "srtf"))
def test_supplies_are_those_of_whole_columns(policy: str, data: str) -> None:
    """Row by row, also where a record is changed."""
    for of in records(policy, data):
        for c in with_changes(of, 25):
            plain = supplies_by_columns(c)
            assert supplies(c).select(plain.columns).cast(dict(plain.schema)).equals(plain)


@bounded
@given(TIMES, TIMES)
def test_a_new_rank_is_merged_into_the_others(old: list[int], new: list[int]) -> None:
    """Jobs that keep their rank and jobs ranked anew; stale ones of the old order drop out."""
    size = len(old) + len(new)
    estimate, stale = np.array([*old, *new], np.int64), np.zeros(size, np.int64)
    stale[: len(old) : 3], stale[len(old) :] = 1, 1
    before, anew = _sorted(np.arange(len(old)), estimate), _sorted(np.arange(len(old), size), estimate)
    kept = [job for job in range(size) if job >= len(old) or not stale[job]]
    out = np.empty(size, np.int64)
    n = merged(before, anew, estimate, stale, out)
    assert out[:n].tolist() == _sorted(np.array(kept, np.int64), estimate).tolist()


@bounded
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), max_size=12), st.data())
def test_srtf_sorts_its_last_order(jobs: list[tuple[int, int]], data: st.DataObject) -> None:
    """From event to event jobs come and go, and what is left of them changes: always by (remaining time, job)."""
    table, remaining = np.zeros((len(jobs), DEMAND + 1), np.int64), np.full(len(jobs), -1, np.int64)
    workers = table[:, DEMAND] = np.array([k for _, k in jobs], np.int64)
    order = np.empty(0, np.int64)
    for _ in range(3):
        active = np.array(sorted(data.draw(st.sets(st.integers(0, len(jobs) - 1)))) if jobs else [], np.int64)
        left = np.array([jobs[job][0] + data.draw(st.integers(0, 5)) for job in active], np.int64)
        before, order = order, np.empty_like(active)
        rank(before, active, left, table, remaining, order)
        expected = sorted(zip((-(-left // workers[active])).tolist(), active.tolist(), strict=True))
        assert order.tolist() == [job for _, job in expected]


def _sorted(jobs: Ints, by: Ints) -> Ints:
    return jobs[by[jobs].argsort(kind="stable")]
