"""Dispatched chunks in the live world: which chunks train, and on which lanes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from skedge.core.events import CLOUD, Dispatch, Event, LaneFacts
from skedge.core.model.cluster import Placement
from skedge.core.model.network import upload_delay
from skedge.core.model.time import SECOND
from skedge.live.coordinator.report import Report
from skedge.live.coordinator.teams import Team
from skedge.sim.what_if import InCloud

from .lane_table import Chunk, LaneTable
from .uploads import Transport

if TYPE_CHECKING:
    from .ray_world import RayWorld

Lost = tuple[tuple[int, tuple[int, ...]], ...]
"""(job, chunks) on a server that went out of service, as in :class:`~skedge.core.events.Event`."""


class LaneWork:
    """The table of lanes, and the trainers' teams.

    A team is the chunks of a job that were dispatched to one lane together and take turns there; its number is that of
    its first chunk. Completions are reported to the kernel as if the chunks ran one after another: the n-th when the
    team has trained n chunks' worth of mini-batches.

    Attributes
    ----------
    counted
        Number of completions reported to the kernel, by (job, team).
    displaced_at, waited_s
        By (job, team) that displaces another: time of that decision [µs], and from then to its start on the lane [s].
    """

    def __init__(self, world: RayWorld) -> None:
        self.world, self.table = world, LaneTable(bool(world.state.belief.preemptive))
        self.lane_server: list[int] = world.scenario.cluster.lane_server.tolist()
        self.sent_at: dict[int, int] = {}
        self.counted: dict[tuple[int, int], int] = {}
        self.displaced_at: dict[tuple[int, int], int] = {}
        self.waited_s: dict[tuple[int, int], float] = {}

    def dispatch(self, order: Dispatch) -> None:
        """Start the uploads of a job's chunks, or of its lost chunks that are dispatched again."""
        world = self.world
        dispatched = self.table.dispatch(order, self.lane_server, world.scenario.cluster.cloud)
        world.trainers.paced(order.job, int(world.state.wholly_in_cloud(order.job)))
        self.sent_at[order.job] = world.now()
        by_server: dict[int, list[int]] = {}
        for chunk in dispatched:
            chunk.before = world.facts.progress[order.job][chunk.number]
            self.counted[order.job, chunk.team] = 0
            by_server.setdefault(chunk.server, []).append(chunk.number)
        for server, chunks in by_server.items():
            world.send(order.job, server, chunks)

    def uploaded(self, transport: Transport) -> None:
        """Note chunks that have reached their server; in the cloud each has its own worker and starts at once."""
        for chunk in self.table.arrive(transport.job, transport.server, transport.chunks):
            if chunk.lane == CLOUD:
                self._start(chunk)

    def settle(self) -> Event | None:
        """Give every lane to its best chunk that has arrived; returns which jobs have started or paused."""
        world = self.world
        # a list: starting a chunk changes the holders, which `changes` reads
        for occupant, best in list(self.table.changes()):
            if occupant is None:
                self._start(best)
            else:
                # it leaves after its mini-batch and still holds the lane: the better team starts when that is reported
                occupant.leaving = True
                self.displaced_at[best.job, best.team] = world.now()
                world.trainers[occupant.job].take(occupant.team)
        running, served = {job for job, _ in world.log.open}, world.state.served
        # only what has changed over the whole instant: a job that moved lanes has neither started nor paused
        started, paused = sorted(running - served), sorted(served - running)
        for job in paused:
            world.trainers[job].rest()
        if not started and not paused:
            return None
        return Event(world.now(), started=tuple(started), paused=tuple(paused))

    def _start(self, best: Chunk) -> None:
        """Start a chunk and its team on their lane."""
        world, job = self.world, best.job
        arrived = tuple(chunk.number for chunk in self.table.team_members(best) if chunk.arrived)
        self.table.hold(best)
        self._begin(best, arrived)
        if (job, best.team) in self.displaced_at:
            self.waited_s[job, best.team] = (world.now() - self.displaced_at.pop((job, best.team))) / SECOND
        team = Team(best.server, arrived, 1, len(arrived) > 1, int(world.scenario.jobs.max_lag[job]))
        world.trainers[job].put(best.team, team, world.now())

    def _begin(self, chunk: Chunk, team: Iterable[int]) -> None:
        """Begin a run of these chunks in the record."""
        world, job, lane = self.world, chunk.job, None if chunk.lane == CLOUD else chunk.lane
        progress = {number: world.facts.progress[job][number] for number in team}
        zeta = world.state.wholly_in_cloud(job)
        world.log.begin(job, chunk.team, chunk.server, lane, world.now(), progress, zeta=zeta)

    def _end(self, job: int, team: int, *, preempted: bool = False) -> None:
        progress, steps = self.world.facts.progress[job], self.world.program(job).steps
        self.world.log.end(job, team, self.world.now(), progress, steps, preempted=preempted)

    def teams_of(self, job: int) -> Placement:
        """(server, number) of the teams that train chunks of `job` now."""
        teams = self.world.log.running(job)
        return tuple(Counter(self.table.chunks[job][team].server for team in teams).items())

    def report(self, report: Report) -> Event | None:
        """Process a fact: a team has left its lane, may continue, or has trained one more chunk's worth."""
        world, now, chunk = self.world, self.world.now(), self.table.chunks[report.job][report.team]
        team = self.table.team_members(chunk)
        if report.what == "released":
            self._released(team)
            return None
        chunk = self.table.occupant.get(chunk.lane, chunk)
        is_trained, chunks = report.what == "finished", world.log.chunks(report.job, report.team)
        self._end(report.job, report.team, preempted=report.what == "stopped")
        if report.what == "trained":
            self._begin(chunk, chunks)
            return self._event(chunk, team)
        self.table.leave(chunk, trained=is_trained)
        self._note_preemption(report)
        if not is_trained:
            if report.what == "held":
                self.table.ahead.add((report.job, report.team))
            lost = tuple(mate.number for mate in team if mate.lost)
            return self._event(chunk, team, lost=((report.job, lost),) if lost else ())
        # the team is done, so its last chunk counts too; else one is held back for this moment
        facts = self._worth(chunk, team, len(team))
        finished = all(mate.done for mate in self.table.chunks[report.job])
        if finished and (lacking := world.facts.untrained(report.job, world.program(report.job).steps)):
            return world.fail(report.job, lacking)
        if finished:
            world.leave(report.job)
        return Event(now, finished=(report.job,) if finished else (), chunks=facts)

    def _released(self, team: list[Chunk]) -> None:
        """The chunks of a team are no longer ahead (rule M39); in the cloud they continue at once."""
        for chunk in team:
            waited = (chunk.job, chunk.team) in self.table.ahead
            self.table.ahead.discard((chunk.job, chunk.team))
            if waited and chunk.lane == CLOUD and not chunk.lost:
                self._start(chunk)

    def _note_preemption(self, report: Report) -> None:
        waited_s = self.waited_s.pop((report.job, report.team), None)
        if waited_s is not None and report.first_s is not None:
            self.world.facts.note_preemption(waited_s + report.first_s)

    def _event(self, chunk: Chunk, team: list[Chunk], lost: Lost = ()) -> Event | None:
        """The event for the kernel about a team that is not fully trained; None if there is nothing to report."""
        facts = self._worth(chunk, team, len(team) - 1)
        return Event(self.world.now(), lost=lost, chunks=facts) if lost or len(facts.time) else None

    def _worth(self, chunk: Chunk, team: list[Chunk], limit: int) -> LaneFacts:
        """Completions for the kernel: one per chunk's worth of work done and not yet reported, up to `limit` in all."""
        progress, steps = self.world.facts.progress[chunk.job], self.world.program(chunk.job).steps
        n_trained = sum(progress[mate.number] - mate.before for mate in team)
        due = np.cumsum([steps - mate.before for mate in team]) <= n_trained
        new = min(int(due.sum()), limit) - self.counted[chunk.job, chunk.team]
        if chunk.lane == CLOUD or new <= 0:
            return LaneFacts()
        self.counted[chunk.job, chunk.team] += new
        return LaneFacts(*(np.full(new, x) for x in (self.world.now(), chunk.lane, chunk.job)))

    def lose(self, server: int) -> Lost:
        """Take the chunks off a server out of service; those in training leave after their mini-batch.

        Returns the chunks that were not in training.
        """
        lost: dict[int, list[int]] = {}
        for chunk in self.table.lose(server):
            if (chunk.job, chunk.team) in self.world.log.open:
                self.world.trainers[chunk.job].take(chunk.team)
            else:
                lost.setdefault(chunk.job, []).append(chunk.number)
        return tuple((job, tuple(sorted(chunks))) for job, chunks in sorted(lost.items()))

    def in_the_cloud(self, now: int) -> dict[int, InCloud]:
        """Untrained chunks in the cloud, by job: when they start and end [µs]."""
        world, by_job = self.world, {}
        for job, chunks in self.table.chunks.items():
            in_cloud = [chunk for chunk in chunks if chunk.lane == CLOUD and not (chunk.done or chunk.lost)]
            if in_cloud:
                zeta, steps = int(world.state.wholly_in_cloud(job)), world.program(job).steps
                full_time, arrives = int(world.state.chunk_time[job, zeta]), self.sent_at[job]
                arrives += int(upload_delay(world.scenario.delays, job, in_cloud[0].server))
                delay = 0 if all(chunk.arrived for chunk in in_cloud) else max(arrives - now, 0)
                least = min(world.trainers[job].teams.progress[chunk.number] for chunk in in_cloud)
                by_job[job] = InCloud(len(in_cloud), now + delay, now + delay + full_time * (steps - least) // steps)
        return by_job

    def drop(self, job: int) -> None:
        """Remove a job that has failed or was cancelled."""
        for team in self.world.log.running(job):
            self._end(job, team)
        self.table.drop(job)

    def forget(self, job: int) -> None:
        """Forget a job that has left the system."""
        self.table.chunks.pop(job, None)
        self.counted = {team: n for team, n in self.counted.items() if team[0] != job}
        self.sent_at.pop(job, None)
