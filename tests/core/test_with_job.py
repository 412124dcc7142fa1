"""A scenario that a job is added to is the scenario made of all jobs at once, and adding one costs what one costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import pytest

import skedge.core.model.scenario
from builders.fields import KINDS, on_slots
from skedge.core.errors import ScenarioError
from skedge.core.model.cluster import Cluster, Job, job_table
from skedge.core.model.scenario import Jobs, Scenario


def jobs_of(parts: dict[str, Any]) -> list[Job]:
    """Five jobs; what an optional field says differs, and is missing in one."""
    first: Job = parts["job"]
    jobs = [replace(first, id=f"j{i}", arrival_s=float(i), minibatches=2 + i) for i in range(5)]
    jobs[2] = replace(jobs[2], upload_s={}, utility=None, max_lag=1 if parts["cost"] is None else None)
    jobs[3] = replace(jobs[3], internal_mbps=2000.0)
    return jobs if parts["cost"] is None and not parts["physics"].slotted else [replace(j, max_lag=None) for j in jobs]


def at_once(parts: dict[str, Any], jobs: list[Job]) -> Scenario:
    """The scenario of these jobs."""
    cluster = Cluster([parts["server"]], parts["cost"])
    table, given = job_table(jobs)
    physics = replace(parts["physics"], checkpoint_overhead=0, estimate_error=0 if parts["cost"] is not None else 0.5)
    return Scenario(cluster, Jobs(table, cluster, given), physics, 7, "at once")


def derived(of: type) -> list[str]:
    """What a class computes once."""
    return [name for name, value in vars(of).items() if isinstance(value, cached_property)]


def assert_equal(is_so: Any, wanted: Any) -> None:
    if isinstance(wanted, pl.DataFrame):
        assert is_so.equals(wanted, null_equal=True)
        assert is_so.columns == wanted.columns
    elif isinstance(wanted, tuple):
        for mine, other in zip(is_so, wanted, strict=True):
            assert_equal(mine, other)
    elif isinstance(wanted, np.ndarray):
        assert is_so.dtype == wanted.dtype
        assert np.array_equal(is_so, wanted)
    else:
        assert is_so == wanted


@pytest.mark.parametrize("derive", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_jobs_added_one_by_one_are_the_jobs_at_once(kind: Callable[[], dict[str, Any]], derive: bool) -> None:
    """Also what was derived before they were added."""
    parts = kind()
    jobs = jobs_of(parts)
    grown = at_once(parts, [])
    for job in jobs:
        for name in derived(Scenario) if derive else ():
            getattr(grown, name)
        for name in derived(Jobs) if derive else ():
            getattr(grown.jobs, name)
        grown = grown.with_job(job)
    whole = at_once(parts, jobs)
    for name in derived(Scenario):
        assert_equal(getattr(grown, name), getattr(whole, name))
    for name in sorted(vars(whole.jobs).keys() | set(derived(Jobs))):
        assert_equal(getattr(grown.jobs, name), getattr(whole.jobs, name))


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_was_checked_before_its_arrival_is_that_of_its_arrival(kind: Callable[[], dict[str, Any]]) -> None:
    parts = kind()
    first, second, *_ = jobs_of(parts)
    before = at_once(parts, [first])
    alone = before.of_rows(*job_table([replace(second, arrival_s=1e6)]))
    for name in derived(Scenario):
        getattr(alone, name)
    grown, whole = before.followed_by(alone.arriving(second.arrival_s)), at_once(parts, [first, second])
    for name in derived(Scenario):
        assert_equal(getattr(grown, name), getattr(whole, name))
    for name in sorted(vars(whole.jobs).keys() | set(derived(Jobs))):
        assert_equal(getattr(grown.jobs, name), getattr(whole.jobs, name))


@pytest.mark.parametrize("derive", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_jobs_taken_one_by_one_of_all_are_those_at_once(kind: Callable[[], dict[str, Any]], derive: bool) -> None:
    """A restarted service checks the jobs of its journal together and takes them in one by one."""
    parts = kind()
    jobs = jobs_of(parts)
    whole, grown = at_once(parts, jobs), at_once(parts, [])
    for count in range(1, len(jobs) + 1):
        for name in derived(Scenario) if derive else ():
            getattr(grown, name)
        grown = grown.with_next_job(whole)
        assert list(grown.jobs.index) == [job.id for job in jobs[:count]]
        wanted = at_once(parts, jobs[:count])
        for name in set(derived(Scenario)) - {"delays"}:  # of which `given` is empty until a job gives one
            assert_equal(getattr(grown, name), getattr(wanted, name))
    for name in derived(Scenario):
        assert_equal(getattr(grown, name), getattr(whole, name))
    for name in sorted(vars(whole.jobs).keys() | set(derived(Jobs))):
        assert_equal(getattr(grown.jobs, name), getattr(whole.jobs, name))


def test_an_added_job_is_derived_and_the_others_are_not_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = on_slots()
    scenario = at_once(parts, [replace(parts["job"], id=f"j{i}", arrival_s=float(i)) for i in range(50)])
    assert len(scenario.delays.key) == 50
    hashed: list[str] = []
    of_text = skedge.core.model.scenario._hash
    monkeypatch.setattr(skedge.core.model.scenario, "_hash", lambda text: hashed.append(text) or of_text(text))
    assert len(scenario.with_job(replace(parts["job"], id="new", arrival_s=50.0)).delays.key) == 51
    assert [text for text in hashed if text.startswith("upload")] == ["upload:7:new"]


def test_a_job_that_comes_before_others_or_under_their_name_is_refused() -> None:
    parts = on_slots()
    scenario = at_once(parts, jobs_of(parts))
    with pytest.raises(ScenarioError, match=r"job 'new': arrival_s = 4\.0; it must be after all other jobs'"):
        scenario.with_job(replace(parts["job"], id="new", arrival_s=4.0))
    with pytest.raises(ScenarioError, match="job 'j1': id = 'j1'; it must be unique; it is used twice"):
        scenario.with_job(replace(parts["job"], id="j1", arrival_s=9.0))
