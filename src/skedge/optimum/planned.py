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

from .types import PLAN_NAME


class PlannedChunks(AOnline):
    """Dispatches every job on arrival as planned; clairvoyant, so not registered as a policy.

    Parameters
    ----------
    lanes_of, rank_of
        Lane of every chunk, and rank, by job.
    """

    name: ClassVar[str] = PLAN_NAME

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
        # a plan has no alpha: the columns of the decision that would state it are empty
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

    name: ClassVar[str] = PLAN_NAME

    def __init__(self, plan: Mapping[int, PlannedGang] | None = None) -> None:
        super().__init__()
        self.plan = dict(plan or {})
        self.waiting: dict[int, PlannedGang] = {}

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Upload what arrives; start what is due."""
        for job in event.arrived:
            self.waiting[job] = gang = self.plan[job]
            yield Upload(job, gang.placement)
        # a list, as the loop takes entries out of the dictionary
        for job, gang in [planned for planned in self.waiting.items() if planned[1].start <= view.now]:
            del self.waiting[job]
            yield Allocate(job, gang.placement, ps_in(self._ps(job, gang, view)), "planned")
        if self.waiting:
            yield WakeAt(min(gang.start for gang in self.waiting.values()))

    def _ps(self, job: int, gang: PlannedGang, view: View) -> int:
        """A free PS slot of the job's type on the planned server."""
        # plans name servers, orders name PS slots; which of a server's free slots makes no difference
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

    name: ClassVar[str] = PLAN_NAME
    needs: ClassVar[frozenset[Need]] = frozenset({"resources"})
    unplanned: ClassVar[str] = "not planned: its utility is not worth what it takes from others"
    """The reason for rejecting a job."""

    def __init__(self, plan: Mapping[int, Slots] | None = None) -> None:
        super().__init__()
        self.plan = dict(plan or {})
        self.running: dict[int, tuple[Placement, Placement]] = {}
        self.arrived_jobs: list[int] = []

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Suspend all jobs whose placement changes with this slot, then allocate."""
        for job in event.left:
            self.running.pop(job, None)
            self.plan.pop(job, None)
        for job in event.arrived:
            if job in self.plan:
                self.arrived_jobs.append(job)
            else:
                yield Reject(job, self.unplanned)
        self.arrived_jobs = [job for job in self.arrived_jobs if job in self.plan]
        slot = view.now // self.physics.slot
        yield from self._change(slot, view)
        # the slot after a job's last one counts, too: there its placement ends
        later = [t for job in self.arrived_jobs for t in (*self.plan[job], max(self.plan[job]) + 1) if t > slot]
        if later:
            yield WakeAt(min(later) * self.physics.slot)

    def _change(self, slot: int, view: View) -> Iterator[Order]:  # noqa: ARG002 - for plans that also move data
        planned = {job: self.plan[job].get(slot) for job in self.arrived_jobs}
        # all suspensions first: an allocation may need what another job gives up
        for job in [job for job, placement in self.running.items() if planned.get(job) != placement]:
            del self.running[job]
            yield Suspend(job, "planned")
        for job, placement in planned.items():
            if placement is not None and job not in self.running:
                self.running[job] = placement
                yield Allocate(job, *placement, "planned")
