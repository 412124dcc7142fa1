"""Processes of jobs without PyTorch: the parameters of a job are the list of the mini-batches that they hold.

A gradient is the name of its mini-batch, and jobs misbehave (:mod:`simulated.misbehaving`). The parameter server
counts by the shipped rule
(:class:`skedge.live.worker.minibatch_ledger.MinibatchLedger`). Each content is checked where it is used, so that none
of another job or chunk gets into the parameters unnoticed.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

from skedge.core.errors import TrainingError
from skedge.live.confinement.confinement import TRUSTED, Confinement
from skedge.live.worker import job_processes, ps_actor
from skedge.live.worker.answer_schemas import checked
from skedge.live.worker.framing import chunk_path, framed, whole
from skedge.live.worker.job_process import LIMIT_S, Ack, EndedError, JobError, StalledError
from skedge.live.worker.minibatch_ledger import MinibatchLedger
from skedge.live.worker.program import Program
from skedge.live.worker.round_window import RoundMinibatch, RoundWindow
from skedge.live.worker.watchdog import PREPARE_S

from .actors import STORED
from .connections import LOOK_S, SimulatedLink, SimulatedListener, simulated_connections
from .misbehaving import ENDS, RAISES, STALLS, Misdeeds
from .scheduler import Process, Waiters, running_world

MODULE = "m"
"""What stands for the digest of the jobs' code."""

MINIBATCH_S, OTHER_S = (0.01, 0.2), (0.001, 0.02)
"""Time of a mini-batch, and of other calls [s]."""


WRONG: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "nan": {"loss": float("nan")},
        "garbage": dict.fromkeys(("samples", "version", "sizes", "module", "progress", "losses"), "garbage"),
    }
)
"""Facts that are in the place of right ones, by the effect of a misdeed."""


@dataclass(frozen=True)
class Minibatch:
    """A mini-batch of a chunk."""

    chunk: int
    step: int


def steps_of(program: Program, first: int) -> range:
    """The numbers of the mini-batches that a worker trains in the round that begins at a first one."""
    return range(first, first + program.local_minibatches(first))


def named(program: Program, chunk: int, first: int) -> list[str]:
    """The same, as misdeeds name them."""
    return [f"{chunk} {step}" for step in steps_of(program, first)]


def longer(duration_s: tuple[float, float], times: int) -> tuple[float, float]:
    """As long as so many of these, at least and at most [s]."""
    least, most = duration_s
    return least * times, most * times


class HeldParameters(MinibatchLedger):
    """Parameters that are the list of the mini-batches that they hold, in the order in which they were counted."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.held: list[list[int]] = []

    def apply(self, version: int, brought: Sequence[Minibatch]) -> None:
        """Update once."""
        new = self.new(version, brought)
        if new:
            self.count(new)
            self.held.extend([one.chunk, step] for one in new for step in steps_of(self.program, one.step))

    def dump(self) -> bytes:
        """The state as bytes."""
        state = {"job": job_of(self.program), "version": self.version, "progress": self.progress, "held": self.held}
        return json.dumps(state).encode()

    def restore(self, saved: bytes) -> None:
        """The inverse of :meth:`dump`."""
        state = json.loads(saved)
        same(state["job"], job_of(self.program), "the checkpoint")
        self.version, self.progress, self.held = state["version"], state["progress"], state["held"]


class SimulatedChild:
    """A process of one job, with the interface of :class:`skedge.live.worker.job_process.JobProcess`.

    Attributes
    ----------
    misdeeds
        What jobs have done so far in other processes.
    """

    def __init__(self, misdeeds: Misdeeds) -> None:
        self.world, self.misdeeds = running_world(), misdeeds
        self.process = self.world.running().process
        self.worker, self.chunk, self.device, self.calls, self.pid, self.link = "", -1, "cpu", 0, 0, (0, "")
        self.up = True
        self.parameters: HeldParameters | None = None
        self._link: SimulatedLink
        self._connections: SimulatedListener
        self._working, self._pausing = Waiters(self.world, "a job's process"), Waiters(self.world, "between rounds")
        self.revoked, self._limits_s = 0, list[float]()
        self._random = self.world.random(f"child {self.world.name('child')}")

    def ask(
        self,
        method: str,
        *given: Any,
        limit_s: float = LIMIT_S,
        prepare_s: float = PREPARE_S,
        rounds: tuple[int, float] = (0, 0.0),
    ) -> tuple[Ack, bytes]:
        """Call a method: facts and bytes, after some time."""
        del prepare_s
        self.world.point(f"ask {method}")
        effect = self._misdeed(method, given)
        if method in ("train", "work"):
            self._limits_s = [limit_s, *[rounds[1]] * min(rounds[0], 1000)]
        else:
            duration_s = OTHER_S
            if method == "gradient":
                program, _, _, step, *_ = given
                duration_s = longer(MINIBATCH_S, unpickled(program).local_minibatches(step))
            self._works(method, effect, duration_s, limit_s)
        facts, content = getattr(self, f"_{method}")(*given)
        if effect == "shape":
            content = padded(b'{"gradient": [1, 2, 3]}')
        self.calls += 1
        return self._checked(method, facts | WRONG.get(effect, {})), content

    def _works(self, method: str, effect: str, duration_s: tuple[float, float], limit_s: float) -> None:
        """Take the time of a call, or of a mini-batch; do what the job does in it."""
        took = self._random.uniform(*duration_s)
        if self.up:
            self._working.wait(limit_s if effect == "hang" else min(took, limit_s))
        if not self.up:
            raise EndedError("its process was killed")
        if effect == "hang" or took > limit_s:
            self.end()
            raise StalledError(f"its code {STALLS} {limit_s:.3g} s")
        if effect in ("end", "memory"):
            self.end()
            if effect == "end":
                raise EndedError(f"{ENDS} that it runs in")
            raise JobError("it uses more memory than it may")
        if effect == "raise":
            raise JobError(f"{RAISES} in {method!r}")

    @property
    def lives(self) -> bool:
        """Whether it has not ended, nor has the process that asks it."""
        return self.up and self.process.alive

    def give(self, link: Any, named: tuple[int, str] = (0, "")) -> None:
        """Give it a connection, or where it listens."""
        self.link = named
        if isinstance(link, SimulatedListener):
            self._connections, link.child = link, self
        else:
            self._link, link.worker = link, self
            link.wake()

    def cut(self) -> None:
        """End its connection."""
        self._link.close()

    def revoke(self, window: int) -> None:
        """Have a window, by its number, end after the mini-batch that is computed."""
        self.world.point(f"revoke {window}")
        self.revoked = window
        self._pausing.wake()

    def _train(self, window: RoundWindow, folder: str) -> tuple[Ack, bytes]:
        loaded, rounds, began = self._loaded, 0, self.world.now
        wrong: dict[str, Any] = {}
        missing = list[tuple[int, int]]()
        for number in set(self._connections.links) - window.links:
            self._connections.drop(number)
        for minibatches in window.rounds if loaded.version == window.version else ():
            if rounds and self.revoked != window.number:
                self._pausing.wait(window.wait_s(rounds, self.world.now - began))
            if self.revoked == window.number:
                break
            try:
                brought, wrong = self._round(window, minibatches, folder, self._limits_s[rounds])
            except StalledError as error:
                error.rounds = rounds
                raise
            if brought and not wrong:
                loaded.apply(loaded.version, brought)
                rounds += 1
            missing = [(one.chunk, one.link) for one in minibatches if Minibatch(one.chunk, one.step) not in brought]
            if missing or wrong:
                break
        for link in self._connections.links.values():
            link.orders.append((window.number, -1, 0, b""))
            link.wake()
        facts = self._answer_of(loaded)[0] | {
            "rounds": rounds,
            "missing": missing,
            "samples": rounds,
            "loss": 1.0,
            "first_ago_s": 0.0,
            "stage_s": {},
        }
        return facts | wrong, b""

    def _round(
        self, window: RoundWindow, minibatches: Sequence[RoundMinibatch], folder: str, limit_s: float
    ) -> tuple[list[Minibatch], dict[str, Any]]:
        """What a round brings, and facts that are in the place of right ones."""
        loaded, connections = self._loaded, self._connections
        args, deadline = loaded.program.args, self.world.now + window.patience_s
        asked = {one.link: one for one in minibatches if one.link}
        connections.wait(lambda: connections.connected(set(asked)) or self.revoked == window.number, deadline)
        for number in [number for number in asked if not connections.connected({number})]:
            connections.drop(number)
            del asked[number]
        for number, one in asked.items():
            connections.links[number].orders.append((window.number, one.chunk, one.step, loaded.dump()))
            connections.links[number].wake()
        brought = set[Minibatch]()
        for one in minibatches:
            if not one.link:
                effect = self.misdeeds.effect(args, "gradient", named(loaded.program, one.chunk, one.step))
                self._works("train", effect, longer(MINIBATCH_S, one.length), limit_s)
                if effect == "shape":
                    raise JobError("a gradient does not fit the parameters")
                if effect in WRONG:
                    return [], WRONG[effect]
                path, state = str(chunk_path(Path(folder), one.chunk)), loaded.dump()
                self._gradient(pickle.dumps(loaded.program), path, one.chunk, one.step, state, "cpu")
                brought.add(Minibatch(one.chunk, one.step))
        links = {number: connections.links[number] for number in asked}
        connections.wait(
            lambda: all(link.contributions or not link.is_up for link in links.values()),
            max(deadline, self.world.now + 1.0),
        )
        if not self.up:
            raise EndedError("its process was killed")
        for number, link in links.items():
            if not link.contributions:
                connections.drop(number)
                continue
            content = json.loads(link.contributions.pop(0))
            if "step" not in content:
                raise JobError("a gradient does not fit the parameters")
            same(content["job"], job_of(loaded.program), "a gradient")
            same([content["chunk"], content["step"]], list(asked[number][:2]), "a gradient")
            brought.add(Minibatch(content["chunk"], content["step"]))
        firsts = [Minibatch(m.chunk, m.step) for m in minibatches]
        ordered = [minibatch for minibatch in firsts if minibatch in brought]
        counted = [name for one in ordered for name in named(loaded.program, one.chunk, one.step)]
        effect = self.misdeeds.effect(args, "apply", counted)
        if effect:
            self._works("train", effect, OTHER_S, limit_s)
        return ordered, WRONG.get(effect, {})

    def _work(self, program: bytes, folder: str, window: int, device: str, is_new: bool) -> tuple[Ack, bytes]:
        del is_new
        link, rounds, effect, own = self._link, 0, "", unpickled(program)
        closed = True
        while True:
            while not link.orders and link.is_up and self.up:
                link.changed.wait(LOOK_S)
            if not self.up:
                raise EndedError("its process was killed")
            if not link.orders:
                break
            number, chunk, step, state = link.orders.pop(0)
            if chunk < 0:
                if number >= window:
                    closed = False
                    break
                continue
            effect = self.misdeeds.effect(own.args, "gradient", named(own, chunk, step))
            try:
                duration_s = longer(MINIBATCH_S, own.local_minibatches(step))
                self._works("work", effect, duration_s, self._limits_s[min(rounds, 1)])
            except Exception:
                link.close()
                raise
            rounds += 1
            path = str(chunk_path(Path(folder), chunk))
            _, content = self._gradient(program, path, chunk, step, state, device)
            if effect == "nan":
                link.close()
                raise JobError("its code brings a mini-batch with a wrong loss")
            if effect in WRONG or not link.is_up:
                break
            link.contributions.append(padded(b'{"gradient": [1, 2, 3]}') if effect == "shape" else content)
            link.wake()
        if closed:
            link.close()
        facts = {"rounds": rounds, "closed": closed, "device": device, "stage_s": {}, "module": MODULE}
        return facts | ({"rounds": -1} if effect in WRONG else {}), b""

    def _misdeed(self, method: str, given: tuple[Any, ...]) -> str:
        """What the job does in a call; empty if it behaves."""
        if method == "gradient":
            program, _, chunk, step, *_ = given
            own = unpickled(program)
            return self.misdeeds.effect(own.args, method, named(own, chunk, step))
        if method in ("load", "contents", "accuracies"):
            return self.misdeeds.effect(unpickled(given[0]).args, method, [])
        if method == "apply":
            own, brought = self._loaded.program, list(map(json.loads, given[1]))
            counted = [name for one in brought if "step" in one for name in named(own, one["chunk"], one["step"])]
            return self.misdeeds.effect(own.args, method, counted)
        return "" if self.parameters is None else self.misdeeds.effect(self.parameters.program.args, method, [])

    def _checked(self, method: str, facts: Ack) -> Ack:
        """The facts of an answer; of a process that answers what is none it is the end."""
        try:
            return checked(method, facts)
        except ValueError as error:
            self.end()
            raise JobError(str(error)) from None

    def kill(self) -> None:
        """End the process; a call to it fails."""
        self.up = False
        self._working.wake()
        self._pausing.wake()
        for connection in vars(self).get("_link"), vars(self).get("_connections"):
            if connection is not None:
                connection.changed.wake()

    end = kill

    def wait(self, limit_s: float) -> None:
        """It has ended at once."""

    def _gpus(self) -> tuple[Ack, bytes]:
        return {"gpus": 0}, b""

    def _gradient(
        self, program: bytes, path: str, chunk: int, step: int, state: bytes, device: str
    ) -> tuple[Ack, bytes]:
        job = job_of(unpickled(program))
        same(json.loads(whole(Path(path))), [job, chunk], "the chunk")
        same(json.loads(state)["job"], job, "the parameters")
        if json.loads(state)["held"].count([chunk, step]):
            raise TrainingError(f"mini-batch {step} of chunk {chunk} is in the parameters already")
        facts = {"chunk": chunk, "step": step, "loss": 1.0, "samples": 1}
        stage_s = {"deserialize": 0.02, "compute": 0.06, "serialize": 0.02}
        content = json.dumps({"job": job, "chunk": chunk, "step": step}).encode()
        return {**facts, "stage_s": stage_s, "module": MODULE, "device": device}, padded(content)

    def _load(self, program: bytes, saved: bytes | None) -> tuple[Ack, bytes]:
        self.parameters = HeldParameters(unpickled(program))
        if saved is not None:
            self.parameters.restore(saved)
        return self._answer_of(self.parameters)

    def _apply(self, version: int, contributions: Sequence[bytes]) -> tuple[Ack, bytes]:
        brought = [json.loads(content) for content in contributions]
        if any("step" not in one for one in brought):
            raise JobError("a gradient does not fit the parameters")
        for one in brought:
            same(one["job"], job_of(self._loaded.program), "a gradient")
        self._loaded.apply(version, [Minibatch(one["chunk"], one["step"]) for one in brought])
        facts, state = self._answer_of(self._loaded)
        stage_s = {"deserialize": 0.002, "update": 0.006, "serialize": 0.002}
        return {**facts, "stage_s": stage_s, "bytes": len(state)}, state

    def _dump(self) -> tuple[Ack, bytes]:
        return {"version": self._loaded.version, "progress": list(self._loaded.progress)}, self._loaded.dump()

    def _state(self, version: int) -> tuple[Ack, bytes]:
        same(self._loaded.version, version, "the version")
        return self._answer_of(self._loaded)

    def _losses(self) -> tuple[Ack, bytes]:
        return {"losses": [[1, 1.0]]}, b""

    def _contents(self, program: bytes, chunks: Sequence[int]) -> tuple[Ack, bytes]:
        job = job_of(unpickled(program))
        contents = [framed(padded(json.dumps([job, chunk]).encode())) for chunk in chunks]
        return {"sizes": [len(content) for content in contents], "labels": []}, b"".join(contents)

    def _accuracies(self, program: bytes, states: Sequence[bytes]) -> tuple[Ack, bytes]:
        for state in states:
            same(json.loads(state)["job"], job_of(unpickled(program)), "the parameters")
        return {"accuracies": [0.5] * len(states), "metric": "accuracy"}, b""

    def _saved(self, program: bytes, checkpoint: bytes) -> tuple[Ack, bytes]:
        return {"losses": [[1, 1.0]]}, self._load(program, checkpoint)[1]

    def _answer_of(self, parameters: HeldParameters) -> tuple[Ack, bytes]:
        facts = {"version": parameters.version, "progress": list(parameters.progress), "module": MODULE}
        return facts, padded(parameters.dump())

    @property
    def _loaded(self) -> HeldParameters:
        assert self.parameters is not None
        return self.parameters


class SimulatedNursery:
    """Starts such processes; `children` gets each of them."""

    def __init__(self, children: list[SimulatedChild], misdeeds: Misdeeds, confinement: Confinement) -> None:
        self.children, self.misdeeds, self.confinement = children, misdeeds, confinement

    def start(self) -> None:
        """It needs no start."""

    def end(self) -> None:
        """It needs no end."""

    def fork(self, confinement: Confinement | None = None) -> SimulatedChild:
        """A new process."""
        child = SimulatedChild(self.misdeeds)
        self.children.append(child)
        return child


@contextmanager
def simulated_children() -> Iterator[list[SimulatedChild]]:
    """Have agents, parameter servers and the job code runner start simulated processes, which are in the list."""
    children, misdeeds = list[SimulatedChild](), Misdeeds()

    def fork_server(confinement: Confinement = TRUSTED) -> SimulatedNursery:
        return SimulatedNursery(children, misdeeds, confinement)

    with (
        simulated_connections(),
        mock.patch.object(job_processes, "ForkServerClient", fork_server),
        mock.patch.object(ps_actor, "ForkServerClient", fork_server),
    ):
        yield children


def children_of(children: Sequence[SimulatedChild], process: Process) -> list[SimulatedChild]:
    """Those of a process that are up."""
    return [child for child in children if child.process is process and child.up]


def unpickled(program: bytes) -> Program:
    """A program as it was sent."""
    return pickle.loads(program)  # noqa: S301 - of this program


def job_of(program: Program) -> str:
    """What tells the programs of jobs apart."""
    return str(program.args["job"])


def same(found: object, wanted: object, what: str) -> None:
    """Check that a content is of this job.

    Raises
    ------
    TrainingError
        If it is not; the job then fails, although its code has not.
    """
    if found != wanted:
        raise TrainingError(f"{what} is of {found}, not of {wanted}")


def padded(content: bytes) -> bytes:
    """A JSON text that is so large that it stays in the object store of its node."""
    return content.ljust(STORED + 1)
