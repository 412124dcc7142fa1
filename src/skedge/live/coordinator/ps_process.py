"""The process of a job's parameter server, as its trainer sees it: where it is, its state, and its checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from skedge.live import host
from skedge.live.worker.checkpoint import Life, OutlivedError, StorageAwayError, UnwrittenError
from skedge.live.worker.job_process import Ack
from skedge.live.worker.round_window import RoundWindow

from .instructions import Loaded
from .replies import Replies
from .round_clock import SLOW_S
from .training_actors import TrainingActors

_AGAIN_S, _TRIES = 1.0, 5
"""Pause before a checkpoint that could not be written is tried again [s]; how often a job is loaded anew because a
later life has written one."""

_CHECKPOINT_S = 2.0
"""Least time between two checkpoints of a job in training [s]."""

_CALLS_APART, _LONGEST_S = 20, 60.0
"""The same, as a multiple of the time that writing one takes; and at most [s]."""


class PSProcess:
    """The parameter server's process of one job.

    Parameters
    ----------
    job
        The job's name.
    engine
        Lends the process.
    replies
        Waits for the answers to calls.
    controllers
        Returns the number of controllers that the run had before this one.
    closed
        Set when the job's training ends: a checkpoint that cannot be written is then given up.

    Attributes
    ----------
    server
        The server that it is on; None if the job has no such process.
    life
        Of the last load: calls to a process that serves a job in another life have no effect.
    state
        Reference to the current parameters; None after a window (:meth:`fetch`).
    windows
        Number of its last window.
    window, revoked
        Number of the window that it trains now, 0 if it trains none; and whether it was revoked.
    machine, address, door
        Its machine, and where workers of that, and of others, are connected to it (:mod:`skedge.live.worker.links`).
    module
        SHA-256 of the code in the process.
    sent
        Reference to the job's program.
    applied
        Facts about the last update, or the last window.
    """

    def __init__(
        self,
        job: str,
        engine: TrainingActors,
        replies: Replies,
        controllers: Callable[[], int],
        closed: host.Event,
    ) -> None:
        self.job, self.engine, self.replies, self.controllers = job, engine, replies, controllers
        self.closed = closed
        self.server: int | None = None
        self.actor: Any = None
        self.state: Any = None
        self.sent: Any = None
        self.window, self.windows, self.revoked = 0, 0, False
        self.outlived = 0
        self.life = Life()
        self.module, self.machine, self.address, self.door = "", "", "", ""
        self.applied = dict[str, Any]()
        self.saved_at = self.save_s = 0.0

    def move(self, server: int) -> Loaded | None:
        """Load the newest checkpoint into a process on a server, the one there if it is there; None if it is lost."""
        try:
            if self.server != server:
                self.give_up()
                self.actor, self.server = self.engine.parameter_server(server), server
            return self._load(server)
        except host.CallError:
            self.release()
            raise

    def give_up(self) -> None:
        """Write a checkpoint and release the process."""
        if self.server is not None:
            self.save()
            self.release()

    def release(self) -> None:
        """Release the process without a checkpoint."""
        if self.server is not None:
            self.engine.release(self.server, self.actor, self.life)
            self.server, self.window = None, 0

    def _load(self, server: int) -> Loaded | None:
        # a new life per load: what a process that was given up still writes counts as older
        self.life = self.engine.life(self.controllers())
        ack, self.state = host.call(self.actor, "load", self.job, self.sent, self.life, returns=2)
        start = host.monotonic()
        late_s = self.replies.blame.watch.prepare_s + SLOW_S
        answer = self.replies.of(ack, server, start + late_s)
        if answer is None:
            if host.monotonic() - start > late_s:
                host.kill(self.actor)  # it does not answer, and is started anew
            self.release()
            return None
        self.replies.gone = False
        self.replies.storage_answers()
        self.module, self.machine = answer["module"], answer["machine"]
        self.address, self.door = answer["address"], answer["door"]
        return Loaded(server, answer["version"], answer["progress"], self.module, self.engine.trains(server))

    def apply(self, version: int, gradients: list[Any], deadline: float) -> Ack | None:
        """Update parameters of a version once; returns the facts about it, or None if the process is lost or late."""
        ack, state = host.call(self.actor, "apply", self.job, self.life, version, *gradients, returns=2)
        answer: Ack | None = self.replies.of(ack, self.server, deadline)
        if answer is not None:
            self.state, self.applied = state, answer
        return answer

    def train(self, window: RoundWindow) -> Any:
        """Have it train a window, whose number is the next one; returns the reference to the answer."""
        self.window = self.windows = window.number
        self.revoked = False
        return host.call(self.actor, "train", self.job, self.life, window)

    def revoke(self, *, kill: bool = False) -> None:
        """Have its window, if there is one, end after the mini-batch that is computed; or kill its late process."""
        if number := self.window:
            self.revoked = True
            with suppress(host.CallError):  # there is no window without its actor
                host.call(self.actor, "revoke", self.job, self.life, number, kill=kill)

    def trained(self, answer: Ack) -> None:
        """Note the answer to a window."""
        if answer["rounds"]:
            self.state, self.applied = None, answer

    def fetch(self, version: int) -> bool:
        """Have a reference to the current parameters, of this version; False if the process is lost."""
        if self.state is None:
            ack, state = host.call(self.actor, "state", self.job, self.life, version, returns=2)
            if self.replies.of(ack, self.server) is None:
                return False
            self.state = state
        return True

    def save(self) -> list[int] | None:
        """Write a checkpoint, waiting while the storage is full or away.

        Returns the progress in it; None if the process is lost, or at the end.

        Raises
        ------
        UnwrittenError
            If something is in its way, or later lives have written some, several times in a row.
        """
        tries = 0
        while not self.closed.is_set():
            try:
                return self._saved()
            except StorageAwayError as error:
                self.replies.storage_is_away(f"{error}; it is tried again")
            except UnwrittenError as error:
                tries += 1
                if tries == 1:
                    self.replies.line(f"{error}; it is tried again")
                if tries > _TRIES:
                    raise
            self.closed.wait(_AGAIN_S)
        return None

    def save_sometimes(self) -> bool:
        """Write a checkpoint from time to time; one that cannot be written now is left out. False if it is lost."""
        apart_s = min(max(_CHECKPOINT_S, _CALLS_APART * self.save_s), _LONGEST_S)
        if self.server is None or host.monotonic() - self.saved_at <= apart_s:
            return True
        try:
            return self._saved() is not None
        except UnwrittenError as error:
            self.replies.line(f"{error}; it is trained on without")
            return True

    def losses(self) -> Any:
        """Losses of all updates; None if the process is lost."""
        return self.replies.of(host.call(self.actor, "losses", self.job, self.life), self.server)

    def _saved(self) -> list[int] | None:
        """Have a checkpoint written; returns the progress in it.

        None if the process is lost, or the job was loaded in a later life elsewhere.
        """
        # noted before the call: a disk that fails is not asked again at once
        self.saved_at = start = host.monotonic()
        try:
            saved: list[int] | None = self.replies.of(host.call(self.actor, "save", self.job, self.life), self.server)
        except OutlivedError as error:
            self.outlived += 1
            if self.outlived > _TRIES:
                raise
            self.replies.line(f"{error}; the job is loaded from that")
            return None
        if saved is None:
            return None
        self.outlived, self.save_s = 0, host.monotonic() - start
        self.replies.storage_answers()
        return saved
