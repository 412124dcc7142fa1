"""The workers of one job that take part in windows, connected to its parameter server."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

from skedge.live import host
from skedge.live.worker.checkpoint import Life
from skedge.live.worker.job_process import Ack
from skedge.live.worker.program import Program
from skedge.live.worker.round_window import RoundMinibatch, RoundWindow

from .instructions import StartWindow
from .ps_process import PSProcess
from .replies import MinibatchCall, Replies
from .teams import PlannedMinibatch
from .training_actors import TrainingActors

_ANSWER_S = 5.0
"""How long an agent's answer about its machine is waited for [s]."""

_END_S = 1.0
"""How long the answer of a worker is waited for once its window is over [s]; its connection is cut then."""


class WindowWorkers:
    """The connected workers of one job, and the calls by which they take part in the window of now.

    Parameters
    ----------
    job, program
        The job's name, and what it trains.
    processes
        Has the agents.
    ps
        The process of the parameter server.
    replies
        Waits for the answers to calls.

    Attributes
    ----------
    calls
        By number of the connection, the call that a worker is in.
    facts
        Those of the answers to the last window.
    """

    def __init__(self, job: str, program: Program, processes: TrainingActors, ps: PSProcess, replies: Replies) -> None:
        self.job, self.program, self.processes, self.ps, self.replies = job, program, processes, ps, replies
        self.calls: dict[int, MinibatchCall] = {}
        self.facts = list[Ack]()
        self._links: dict[tuple[int, int, int], int] = {}
        self._numbers, self._life = count(1), Life()
        self._addresses: dict[int, str] = {}

    def reaches(self, server: int) -> bool:
        """Whether workers of a server can be connected to the parameter server, here or on another machine."""
        self._look_at_life()
        if server not in self._addresses:
            call = host.call(self.processes.agents[server], "machine")
            if (machine := self.replies.of(call, server, host.monotonic() + _ANSWER_S)) is None:
                return False
            self._addresses[server] = self.ps.address if machine == self.ps.machine else self.ps.door
        return bool(self._addresses[server])

    def connected_rounds(self, step: StartWindow) -> tuple[tuple[RoundMinibatch, ...], ...]:
        """The rounds of a window, each mini-batch with the connection of its worker; there are new ones if needed."""
        self._look_at_life()
        return tuple(tuple(self._minibatch(planned, step) for planned in minibatches) for minibatches in step.rounds)

    def _minibatch(self, planned: PlannedMinibatch, step: StartWindow) -> RoundMinibatch:
        link = 0
        if (planned.team, planned.worker) != (step.colocated, 0):
            key = planned.team, planned.worker, step.teams[planned.team].server
            if key not in self._links:
                self._links[key] = next(self._numbers)
            link = self._links[key]
        return RoundMinibatch(planned.chunk, planned.step, link, self.program.local_minibatches(planned.step))

    def keep(self, links: Collection[int]) -> None:
        """Use no other connections any more: the parameter server closes them."""
        self._links = {key: number for key, number in self._links.items() if number in links}

    def ask(self, window: RoundWindow) -> None:
        """Have workers take part in a window."""
        self.keep(window.links)
        for (team, _, server), number in self._links.items():
            chunks = window.chunks(number)
            link, limits = (number, self._addresses[server]), self.replies.limits(chunks[0], self.program.local_steps)
            arguments = self.job, self.ps.sent, window.number, link, len(chunks), limits
            call = host.call(self.processes.agents[server], "work", *arguments)
            self.calls[number] = MinibatchCall(team, server, chunks[0], -1, -1, call, link=link)

    @property
    def has_answer(self) -> bool:
        """Whether a call is answered: while its window is not over, its worker takes no part any more."""
        calls = [call.ack for call in self.calls.values()]
        return bool(calls) and bool(host.ready(calls, 0)[0])

    def answers(self, late_chunks: Mapping[int, int]) -> Iterator[tuple[MinibatchCall, Any]]:
        """The calls of a window that is over, with their answers; None where a process is lost, or late.

        Parameters
        ----------
        late_chunks
            By number of the connection, the chunk whose mini-batch has not come.
        """
        calls, self.calls = self.calls, {}
        self.facts.clear()
        for number in late_chunks.keys() & calls.keys():
            self._cut(calls[number])
        deadline = host.monotonic() + _END_S
        for number, call in calls.items():
            about = late_chunks.get(number, call.chunk)
            answer = self.replies.of(call.ack, call.server, deadline, about)
            if answer is None and call.comes() and number not in late_chunks:
                self._cut(call)
            if answer is None or answer.get("closed", True):
                self._links = {key: link for key, link in self._links.items() if link != number}
            if answer is not None and "device" in answer:
                self.facts.append(answer)
            elif answer is not None and "unreached" in answer:  # by calls, until the parameter server is loaded again
                self._addresses[call.server] = ""
            yield replace(call, chunk=about), answer

    def _cut(self, call: MinibatchCall) -> None:
        """Have a worker take part in no window any more by its connection."""
        with suppress(host.CallError):  # the parameter server has closed its end
            host.call(self.processes.agents[call.server], "cut", self.job, call.link)

    def _look_at_life(self) -> None:
        if self._life != self.ps.life:
            self._life = self.ps.life
            self._links.clear()
            self._addresses.clear()
