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
from .job_process import Ack
from .loader_batches import seed_all
from .pip_packages import folder_of, install
from .program import Program
from .round_window import RoundWindow
from .sgd import ColocatedWorker, ParameterServer, Source, accuracies, gradient, source_of
from .stage_clock import StageClock
from .wire_format import WireFormat

_EXAMPLES = "skedge.live.examples"

_TELL_S = 0.05
"""How often a process tells how many rounds of a window it has trained [s]; it also does where the chunk changes."""

_ALONE_S = 10.0
"""Time without clients after which the process ends [s]."""


Answer = tuple[Ack, bytes | bytearray]
"""Facts, and bytes."""


class Caller:
    """Who has called, while the call is carried out.

    Attributes
    ----------
    revoked
        Number of the last window that was revoked; 0: none.
    """

    def __init__(self, connection: Connection | None = None) -> None:
        self.connection, self.revoked = connection, 0

    def tell(self, **facts: Any) -> None:
        """Tell something before the answer."""
        if self.connection is not None:
            _send(self.connection, facts)

    def ready(self) -> None:
        """Tell that the process has the job's packages, has imported its code and called its factory."""
        self.tell(ready=True)

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
        self.server: ParameterServer | None = None
        self.colocated: ColocatedWorker | None = None
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
        chunk_data = self._made(program)
        if self.model is None:
            model = chunk_data.training.model()
            self.format, self.model = WireFormat(model), model.to(device)
        training, own, wire = chunk_data.training, chunk_data.program, self._wire()
        source, clock = self._source(training, own, chunk, path), StageClock()
        brought = gradient(self.model, training, own, source, wire.state.views(state), chunk, step, device, clock)
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
        self.server = ParameterServer(self.program)
        self.format = WireFormat(self.server.model)
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

    def train(self, window: RoundWindow, paths: Mapping[int, str]) -> Answer:
        """Train the rounds of a window, until it is revoked.

        Parameters
        ----------
        window
            The window.
        paths
            Where each of its chunks is stored.
        """
        server, clock, losses, samples, first_at = self._server(), StageClock(), list[float](), 0, 0.0
        worker = self.colocated = self.colocated or ColocatedWorker(server)
        last_told = window.minibatches[0][0] if window.minibatches else 0, 0.0
        if server.version == window.version:
            for chunk, step in window.minibatches:
                pause_s = window.wait_s(len(losses), clock.elapsed_s) if losses else 0.0
                if self.caller.revokes(window.number, pause_s):
                    break
                clock.end("pace")
                if losses and (chunk != last_told[0] or clock.elapsed_s - last_told[1] > _TELL_S):
                    self.caller.tell(round=len(losses))
                    last_told = chunk, clock.elapsed_s
                source = self._source(server.training, server.program, chunk, paths[chunk])
                clock.end("request")
                contribution = worker.gradient(source, chunk, step, clock)
                clock.end("gradient copy")
                server.apply(server.version, [contribution])
                clock.end("update")
                first_at = first_at or clock.elapsed_s
                losses.append(contribution.loss)
                samples += contribution.samples
        facts = {
            **self._facts(server),
            "rounds": len(losses),
            "samples": samples,
            "loss": sum(losses) / max(len(losses), 1),
            "first_ago_s": clock.elapsed_s - first_at,
            "stage_s": clock.stage_s,
        }
        return facts, b""

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
        return self._facts(server), self._wire().state.pack(server.model.state_dict())

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
            layout = WireFormat(chunk_data.training.model()).state
            values = accuracies(chunk_data.program, map(layout.views, states))
        except TrainingError:
            raise
        except (Exception, SystemExit) as error:
            raise TrainingError(told(error)) from error
        return {"accuracies": values, "metric": chunk_data.training.metric_name}, b""

    def saved(self, program: bytes, checkpoint: bytes) -> Answer:
        """Losses and state of a checkpoint."""
        _, state = self.load(program, checkpoint)
        return self.losses()[0], state


def serve(connection: Connection) -> None:
    """Answer calls until the connection is closed."""
    caller = Caller(connection)
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
    ForkServer(listening, lambda connection: serve(Connection(connection)), _ALONE_S).run()
    os.unlink(listening.getsockname())
