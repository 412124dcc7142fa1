"""What the rounds of a job know of its training: its progress, its parameter server, and who is late."""

from __future__ import annotations

from skedge.core.errors import TrainingError
from skedge.live.worker.program import Program

from .instructions import Fetch, KeepParameters, Load, Loaded, Save, Say, Steps, Updated
from .replies import MinibatchCall
from .round_clock import RoundClock
from .teams import Team, Teams


class RoundsState:
    """The training of one job as its rounds see it.

    Parameters
    ----------
    program
        What the job trains.
    teams
        Its teams, which are directed between two steps.
    clock
        Keeps the announced speed.

    Attributes
    ----------
    place
        Server on which the parameter server is to be now; None: nowhere.
    changes, seen
        How often something was directed; and how often it had been when the round was begun.
    closed
        Whether the training is to end.
    ps
        What the parameter server has loaded; None if there is none.
    version
        That of the parameters.
    late
        By chunk, the mini-batches that have not come in their round: none is asked for again before it has come.
    devices
        (server, device) of the workers so far.
    """

    def __init__(self, program: Program, teams: Teams, clock: RoundClock) -> None:
        self.program, self.teams, self.clock = program, teams, clock
        self.place: int | None = None
        self.changes, self.seen, self.closed = 0, 0, False
        self.ps: Loaded | None = None
        self.version, self._watched = 0, 0
        self.late: dict[int, MinibatchCall] = {}
        self.devices: set[tuple[int, str]] = set()

    def look(self, place: int | None, changes: int, *, closed: bool) -> None:
        """See what is directed now."""
        self.place, self.changes, self.closed = place, changes, closed

    def is_undisturbed(self) -> bool:
        """Whether nothing was directed since the round was begun."""
        return self.seen == self.changes

    @property
    def module(self) -> str:
        """SHA-256 of the code in the parameter server's process; empty if there is none."""
        return self.ps.module if self.ps else ""

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def load(self, server: int | None = None) -> Steps[bool]:
        """Load the newest checkpoint, and go on from there; returns success.

        Parameters
        ----------
        server
            Where the parameter server is to be; None: where it is.

        Raises
        ------
        TrainingError
            As :meth:`_go_back` does.
        """
        if server is None and self.ps is not None:
            server = self.ps.server
        self.ps = None
        if server is None:
            return False
        loaded: Loaded | None = yield Load(server)
        if loaded is None:
            return False
        self.ps, self.version = loaded, loaded.version
        yield from self._go_back(loaded.progress)
        return True

    def save(self) -> Steps[bool]:
        """Write a checkpoint that must not be missed; whether it is there and holds the progress."""
        saved: list[int] | None = yield Save()
        if saved == self.teams.progress:
            return True
        if not self.closed:
            yield from self.load()
        return False

    def _go_back(self, progress: list[int]) -> Steps[None]:
        """Continue from a checkpoint's progress; mini-batches that are not in it are trained again.

        Raises
        ------
        TrainingError
            If one of them belongs to a chunk that was reported as trained: no worker would train it again.
        """
        self._check(progress)
        for chunk in sorted(self.teams.reported):
            if progress[chunk] < self.program.steps:
                raise TrainingError(
                    f"its trained parameters are lost: the checkpoint that can be read holds {progress[chunk]} of "
                    f"{self.program.steps} mini-batches of chunk {chunk}, which was reported as trained"
                )
        repeated = max(before - now for before, now in zip(self.teams.progress, progress, strict=True))
        if repeated < 0:  # trained by a coordinator that was lost
            self.clock.late_s -= self.teams.rounds_until(progress) * self.clock.announced_s
        if repeated > 0:
            yield Say(f"goes back by {repeated} mini-batches a chunk: that is what its newest whole checkpoint lacks")
            self.clock.late_s += repeated * max(self.clock.round_s, self.clock.pace)
        self.teams.progress = progress

    # -- updates -----------------------------------------------------------------------------------------------------

    def updated(self, progress: list[int], update: Updated) -> Steps[None]:
        """Note updates of the parameters, and keep them after each epoch's worth of mini-batches, if that is watched.

        Raises
        ------
        TrainingError
            If the progress is none of the job's.
        """
        self._check(progress)
        self.teams.progress, self.version = progress, update.version
        yield update
        epoch = self.teams.epochs()
        if self.program.watch and epoch > self._watched and (yield Fetch(self.version)):
            self._watched = epoch
            yield KeepParameters(epoch)

    def _check(self, progress: list[int]) -> None:
        """Check the progress that the parameter server says: it runs in a process of the job.

        Raises
        ------
        TrainingError
            If it has other chunks than the job, or more mini-batches.
        """
        chunks, steps = self.program.chunks, self.program.steps
        if len(progress) != chunks or max(progress) > steps:
            have = f"{len(progress)} chunks and up to {max(progress, default=0)} mini-batches of one"
            raise TrainingError(f"its parameter server tells of {have}; the job has {chunks} chunks of {steps}")

    def is_at_work(self, number: int, team: Team) -> bool:
        """Whether a team is still at work, and no other one has its number."""
        return self.teams.working.get(number) is team
