"""Gang policies that rank in Python: what they forget, and that no loop of their base class runs in their place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from builders.failing import broken, fail, failing, job
from skedge.core.events import Event, Order
from skedge.core.model.cluster import Server
from skedge.core.model.time import SECOND
from skedge.core.policy import View
from skedge.policies.gangs.base import GangPolicy
from skedge.policies.gangs.srtf import Srtf
from skedge.simulate import run


class InOrder(GangPolicy):
    """By number; with `sticky` a job resumes only in its last place."""

    name: ClassVar[str] = "in_order"

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        yield from self.admit(event, view)
        yield from self.fill(self.active, view, "in_order")


class Backfill(InOrder):
    """Who waits begins where there is room; only when a job completes may others be preempted, last first."""

    name: ClassVar[str] = "backfill"

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        yield from self.admit(event, view)
        if event.finished:
            yield from self.fill(self.active[::-1].copy(), view, "last_first")
        else:
            waits = self.active[view.workers[self.active] == 0]
            yield from self.fill(waits, view, "backfill", running_stay=True)


class LastFirst(Srtf):
    """SRTF's class with a decision of its own."""

    name: ClassVar[str] = "last_first"

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        yield from self.admit(event, view)
        yield from self.fill(self.active[::-1].copy(), view, "last_first")


def servers(n: int) -> list[Server]:
    return [Server(f"e{i}", capacity={"worker:a": 1, "ps:p": 1}) for i in range(n)]


def test_a_job_that_lost_its_server_has_no_place_to_return_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `sticky` it would wait for the repair at 90, with a server free beside it."""
    fail(monkeypatch, (10, 0, True), (90, 0, False))
    done = run(
        failing(servers(2), [job("j", 1, minibatches=20, upload_s={"e0": 0.0, "e1": 1.0})]), InOrder(sticky=True)
    )
    assert broken(done) == []
    assert done.schedule.runs["server"].to_list() == ["e0", "e1"]


def test_a_policy_may_let_running_jobs_stay_at_some_events_and_not_at_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs that it then preempts are those that run, whenever they began."""
    fail(monkeypatch, (10_000, 0, True))
    jobs = [job(f"j{n}", 1, minibatches=10 + 7 * n, arrival_s=float(n)) for n in range(6)]
    done = run(failing(servers(3), jobs), Backfill())
    assert broken(done) == []
    assert (done.schedule.decisions["verb"] == "suspend").sum() > 0
    assert done.schedule.jobs["completion"].null_count() == 0


def test_a_loop_is_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subclass decides itself, however many jobs there are."""
    monkeypatch.setattr("skedge.simulate.LARGE", 0)
    monkeypatch.setattr("skedge.simulate.SMALL", 0)
    fail(monkeypatch, (10_000, 0, True))
    jobs = [job(f"j{n}", 1, minibatches=10, arrival_s=float(n)) for n in range(3)]
    done = run(failing(servers(1), jobs), LastFirst())
    assert set(done.schedule.decisions["reason"].cast(str)) >= {"last_first"}
    assert done.schedule.jobs["completion"].max() == 30 * SECOND
