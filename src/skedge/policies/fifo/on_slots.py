"""FIFO, by two rules of the literature.

``rule=strict`` (the common one): head of line by (arrival, id); a job starts when its whole demand is free, keeps its
workers to the end, and holds up the jobs behind it (``backfill=true``: they may start before it).

``rule=earliest_server`` (She et al.): every job goes, on arrival, to the one server that can start it earliest, at
t >= arrival + upload delay, with its workers and a PS free throughout; ties: lower delay, edge before cloud, server.
The reservation is a visible plan. A job that outlives its plan keeps its workers; the plan is marked as broken and
extended, and its followers on those workers shift. What a job does not use of its plan is free again.

On servers with resources, as PD-ORS runs it (``strict`` alone): a job's workers are drawn on its arrival, uniformly
from 1 to min(``most_workers``, F_i), with max(1, ceil(w / gamma_i)) PSs; they are placed round robin, from the server
after the last one used, each on the next one that has room, and stay to the end.

``rule=earliest_server`` counts the cloud as a server, as She et al. do; ``allow_cloud`` is for ``strict`` alone.

**Deviations.** D1: a job that can never fit on the edge goes to the cloud at once, or is rejected where there is none;
it holds up nobody (``earliest_server`` without a cloud: its demand shrinks to what the largest server holds). D2: the
upload of ``earliest_server`` starts on arrival, when the server is decided. D3: on servers with resources a job whose
workers the empty cluster does not hold shrinks to what it does; when nobody runs the round begins at the first server.

**Complexity.** ``strict``: O(1) per event and a placement per job, O(w H R) on H servers with R resources.
``earliest_server``: O(S L) per job, with L reservations open on a server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from skedge.core.errors import PolicyError
from skedge.core.events import CLOUD, Allocate, Event, Order, Reject, Reserve, Upload
from skedge.core.model import Cluster, Physics
from skedge.core.policy import View
from skedge.core.time import NEVER
from skedge.policies.common.resource_jobs import Tenants, pairs
from skedge.policies.common.round_robin import round_robin
from skedge.policies.gangs.base import GangParams, GangPolicy
from skedge.policies.okita.driver import SiteDriver, sites_of

from .at_sites import SiteFifo
from .free_profile import Profiles, earliest, reserve

if TYPE_CHECKING:
    from numpy.random import Generator


class FifoParams(GangParams):
    """Parameters of FIFO.

    Attributes
    ----------
    rule
        ``strict`` head of line, or ``earliest_server``.
    backfill
        With ``strict``: jobs behind a waiting one may start.
    most_workers
        On servers with resources: workers are drawn from 1 to this, or to the job's batch if that is less.
    """

    rule: Literal["strict", "earliest_server"] = "strict"
    backfill: bool = False
    most_workers: int = Field(30, ge=1)

    @model_validator(mode="after")
    def _no_idle_parameter(self) -> FifoParams:
        """Refuse a parameter that the rule does not look at."""
        idle = ("sticky", "placement", *(("backfill", "allow_cloud") if self.rule == "earliest_server" else ()))
        for name in idle:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} does nothing with rule={self.rule}; leave it out")
        return self


class Fifo(GangPolicy):
    """First in, first out."""

    name: ClassVar[str] = "fifo"
    needs: ClassVar[frozenset[str]] = frozenset({"typed slots, resources or sites"})
    Parameters = FifoParams

    @property
    def promises(self) -> dict[str, Any]:
        """Nobody is preempted; PSs by the ratio; where jobs go to a server on arrival, data are brought ahead."""
        ahead = self.params.rule == "earliest_server"
        return {"preempts": "never"} if ahead else {**super().promises, "preempts": "never", "ps": "ratio"}

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        self.stop_at_first = not (self.params.backfill or self.params.allow_cloud)
        super().start(cluster, physics, rng)
        self.profiles = Profiles(cluster)
        self.due: list[tuple[int, int, int, int]] = []
        self.planned: dict[int, tuple[int, int, int]] = {}
        self.unplanned: list[int] = []
        self.tenants, self.turn, self.drawn = Tenants(cluster), 0, dict[int, int]()
        self.at_sites = None
        if cluster.transfer_cost is not None:
            self.at_sites = SiteDriver(SiteFifo(sites_of(cluster), rng), physics)
        if cluster.resources and self.params.rule != "strict":
            raise PolicyError("fifo: rule=earliest_server goes with typed slots; these servers have resources")

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Start what the rule lets start."""
        if self.at_sites is not None:
            yield from self.at_sites.decide(event, view)
        elif self.cluster.resources:
            yield from self._on_resources(event, view)
        elif self.params.rule == "strict":
            yield from self._strict(event, view)
        else:
            yield from self._earliest_server(event, view)

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """What the policy saw of `job`."""
        if self.at_sites is not None:
            return self.at_sites.terms(job, view)
        if not self.cluster.resources:
            return super().terms(job, view)
        return {**self.tenants.terms(job, view), "workers_drawn": self.drawn.get(job)}

    # -- servers with resources ----------------------------------------------------------------------------------

    def _on_resources(self, event: Event, view: View) -> Iterator[Order]:
        yield from self.tenants.admit(event, view)
        for job in sorted(set(event.arrived) & set(self.tenants.active.tolist())):
            most = min(self.params.most_workers, int(view.column("batch")[job]))
            self.drawn[job] = self.tenants.fitting(job, int(self.rng.integers(1, most, endpoint=True)), view)
        for job in self.tenants.active.tolist():
            if view.workers[job] > 0:
                continue
            order = self._begin_on_resources(job, view)
            if order is not None:
                yield order
            elif not self.params.backfill:
                return

    def _begin_on_resources(self, job: int, view: View) -> Order | None:
        """All that `job` is to have, if there is room now."""
        turn = self.turn if view.workers.any() else 0
        worker, ps, ratio, _ = self.tenants.demands(np.array([job]), view)
        placed, turn = round_robin(worker[0], ps[0], self.drawn[job], float(ratio[0]), view.free.copy(), turn)
        if placed[0].sum() < self.drawn[job]:
            return None
        self.turn = turn
        return Allocate(job, pairs(placed[0]), pairs(placed[1]), "first_in_first_out")

    # -- strict --------------------------------------------------------------------------------------------------

    def _strict(self, event: Event, view: View) -> Iterator[Order]:
        yield from self.admit(event, view)
        queue = self.active[self.gang.running[self.active] == 0]
        if len(queue):
            verdict = self.choose(queue, view, free=view.free_workers)
            begun = self.carried(queue, verdict, queue[:0])
            yield from self.carry_out(begun, view, "first_in_first_out")

    # -- earliest server -----------------------------------------------------------------------------------------

    def _earliest_server(self, event: Event, view: View) -> Iterator[Order]:
        for job in event.left:
            self._give_back(job, view)
        for job in event.broken:
            if job in self.planned:  # else its server went out of service, and none is there to plan on
                yield from self._extend(job, view)
        again = self._homeless(event, view) if event.servers else []
        for job in (*again, *event.arrived):
            yield from self._reserve(job, view)
        yield from self._begin_due(view)

    def _begin_due(self, view: View) -> Iterator[Order]:
        """Start what is due, in order; behind a job that finds its workers still held, its followers wait."""
        self.due.sort()
        waiting = []
        blocked: set[tuple[int, int]] = set()
        for plan in self.due:
            start, job, server, k = plan
            place = server, int(view.column("worker_type")[job])
            order = None if start > view.now or place in blocked else self._begin(job, server, k, view)
            if order is not None:
                yield order
                continue
            waiting.append(plan)
            if start <= view.now:
                blocked.add(place)
        self.due = waiting

    def _homeless(self, event: Event, view: View) -> list[int]:
        """Jobs whose plan is void, their server being out of service, and those that found none to plan on."""
        void = {job for job, (server, _, _) in self.planned.items() if not view.in_service[server]}
        again = sorted(void | set(event.interrupted) | set(self.unplanned))
        for job in again:
            self._give_back(job, view)
        self.unplanned = []
        return again

    def _give_back(self, job: int, view: View) -> None:
        """The workers that a job no longer needs are free for later plans."""
        if job not in self.planned:
            self.unplanned = [other for other in self.unplanned if other != job]
            return
        server, k, end = self.planned.pop(job)
        self.due = [plan for plan in self.due if plan[1] != job]
        if server != self.cluster.cloud and end > view.now:
            self._book(job, server, -k, view.now, end, view)

    def _extend(self, job: int, view: View) -> Iterator[Order]:
        """A job has outlived its plan: plan it on, for as long as it was to take at first."""
        server, k, _ = self.planned[job]
        zeta = int(server == self.cluster.cloud or self.physics.colocation == "one_server")
        end = view.now + self._duration(job, k, zeta, view)
        self.planned[job] = server, k, end
        if server != self.cluster.cloud:
            self._book(job, server, k, view.now, end, view)
        yield Reserve(job, server, k, view.now, end, "extended")

    def _book(self, job: int, server: int, k: int, start: int, end: int, view: View) -> None:
        """Take k workers and a PS of a server in the profiles; give them back where k is negative."""
        kind, ps_kind = int(view.column("worker_type")[job]), int(view.column("ps_type")[job])
        self.profiles.make_room()
        reserve(self.profiles.state, server, kind, ps_kind, k, 1 if k > 0 else -1, start, end, view.now)

    def _reserve(self, job: int, view: View) -> Iterator[Order]:
        kind, ps_kind = int(view.column("worker_type")[job]), int(view.column("ps_type")[job])
        cloud, k = self.cluster.cloud, int(view.column("workers")[job])
        largest = self._largest(kind, ps_kind)
        if cloud is None:
            k = min(k, largest)
        if k == 0:
            yield Reject(job, "never_fits: no server has a worker and a PS of its types, and there is no cloud")
            return
        delays = view.upload_delays(job)
        server, start, duration = -1, 0, 0
        if k <= largest:
            zeta = int(self.physics.colocation == "one_server")
            duration = self._duration(job, k, zeta, view)
            ready = np.where(view.in_service, view.now + delays, NEVER)
            server, start = earliest(self.profiles.state, kind, ps_kind, k, duration, ready)
        cloud = cloud if self._has_cloud(view) else None
        if server < 0 and cloud is None:
            self.unplanned.append(job)
            return
        if cloud is not None and (server < 0 or (view.now + delays[cloud], delays[cloud]) < (start, delays[server])):
            server, start, duration = cloud, int(view.now + delays[cloud]), self._duration(job, k, 1, view)
        elif server >= 0:
            self._book(job, server, k, start, start + duration, view)
        self.planned[job] = server, k, start + duration
        self.due.append((start, job, server, k))
        yield Upload(job, ((server, k),))
        yield Reserve(job, server, k, start, start + duration, "earliest_server")

    def _largest(self, kind: int, ps_kind: int) -> int:
        if kind < 0 or ps_kind < 0:
            return 0
        with_ps = self.cluster.ps[:, ps_kind] > 0
        return int(self.cluster.workers[with_ps, kind].max(initial=0))

    def _duration(self, job: int, k: int, zeta: int, view: View) -> int:
        step = self.physics.step
        exact = -(-int(view.work[job, zeta]) // k)
        return -(-exact // step) * step

    def _begin(self, job: int, server: int, k: int, view: View) -> Allocate | None:
        """Start a due job on its server, unless another is late there."""
        if server == self.cluster.cloud:
            return Allocate(job, ((server, k),), CLOUD, "earliest_server")
        kind, ps_kind = int(view.column("worker_type")[job]), int(view.column("ps_type")[job])
        slots = self.ps_slots[ps_kind]
        free = slots[(view.ps_job[slots] < 0) & (self.cluster.ps_server[slots] == server)]
        if len(free) == 0 or view.free_workers[server, kind] < k:
            return None
        return Allocate(job, ((server, k),), int(free[0]), "earliest_server")
