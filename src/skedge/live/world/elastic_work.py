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
    """The groups of workers of these jobs in the gangs' table, and their teams."""

    def __init__(self, world: RayWorld, table: GangTable, bring: Callable[[int, int, int, range], None]) -> None:
        self.world, self.table, self.bring = world, table, bring

    def allocate(self, order: Allocate) -> None:
        """Give a job the workers and the PS of an order; workers that it already has continue."""
        world, job = self.world, order.job
        zeta, last = colocated(world.scenario, order), self.table.held.get(job)
        if last is not None:
            self._log(job, last, preempted=True)  # before its groups are replaced
        trainer = world.trainers.paced(job, zeta)
        world.serve_from(job, order.ps)
        chunk_shares = shares(int(world.scenario.jobs.chunks[job]), order.where)
        self.table.groups[job] = self._groups(job, order.where, chunk_shares)
        self.table.held[job] = HeldWorkers(order.where, chunk_shares, world.now(), bool(zeta), set())
        for server in () if last is None else last.shares:
            if server not in chunk_shares:
                trainer.take(self._number(job, server))
        for server in chunk_shares:
            self._work(job, server)

    def _groups(self, job: int, placement: Placement, chunk_shares: dict[int, range]) -> dict[int, list[WorkerGroup]]:
        """Groups by server: first the workers that stay, earliest start first, then new ones in order of their data."""
        before, out = self.table.groups.get(job, {}), dict[int, list[WorkerGroup]]()
        for server, n in placement:
            self.bring(job, server, n, chunk_shares[server])
            stay = part(before.get(server, []), 0, n)
            n_staying = sum(group.workers for group in stay)
            out[server] = [*stay, *part(self.table.stock[job][server], n_staying, n)]
        self.table.settle(job, placement)
        return out

    def uploaded(self, transport: Transport) -> None:
        """Process a complete upload: workers that wait for it may start, and its chunks may be trained."""
        allocation = self.table.held.get(transport.job)
        if allocation is not None and transport.server in allocation.shares:
            self._work(transport.job, transport.server)

    def _work(self, job: int, server: int) -> None:
        """Let the workers whose data have arrived train the chunks stored on `server`."""
        world, allocation, width = self.world, self.table.held[job], 0
        for group in self.table.groups[job][server]:
            if not group.awaits:
                group.compute_from = min(group.compute_from, world.now())
                width += group.workers
        stored = world.uploads.stored.get((job, server), set())
        chunks = tuple(chunk for chunk in allocation.shares[server] if chunk in stored)
        number = self._number(job, server)
        if number not in allocation.teams:
            allocation.teams.append(number)
        if width and chunks:
            world.trainers[job].put(number, Team(server, chunks, width), world.now())
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

    def _log(self, job: int, allocation: HeldWorkers, *, preempted: bool) -> None:
        """Record the allocation: one row for the workers that started together on a server."""
        now = self.world.now()
        for server, groups in self.table.groups[job].items():
            rows = dict[int, int]()
            for group in groups:
                begin = min(max(group.compute_from, allocation.start), now)
                rows[begin] = rows.get(begin, 0) + group.workers
            for begin, n in rows.items():
                placement = ((server, n),)
                self.world.log.gang(
                    job, placement, allocation.start, begin, now, zeta=allocation.colocated, preempted=preempted
                )
