"""The rounds of windows in the process of a parameter server, and the mini-batches of a worker that takes part."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from torch import nn

from skedge.live import host
from skedge.live.training import Training

from .flat_tensors import SharedState
from .job_process import Ack
from .links import Order, ServerLink, WorkerLinks
from .program import Program
from .round_window import RoundMinibatch, RoundWindow
from .sgd import ColocatedWorker, Contribution, ParameterServer, Source, gradient_here, local_of
from .stage_clock import StageClock
from .wire_format import WireFormat

_TELL_S = 0.05
"""How often a process tells how many rounds of a window it has trained [s]; it also does where the chunk changes."""

_LOOK_S = 0.2
"""Interval at which a process that waits for connections looks whether its window is revoked [s]."""

_LEAST_S = 1.0
"""How long the last contributions are waited for at least, once the process has computed its own [s]."""


class Client(Protocol):
    """Who has called, while the call is carried out."""

    def tell(self, **facts: Any) -> None:
        """Tell something before the answer."""

    def revokes(self, window: int, wait_s: float) -> bool:
        """Whether a window, by its number, is revoked; is asked for this long [s]."""


class _Teller:
    """Tells a client how many rounds have been begun, so that it knows which one does not end."""

    def __init__(self, client: Client) -> None:
        self.client, self.told, self.told_at, self.chunk = client, 0, host.monotonic(), -1
        self.waiting = False

    def begin(self, rounds: int, chunk: int) -> None:
        """Note that a round begins after `rounds` others, with this chunk; told from time to time."""
        if rounds > self.told and (self.waiting or chunk != self.chunk or host.monotonic() - self.told_at > _TELL_S):
            self._tell(rounds)
        self.chunk = chunk

    def waits(self, rounds: int) -> None:
        """Tell that the round after `rounds` others waits for other processes."""
        if rounds > self.told:
            self._tell(rounds)
        if not self.waiting:
            self.client.tell(waits=rounds)
            self.waiting = True

    def computes(self, rounds: int) -> None:
        """Tell that the round goes on."""
        if self.waiting:
            self.client.tell(computes=rounds)
            self.waiting = False

    def _tell(self, rounds: int) -> None:
        self.client.tell(round=rounds)
        self.told, self.told_at, self.waiting = rounds, host.monotonic(), False


class WindowRounds:
    """Trains the rounds of windows, in the process of a parameter server.

    Parameters
    ----------
    server, wire
        The parameter server, and the form in which its parameters travel.
    client
        Revokes windows, and hears of their rounds.
    links
        The connections to workers.
    source
        Returns the source of a chunk's mini-batches.
    """

    def __init__(
        self,
        server: ParameterServer,
        wire: WireFormat,
        client: Client,
        links: WorkerLinks,
        source: Callable[[int], Source],
    ) -> None:
        self.server, self.wire, self.client, self.links, self.source = server, wire, client, links, source
        self.colocated: ColocatedWorker | None = None
        self.shared: SharedState | None = None

    def train(self, window: RoundWindow) -> Ack:
        """Train the rounds of a window, until it is revoked, or a worker is late or lost."""
        server, clock, losses, samples, first_at = self.server, StageClock(), list[float](), 0, 0.0
        teller, missing = _Teller(self.client), list[tuple[int, int]]()
        self.links.keep(window.links)
        for minibatches in window.rounds if server.version == window.version else ():
            pause_s = window.wait_s(len(losses), clock.elapsed_s) if losses else 0.0
            if self.client.revokes(window.number, pause_s):
                break
            clock.end("pace")
            teller.begin(len(losses), minibatches[0].chunk)
            brought = self._brought(window, minibatches, clock, teller, len(losses))
            if brought:
                server.apply(server.version, brought)
                clock.end("update")
                first_at = first_at or clock.elapsed_s
                losses.append(sum(contribution.loss for contribution in brought) / len(brought))
                samples += sum(contribution.samples for contribution in brought)
            if len(brought) < len(minibatches):
                came = {contribution.chunk for contribution in brought}
                missing = [
                    (minibatch.chunk, minibatch.link) for minibatch in minibatches if minibatch.chunk not in came
                ]
                break
        self.links.end(window.number, host.monotonic() + _LEAST_S)
        return {
            "rounds": len(losses),
            "missing": missing,
            "samples": samples,
            "loss": sum(losses) / max(len(losses), 1),
            "first_ago_s": clock.elapsed_s - first_at,
            "stage_s": clock.stage_s,
        }

    def _brought(
        self,
        window: RoundWindow,
        minibatches: Sequence[RoundMinibatch],
        clock: StageClock,
        teller: _Teller,
        rounds: int,
    ) -> list[Contribution]:
        """The contributions to a round that come in time, in the order of its mini-batches."""
        asked = {minibatch.link: minibatch for minibatch in minibatches if minibatch.link}
        if asked:
            self._connect(window, asked.keys(), teller, rounds)
            clock.end("request")
            deadline = host.monotonic() + window.patience_s
            asked = self._sent(window.number, asked, deadline, clock)
        brought = dict[int, Contribution]()
        for minibatch in minibatches:
            if not minibatch.link:
                self.colocated = self.colocated or ColocatedWorker(self.server)
                source = self.source(minibatch.chunk)
                clock.end("request")
                brought[minibatch.chunk] = self.colocated.gradient(source, minibatch.chunk, minibatch.step, clock)
                clock.end("gradient copy")
        if asked:
            # who was sent its order last has as long as the others
            deadline = max(deadline, host.monotonic() + max(window.patience_s / 2, _LEAST_S))
            contents = self.links.contributions(asked, deadline, _TELL_S, partial(teller.waits, rounds))
            teller.computes(rounds)
            clock.end("barrier")
            brought |= {asked[link].chunk: self.wire.unpack(content) for link, content in contents.items()}
            clock.end("PS deserialize")
        return [brought[minibatch.chunk] for minibatch in minibatches if minibatch.chunk in brought]

    def _connect(self, window: RoundWindow, links: Collection[int], teller: _Teller, rounds: int) -> None:
        """Wait for the connections of a round, until the window's patience ends or it is revoked."""
        now = host.monotonic()
        if self.links.has_all(links, now):
            return
        teller.waits(rounds)
        deadline = now + window.patience_s
        while not self.links.has_all(links, min(deadline, host.monotonic() + _LOOK_S)):
            if host.monotonic() > deadline or self.client.revokes(window.number, 0.0):
                break
        teller.computes(rounds)

    def _sent(
        self, window: int, minibatches: Mapping[int, RoundMinibatch], deadline: float, clock: StageClock
    ) -> dict[int, RoundMinibatch]:
        """Send the orders of a window, by number of the connection; returns those that were sent whole."""
        self.shared = self.shared or SharedState(self.server.model, self.wire.state, self.server.beside())
        parameters = self.shared.write()
        clock.end("PS serialize")
        orders = {link: Order(window, minibatch.chunk, minibatch.step) for link, minibatch in minibatches.items()}
        sent = [link for link, order in orders.items() if self.links.send(link, order, parameters, deadline)]
        clock.end("broadcast")
        return {link: minibatches[link] for link in sent}


class WorkerRounds:
    """Computes the mini-batches that the parameter server of a job asks for, in the process of a worker.

    Parameters
    ----------
    link
        The connection to the parameter server.
    client
        Hears of the mini-batches.
    model, training, program
        As :func:`.sgd.gradient_here` has them.
    wire
        The form in which parameters and contributions travel.
    """

    def __init__(
        self, link: ServerLink, client: Client, model: nn.Module, training: Training, program: Program, wire: WireFormat
    ) -> None:
        self.link, self.client, self.wire = link, client, wire
        self.model, self.training, self.program = model, training, program
        self.local = local_of(model, training, program)
        self.shared = SharedState(model, wire.state, self.local.state if self.local else None)
        self.content: bytearray | None = None

    def work(self, window: int, source: Callable[[int], Source], device: str) -> Ack:
        """Compute mini-batches until this window, by its number, or a later one is over, or the connection is closed.

        Parameters
        ----------
        window
            Number of the window.
        source
            Returns the source of a chunk's mini-batches.
        device
            As PyTorch names it.
        """
        clock, teller, rounds, closed = StageClock(), _Teller(self.client), 0, True
        while (order := self.link.order(self.shared.memory, _TELL_S, partial(teller.waits, rounds))) is not None:
            clock.end("broadcast")
            teller.computes(rounds)
            if order.chunk < 0:
                if order.window >= window:
                    closed = False
                    break
                continue
            teller.begin(rounds, order.chunk)
            rounds += 1
            data = source(order.chunk)
            self.shared.read()
            clock.end("deserialize")
            brought = self._brought(data, order, device, clock)
            self.content = self.wire.pack(brought, self.content)
            clock.end("gradient copy")
            if not self.link.send(self.content):
                break
            clock.end("send")
        if closed:
            self.link.close()
        return {"rounds": rounds, "closed": closed, "device": device, "stage_s": clock.stage_s}

    def _brought(self, data: Source, order: Order, device: str, clock: StageClock) -> Contribution:
        if self.local is not None:
            return self.local.train(data, order.chunk, order.step, device, clock)
        return gradient_here(self.model, self.training, self.program, data, order.chunk, order.step, device, clock)
