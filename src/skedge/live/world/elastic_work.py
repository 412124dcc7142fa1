"""Jobs in the live world that are no gangs: every worker starts when its own data have arrived.

A job has one team on each of its servers. A team is widened when more workers can start, narrowed when some are taken,
and trains those chunks of its server that have arrived. None of this interrupts a round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from skedge.core.colocation import colocated
from skedge.core.events import Allocate
from skedge.core.model.cluster import Placement
from skedge.core.model.time import NEVER
from skedge.live.coordinator.teams import Team

from .gang_table import GangTable, HeldWorkers, WorkerGroup, part, shares
from .uploads import Transport

if TYPE_CHECKING:
    from .ray_world import RayWorld


class ElasticWork:
    """The groups of workers of these jobs on the gangs' board, and their teams."""

    def __init__(self, world: RayWorld, table: GangTable, bring: Callable[[int, int, int, range], None]) -> None:
        self.world, self.table, self.bring = world, table, bring

    def allocate(self, order: Allocate) -> None:
        """Give a job the workers and the PS of an order; workers that it already has continue."""
        world, job = self.world, order.job
        zeta, last = colocated(world.scenario, order), self.table.held.get(job)
        if last is not None:
            self._log(job, last, preempted=True)
        trainer = world.trainers.paced(job, zeta)
        world.serve_from(job, order.ps)
        given = shares(int(world.scenario.jobs.chunks[job]), order.where)
        groups = self.table.groups[job] = self._groups(job, order.where, given)
        now = HeldWorkers(order.where, given, world.now(), bool(zeta), set(), groups=groups)
        self.table.held[job] = now
        for server in () if last is None else last.shares:
            if server not in given:
                trainer.take(self._number(job, server))
        for server in given:
            self._work(job, server)

    def _groups(self, job: int, where: Placement, given: dict[int, range]) -> dict[int, list[WorkerGroup]]:
        """Groups by server: first the workers that stay, earliest start first, then new ones in order of their data."""
        before, out = self.table.groups.get(job, {}), dict[int, list[WorkerGroup]]()
        for server, n in where:
            self.bring(job, server, n, given[server])
            stay = part(before.get(server, []), 0, n)
            begun = sum(group.workers for group in stay)
            out[server] = [*stay, *part(self.table.stock[job][server], begun, n)]
        self.table.settle(job, where)
        return out

    def uploaded(self, done: Transport) -> None:
        """Process a complete upload: workers that wait for it may start, and its chunks may be trained."""
        held = self.table.held.get(done.job)
        if held is not None and done.server in held.shares:
            self._work(done.job, done.server)

    def _work(self, job: int, server: int) -> None:
        """Let the workers whose data have arrived train the chunks stored on `server`."""
        world, held, width = self.world, self.table.held[job], 0
        for group in held.groups[server]:
            if not group.awaits:
                group.compute_from = min(group.compute_from, world.now())
                width += group.workers
        here = world.uploads.stored.get((job, server), set())
        chunks = tuple(chunk for chunk in held.shares[server] if chunk in here)
        number = self._number(job, server)
        if number not in held.teams:
            held.teams.append(number)
        if width and chunks:
            world.trainers[job].put(number, Team(server, chunks, width), world.now(), world.inbox.lag_s())
        else:
            world.trainers[job].take(number)

    def _number(self, job: int, server: int) -> int:
        """The number of a job's team on a server, above those of its chunks."""
        return int(self.world.scenario.jobs.chunks[job]) + 1 + server

    def close(self, job: int, *, preempted: bool) -> None:
        """End a job's allocation; its workers compute anew in the next one."""
        self._log(job, self.table.held.pop(job), preempted=preempted)
        for groups in self.table.groups[job].values():
            for group in groups:
                group.compute_from = NEVER

    def _log(self, job: int, held: HeldWorkers, *, preempted: bool) -> None:
        """Record the allocation: one row for the workers that started together on a server."""
        now = self.world.now()
        for server, groups in held.groups.items():
            rows = dict[int, int]()
            for group in groups:
                begin = min(max(group.compute_from, held.start), now)
                rows[begin] = rows.get(begin, 0) + group.workers
            for begin, n in rows.items():
                where = ((server, n),)
                self.world.log.gang(job, where, held.start, begin, now, zeta=held.colocated, preempted=preempted)
