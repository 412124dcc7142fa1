"""The process of a job: gradients, updates, data and measurements, by the job's own code.

:func:`main` is the process from which these are forked (:class:`.job_processes.ForkServerClient`): it has one thread,
no tokens, and no code of any job.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from skedge.core.errors import TrainingError
from skedge.live.confinement.fork_server import ForkServer
from skedge.live.training import Training

from .chunk_data import ChunkData
from .chunk_format import packed, unpacked
from .code_archive import installed
from .code_errors import told, whole
from .device import CPU, gpus_here
from .framing import chunk_path
from .job_process import Ack
from .links import ServerLink, WorkerLinks, received
from .loader_batches import seed_all
from .pip_packages import folder_of, install
from .program import Program
from .round_window import RoundWindow
from .sgd import LocalSGD, ParameterServer, Source, accuracies, gradient, local_of, source_of
from .stage_clock import StageClock
from .window_rounds import WindowRounds, WorkerRounds
from .wire_format import WireFormat

_EXAMPLES = "skedge.live.examples"

_ALONE_S = 10.0
"""Time without clients after which the process ends [s]."""


Answer = tuple[Ack, bytes | bytearray]
"""Facts, and bytes."""


class Caller:
    """Who has called, while the call is carried out.

    Attributes
    ----------
    links
        Where the sockets come that connect this process to others of the job.
    revoked
        Number of the last window that was revoked; 0: none.
    """

    def __init__(self, connection: Connection | None = None, links: socket.socket | None = None) -> None:
        self.connection, self.links, self.revoked = connection, links, 0

    def tell(self, **facts: Any) -> None:
        """Tell something before the answer."""
        if self.connection is not None:
            _send(self.connection, facts)

    def ready(self) -> None:
        """Tell that the process has the job's packages, has imported its code and called its factory."""
        self.tell(ready=True)

    def link(self) -> socket.socket:
        """The next socket by which this process is connected to others of the job.

        Raises
        ------
        EOFError
            If the client has gone.
        """
        assert self.links is not None  # noqa: S101 - this process serves one
        return received(self.links)

    def call(self) -> tuple[str, tuple[Any, ...]]:
        """The next call: its method and arguments; waits for it.

        Raises
        ------
        EOFError
            If the connection is closed.
        """
        assert self.connection is not None  # noqa: S101 - this process serves one
        while True:
            method, arguments = pickle.loads(self.connection.recv_bytes())  # noqa: S301 - of this process's own parent
            if method != "revoke":
                return method, arguments
            (self.revoked,) = arguments

    def revokes(self, window: int, wait_s: float) -> bool:
        """Whether a window, by its number, is revoked; is asked for this long [s]."""
        while self.revoked != window and self.connection is not None and self.connection.poll(wait_s):
            _, (self.revoked,) = pickle.loads(self.connection.recv_bytes())  # noqa: S301 - of its own parent
        return self.revoked == window


class JobWorker:
    """Answers the calls to one process; each call returns facts and bytes.

    Parameters
    ----------
    caller
        Who calls.
    """

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.program: Program | None = None
        self.made: ChunkData | None = None
        self.model: torch.nn.Module | None = None
        self.format: WireFormat | None = None
        self.local: LocalSGD | None = None
        self.server: ParameterServer | None = None
        self.windows: WindowRounds | None = None
        self.rounds: WorkerRounds | None = None
        self.sources: dict[int, Source] = {}

    def _made(self, program: bytes) -> ChunkData:
        """The job's data and training, made once, as a process serves one job."""
        if self.made is None:
            self.program = pickle.loads(program)  # noqa: S301 - of the controller
            self.made = ChunkData(self.program)
            self.caller.ready()
        return self.made

    def packages(self, requirements: Sequence[str]) -> Answer:
        """Name of the folder of packages for these requirements."""
        return {"folder": folder_of(requirements)}, b""

    def install(self, requirements: Sequence[str], folder: str, settings: Mapping[str, str]) -> Answer:
        """Install packages into a folder, with pip's settings in its environment, and the network."""
        install(requirements, Path(folder), settings, only_wheels=True)
        return {}, b""

    def gpus(self) -> Answer:
        """Number of GPUs that the processes of jobs may use."""
        return {"gpus": gpus_here()}, b""

    def gradient(self, program: bytes, path: str, chunk: int, step: int, state: bytes, device: str = CPU) -> Answer:
        """Gradients of one mini-batch of a chunk.

        Parameters
        ----------
        program
            The job's program (:func:`.job_processes.sent`), the same in all calls.
        path
            Where the chunk is stored; read at the first call for this chunk only.
        chunk, step
            The chunk, and the number of its mini-batch, counted over all epochs from 0.
        state
            Parameters and buffers to compute at, in the format of the model.
        device
            As PyTorch names it; the same in all calls, as the model stays there.
        """
        chunk_data, model = self._made(program), self._model(program, device)
        training, own, wire = chunk_data.training, chunk_data.program, self._wire()
        source, clock = self._source(training, own, chunk, path), StageClock()
        parameters = wire.state.views(state)
        brought = gradient(model, training, own, source, parameters, chunk, step, device, clock, self.local)
        content = wire.pack(brought)
        clock.end("serialize")
        facts = {
            "chunk": chunk,
            "step": step,
            "loss": brought.loss,
            "samples": brought.samples,
            "stage_s": clock.stage_s,
            "module": chunk_data.module,
            "device": device,
        }
        return facts, content

    def _model(self, program: bytes, device: str) -> torch.nn.Module:
        """The model of this worker, made once on its device."""
        if self.model is None:
            model = self._made(program).training.model()
            self.model = model.to(device)
            made = self._made(program)
            self.local = local_of(self.model, made.training, made.program)
            self.format = WireFormat(model, self.local.state if self.local else None)
        return self.model

    def work(self, program: bytes, folder: str, window: int, device: str, is_new: bool) -> Answer:
        """Compute the mini-batches that the parameter server asks for, until a window is over.

        Parameters
        ----------
        program
            The job's program (:func:`.job_processes.sent`), the same in all calls.
        folder
            Where the job's chunks are stored.
        window
            Number of the window.
        device
            As PyTorch names it; the same in all calls, as the model stays there.
        is_new
            Whether this process has been given a new connection to the parameter server for it.
        """
        chunk_data, model = self._made(program), self._model(program, device)
        training, own, wire = chunk_data.training, chunk_data.program, self._wire()
        if is_new or self.rounds is None:
            link = ServerLink(self.caller.link(), chunk_data.module)
            self.rounds = WorkerRounds(link, self.caller, model, training, own, wire)

        def source(chunk: int) -> Source:
            return self._source(training, own, chunk, str(chunk_path(Path(folder), chunk)))

        try:
            return {**self.rounds.work(window, source, device), "module": chunk_data.module}, b""
        except BaseException:
            self.rounds.link.close()  # so that nobody waits for what was asked of it
            raise

    def _source(self, training: Training, program: Program, chunk: int, path: str) -> Source:
        """The source of a chunk's mini-batches, read once."""
        if chunk not in self.sources:
            data, module = unpacked(path)
            program.check_same(module)
            self.sources[chunk] = source_of(training, program, chunk, data)
        return self.sources[chunk]

    def load(self, program: bytes, checkpoint: bytes | None) -> Answer:
        """Become the parameter server, from a checkpoint or from the start."""
        self.program = pickle.loads(program)  # noqa: S301 - of the controller
        self.server = server = ParameterServer(self.program)
        self.format = WireFormat(server.model, server.beside())
        self.caller.ready()
        if checkpoint is not None:
            self.server.restore(checkpoint)
        return self._state(self.server)

    def apply(self, version: int, contributions: Sequence[bytes]) -> Answer:
        """Update by the contributions of a round."""
        server, wire, clock = self._server(), self._wire(), StageClock()
        brought = [wire.unpack(bytearray(contribution)) for contribution in contributions]
        clock.end("deserialize")
        server.apply(version, brought)
        clock.end("update")
        facts, state = self._state(server)
        clock.end("serialize")
        return {**facts, "stage_s": clock.stage_s, "bytes": len(contributions[0])}, state

    def train(self, window: RoundWindow, folder: str) -> Answer:
        """Train the rounds of a window, until it is revoked, or a worker is late or lost.

        Parameters
        ----------
        window
            The window.
        folder
            Where the chunks are stored that it trains itself.
        """
        server = self._server()
        if self.windows is None:
            wire = self._wire()

            def check(module: str) -> None:
                server.program.check_same_as(server.module, module)

            def source(chunk: int) -> Source:
                return self._source(server.training, server.program, chunk, str(chunk_path(Path(folder), chunk)))

            size = wire.contribution_bytes
            links = WorkerLinks(self.caller.link(), size, check)
            self.windows = WindowRounds(server, wire, self.caller, links, source)
        facts = self.windows.train(window)
        return {**self._facts(server), **facts}, b""

    def state(self, version: int) -> Answer:
        """The parameters of the current version, which must be this one."""
        facts, state = self._state(self._server())
        if facts["version"] != version:
            raise TrainingError(f"it has parameters of version {facts['version']}, not {version}")
        return facts, state

    def dump(self) -> Answer:
        """A checkpoint."""
        server = self._server()
        return {"version": server.version, "progress": list(server.progress)}, server.dump()

    def losses(self) -> Answer:
        """(version, mean loss) of every update."""
        return {"losses": self._server().losses}, b""

    def _server(self) -> ParameterServer:
        assert self.server is not None  # noqa: S101 - it is loaded first
        return self.server

    def _wire(self) -> WireFormat:
        assert self.format is not None  # noqa: S101 - made with the model
        return self.format

    def _state(self, server: ParameterServer) -> Answer:
        return self._facts(server), self._wire().state.pack(server.model.state_dict() | server.beside())

    def _facts(self, server: ParameterServer) -> Ack:
        return {"version": server.version, "progress": list(server.progress), "module": server.module}

    def contents(self, program: bytes, chunks: Sequence[int]) -> Answer:
        """Chunks in the form in which they are sent, concatenated."""
        chunk_data = self._made(program)
        try:
            packed_chunks = [packed(chunk_data.counted(chunk), chunk_data.module) for chunk in chunks]
        except (Exception, SystemExit) as error:  # the job's own code: whatever it raises is its reason to fail
            raise TrainingError(f"its data cannot be made: {told(error)}") from error
        labels = [(chunk, list(chunk_data.labels[chunk].items())) for chunk in chunks if chunk in chunk_data.labels]
        return {"sizes": [len(content) for content in packed_chunks], "labels": labels}, b"".join(packed_chunks)

    def accuracies(self, program: bytes, states: Sequence[bytes]) -> Answer:
        """The metric of each of several states."""
        chunk_data = self._made(program)
        try:
            training, own = chunk_data.training, chunk_data.program
            local = local_of(model := training.model(), training, own)
            layout = WireFormat(model, local.state if local else None).state
            values = accuracies(own, map(layout.views, states))
        except TrainingError:
            raise
        except (Exception, SystemExit) as error:
            raise TrainingError(told(error)) from error
        return {"accuracies": values, "metric": chunk_data.training.metric_name}, b""

    def saved(self, program: bytes, checkpoint: bytes) -> Answer:
        """Losses and state of a checkpoint."""
        _, state = self.load(program, checkpoint)
        return self.losses()[0], state


def serve(connection: Connection, links: socket.socket) -> None:
    """Answer calls until the connection is closed; `links` gives sockets that connect this process to others."""
    caller = Caller(connection, links)
    inside = JobWorker(caller)
    while True:
        try:
            method, arguments = caller.call()
        except EOFError:
            return
        facts: Ack
        try:
            facts, content = getattr(inside, method)(*arguments)
        except Exception as error:  # whatever the job's code raises is its reason to fail
            facts, content = _failed(error)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the job's code may have replaced or closed it
                stream.flush()
        _send(connection, facts)
        connection.send_bytes(content)


def _serve(connection: int, links: int) -> None:
    serve(Connection(connection), socket.socket(fileno=links))


def _send(connection: Connection, facts: Ack) -> None:
    connection.send_bytes(json.dumps(facts).encode())


def _failed(error: Exception) -> Answer:
    """The answer to a call in which the job's code has failed: the reason, and the traceback, which is printed."""
    trace = whole(error)
    with suppress(Exception):
        sys.stderr.write(trace)
    reason = str(error) if isinstance(error, TrainingError) else told(error)
    return {"failed": reason}, trace.encode("utf-8", "backslashreplace")


def _warm() -> None:
    """Import what a first mini-batch and a first update need, which takes seconds; must not start a thread."""
    torch.set_num_threads(1)
    installed(_EXAMPLES)
    server = ParameterServer(Program(f"{_EXAMPLES}:images", {"samples": 20, "size": 8}, 4, 1, 1))
    seed_all(0)
    for parameter in server.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    server.optimizer.step()  # of SGD; that of Adam asks CUDA for GPUs, which children could then not use
    layout = WireFormat(server.model).state
    layout.views(layout.pack(server.model.state_dict()))


def main(number: int) -> None:
    """Fork a process for each request at the open socket `number`; end when no client is left."""
    listening = socket.socket(fileno=number)
    _warm()
    ForkServer(listening, _serve, _ALONE_S).run()
    os.unlink(listening.getsockname())
