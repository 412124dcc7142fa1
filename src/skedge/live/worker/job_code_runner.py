"""A job's own code on the controller's side: it makes the job's chunks and measures the result.

The code runs in processes of the job, because it may end its process or never return, and must not stop the controller.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from skedge.core.errors import TrainingError
from skedge.live import host
from skedge.live.confinement.confinement import TRUSTED, Confinement

from .job_process import LIMIT_S, MOST_DEATHS, Ack, EndedError, Printed, repeated_death
from .job_processes import JobProcessPool, sent
from .program import Program
from .watchdog import PREPARE_S

_PATIENCE_S, _LOST_S = 0.2, 120.0
"""Pause before a call that was lost is repeated, and how long it is [s]."""

CALLS = 16
"""Most concurrent calls."""


def _unheard(_: Printed) -> None:
    """Ignores what was printed."""


class JobCodeRunner:
    """The Ray actor that runs jobs' code in processes of their own; those of the last job stay up, with its data."""

    def __init__(self, confinement: Confinement = TRUSTED) -> None:
        self.pool = JobProcessPool("data", confinement, only_last=True)

    def warm(self) -> None:
        """Import what the jobs' processes need."""
        self.pool.fork_server.start()

    def ask(self, method: str, program: bytes, *arguments: Any, limit_s: float, prepare_s: float) -> tuple[Ack, bytes]:
        """Call a method of :class:`.worker_main.JobWorker` in a process of the job.

        Parameters
        ----------
        method
            Its name.
        program
            The job's program (:func:`.job_processes.sent`): the first argument, and what tells jobs apart.
        arguments
            The other arguments.
        limit_s
            Longest duration of the call [s].
        prepare_s
            Longest time until the process has the job's packages, code and factory before [s].

        Raises
        ------
        JobError
            If the job's code fails or does not return.
        EndedError
            If the process ends: by the job's code, or because it was killed.
        """
        with self.pool.of(hashlib.sha256(program).hexdigest(), program) as child:
            return child.ask(method, program, *arguments, limit_s=limit_s, prepare_s=prepare_s)


Hear = Callable[[Printed], None]
"""Called with what a job's process has printed."""


class JobCodeClient:
    """Calls to a :class:`JobCodeRunner` from threads of the controller and of the coordinator.

    Parameters
    ----------
    actor
        Ray starts it again when its process has ended.
    limit_s
        Longest duration of a call [s].
    prepare_s
        Longest time until a process has the job's packages, code and factory before [s].
    """

    def __init__(self, actor: Any, limit_s: float = LIMIT_S, prepare_s: float = PREPARE_S) -> None:
        self.actor, self.limits = actor, dict[str, Any](limit_s=limit_s, prepare_s=prepare_s)

    def contents(
        self,
        program: Program,
        chunks: Sequence[int],
        hear: Hear = _unheard,
        labels: dict[int, dict[int, int]] | None = None,
    ) -> list[tuple[int, bytes]]:
        """(chunk, bytes) of chunks of a job, in the form in which they are sent.

        Parameters
        ----------
        program, chunks
            What the job trains, and numbers of its chunks.
        hear
            Called with what the process has printed.
        labels
            Gets how often each label occurs in these chunks, if they have labels.

        Raises
        ------
        TrainingError
            If the job's data cannot be made, or its code ends the process or does not return.
        """
        facts, joined = self._ask("contents", program, tuple(chunks), hear=hear)
        if labels is not None:
            labels.update((chunk, dict(counts)) for chunk, counts in facts["labels"])
        pieces, offset = list[tuple[int, bytes]](), 0
        for chunk, size in zip(chunks, facts["sizes"], strict=True):
            pieces.append((chunk, joined[offset : offset + size]))
            offset += size
        return pieces

    def outcome(
        self,
        program: Program,
        losses: list[tuple[int, float]],
        state: bytes,
        watched: Sequence[tuple[int, bytes]] = (),
        hear: Hear = _unheard,
    ) -> dict[str, Any]:
        """The result of a job: ``losses``, ``accuracy``, and ``accuracies`` after the epochs that were `watched`.

        ``metric`` names what the job measures in place of accuracy. If its test fails, the job still counts as
        trained; its accuracy is None and ``unmeasured`` gives the reason.

        Parameters
        ----------
        program
            What the job trained.
        losses
            (version, mean loss) of every update.
        state
            The final parameters and buffers, as bytes.
        watched
            (epoch, parameters and buffers after it), of a program with ``watch``.
        hear
            Called with what the process has printed.
        """
        states = (*(parameters for _, parameters in watched), state)
        try:
            facts, _ = self._ask("accuracies", program, states, hear=hear)
        except TrainingError as error:
            return {"accuracy": None, "losses": losses, "unmeasured": f"its accuracy cannot be measured: {error}"}
        *before, last = facts["accuracies"]
        result = {"accuracy": last, "metric": facts["metric"], "losses": losses}
        if program.watch:
            result["accuracies"] = [(epoch, share) for (epoch, _), share in zip(watched, before, strict=True)]
        return result

    def outcome_of(self, program: Program, checkpoint: bytes, hear: Hear = _unheard) -> dict[str, Any]:
        """The result of a job from its last checkpoint, as in :meth:`outcome`."""
        try:
            facts, state = self._ask("saved", program, checkpoint, hear=hear)
        except TrainingError as error:
            return {"accuracy": None, "losses": [], "unmeasured": f"its checkpoint cannot be read: {error}"}
        return self.outcome(program, [(version, loss) for version, loss in facts["losses"]], state, (), hear)

    def _ask(self, method: str, program: Program, *arguments: Any, hear: Hear = _unheard) -> tuple[Ack, bytes]:
        packed, deaths, until = sent(program), 0, 0.0
        while True:
            try:
                ref = host.call(self.actor, "ask", method, packed, *arguments, **self.limits)
                reply: tuple[Ack, bytes] = host.answer(ref)
            except host.CallError as error:
                cause = error.cause if isinstance(error, host.FailedError) else None
                hear(getattr(cause, "printed", ()))
                if isinstance(cause, TrainingError):
                    raise cause from None
                deaths += isinstance(cause, EndedError)
                if isinstance(cause, EndedError) and deaths >= MOST_DEATHS:
                    raise repeated_death(f"{deaths} calls in a row ended so", "", cause) from None
                # by no fault of the job: Ray starts a lost process again
                until = until or host.monotonic() + _LOST_S
                if host.monotonic() > until:
                    reason = f"what runs jobs' code for the controller has failed for {_LOST_S:g} s: {error}"
                    raise TrainingError(reason) from error
                host.sleep(_PATIENCE_S)
            else:
                hear(tuple(reply[0].pop("printed", ())))
                return reply
