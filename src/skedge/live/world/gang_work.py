"""Gangs in the live world: allocations, the chunks of each server, the work done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skedge.core.colocation import colocated
from skedge.core.events import Allocate, Event, Suspend, Upload
from skedge.core.model.cluster import Placement
from skedge.core.model.time import NEVER
from skedge.live.coordinator.report import Report
from skedge.live.coordinator.teams import Team

from .elastic_work import ElasticWork
from .gang_table import GangTable, HeldWorkers, shares
from .uploads import Transport

if TYPE_CHECKING:
    from .ray_world import RayWorld


class GangWork:
    """The gangs' table, and the trainers' teams of one server each."""

    def __init__(self, world: RayWorld) -> None:
        self.world, self.table = world, GangTable(keeps_data=world.scenario.physics.data == "kept")
        self.elastic = ElasticWork(world, self.table, self.bring)

    def allocate(self, order: Allocate) -> None:
        """Give a job the workers and the PS of an order."""
        world, job = self.world, order.job
        if not order.gang:
            self.elastic.allocate(order)
            return
        if job in self.table.held:
            self.suspend(Suspend(job))
        zeta = colocated(world.scenario, order)
        world.trainers.paced(job, zeta)
        world.serve_from(job, order.ps)
        chunk_shares = self._bring_shares(job, order.where)
        awaits = {transport.number for server in chunk_shares for transport in world.uploads.to(job, server)}
        self.table.held[job] = HeldWorkers(order.where, chunk_shares, world.now(), bool(zeta), awaits)
        self._start(job)

    def upload(self, order: Upload) -> None:
        """Bring a job's data ahead of its allocation."""
        self.world.trainers.of(order.job)
        self._bring_shares(order.job, order.where, copies=order.copies)

    def _bring_shares(self, job: int, placement: Placement, *, copies: bool = False) -> dict[int, range]:
        """Bring each server of a gang the missing chunks of its share or, with `copies`, of the whole job.

        The upload delay applies to a server that has no data yet for some of its workers.
        """
        chunks = int(self.world.scenario.jobs.chunks[job])
        chunk_shares = {server: range(chunks) for server, _ in placement} if copies else shares(chunks, placement)
        for server, n in placement:
            self.bring(job, server, n, chunk_shares[server])
        self.table.settle(job, placement)
        return chunk_shares

    def bring(self, job: int, server: int, workers: int, chunks: range) -> None:
        """Bring a server its missing chunks; the delay applies if some of its workers had no data brought before.

        Parameters
        ----------
        job, server
            Whose chunks, and to where.
        workers
            Workers that the job is to have on the server, those included whose data were brought before.
        chunks
            Numbers of the chunks that they train; those that are there, or on their way, are not sent again.
        """
        uploads, new = self.world.uploads, self.table.lacking(job, server, workers)
        missing = uploads.lacks(job, server, chunks)
        if missing or new:
            self.world.send(job, server, missing, charged=new > 0)
        if new:
            # all uploads under way to this server, since its chunks may be in an earlier one
            self.table.supply(job, server, new, {transport.number for transport in uploads.to(job, server)})

    def uploaded(self, transport: Transport) -> None:
        """Process a complete upload; the gang that waits for it may start."""
        for group in self.table.stock.get(transport.job, {}).get(transport.server, []):
            group.awaits.discard(transport.number)
        if transport.job in self.table.groups:
            self.elastic.uploaded(transport)
        elif transport.job in self.table.held:
            self.table.held[transport.job].awaits.discard(transport.number)
            self._start(transport.job)

    def _start(self, job: int) -> None:
        """Start a gang once all its data have arrived."""
        gang, world = self.table.held[job], self.world
        # it may have started already: an upload that arrives later must not start it again
        if gang.awaits or gang.compute_from < NEVER:
            return
        gang.compute_from = world.now()
        for server, n in gang.where:
            number = self.table.new_team(int(world.scenario.jobs.chunks[job]))
            gang.teams.append(number)
            world.trainers[job].put(number, Team(server, tuple(gang.shares[server]), n), world.now())

    def suspend(self, order: Suspend) -> None:
        """Take a job's workers and PS away; of a job that is no gang, data and uploads under way stay."""
        trainer = self.world.trainers[order.job]
        trainer.rest()
        for number in self.table.held[order.job].teams:
            trainer.take(number)
        self._close(order.job, preempted=True)

    def report(self, report: Report) -> Event | None:
        """Process a team that has left: its job was suspended, or all its chunks are trained."""
        world, job = self.world, report.job
        finished = report.what == "finished" and min(report.progress) >= world.program(job).steps
        if finished and job in self.table.held:
            self._close(job, preempted=False)
        world.log.settle(job, sum(world.facts.progress[job]), finished=finished)
        if not finished:
            return None
        world.leave(job)
        return Event(world.now(), finished=(job,))

    def _close(self, job: int, *, preempted: bool) -> None:
        if job in self.table.groups:
            self.elastic.close(job, preempted=preempted)
            return
        gang, log = self.table.held.pop(job), self.world.log
        now, zeta = self.world.now(), gang.colocated
        log.gang(job, gang.where, gang.start, gang.compute_from, now, zeta=zeta, preempted=preempted)

    def lose(self, server: int) -> None:
        """Suspend the gangs with workers or the PS on a server out of service, as the kernel does on the event."""
        for job, gang in list(self.table.held.items()):
            if server in gang.shares or self.world.ps_site(job) == server:
                self.suspend(Suspend(job))
        self.table.lose(server)

    def drop(self, job: int) -> None:
        """Remove a job that has failed or was cancelled."""
        if job in self.table.held:
            self._close(job, preempted=False)
        self.world.log.settle(job, sum(self.world.facts.progress[job]))
