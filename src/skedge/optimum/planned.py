"""Policies that carry out plans as runs: chunks with PSs by A_ps, gangs, placements by slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from skedge.core.errors import PolicyError
from skedge.core.events import CLOUD, Allocate, Dispatch, Event, Order, Reject, Suspend, Upload, WakeAt, ps_in
from skedge.core.model.cluster import Ints, Placement
from skedge.core.policy import BasePolicy, Guarantees, LaneRule, Need, View
from skedge.optimum.gangs.model import PlannedGang
from skedge.optimum.utility.milp import Slots
from skedge.policies.aonline.policy import AOnline

from .types import PLANNED


class PlannedChunks(AOnline):
    """Dispatches every job on arrival as planned; clairvoyant, so not registered as a policy.

    Parameters
    ----------
    lanes_of, rank_of
        Lane of every chunk, and rank, by job.
    """

    name: ClassVar[str] = PLANNED

    def __init__(self, lanes_of: Mapping[int, Ints] | None = None, rank_of: Mapping[int, int] | None = None) -> None:
        super().__init__()
        self.lanes_of, self.rank_of = dict(lanes_of or {}), dict(rank_of or {})

    @property
    def lanes(self) -> LaneRule:
        """Lanes preempt; the ranks of the jobs are the plan's."""
        return LaneRule(rank="custom")

    @property
    def guarantees(self) -> Guarantees:
        """A plan has no alpha."""
        return Guarantees(ps="edge_first")

    def _dispatch(self, job: int, lost: tuple[int, ...] | None, view: View) -> Dispatch:  # noqa: ARG002
        lane = self.lanes_of[job]
        unknown = np.full(len(lane), np.nan)
        return Dispatch(job, lane, self.rank_of[job], unknown, np.zeros(len(lane), np.int64), "planned")


class PlannedGangs(BasePolicy):
    """Gives every job its planned gang at the planned time; its data are uploaded on arrival.

    Parameters
    ----------
    plan
        By job.
    """

    name: ClassVar[str] = PLANNED

    def __init__(self, plan: Mapping[int, PlannedGang] | None = None) -> None:
        super().__init__()
        self.plan = dict(plan or {})
        self.waiting: dict[int, PlannedGang] = {}

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Upload what arrives; start what is due."""
        for job in event.arrived:
            self.waiting[job] = gang = self.plan[job]
            yield Upload(job, gang.where)
        for job, gang in [due for due in self.waiting.items() if due[1].start <= view.now]:
            del self.waiting[job]
            yield Allocate(job, gang.where, ps_in(self._ps(job, gang, view)), "planned")
        if self.waiting:
            yield WakeAt(min(gang.start for gang in self.waiting.values()))

    def _ps(self, job: int, gang: PlannedGang, view: View) -> int:
        """A free PS slot of the job's type on the planned server."""
        if gang.ps == CLOUD:
            return CLOUD
        kind, cluster = int(view.jobs.ps_type[job]), self.cluster
        free = (cluster.ps_server == gang.ps) & (cluster.ps_type == kind) & (view.ps_job < 0)
        if not free.any():
            raise PolicyError(f"job {view.job_id(job)!r}: its PS is planned where none is free")
        return int(np.argmax(free))


class PlannedPlacements(BasePolicy):
    """Gives every job the workers and PSs planned for each slot; rejects jobs without a plan.

    Parameters
    ----------
    plan
        By job: workers and PSs by slot.
    """

    name: ClassVar[str] = PLANNED
    needs: ClassVar[frozenset[Need]] = frozenset({"resources"})

    def __init__(self, plan: Mapping[int, Slots] | None = None) -> None:
        super().__init__()
        self.plan = dict(plan or {})
        self.running: dict[int, tuple[Placement, Placement]] = {}
        self.seen: list[int] = []

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Suspend all jobs whose placement changes with this slot, then allocate."""
        for job in event.left:
            self.running.pop(job, None)
            self.plan.pop(job, None)
        for job in event.arrived:
            if job in self.plan:
                self.seen.append(job)
            else:
                yield Reject(job, "not planned: its utility is not worth what it takes from others")
        arrived = [job for job in self.seen if job in self.plan]
        slot = view.now // self.physics.slot
        due = {job: self.plan[job].get(slot) for job in arrived}
        for job in [job for job, at in self.running.items() if due.get(job) != at]:
            del self.running[job]
            yield Suspend(job, "planned")
        for job, at in due.items():
            if at is not None and job not in self.running:
                self.running[job] = at
                yield Allocate(job, *at, "planned")
        later = [t for job in arrived for t in (*self.plan[job], max(self.plan[job]) + 1) if t > slot]
        if later:
            yield WakeAt(min(later) * self.physics.slot)
