"""A trainer whose rounds are measured by stage: the trainer that jobs have, and a clock read at the ends of its steps.

Only durations are compared, each of one clock, so processes may be on machines whose clocks differ. What a call takes
beyond what the process that it asks has measured is the way there and back.

================  ===================================================================================================
request           the trainer's own work: calls made, answers counted, the next round begun
broadcast         parameters from the PS to the first worker: out of the PS, through Ray, into the worker's process; in
                  a window to all workers, by their connections
deserialize       parameters into the worker's model
compute           forward and backward pass, the cut of the mini-batch included
gradient copy     gradients into bytes, in the worker
barrier           the first worker's wait for the last one, or that of the PS that is a worker, too
send              gradients from the first worker to the PS: out of its process, through Ray, into that of the PS
PS deserialize    gradients of all workers into tensors
update            mean of the gradients and step of the optimizer
PS serialize      parameters into bytes
checkpoint        wait for a checkpoint after the round
journal           reports and notes of the round; the controller journals them on a thread of its own
================  ===================================================================================================

Rounds of a window have no calls. Their stages are those of the parameter server's process; if that only waits for
workers, what they measure is part of what it waits for, and the rest of that is the way of the gradients. Each round of
a window has the same share of what is left, which counts as request, as its pace does.

Stages of a worker are those of the one whose call was the shortest, the first; with the barrier they are as long as the
longest call. So the stages of a round add up to the time from its start to the start of the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skedge.live import host
from skedge.live.worker.job_process import Ack
from skedge.live.worker.program import Program

from .instructions import Ask, AwaitWindow, Begin, Collect, Instruction, Missing, Save, SaveSometimes, Updated
from .report import Report
from .trainer import Trainer
from .training_actors import TrainingActors

STAGES = (
    "request", "broadcast", "deserialize", "compute", "gradient copy", "barrier", "send", "PS deserialize", "update",
    "PS serialize", "checkpoint", "journal",
)  # fmt: skip
"""The stages of a round, as the table above explains them."""

_OF_WORKERS = ("deserialize", "compute", "gradient copy")
_IN_WINDOWS = (*_OF_WORKERS, "broadcast", "barrier", "PS deserialize", "update", "PS serialize")
"""Those that workers measure, and those that the process of a parameter server measures in a window."""


@dataclass(frozen=True)
class RoundSpans:
    """What the trainer sees of a round [s].

    Attributes
    ----------
    gradients
        From when all workers were called until the last answer of one.
    update
        From there until the answer of the parameter server.
    checkpoint
        Wait for a checkpoint after the round; 0 if none was written.
    journal
        Reports and notes of the round.
    whole
        From the start of the round to that of the next one.
    """

    gradients: float
    update: float
    checkpoint: float
    journal: float
    whole: float


def stage_times(spans: RoundSpans, workers: Sequence[Ack], update: Ack) -> dict[str, float]:
    """Duration of each of :data:`STAGES` in a round [s]; they add up to ``spans.whole``.

    Parameters
    ----------
    spans
        What the trainer has seen of the round.
    workers
        Facts of each worker's answer (:meth:`skedge.live.worker.agent.Agent.gradient`), at least one.
    update
        Facts of the parameter server's answer (:meth:`skedge.live.worker.ps_actor.PSActor.apply`).
    """
    first, longest = min(workers, key=_call_s), max(map(_call_s, workers))
    worker, ps = first["stage_s"], update["stage_s"]
    into_worker = first["call_s"] - first["receive_s"] - sum(worker.values())
    into_ps = update["call_s"] - update["receive_s"] - sum(ps.values())
    return {
        "request": spans.whole - spans.gradients - spans.update - spans.checkpoint - spans.journal,
        "broadcast": update["receive_s"] + (spans.gradients - longest) + into_worker,
        "deserialize": worker["deserialize"],
        "compute": worker["compute"],
        "gradient copy": worker["serialize"],
        "barrier": longest - first["call_s"],
        "send": first["receive_s"] + (spans.update - update["call_s"]) + into_ps,
        "PS deserialize": ps["deserialize"],
        "update": ps["update"],
        "PS serialize": ps["serialize"],
        "checkpoint": spans.checkpoint,
        "journal": spans.journal,
    }


def window_stage_times(facts: Ack, workers: Sequence[Ack], spans: tuple[float, float, float]) -> dict[str, float]:
    """Duration of each of :data:`STAGES` in a round of a window [s], the mean of its rounds; they add up to theirs.

    Parameters
    ----------
    facts
        Those of the answer to the window (:meth:`skedge.live.worker.ps_actor.PSActor.train`).
    workers
        Facts of each connected worker's answer (:meth:`skedge.live.worker.agent.Agent.work`).
    spans
        From the start of the window to the next round, and the checkpoint and journal of it (:class:`RoundSpans`).
    """
    whole_s, checkpoint_s, journal_s = spans
    own = {stage: facts["stage_s"].get(stage, 0.0) for stage in _IN_WINDOWS}
    if not own["compute"] and workers:
        # what the first worker does is part of what the parameter server waits for
        parts = [{stage: worker["stage_s"].get(stage, 0.0) for stage in _OF_WORKERS} for worker in workers]
        first, longest = min(parts, key=_sum), max(map(_sum, parts))
        overlap_s = max(longest - own["barrier"], 0.0)  # begun before all has been sent
        own |= {"send": max(own["barrier"] - longest, 0.0), "broadcast": max(own["broadcast"] - overlap_s, 0.0)}
        own |= first | {"barrier": longest - _sum(first)}
    times = own | {"checkpoint": checkpoint_s, "journal": journal_s}
    times = dict.fromkeys(STAGES, 0.0) | times | {"request": whole_s - sum(times.values())}
    return {stage: seconds / facts["rounds"] for stage, seconds in times.items()}


def _sum(times: Mapping[str, float]) -> float:
    return sum(times.values())


def _call_s(answer: Ack) -> float:
    return float(answer["call_s"])


@dataclass(frozen=True)
class TimedRound:
    """A round: its duration, from its start to that of the next one, and that of each of :data:`STAGES` [s]."""

    whole_s: float
    stage_s: dict[str, float]
    samples: int


class TimedTrainer(Trainer):
    """Trains one job and measures its rounds by stage; closes itself after a number of rounds.

    Parameters
    ----------
    name, program, tell, processes, servers
        As :class:`.trainer.Trainer` has them.
    rounds
        Number of rounds after which it is closed; those of a window count together.

    Attributes
    ----------
    timed
        The rounds so far in which every worker has contributed.
    """

    def __init__(
        self,
        name: str,
        program: Program,
        tell: Callable[[Report], None],
        processes: TrainingActors,
        *,
        servers: Sequence[str],
        rounds: int,
    ) -> None:
        super().__init__(0, name, program, self._journaled(tell), processes, servers=servers)
        self.note = self._journaled(self.note)
        self.n_rounds, self.timed = rounds, list[TimedRound]()
        self._answers = list[Ack]()
        self._last_window: Ack | None = None
        self._began = self._asked_at = self._answered_at = self._updated_at = 0.0
        self._checkpoint_s = self._journal_s = 0.0

    def _journaled(self, report: Callable[[Any], None]) -> Callable[[Any], None]:
        def timed(message: Any) -> None:
            start = host.monotonic()
            report(message)
            self._journal_s += host.monotonic() - start

        return timed

    def do(self, step: Instruction) -> Any:
        """Do what an instruction says, and note when that was."""
        start = host.monotonic()
        if isinstance(step, Begin):
            self._note_round(start)
            self._answers.clear()
            self._last_window = None
            self._began, self._updated_at, self._checkpoint_s, self._journal_s = start, 0.0, 0.0, 0.0
        outcome = super().do(step)
        end = host.monotonic()
        match step:
            case Ask():
                self._asked_at = end
            case Collect():
                self._answered_at = end
                if not isinstance(outcome, Missing):
                    self._answers.append(outcome)
            case Updated():
                self._updated_at = start
            case AwaitWindow() if not isinstance(outcome, Missing) and outcome["rounds"]:
                self._last_window = outcome
            case Save() | SaveSometimes():
                self._checkpoint_s += end - start
        return outcome

    def _note_round(self, now: float) -> None:
        """Note the round before, if every worker has contributed to it, or the rounds of the window before."""
        if (window := self._last_window) is not None:
            whole_s, number = now - self._began, window["rounds"]
            spans = whole_s, self._checkpoint_s, self._journal_s
            stage_s = window_stage_times(window, self.workers.facts, spans)
            self.timed += [TimedRound(whole_s / number, stage_s, window["samples"] // number)] * number
            if len(self.timed) >= self.n_rounds:
                self.close()
            return
        if not self._updated_at or len(self._answers) < self.program.chunks:
            return
        round_spans = RoundSpans(
            self._answered_at - self._asked_at,
            self._updated_at - self._answered_at,
            self._checkpoint_s,
            self._journal_s,
            now - self._began,
        )
        stages = stage_times(round_spans, self._answers, self.ps.applied)
        self.timed.append(TimedRound(round_spans.whole, stages, sum(answer["samples"] for answer in self._answers)))
        if len(self.timed) == self.n_rounds:
            self.close()
