"""A job's own code on the controller's side: its chunks are made, what came out is measured, a mini-batch rehearsed.

It runs in a process of its own, as it may end its process or never return, and the controller has other jobs. Where
several jobs' calls are under way when that process dies, each is made once more, alone: then it is known whose it was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from skedge.core.errors import TrainingError

from .agent import packed
from .training import ChunkData, ParameterServer, Program, State, accuracies, gradient

_LIMIT_S = 300.0
"""A call that has not returned by then is ended, with the process."""

_PATIENCE_S = 0.2
"""Pause before it is asked again whether the process is up."""

UNLIKE = 0.3
"""Distance between the labels of a chunk and of all chunks above which a job is warned: total variation, 0 to 1."""

CALLS = 16
"""Calls under way at once."""


class Maker:
    """The process (a Ray actor)."""

    def __init__(self) -> None:
        self.made: ChunkData | None = None

    def _chunks(self, program: Program) -> ChunkData:
        """The job's chunks; those of the last job are kept, as they are asked for one server after the other."""
        made = self.made
        if made is None or made.program != program:
            made = self.made = ChunkData(program)
        return made

    def warm(self) -> None:
        """Import what is needed."""

    def contents(self, program: Program, chunks: Sequence[int]) -> list[tuple[int, bytes]]:
        """The chunks of a job as they are sent.

        Raises
        ------
        TrainingError
            If the job's data cannot be made.
        """
        made = self._chunks(program)
        try:
            return [(chunk, packed(made.counted(chunk))) for chunk in chunks]
        except (Exception, SystemExit) as error:  # the job's own code: whatever it raises is its reason to fail
            raise TrainingError(f"its data cannot be made: {type(error).__name__}: {error}") from error

    def unlike(self, program: Program) -> tuple[int, float] | None:
        """:meth:`~.training.ChunkData.unlike` of the chunks that were made; None once another job's were."""
        made = self.made
        return None if made is None or made.program != program else made.unlike()

    def accuracies(self, program: Program, *states: State) -> list[float]:
        """Accuracy of each of several states of a job.

        Raises
        ------
        TrainingError
            If the job's test fails.
        """
        try:
            return accuracies(program, states)
        except (Exception, SystemExit) as error:
            raise TrainingError(f"{type(error).__name__}: {error}") from error

    def rehearse(self, program: Program, chunk: int) -> None:
        """One mini-batch of a job from its data to the update, as an agent and a parameter server do it.

        Raises
        ------
        TrainingError
            If it fails.
        """
        server, made = ParameterServer(program), self._chunks(program)
        model = made.training.model()
        server.apply(0, [gradient(model, made.training, program, made(chunk), server.state(), chunk, 0)])

    def saved(self, program: Program, checkpoint: bytes) -> tuple[list[tuple[int, float]], State]:
        """Losses and state of a checkpoint."""
        server = ParameterServer(program)
        server.restore(checkpoint)
        return server.losses, server.state()


class Calls:
    """Calls to a :class:`Maker` from the controller's threads.

    Parameters
    ----------
    actor
        Ray starts it again when its process has ended.
    limit_s
        How long a call may take.
    """

    def __init__(self, actor: Any, limit_s: float = _LIMIT_S) -> None:
        self.actor, self.limit_s = actor, limit_s
        self.change = threading.Condition()
        self.together, self.alone = 0, False

    def contents(self, program: Program, chunks: Sequence[int]) -> list[tuple[int, bytes]]:
        """:meth:`Maker.contents`.

        Raises
        ------
        TrainingError
            As there, or if the job's code ends the process or does not return.
        """
        found: list[tuple[int, bytes]] = self._ask(lambda: self.actor.contents.remote(program, chunks))
        return found

    def warning(self, program: Program) -> str | None:
        """What is to be said of chunks that are not alike, once all have been made; None where there is nothing.

        Raises
        ------
        TrainingError
            If the job's code ends the process or does not return.
        """
        found = None if program.shuffle else self._ask(lambda: self.actor.unlike.remote(program))
        if found is None or found[1] <= UNLIKE:
            return None
        return (
            f"warning: the labels of chunk {found[0]} differ from those of all chunks by {found[1]:.2f} (total "
            f"variation distance; {UNLIKE:g} is much): preemption can bias the model; leave out shuffle: false, or "
            "give max_lag"
        )

    def rehearse(self, program: Program, chunk: int) -> None:
        """:meth:`Maker.rehearse`.

        Raises
        ------
        TrainingError
            As there, or if the job's code ends the process or does not return.
        """
        self._ask(lambda: self.actor.rehearse.remote(program, chunk))

    def outcome(
        self, program: Program, losses: list[tuple[int, float]], state: Any, watched: Sequence[tuple[int, Any]] = ()
    ) -> dict[str, Any]:
        """What came out of a job: ``losses``, ``accuracy``, and ``accuracies`` after the epochs that were `watched`.

        States may be references. Where the job's test fails, its accuracy is None and ``unmeasured`` says why: it is
        trained all the same.
        """
        states = [*(kept for _, kept in watched), state]
        try:
            *before, last = self._ask(lambda: self.actor.accuracies.remote(program, *states))
        except TrainingError as error:
            return {"accuracy": None, "losses": losses, "unmeasured": f"its accuracy cannot be measured: {error}"}
        found = {"accuracy": last, "losses": losses}
        if program.watch:
            found["accuracies"] = [(epoch, share) for (epoch, _), share in zip(watched, before, strict=True)]
        return found

    def outcome_of(self, program: Program, checkpoint: bytes) -> dict[str, Any]:
        """What came out of a job, by its last checkpoint; as :meth:`outcome` where that cannot be told."""
        try:
            losses, state = self._ask(lambda: self.actor.saved.remote(program, checkpoint))
        except TrainingError as error:
            return {"accuracy": None, "losses": [], "unmeasured": f"its checkpoint cannot be read: {error}"}
        return self.outcome(program, losses, state)

    def _ask(self, call: Callable[[], Any]) -> Any:
        import ray  # noqa: PLC0415 - Ray is an extra

        spent = 0.0
        for place in (self._with_others, self._by_itself):
            with place():
                began = time.monotonic()
                try:
                    return ray.get(call(), timeout=self.limit_s - spent)
                except ray.exceptions.GetTimeoutError as error:
                    ray.kill(self.actor, no_restart=False)
                    raise TrainingError(f"its code has not returned after {self.limit_s:g} s") from error
                except ray.exceptions.RayTaskError as error:
                    if isinstance(error.cause, TrainingError):
                        raise error.cause from None
                    raise TrainingError(f"{type(error.cause).__name__}: {error.cause}") from error
                except ray.exceptions.RayActorError:
                    spent = min(time.monotonic() - began, self.limit_s)  # those who hang too do not hang anew
        raise TrainingError("its code ends the process that it runs in")

    @contextmanager
    def _with_others(self) -> Iterator[None]:
        with self.change:
            self.change.wait_for(lambda: not self.alone)
            self.together += 1
        try:
            yield
        finally:
            with self.change:
                self.together -= 1
                self.change.notify_all()

    @contextmanager
    def _by_itself(self) -> Iterator[None]:
        with self.change:
            self.change.wait_for(lambda: not self.alone)
            self.alone = True
            self.change.wait_for(lambda: self.together == 0)
        try:
            self._wait_for_process()
            yield
        finally:
            with self.change:
                self.alone = False
                self.change.notify_all()

    def _wait_for_process(self) -> None:
        import ray  # noqa: PLC0415 - Ray is an extra

        end = time.monotonic() + self.limit_s
        while time.monotonic() < end:
            try:
                ray.get(self.actor.warm.remote(), timeout=self.limit_s)
            except ray.exceptions.RayActorError:
                time.sleep(_PATIENCE_S)
            else:
                return
