"""FIFO, by two rules of the literature.

``rule=strict`` (JSAC'22): head of line by (arrival, id); a job starts when its whole demand is free, keeps its workers
to the end, and holds up the jobs behind it (``backfill=true``: they may start before it).

``rule=earliest_server`` (She et al.): every job goes, on arrival, to the one server that can start it earliest, at
t >= arrival + upload delay, with its workers and a PS free throughout; ties: lower delay, edge before cloud, server.
The reservation is a visible plan. If a job departs from its plan (its true duration is longer), it keeps its workers,
is marked as broken, and its followers on that server shift.

**Deviations.** D1: a job that can never fit on the edge goes to the cloud at once, or is rejected where there is none;
it holds up nobody (``earliest_server`` without a cloud: its demand shrinks to what the largest server holds). D2: the
upload of ``earliest_server`` starts on arrival, when the server is decided.

**Complexity.** ``strict``: O(1) per event and a placement per job. ``earliest_server``: O(S L) per job, with L
reservations open on a server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from numpy.random import Generator

from skedge.core.events import CLOUD, Allocate, Event, Order, Reject, Reserve, Upload
from skedge.core.model import Cluster, Physics
from skedge.core.policy import View

from .gang import GangParams, GangPolicy
from .profile import Profiles, earliest, reserve


class FifoParams(GangParams):
    """Parameters of FIFO.

    Attributes
    ----------
    rule
        ``strict`` head of line, or ``earliest_server``.
    backfill
        With ``strict``: jobs behind a waiting one may start.
    """

    rule: Literal["strict", "earliest_server"] = "strict"
    backfill: bool = False


class Fifo(GangPolicy):
    """First in, first out."""

    name: ClassVar[str] = "fifo"
    Parameters = FifoParams

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        self.stop_at_first = not self.params.backfill
        super().start(cluster, physics, rng)
        self.profiles = Profiles(cluster)
        self.due: list[tuple[int, int, int, int]] = []

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Start what the rule lets start."""
        if self.params.rule == "strict":
            yield from self._strict(event, view)
        else:
            yield from self._earliest_server(event, view)

    # -- strict --------------------------------------------------------------------------------------------------

    def _strict(self, event: Event, view: View) -> Iterator[Order]:
        yield from self.admit(event, view)
        queue = self.active[self.gang.running[self.active] == 0]
        if len(queue):
            chosen = self.choose(queue, view, free=view.free_workers)
            yield from self.carry_out(chosen, view, "first_in_first_out")

    # -- earliest server -----------------------------------------------------------------------------------------

    def _earliest_server(self, event: Event, view: View) -> Iterator[Order]:
        for job in event.arrived:
            yield from self._reserve(job, view)
        self.due.sort()
        waiting = []
        blocked: set[int] = set()
        for plan in self.due:
            start, job, server, k = plan
            order = None if start > view.now or server in blocked else self._begin(job, server, k, view)
            if order is None:
                blocked.add(server) if start <= view.now else None
                waiting.append(plan)
            else:
                yield order
        self.due = waiting

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
            server, start = earliest(self.profiles.state, kind, ps_kind, k, duration, view.now + delays)
        if cloud is not None and (server < 0 or (view.now + delays[cloud], delays[cloud]) < (start, delays[server])):
            server, start, duration = cloud, int(view.now + delays[cloud]), self._duration(job, k, 1, view)
        elif server >= 0:
            self.profiles.make_room()
            reserve(self.profiles.state, server, kind, ps_kind, k, start, start + duration, view.now)
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
