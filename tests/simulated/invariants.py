"""What must hold of the live part at each of its steps, whatever fails: checked where it happens, not at the end alone.

The numbers are those of the design: I1 to I7 and I9 are checked here, at entries of the journal, reports, checkpoints,
calls and answers; I8 and I10, and what is left at the end, by :mod:`simulated.campaign`. Checks look at simulated disks
and at the journal's entries without an operation of their own, so that they change no schedule.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest import mock

from skedge.core.events import CANCELLED, Event, Order, Reject
from skedge.core.model.time_limits import MAX_RUN_TIME, MAX_WAIT, PREFIX
from skedge.live.controller.service import Service
from skedge.live.coordinator.coordinator import TrainingCoordinator
from skedge.live.coordinator.messages import Who
from skedge.live.coordinator.report import Report
from skedge.live.journal.chain import INPUT, Entry
from skedge.live.journal.journal import SqlJournal, encode
from skedge.live.worker.framing import unframed
from skedge.live.worker.ps_actor import PSActor
from skedge.live.world.inbox import Inbox
from skedge.live.world.inputs import Input, ServerChanged, Submitted, to_json
from skedge.live.world.ray_world import RayWorld

from .children import SimulatedChild, job_of
from .disks import Disk, File, Folder
from .object_store import DiskFileSystem
from .scheduler import World
from .setups import REJECTING, Setup

FILE = "journal.db"
"""The file of the journal, in the current folder."""

_READ = "SELECT number, time, kind, content, checksum FROM entries WHERE number >= ? ORDER BY number"

_NAME = re.compile(r"(\d+)-(\d+)-(\d+)\.ckpt")


class BrokenError(AssertionError):
    """An invariant does not hold; `number` says which."""

    def __init__(self, number: str, what: str) -> None:
        super().__init__(f"{number}: {what}")
        self.number = number


class Invariants:
    """The invariants of one run.

    Parameters
    ----------
    world
        A broken invariant ends its run.
    storage
        The disk of the checkpoints.
    setup
        The cluster, whose servers have room for so many workers.

    Attributes
    ----------
    entries
        Number of the journal's entries.
    bad
        Part of the reason for which each job fails whose own code fails.
    left
        How each job has left that is not in the system any more: ``finished``, ``rejected``, ``cancelled`` or the
        reason of its failure.
    """

    def __init__(self, world: World, storage: Disk, setup: Setup) -> None:
        self.world, self.storage, self.setup = world, storage, setup
        self.entries = 0
        self._connection: sqlite3.Connection | None = None
        self.bad: dict[str, str] = {}
        self.left: dict[str, str] = {}
        self._steps: dict[str, tuple[int, int]] = {}
        self._cordons: dict[int, str] = {}
        self._limits: dict[str, set[str]] = {}
        self._needs: dict[str, Mapping[str, float]] = {}
        self._names: list[str] = []
        self._inputs: set[str] = set()
        self._orders: set[str] = set()
        self._reported: dict[str, set[int]] = {}
        self._last_report = 0
        self._attached: dict[TrainingCoordinator, Who] = {}

    def broken(self, number: str, what: str) -> None:
        """End the run, as an invariant does not hold."""
        self.world.note(number, what)
        self.world.fail(BrokenError(number, what))

    def close(self) -> None:
        """Close the connection to the journal."""
        if self._connection is not None:
            self._connection.close()

    # --- the journal

    def committed(self) -> None:
        """Read the entries that have been written since; a commit can take effect without an answer."""
        if self._connection is None:
            self._connection = sqlite3.connect(FILE)
        rows = self._connection.execute(_READ, (max(self.entries - 1, 0),)).fetchall()
        if self.entries and not rows:
            self.broken("I1", f"entry {self.entries - 1} of the journal was written, and is lost")
        rows = rows[1:] if self.entries else rows
        for row in rows:
            self._written(Entry(*row))

    def _written(self, entry: Entry) -> None:
        """I7: reports are numbered without a gap, and each is taken once."""
        value = entry.value()
        self.entries = entry.number + 1
        self.world.note("journal", f"{entry.number} {entry.kind} {_shown(entry)}")
        if entry.kind != INPUT:
            self._orders.update(map(_text, value["orders"]))
            return
        self._inputs.add(_text(value))
        if value["is"] == Submitted.__name__:
            self._names.append(value["job"]["id"])
            self._submitted(value["job"])
        if value["is"] == ServerChanged.__name__ and "cordoned" in value["what"]:
            self._cordons[value["server"]] = value["what"]
        if value["is"] == Report.__name__ and value["number"]:
            if value["number"] != self._last_report + 1:
                self.broken("I7", f"report {value['number']} is journaled after report {self._last_report}")
            self._last_report = value["number"]

    def _submitted(self, job: dict[str, Any]) -> None:
        """Note what is needed of a job."""
        name, chunks = job["id"], job.get("chunks") or sum(job["data"].values())
        self._steps[name] = chunks, job["epochs"] * job["minibatches"]
        self._limits[name] = {limit for limit in (MAX_WAIT, MAX_RUN_TIME) if job.get(limit)}
        slot = {f"worker:{job['worker_type']}": 1} if "worker_type" in job else {}
        self._needs[name] = job.get("worker_needs") or slot

    def taken(self, given: Input) -> None:
        """I6: an input is acted on once it is in the journal."""
        self.committed()
        if _text(to_json(given)) not in self._inputs:
            self.broken("I6", f"an input is acted on that is not in the journal: {given}")

    def performed(self, order: Order) -> None:
        """I6: an order is carried out once its decision is in the journal."""
        self.committed()
        if _text({"order": type(order).__name__, **encode(order)}) not in self._orders:
            self.broken("I6", f"an order is carried out that is not in the journal: {order}")

    def acknowledged(self, job: str) -> None:
        """I1: a job that was accepted is in the journal, once."""
        self.committed()
        if self._names.count(job) != 1:
            self.broken("I1", f"job {job!r} was accepted, and is {self._names.count(job)} times in the journal")

    def changed(self, server: int, what: str) -> None:
        """I1: a server that an operator was told to be ``cordoned`` or ``uncordoned`` is that in the journal."""
        self.committed()
        if self._cordons.get(server) != what:
            self.broken("I1", f"server {server} was {what}, and is {self._cordons.get(server)} in the journal")

    # --- the coordinator

    def attached(self, coordinator: TrainingCoordinator, who: Who) -> None:
        """I5: a controller attaches after those before it alone."""
        before = self._attached.get(coordinator, who)
        if who != before and who[0] <= before[0]:
            self.broken("I5", f"controller {who} attaches after controller {before}")
        self._attached[coordinator] = who
        self._check_room(coordinator)

    def commanded(self, coordinator: TrainingCoordinator, who: Who) -> None:
        """I5: no command of a controller is carried out after another one has attached."""
        latest = self._attached.get(coordinator, who)
        if who != latest:
            self.broken("I5", f"a command of controller {who} is carried out after controller {latest} has attached")
        self._check_room(coordinator)

    def _check_room(self, coordinator: TrainingCoordinator) -> None:
        """I5: the teams at work on a server, but those that are to leave, have no more workers than there is room."""
        at_work: dict[int, dict[tuple[str, int], int]] = {}
        for trainer in coordinator.trainers.values():
            for number, team in trainer.teams.working.items():
                if number not in trainer.teams.leaving:
                    at_work.setdefault(team.server, {})[trainer.job_name, number] = team.width
        for server, teams in at_work.items():
            for resource, amount in self.setup.servers[server].capacity.items():
                if sum(width * self._needs[job].get(resource, 0) for (job, _), width in teams.items()) > amount:
                    self.broken("I5", f"server {server} has {amount:g} of {resource}, and the workers {teams}")

    def told(self, coordinator: TrainingCoordinator, report: Report) -> None:
        """I3: chunks are reported as trained once a checkpoint in the object store holds them."""
        trainer = coordinator.trainers.get(report.job)
        if report.what != "finished" or trainer is None:
            return
        name, steps = trainer.job_name, trainer.program.steps
        done = {chunk for chunk, at in enumerate(report.progress) if at >= steps}
        chunks = {chunk for chunk in trainer.teams.reported if chunk in done}
        self._check_saved(name, chunks, steps, "are reported as trained")
        if not self._is_lost():  # no controller takes a report of a lost coordinator: its successor trains them again
            self._reported.setdefault(name, set()).update(chunks)

    def _is_lost(self) -> bool:
        """Whether Ray thinks the process dead that is running, and has another in its place."""
        cluster, task = self.world.extras["ray"], self.world.task
        return task is not None and cluster.of_process[task.process].process is not task.process

    # --- checkpoints

    def saved(self, path: str) -> None:
        """I3: no checkpoint takes the place of one with chunks that were reported as trained."""
        job = path.split("/")[-2]
        if job in self._reported and job in self._steps:
            self._check_saved(job, self._reported[job], self._steps[job][1], f"were reported when {path} was written")

    def state_of(self, job: str) -> Mapping[str, Any] | None:
        """The newest whole checkpoint of a job in the object store; None if there is none."""
        folder: File | Folder | None = self.storage.root
        for part in ("service", job):
            folder = folder.entries.get(part) if isinstance(folder, Folder) else None
        if not isinstance(folder, Folder):
            return None
        dated = sorted((_age(name), name) for name in folder.entries if _NAME.fullmatch(name))
        for _, name in reversed(dated):
            file = folder.entries[name]
            content = unframed(bytes(file.content)) if isinstance(file, File) else None
            if content is not None:
                state: Mapping[str, Any] = json.loads(content)
                return state
        return None

    def _check_saved(self, job: str, chunks: set[int], steps: int, what: str) -> None:
        state = self.state_of(job)
        lacking = {chunk for chunk in chunks if state is None or state["progress"][chunk] < steps}
        if lacking:
            held = "there is no checkpoint" if state is None else f"the newest checkpoint holds {state['progress']}"
            self.broken("I3", f"chunks {sorted(lacking)} of {job!r} {what}, and {held}")

    # --- parameter servers

    def asked(self, actor: PSActor, job: str) -> None:
        """I5: the process of a PS slot is that of the job that is served."""
        child: Any = actor.child
        if isinstance(child, SimulatedChild) and child.parameters is not None:
            served = job_of(child.parameters.program)
            if served != job.partition("-")[0]:
                self.broken("I5", f"a call for job {job!r} reaches the process of {served!r}")

    # --- jobs

    def noted(self, service: Service, event: Event, orders: Sequence[Order]) -> None:
        """I2 and I9, when jobs leave."""
        ids, policy = service.kernel.scenario.jobs.ids, service.kernel.policy.name
        for job in event.finished:
            self._finished(ids[job])
        for job, reason in event.failed:
            self.left[ids[job]] = "cancelled" if reason == CANCELLED else reason
            if reason != CANCELLED:
                self._failed(ids[job], reason)
        for order in orders:
            if isinstance(order, Reject):
                self.left[ids[order.job]] = "rejected"
                if policy not in REJECTING:
                    self.broken("I9", f"job {ids[order.job]!r} is rejected: {order.reason}")

    def _finished(self, job: str) -> None:
        self.left[job] = "finished"
        self.check_trained(job)
        if job in self.bad:
            self.broken("I9", f"job {job!r} is COMPLETED, and its code fails")

    def _failed(self, job: str, reason: str) -> None:
        """A job fails only for what its own code does, or because it has reached a limit of its time."""
        limited = reason.startswith(PREFIX) and self._limits[job]
        if not limited and (job not in self.bad or self.bad[job] not in reason):
            self.broken("I9", f"job {job!r} has failed for what its code has not done: {reason}")

    def check_trained(self, job: str) -> None:
        """I2: the parameters of a completed job hold each mini-batch once, in order."""
        chunks, steps = self._steps[job]
        state = self.state_of(job)
        held = [] if state is None else state["held"]
        for chunk in range(chunks):
            of_chunk = [step for of, step in held if of == chunk]
            if of_chunk != list(range(steps)):
                self.broken("I2", f"job {job!r} is COMPLETED, and its parameters hold {of_chunk} of chunk {chunk}")


@contextmanager
def watched(invariants: Invariants) -> Iterator[None]:
    """Check the invariants at the steps of the live part."""
    stack = ExitStack()

    def after(
        kind: type, method: str, check: Callable[..., None], before: Callable[..., None] = lambda *_: None
    ) -> None:
        shipped = getattr(kind, method)

        @wraps(shipped)
        def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
            before(self, *args, **kwargs)
            found = shipped(self, *args, **kwargs)
            check(self, found, *args, **kwargs)
            return found

        stack.enter_context(mock.patch.object(kind, method, checked))

    def taken(inbox: Inbox, given: Input) -> None:
        if not inbox.rebuilding and inbox.world.engine.acts and not inbox.ending:
            invariants.taken(given)

    def performed(live: RayWorld, _: None, order: Order) -> None:
        if not live.inbox.rebuilding and live.engine.acts:
            invariants.performed(order)

    with stack:
        after(SqlJournal, "take", lambda *_: invariants.committed())
        after(SqlJournal, "append", lambda *_: invariants.committed())
        after(Inbox, "take", taken)
        after(RayWorld, "perform", performed)
        after(TrainingCoordinator, "attach", lambda coordinator, _, who, *__: invariants.attached(coordinator, who))
        after(TrainingCoordinator, "order", lambda coordinator, _, who, *__: invariants.commanded(coordinator, who))
        after(TrainingCoordinator, "tell", lambda *_: None, invariants.told)
        after(PSActor, "apply", lambda actor, _, job, *__: invariants.asked(actor, job))
        after(PSActor, "save", lambda actor, _, job, *__: invariants.asked(actor, job))
        after(DiskFileSystem, "pipe_file", lambda _, __, path, *___, **____: invariants.saved(path))
        yield


def _shown(entry: Entry) -> str:
    """An entry in a few words."""
    value = entry.value()
    if entry.kind != INPUT:
        return ", ".join(order["order"] for order in value.get("orders", ()))
    if value["is"] == Submitted.__name__:
        return f"{value['is']} {value['job']['id']}"
    about = ("what", "job", "team", "number", "progress", "reason", "upload", "server")
    parts = (f"{key}={value[key]}" for key in about if value.get(key) not in (None, "", (), []))
    return f"{value['is']} {' '.join(parts)}"


def _text(content: dict[str, Any]) -> str:
    """A content of the journal as it is written."""
    return json.dumps(content)


def _age(name: str) -> tuple[int, ...]:
    found = _NAME.fullmatch(name)
    assert found is not None
    return tuple(map(int, found.groups()))
