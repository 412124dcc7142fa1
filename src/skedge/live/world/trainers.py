"""The trainers of a live run as the controller sees them, and the results that the coordinator has not measured.

The trainers themselves are hosted by the coordinator (:mod:`skedge.live.coordinator.coordinator`). Here are their
assignments, which follow from the journal, and the link over which they are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

from skedge.core.model.time import SECOND
from skedge.live import host
from skedge.live.coordinator.client import CoordinatorClient, CoordinatorEndpoint, clock_of
from skedge.live.coordinator.messages import Assignment, AttachReply, Command, ProgressNote
from skedge.live.coordinator.report import Report
from skedge.live.coordinator.teams import Team, Teams
from skedge.live.worker.checkpoint import Checkpoints

from .inputs import Resumed

if TYPE_CHECKING:
    from skedge.live.worker.program import Program

    from .ray_world import RayWorld

_JOIN_S = 15.0
"""How long the trainers may take to end: one round, and the measurement of the result [s]."""

_AGAIN_S = 5.0
"""Pause before a measurement that failed is tried again [s]."""

_GONE: dict[str, Any] = {"accuracy": None, "losses": [], "unmeasured": "there is no whole checkpoint of it any more"}
"""The result of a job whose last checkpoint cannot be had."""


class TrainerOrders:
    """Orders to the trainer of one job: its assignment is changed, and the change is sent to the coordinator."""

    def __init__(self, assignment: Assignment, send: Callable[[str, int, tuple[Any, ...]], None]) -> None:
        self.assignment, self._send = assignment, send

    @property
    def teams(self) -> Teams:
        """The teams as of the last report."""
        return self.assignment.teams

    @property
    def site(self) -> int | None:
        """Server that the parameter server is assigned to; None if the job is paused."""
        return self.assignment.site

    def put(self, number: int, team: Team, now: int) -> None:
        """Add a team, or replace it; by the run's clock it holds its lanes since `now` [µs]."""
        self._order("put", number, team, now, self.assignment.put(number, team, now))

    def take(self, number: int) -> None:
        """Let a team leave after its mini-batch; ``stopped`` is reported then."""
        self.assignment.take(number)
        self._order("take", number)

    def serve_from(self, server: int) -> None:
        """Assign the job's parameter server to this server; it does not move if it is there already."""
        self.assignment.site = server
        self._order("serve_from", server)

    def rest(self) -> None:
        """Give up the parameter server of a paused job: its slot has been returned."""
        self.assignment.site = None
        self._order("rest")

    def lose(self, server: int) -> None:
        """A server is out of service: stop waiting for its answers, and give up a parameter server there."""
        self.assignment.out.add(server)
        if self.assignment.site == server:
            self.assignment.site = None
        self._order("lose", server)

    def regain(self, server: int) -> None:
        """Note that a server is back in service."""
        self.assignment.out.discard(server)
        self._order("regain", server)

    def keep_pace(self, pace: float) -> None:
        """Set the least time of a round [s]."""
        self.assignment.pace = pace
        self._order("keep_pace", pace)

    def recall(self, report: Report) -> bool:
        """Take in a report of the trainer; false if it is of a team in whose place another was put meanwhile."""
        is_outdated = self.teams.is_outdated(report)
        self.teams.recall(report)
        if report.what in ("stopped", "finished") and not is_outdated:
            self.assignment.puts.pop(report.team, None)
            self.assignment.since.pop(report.team, None)
        return not is_outdated

    def _order(self, method: str, *arguments: Any) -> None:
        self._send(method, self.assignment.job, arguments)


class Trainers(dict[int, TrainerOrders]):
    """The orders to the trainer of each job in the system that has one.

    Attributes
    ----------
    last
        Mini-batches of each chunk that were in the parameters when a job left.
    unmeasured
        Jobs that have finished and have no result yet.
    found
        What this controller has found at the coordinator.
    """

    def __init__(self, world: RayWorld) -> None:
        super().__init__()
        self.world = world
        self.last: dict[int, list[int]] = {}
        self.unmeasured: set[int] = set()
        self.found = AttachReply()
        self._seen: dict[int, tuple[int, ...]] = {}
        self._losses: dict[int, list[tuple[float, float]]] = {}
        self._noted: dict[int, tuple[int, float]] = {}
        self._coordinator: CoordinatorEndpoint | None = world.engine.coordinator()
        self._link: CoordinatorClient | None = None
        self._measuring: list[host.Thread] = []
        self._closed = host.Event()

    # -- the coordinator -----------------------------------------------------------------------------------------------

    def go_on(self) -> list[Report]:
        """Attach to the coordinator: what trains already goes on undisturbed, and the rest is started.

        At the start of a run, after a rebuild, and when the coordinator was lost. Returns the reports that were missed.
        """
        reply, missed = (AttachReply(), []) if self._coordinator is None else self._attach(self._coordinator)
        if reply is None:
            return []  # the coordinator was lost meanwhile: this is called again once it answers
        self.found = reply
        self._losses = {job: list(losses) for job, losses in self.found.losses.items()}
        for job in sorted(self.unmeasured - self.found.measuring):
            self.measure(job)
        return missed

    def _attach(self, coordinator: CoordinatorEndpoint) -> tuple[AttachReply | None, list[Report]]:
        """Make a link to the coordinator, in place of an earlier one."""
        world = self.world
        if self._link is not None:
            self._link.leave()
        link = self._link = CoordinatorClient(
            coordinator,
            world.inbox.resumed,
            tell=world.inbox.tell,
            note=self._note,
            lost=lambda: world.inbox.waiting.put(Resumed()),
            broken=self._broken,
            journaled=lambda: world.inbox.told,
            now=world.inbox.elapsed,
        )
        return link.attach(self.assignments())

    def clock(self) -> int | None:
        """The run's clock as the coordinator has kept it [µs]; None if it has not trained since the last controller."""
        return None if self._coordinator is None else clock_of(self._coordinator)

    def _send(self, method: str, job: int, arguments: tuple[Any, ...]) -> None:
        """Send a command; in a rebuild there is no link yet, and attaching gives every trainer its assignment."""
        if self._link is not None:
            self._link.send(Command(method, job, arguments))

    def _broken(self, error: Exception) -> None:
        def end() -> None:
            raise error

        self.world.inbox.waiting.put(end)

    def _note(self, note: ProgressNote) -> None:
        """Show what a trainer notes, from the link's thread."""
        name, facts = self.world.scenario.jobs.ids[note.job], self.world.facts
        if note.progress:
            self._seen[note.job] = note.progress
            self._noted[note.job] = self.world.real_now(), note.usual_s
        if note.loss is not None:
            self._losses.setdefault(note.job, []).append(note.loss)
        facts.note_printed(name, note.printed)
        if note.line:
            facts.job_log(name, note.line)

    # -- jobs ----------------------------------------------------------------------------------------------------

    def of(self, job: int) -> TrainerOrders:
        """The orders to the trainer of `job`, which is created on first use."""
        if job not in self:
            world = self.world
            name, program, pace = world.scenario.jobs.ids[job], world.program(job), self.pace(job, 0)
            world.facts.progress[job] = [0] * program.chunks
            out = {server for server, causes in world.out.items() if "lost" in causes}
            assignment = Assignment(job, name, program, Teams(program), pace, out=out)
            assignment.announced_s, assignment.watch = self.announced(job, 0), world.engine.limits
            self[job] = TrainerOrders(assignment, self._send)
            self._send("open", job, (deepcopy(assignment),))  # what is ordered later changes it here and there
        return self[job]

    def assignments(self) -> dict[int, Assignment]:
        """The assignments of all trainers."""
        return {job: orders.assignment for job, orders in self.items()}

    def restore(self, assignments: Mapping[int, Assignment]) -> None:
        """Take the assignments of a snapshot."""
        for job, assignment in assignments.items():
            assignment.watch = self.world.engine.limits
            self[job] = TrainerOrders(assignment, self._send)

    def paced(self, job: int, zeta: int) -> TrainerOrders:
        """The orders to the trainer of `job`, now at the speed of colocated (`zeta` 1) or separate workers."""
        orders = self.of(job)
        orders.keep_pace(self.pace(job, zeta))
        return orders

    def pace(self, job: int, zeta: int) -> float:
        """Least time of a round [s]: the announced time of a mini-batch; 0 on servers with their own speed."""
        return self.announced(job, zeta) if self.world.engine.emulates else 0.0

    def announced(self, job: int, zeta: int) -> float:
        """Announced time of a mini-batch [s]."""
        scenario = self.world.scenario
        return float(scenario.chunk_time[job, zeta]) / SECOND / int(scenario.jobs.minibatches[job])

    def retire(self, job: int) -> None:
        """End the trainer of a job that has left; it may still measure the result."""
        orders = self.pop(job, None)
        if orders is not None:
            self.last[job] = orders.teams.progress
            self._seen.pop(job, None)
            self._noted.pop(job, None)
            self._send("close", job, ())

    # -- what is known of them -----------------------------------------------------------------------------------

    def progress(self, job: int) -> list[int]:
        """Mini-batches of each chunk of `job` that are in the parameters."""
        orders, chunks = self.get(job), self.world.program(job).chunks
        if orders is None:
            return self.last.get(job) or [0] * chunks
        return list(self._seen.get(job, orders.teams.progress))

    def pulse(self, job: int) -> dict[str, float | None]:
        """How long no mini-batch of `job` has come, and how long one usually takes [s]; None if it does not train."""
        orders = self.get(job)
        if orders is None or not orders.teams.working:
            return {"idle_s": None, "usual_s": None}
        last_noted, usual_s = self._noted.get(job, (0, orders.assignment.announced_s))
        since = max(last_noted, *(orders.assignment.since.get(team, 0) for team in orders.teams.working))
        return {"idle_s": max(self.world.real_now() - since, 0) / SECOND, "usual_s": usual_s}

    def result(self, job: int) -> Mapping[str, Any]:
        """What was measured of `job`: its result, or, while it trains, the losses of an update per second."""
        return self.world.facts.results.get(job) or {"losses": list(self._losses.get(job, ()))}

    def measured(self, report: Report) -> bool:
        """Take in a result, or have it measured again; returns whether the report is about a result."""
        if report.what == "result":
            self.world.facts.results[report.job] = report.result
            self.unmeasured.discard(report.job)
            self._losses.pop(report.job, None)
        elif report.what == "unmeasured" and not self.world.inbox.rebuilding and report.job in self.unmeasured:
            self.measure(report.job)
        return report.what in ("result", "unmeasured")

    def measure(self, job: int) -> None:
        """Measure a finished job from its last checkpoint, as its trainer has ended."""
        name, program = self.world.scenario.jobs.ids[job], self.world.program(job)
        thread = host.Thread(target=self._measure, args=(job, name, program), name=f"measure {name}", daemon=True)
        thread.start()
        self._measuring = [*(running for running in self._measuring if running.is_alive()), thread]

    def _measure(self, job: int, name: str, program: Program) -> None:
        """Measure a job, trying again while storage or Ray fail: a thread that ends silently leaves it unmeasured."""
        world, is_reported = self.world, False
        hear = partial(world.facts.note_printed, name)
        while True:
            try:
                saved = Checkpoints(world.engine.url).read(name)
                result = world.engine.job_code.outcome_of(program, saved, hear) if saved is not None else _GONE
            except Exception as error:
                if not is_reported:
                    reason = f"{type(error).__name__}: {error}"
                    world.facts.job_log(name, f"its result cannot be measured, which is tried again: {reason}")
                is_reported = True
                if self._closed.wait(_AGAIN_S):
                    return
            else:
                world.inbox.tell(Report("result", job, result=result))
                return

    def close(self) -> None:
        """End all trainers, and wait for them for a while; a service that has not ended leaves them to the next one."""
        if self.world.submit is not None and not self.world.inbox.ending:
            self.leave()  # an error has ended this controller
            return
        end = host.monotonic() + _JOIN_S
        self._closed.set()  # a measurement under way is waited for, but not tried again
        if self._link is not None:
            self._link.close(_JOIN_S)
        for thread in self._measuring:
            thread.join(timeout=max(end - host.monotonic(), 0.0))

    def leave(self) -> None:
        """Leave the trainers to the next controller."""
        self._closed.set()
        if self._link is not None:
            self._link.leave()
