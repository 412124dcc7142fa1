"""The teams of a job: which of its chunks train on which server, and which of them wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

from skedge.live.worker.program import Program

from .report import Report


@dataclass(frozen=True)
class Team:
    """`width` workers that a job holds on one server, for these chunks.

    Attributes
    ----------
    turns
        True if the chunks take turns on a lane; each chunk's worth of training is then reported.
    max_lag
        Most epochs by which a chunk may be ahead of the job's slowest chunk; 0: no limit. With a limit, chunks that
        take turns also report each epoch.
    """

    server: int
    chunks: tuple[int, ...]
    width: int
    turns: bool = False
    max_lag: int = 0


class PlannedMinibatch(NamedTuple):
    """A mini-batch of a round to come: number of the team, the worker's within it, chunk and step."""

    team: int
    worker: int
    chunk: int
    step: int


class Teams:
    """The teams of one job by number, and the progress of its chunks.

    Attributes
    ----------
    working, held
        Teams that train, and teams that wait because all their chunks are ahead (rule M39).
    leaving
        Teams that were asked to leave after their mini-batch.
    progress
        Mini-batches of each chunk that are in the parameters.
    reported
        Chunks that were reported as trained.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.steps, self.minibatches = program, program.steps, program.minibatches
        self.working: dict[int, Team] = {}
        self.held: dict[int, Team] = {}
        self.leaving: set[int] = set()
        self.progress = [0] * program.chunks
        self.reported: set[int] = set()
        self._marks: dict[int, tuple[int, int]] = {}

    def put(self, number: int, team: Team) -> None:
        """Add a team, or replace it."""
        self.working[number] = team
        self.held.pop(number, None)
        self._marks.pop(number, None)
        self.reported.difference_update(team.chunks)
        self.leaving.discard(number)

    def let_go(self) -> Iterator[int]:
        """Remove the teams that were asked to leave; yields the number of each that was at work."""
        for number in sorted(self.leaving):
            self.held.pop(number, None)
            if self.working.pop(number, None) is not None:
                yield number
        self.leaving.clear()

    def hold_back(self) -> Iterator[tuple[str, int]]:
        """Hold back teams whose chunks are all ahead, and release those no longer ahead.

        Yields (what, number) for each report: ``released``, ``held``, or ``trained`` for the work of turns.
        """
        for number in [number for number, team in self.held.items() if not self.is_ahead(team)]:
            del self.held[number]
            yield "released", number
        for number in [number for number, team in self.working.items() if self.is_ahead(team)]:
            self.held[number] = self.working.pop(number)
            yield "held", number
        for number, team in self.working.items():
            if team.turns and self.next_chunks(team) and (mark := self.mark(team)) != self._marks.get(number, mark):
                yield "trained", number
            self._marks[number] = self.mark(team)

    def rounds_until(self, progress: list[int]) -> int:
        """The rounds after which all chunks at work have this progress at most, which is further than theirs."""
        chunks = [chunk for team in self.working.values() for chunk in team.chunks]
        return min((progress[chunk] - self.progress[chunk] for chunk in chunks), default=0)

    def next_chunks(self, team: Team) -> list[int]:
        """The least trained unfinished chunks of a team, one per worker."""
        left = [chunk for chunk in team.chunks if self.progress[chunk] < self.steps]
        return sorted(left, key=lambda chunk: (self.progress[chunk], chunk))[: team.width]

    def ahead(self, teams: Mapping[int, Team], n_most: int, *, watch: bool) -> list[list[PlannedMinibatch]]:
        """The mini-batches of each of the next rounds, if nothing changes.

        They end where something is to be told of a team or decided about it. A chunk keeps to one worker of its team,
        by its place among the team's chunks, unless that one has another chunk in the round.

        Parameters
        ----------
        teams
            Those at work.
        n_most
            How many rounds at most.
        watch
            Whether they also end after each epoch's worth.
        """
        future, rounds = copy(self), list[list[PlannedMinibatch]]()
        future.progress = list(self.progress)
        marks, epochs = {number: future.mark(team) for number, team in teams.items()}, future.epochs()
        while len(rounds) < n_most:
            minibatches = [
                PlannedMinibatch(number, worker, chunk, future.progress[chunk])
                for number, team in teams.items()
                for worker, chunk in future.by_worker(team).items()
            ]
            if not minibatches:
                break
            rounds.append(minibatches)
            for planned in minibatches:
                future.progress[planned.chunk] += self.program.local_minibatches(planned.step)
            is_reported = any(team.turns and future.mark(team) != marks[number] for number, team in teams.items())
            if is_reported or (watch and future.epochs() > epochs):
                break
            if any(future.is_ahead(team) or self.trained(team, future.progress) for team in teams.values()):
                break
        return rounds

    def by_worker(self, team: Team) -> dict[int, int]:
        """The chunks that a team trains next, by worker."""
        chosen = dict[int, int]()
        for chunk in self.next_chunks(team):
            place = team.chunks.index(chunk) % team.width
            chosen[place if place not in chosen else min(set(range(team.width)) - chosen.keys())] = chunk
        return chosen

    def finished(self) -> dict[int, Team]:
        """The teams at work whose chunks are all trained, by number."""
        return {number: team for number, team in self.working.items() if self.trained(team, self.progress)}

    def trained(self, team: Team, progress: Sequence[int]) -> bool:
        """Whether all chunks of a team are trained, by a progress."""
        return all(progress[chunk] >= self.steps for chunk in team.chunks)

    def dismiss(self, number: int, team: Team) -> bool:
        """Remove a team whose chunks are all trained; False if another has taken its place."""
        if self.working.get(number) is not team:
            return False
        del self.working[number]
        self.reported.update(team.chunks)
        self.leaving.discard(number)
        return True

    def all_trained(self) -> bool:
        """Whether every chunk of the job is trained."""
        return all(steps >= self.steps for steps in self.progress)

    def epochs(self) -> int:
        """Epochs' worth of mini-batches trained, over all chunks together: one chunk may wait for its lane."""
        return sum(self.progress) // (len(self.progress) * self.minibatches)

    def recall(self, report: Report) -> None:
        """Replay a report that was made before the controller was lost."""
        self.progress = list(report.progress) or self.progress
        if self.is_outdated(report):
            return
        if report.what == "released":
            self.held.pop(report.team, None)
        if report.what not in ("stopped", "finished", "held"):
            return
        team = self.working.pop(report.team, None)
        self.leaving.discard(report.team)
        if team is not None and report.what == "finished":
            self.reported.update(team.chunks)
        if team is not None and report.what == "held":
            self.held[report.team] = team

    def is_outdated(self, report: Report) -> bool:
        """Whether a team was put in the place of the one that has ``stopped`` or ``finished`` while it was reported."""
        team = self.working.get(report.team)
        if team is None:
            return False
        if report.what == "stopped":  # as it was asked to: the team in its place was not
            return report.team not in self.leaving
        return report.what == "finished" and not self.trained(team, report.progress)

    def mark(self, team: Team) -> tuple[int, int]:
        """Chunks' worth of mini-batches that a team has trained, and, if its lag is bounded, its epochs."""
        trained = [self.progress[chunk] for chunk in team.chunks]
        return sum(trained) // self.steps, min(trained) // self.minibatches if team.max_lag else 0

    def is_ahead(self, team: Team) -> bool:
        """Whether rule M39 keeps the team's least trained chunk from starting its next epoch."""
        if not team.max_lag or not (left := self.next_chunks(team)):
            return False
        epoch, in_epoch = divmod(self.progress[left[0]], self.minibatches)
        # only between two epochs: an epoch that is begun is trained to its end
        return in_epoch == 0 and epoch >= min(self.progress) // self.minibatches + team.max_lag
