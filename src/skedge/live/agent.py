"""The agent: the Ray actor on every server.

An agent keeps the chunks that were uploaded to its server in a folder, so that they survive its process, and turns
mini-batches into gradients for the lanes of its server, one thread each. It knows nothing of scheduling: a worker is
preempted by not being asked for its next mini-batch.
"""

from __future__ import annotations

import io
import os
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from skedge.core.errors import TrainingError

from .framing import framed, unframed
from .training import (
    ChunkData,
    Contribution,
    Data,
    ParameterServer,
    Program,
    Source,
    State,
    Training,
    gradient,
    source_of,
)

Ack = dict[str, Any]
"""Plain facts about a call, small enough to be fetched while tensors stay where they are."""


def packed(data: Data) -> bytes:
    """A chunk as bytes, its digest in front."""
    buffer = io.BytesIO()
    torch.save(data, buffer)
    return framed(buffer.getvalue())


def unpacked(path: Path) -> Data:
    """A chunk from its file.

    Raises
    ------
    TrainingError
        If it is missing or damaged.
    """
    try:
        frame = path.read_bytes()
    except OSError as error:
        raise TrainingError(f"chunk file {path}: {error.strerror}") from error
    content = unframed(frame)
    if content is None:
        raise TrainingError(f"chunk file {path}: is truncated or damaged ({len(frame)} bytes)")
    data: Data = torch.load(io.BytesIO(content), weights_only=True)
    return data


class Agent:
    """One server's agent."""

    def __init__(self, server: str, folder: str) -> None:
        torch.set_num_threads(1)
        self.server, self.folder = server, Path(folder)
        self.programs: dict[str, tuple[Program, Training]] = {}
        self.models: dict[tuple[str, int], nn.Module] = {}
        self.data: dict[tuple[str, int], Source] = {}
        self.lock = threading.Lock()
        self.computing: dict[tuple[str, int], threading.Lock] = {}

    def warm(self) -> str:
        """Train one mini-batch of nothing: the first one of a process costs seconds of imports."""
        program = Program("skedge.live.examples:images", {"samples": 20, "size": 8}, 4, 1, 1)
        server = ParameterServer(program)
        made = ChunkData(program)
        gradient(made.training.model(), made.training, program, made(0), server.state(), 0, 0)
        return self.server

    def store(self, job: str, chunk: int, offset: int, piece: bytes, *, last: bool, upload: int = 0) -> int:
        """Take a piece of a chunk, of an `upload`; the last one makes it whole. Returns the bytes that are there."""
        path = self._path(job, chunk)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{upload}.partial")
        with open(aside, "wb" if offset == 0 else "r+b") as file:
            file.seek(offset)
            file.write(piece)
        if last:
            unpacked(aside)
            os.replace(aside, path)
        return offset + len(piece)

    def contents(self, job: str, chunks: tuple[int, ...]) -> list[bytes]:
        """Chunks as they were stored, to be brought to another server.

        Raises
        ------
        TrainingError
            If one is missing or damaged.
        """
        paths = [self._path(job, chunk) for chunk in chunks]
        for path in paths:
            unpacked(path)
        return [path.read_bytes() for path in paths]

    def drop(self, job: str, chunks: tuple[int, ...]) -> None:
        """Remove chunks that are on another server now."""
        with self.lock:
            for chunk in chunks:
                self.models.pop((job, chunk), None)
                self.data.pop((job, chunk), None)
        for chunk in chunks:
            self._path(job, chunk).unlink(missing_ok=True)

    def gradient(self, job: str, program: Program, chunk: int, step: int, state: State) -> tuple[Ack, Contribution]:
        """One mini-batch: what it cost, and its gradients."""
        training, model = self._model(job, program, chunk)
        with self._computing(job, chunk):  # a mini-batch that is late is asked for again, on the same model
            brought = gradient(model, training, program, self._data(job, program, chunk), state, chunk, step)
        return {"chunk": chunk, "step": step, "loss": brought.loss}, brought

    def timed_gradient(
        self, job: str, program: Program, chunk: int, step: int, state: State
    ) -> tuple[Ack, Contribution]:
        """:meth:`gradient`, with the ``seconds`` that it took here, without transport."""
        began = time.perf_counter()
        ack, brought = self.gradient(job, program, chunk, step, state)
        return {**ack, "seconds": time.perf_counter() - began}, brought

    def forget(self, job: str) -> None:
        """The job has left: its chunks are removed."""
        with self.lock:
            self.programs.pop(job, None)
            for kept in (self.models, self.data):
                for key in [key for key in kept if key[0] == job]:
                    del kept[key]
        for path in (self.folder / job).glob("*"):
            path.unlink(missing_ok=True)

    def pid(self) -> int:
        """Process number: also says that the agent is up."""
        return os.getpid()

    def _path(self, job: str, chunk: int) -> Path:
        return self.folder / job / f"{chunk:06d}.pt"

    def _model(self, job: str, program: Program, chunk: int) -> tuple[Training, nn.Module]:
        with self.lock:
            if job not in self.programs:
                self.programs[job] = program, program.make()
            training = self.programs[job][1]
            if (job, chunk) not in self.models:
                self.models[job, chunk] = training.model()
            return training, self.models[job, chunk]

    def _computing(self, job: str, chunk: int) -> threading.Lock:
        with self.lock:
            return self.computing.setdefault((job, chunk), threading.Lock())

    def _data(self, job: str, program: Program, chunk: int) -> Source:
        with self.lock:
            if (job, chunk) not in self.data:
                sent = unpacked(self._path(job, chunk))
                self.data[job, chunk] = source_of(self.programs[job][1], program, chunk, sent)
            return self.data[job, chunk]
