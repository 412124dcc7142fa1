"""Bugs that are planted in the live part, each with the invariant that must find it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any
from unittest import mock

from skedge.live import host
from skedge.live.controller.submissions import Submissions
from skedge.live.coordinator.attachment import Attachment
from skedge.live.coordinator.client import CoordinatorClient
from skedge.live.coordinator.coordinator import TrainingCoordinator
from skedge.live.coordinator.instructions import Steps
from skedge.live.coordinator.rounds_state import RoundsState
from skedge.live.coordinator.trainer_thread import TrainerThread
from skedge.live.coordinator.training_actors import TrainingActors
from skedge.live.journal import archive as journal_archive
from skedge.live.journal import tables as journal_tables
from skedge.live.journal.archive import JournalArchive
from skedge.live.journal.chain import Entry
from skedge.live.journal.journal import SqlJournal
from skedge.live.worker.checkpoint import Life
from skedge.live.world.ray_world import RayWorld

from .campaign import run_plan
from .plans import Plan, plan_of


@dataclass(frozen=True)
class Planted:
    """A planted bug, which chunks on lanes show.

    Attributes
    ----------
    invariants
        Those of which one must find it.
    plant
        A context with the bug.
    seed
        One that has found it; others are tried if it does not any more, as every change of the live part changes what a
        seed does.
    faults
        Kinds of fault that show it soonest; none: those that a seed draws.
    """

    invariants: frozenset[str]
    plant: Callable[[], Any]
    seed: int = 0
    faults: tuple[str, ...] = ()

    def plan(self, seed: int) -> Plan:
        """The plan of a seed in which it is looked for."""
        return plan_of(seed, "lanes", self.faults)

    def found_with(self, seeds: int) -> int | None:
        """The first seed with which the bug is found, of that many and the one that is known; None if there is none."""
        for seed in (self.seed, *range(seeds)):
            if self.finds(self.plan(seed)):
                return seed
        return None

    def finds(self, plan: Plan) -> bool:
        """Whether a plan finds the bug, and nothing without it."""
        return run_plan(plan, [self.plant]).broken in self.invariants and not run_plan(plan).broken


def _around(kind: Any, method: str, replacement: Callable[..., Any]) -> Callable[[], Any]:
    """A context in which a method is called through another function, which gets it first."""
    shipped = getattr(kind, method)

    @wraps(shipped)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return replacement(shipped, *args, **kwargs)

    return lambda: mock.patch.object(kind, method, replaced)


def _attach(shipped: Callable[..., Any], coordinator: TrainingCoordinator, who: Any, *given: Any) -> Any:
    attachment = coordinator.attachment
    if attachment.who is not None and who != attachment.who:
        attachment.who = (who[0] - 1, "")
    return shipped(coordinator, who, *given)


def _news(
    shipped: Callable[..., Any], coordinator: TrainingCoordinator, who: Any, after: int, _: int, *given: Any
) -> Any:
    return shipped(coordinator, who, after, after, *given)


def _link_news(shipped: Callable[..., Any], link: CoordinatorClient, wait_s: float) -> Any:
    after = link.after
    reports = shipped(link, wait_s)
    link.after = after
    return reports


def _follow(shipped: Callable[..., Any], trainer: TrainerThread, *given: Any) -> None:
    trainer.received = dict.fromkeys(trainer.received, 0)
    shipped(trainer, *given)


def _saved() -> Steps[bool]:
    return True
    yield  # it waits for nothing


def _promise(shipped: Callable[..., Any], submissions: Submissions, *given: Any) -> Any:
    submitted = shipped(submissions, *given)
    if submitted is not None:
        for answer in submissions._waiting.pop(submitted.job["id"]):
            answer.set_result(submitted.job["id"])
    return submitted


def _take(shipped: Callable[..., Any], journal: SqlJournal, time: int, content: dict[str, Any]) -> None:
    if content.get("what") != "stopped":
        shipped(journal, time, content)


def _add(shipped: Callable[..., Any], archive: JournalArchive, entries: Sequence[Entry]) -> None:
    with mock.patch.object(journal_archive, "write_whole", _write_unflushed):
        shipped(archive, entries)


def _write_unflushed(path: Path, content: bytes) -> None:
    with host.disk.open(path, "w") as file:
        written = 0
        while written < len(content):
            written += file.write(content[written:]) or 0


def _prepare(shipped: Callable[..., Any], connection: Any, record: object) -> None:
    shipped(connection, record)
    connection.execute("PRAGMA synchronous=NORMAL")


def _go_on(shipped: Callable[..., Any], world: RayWorld) -> None:
    pending, world.uploads.pending = world.uploads.pending, {}
    shipped(world)
    world.uploads.pending = pending


PLANTED = {
    "the coordinator lets controllers attach that are not later ones": Planted(
        frozenset({"I5"}), _around(TrainingCoordinator, "attach", _attach), 16
    ),
    "the coordinator takes commands of any controller": Planted(
        frozenset({"I5"}), _around(Attachment, "check", lambda *_: None)
    ),
    "a team is told finished before its checkpoint is written": Planted(
        frozenset({"I3"}), _around(RoundsState, "save", lambda *_: _saved())
    ),
    "lives do not have the controller's number": Planted(
        frozenset({"I3", "I8", "I9"}),
        _around(TrainingActors, "life", lambda shipped, lent, _: Life(0, shipped(lent, 0).load)),
        57,
        ("node", "ghost", "kill"),
    ),
    "reports are dropped when they are handed out": Planted(
        frozenset({"I7"}), _around(TrainingCoordinator, "news", _news), 2, ("kill", "second", "cut", "lag")
    ),
    "reports that have come are asked for again": Planted(
        frozenset({"I7"}), _around(CoordinatorClient, "_news", _link_news)
    ),
    "the numbers of orders are ignored when a controller attaches": Planted(
        frozenset({"I5"}), _around(TrainerThread, "follow", _follow), 7, ("kill", "second", "freeze")
    ),
    "a job is accepted before it is in the journal": Planted(
        frozenset({"I1"}), _around(Submissions, "_promise", _promise), 4
    ),
    "reports of teams that have left are not journaled": Planted(
        frozenset({"I6"}), _around(SqlJournal, "take", _take), 2
    ),
    "uploads do not begin anew after a takeover": Planted(frozenset({"I8"}), _around(RayWorld, "go_on", _go_on), 18),
    "entries are deleted before the archive's file is flushed": Planted(
        frozenset({"I3", "I4"}), _around(JournalArchive, "add", _add), 83
    ),
    "commits of the journal are not flushed": Planted(
        frozenset({"I1", "I6"}), _around(journal_tables, "_prepare", _prepare), 18
    ),
}
