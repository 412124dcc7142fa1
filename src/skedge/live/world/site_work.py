"""Sites in the live world: chunks are stored at sites, move between them, and are trained slot by slot.

The run's clock stops at the end of a slot until the slot's work is done, so that slots have the boundaries of the
model. The extra time is reported as ``slot_overrun_s``. What happens within a slot (a job fails, a server is lost) is
reported at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skedge.core.events import Allocate, Event, Suspend, Transfer
from skedge.core.model.cluster import Placement
from skedge.core.model.speed import whole_chunks
from skedge.live.coordinator.report import Report
from skedge.live.coordinator.teams import Team

from .inputs import ENDS, ServerChanged
from .uploads import Transport

if TYPE_CHECKING:
    from .ray_world import RayWorld


@dataclass
class _SiteAllocation:
    """Workers of a job, the start of their allocation [µs], and the number of chunks trained by site.

    They are written to the record when it ends; the kernel's books then have the job's next one, if it is moved.
    """

    where: Placement
    start: int
    trained: dict[int, int] = field(default_factory=dict)


@dataclass
class _SlotWork:
    """What a team has to train in this slot, and the uploads that it waits for."""

    site: int
    chunks: tuple[int, ...]
    workers: int
    awaits: set[int]


class SiteWork:
    """All jobs' chunks, workers and teams at sites.

    Attributes
    ----------
    end
        End of the current slot [µs].
    there
        Chunks not trained yet, by job and site; the kernel's books have their number as of the slot's beginning.
    open
        Teams still at work in this slot, by (job, team number).
    servers
        Reason of each server that changed in this slot: why it went out of service; empty if it came back.
    overrun
        Total time by which slots took longer than their length [µs].
    """

    def __init__(self, world: RayWorld) -> None:
        self.world, self.slot = world, world.scenario.physics.slot
        self.end = self.overrun = 0
        self.there: dict[int, dict[int, list[int]]] = {}
        self.held: dict[int, _SiteAllocation] = {}
        self.open: dict[tuple[int, int], _SlotWork] = {}
        self.trained: dict[int, dict[int, int]] = {}
        self.failed: dict[int, str] = {}
        self.servers: dict[int, str] = {}
        self.begun = True

    # -- orders --------------------------------------------------------------------------------------------------

    def arrive(self, job: int) -> None:
        """Register the data of a job at its sites; chunks are numbered consecutively, site after site."""
        first, by_site = 0, dict[int, list[int]]()
        for site, chunks in enumerate(self.world.scenario.jobs.data[job].tolist()):
            if chunks:
                by_site[site] = list(range(first, first + chunks))
                first += chunks
        self.there[job] = by_site
        for site, listed in by_site.items():
            self.world.send(job, site, listed, charged=False)

    def allocate(self, order: Allocate) -> None:
        """Give a job the workers and the PS of an order."""
        job, world = order.job, self.world
        if job in self.held:
            self._close(job, preempted=True)
        world.trainers.paced(job, 0)
        world.serve_from(job, order.ps)
        self.held[job] = _SiteAllocation(order.where, world.now())

    def suspend(self, order: Suspend) -> None:
        """Take a job's workers and PS away."""
        self.world.trainers[order.job].rest()
        self._close(order.job, preempted=True)

    def transfer(self, order: Transfer) -> None:
        """Move chunks from one site to another: their bytes are copied, then removed at the source."""
        by_site = self.there[order.job]
        moved = by_site[order.source][: order.chunks]
        by_site[order.source] = by_site[order.source][order.chunks :]
        by_site[order.target] = sorted([*by_site.get(order.target, []), *moved])
        self.world.send(order.job, order.target, moved, charged=False, source=order.source)

    def begin(self) -> None:
        """Start the teams of the slot, once all orders of its beginning have been carried out."""
        if self.begun:
            return
        self.begun, world = True, self.world
        for job, allocation in sorted(self.held.items()):
            rate = float(world.scenario.slot_chunks[job])
            for site, workers in allocation.where:
                chunks = tuple(self.there[job].get(site, [])[: whole_chunks(rate, workers)])
                if not chunks:
                    continue
                missing = world.uploads.lacks(job, site, chunks)
                if missing:
                    world.send(job, site, missing, charged=False)
                awaits = {
                    transport.number for transport in world.uploads.to(job, site) if set(transport.chunks) & set(chunks)
                }
                number = int(world.scenario.jobs.chunks[job]) + 1 + site
                self.open[job, number] = _SlotWork(site, chunks, workers, awaits)
                self._start(job, number)

    def _start(self, job: int, number: int) -> None:
        work = self.open[job, number]
        if not work.awaits:
            team = Team(work.site, work.chunks, work.workers)
            self.world.trainers[job].put(number, team, self.world.now())

    # -- facts ---------------------------------------------------------------------------------------------------

    def uploaded(self, transport: Transport) -> None:
        """Process a complete upload: teams that wait for its chunks may start."""
        if (
            transport.source is not None
            and not self.world.inbox.rebuilding
            and not self.world.out.get(transport.source)
        ):
            name = self.world.scenario.jobs.ids[transport.job]
            self.world.engine.drop(transport.source, name, transport.chunks)
        for (job, number), work in self.open.items():
            if job == transport.job and transport.number in work.awaits:
                work.awaits.discard(transport.number)
                self._start(job, number)

    def report(self, report: Report) -> None:
        """Process a fact: a team has trained its chunks of the slot.

        A team that has stopped was closed when it was asked to; that of the next slot has the same number.
        """
        key, steps = (report.job, report.team), self.world.program(report.job).steps
        work = self.open.get(key)
        if report.what != "finished" or work is None or any(report.progress[chunk] < steps for chunk in work.chunks):
            return
        del self.open[key]
        by_site = self.there[report.job]
        by_site[work.site] = [chunk for chunk in by_site[work.site] if chunk not in work.chunks]
        for books in (self.trained.setdefault(report.job, {}), self.held[report.job].trained):
            books[work.site] = books.get(work.site, 0) + len(work.chunks)

    def fail(self, job: int, reason: str) -> None:
        """Stop a job that cannot be trained or was cancelled; reported at the end of the slot."""
        self.failed.setdefault(job, reason)
        self._stop(job)

    def changed(self, change: ServerChanged, *, reported: bool) -> None:
        """Process a change of a server; `reported`: it leaves service or comes back, reported at the slot's end."""
        if reported and change.what not in ENDS:
            self.servers[change.server] = f"server_{change.what}"
        elif reported:
            self.servers.setdefault(change.server, "")
        if change.what == "lost":
            self.world.uploads.lose(change.server)
            for (job, number), work in list(self.open.items()):
                if change.server in (work.site, self.world.ps_site(job)):
                    del self.open[job, number]
                    self.world.trainers[job].take(number)

    def end_slot(self) -> Event | None:
        """The event of the slot that ends now; None if nothing happened."""
        world, slot_end = self.world, self.end
        self.end, self.begun = slot_end + self.slot, False
        trained = tuple((job, tuple(sorted(chunks.items()))) for job, chunks in sorted(self.trained.items()))
        self.trained = {}
        finished = [job for job, _ in trained if not any(self.there[job].values()) and job not in self.failed]
        lacking = {job: world.facts.untrained(job, world.program(job).steps) for job in finished}
        self.failed |= {job: missing for job, missing in lacking.items() if missing}
        finished = [job for job in finished if job not in self.failed]
        for job_end in world.agenda.ended_by(slot_end):
            if job_end.job not in finished:
                self.fail(job_end.job, job_end.reason)
        failed = tuple(sorted(self.failed.items()))
        self.failed = {}
        for job in (*finished, *(job for job, _ in failed)):
            self._leave(job, finished=job in finished)
        servers = tuple(self._changes())
        for server, reason in servers:
            if reason:
                self._lose(server)
        arrived, woke = world.agenda.due_by(slot_end)
        for job in arrived:
            self.arrive(job)
        if not (trained or finished or failed or servers or arrived or woke):
            return None
        return Event(
            slot_end,
            finished=tuple(finished),
            failed=failed,
            servers=servers,
            arrived=arrived,
            woke=woke,
            trained=trained,
        )

    def _changes(self) -> Iterator[tuple[int, str]]:
        """(server, reason), one per server; one lost and back within a slot is reported back at the end of the next.

        A server reported out that is still out is unchanged, whatever happened in between.
        """
        changed, self.servers = self.servers, {}
        for server, reason in sorted(changed.items()):
            is_out, reported_out = bool(self.world.out.get(server)), not self.world.state.in_service[server]
            if reason and not reported_out:
                yield server, reason
                if not is_out:
                    self.servers[server] = ""
            elif reported_out and not is_out:
                yield server, ""

    def _leave(self, job: int, *, finished: bool) -> None:
        if job in self.held:
            self._close(job, preempted=False)
        self.there.pop(job, None)
        self.world.leave(job, finished=finished)

    def _lose(self, server: int) -> None:
        """Suspend the jobs with workers or the PS on a server out of service, as the kernel does on the event."""
        for job, allocation in list(self.held.items()):
            if self.world.ps_site(job) == server or any(site == server for site, _ in allocation.where):
                self.suspend(Suspend(job))

    def _stop(self, job: int) -> None:
        """Stop all teams of the job."""
        for owner, number in [key for key in self.open if key[0] == job]:
            del self.open[owner, number]
            self.world.trainers[job].take(number)

    def _close(self, job: int, *, preempted: bool) -> None:
        self._stop(job)
        allocation = self.held.pop(job)
        minibatches = int(self.world.scenario.jobs.minibatches[job])
        work = {site: chunks * minibatches for site, chunks in allocation.trained.items()}
        self.world.log.site(job, allocation.where, allocation.start, self.world.now(), work, preempted=preempted)
