"""The same training in plain PyTorch, or in DDP over gloo on loopback, as a process: the baseline of a round.

``python -m skedge.live.cluster.plain_training FOLDER RANK PROCESSES ROUNDS`` reads ``FOLDER/program`` and writes
``FOLDER/RANK.json``. Each process has one thread. One process alone computes the mini-batches of all chunks one after
the other and updates once by their mean gradient; of several, each computes those of its own chunk.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from skedge.live import host
from skedge.live.worker.loader_batches import LoaderBatches, samples_in
from skedge.live.worker.program import Program
from skedge.live.worker.sgd import Source, minibatch, source_of


def train(program: Program, rank: int, processes: int, rounds: int) -> dict[str, Any]:
    """Train some rounds; returns the time of each, its samples in this process, and the model's number of parameters.

    Parameters
    ----------
    program
        What is trained; every chunk has the data of chunk 0.
    rank, processes
        Number of this process, and of all; with several, their group is there.
    rounds
        Number of rounds.
    """
    training = program.make()
    model: nn.Module = training.model()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    optimizer = training.optimizer(model.parameters())
    if processes > 1:
        model = DistributedDataParallel(model)
    model.train()
    data = () if training.chunk is None else training.chunk(0)
    chunks = range(program.chunks) if processes == 1 else (rank,)
    sources = {chunk: source_of(training, program, chunk, data) for chunk in chunks}
    round_s, samples = [], 0
    for step in range(rounds):
        start, samples = host.perf_counter(), 0
        optimizer.zero_grad(set_to_none=True)
        for chunk, source in sources.items():
            batch, number = _minibatch(source, program, chunk, step)
            training.backward(model, batch)
            samples += number
        if len(sources) > 1:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad /= len(sources)
        if training.clip is not None:
            training.clip(model)
        optimizer.step()
        round_s.append(host.perf_counter() - start)
    return {"round_s": round_s, "samples": samples, "parameters": parameters}


def _minibatch(source: Source, program: Program, chunk: int, step: int) -> tuple[Any, int]:
    if isinstance(source, LoaderBatches):
        return source(step)
    batch = minibatch(source, program, chunk, step)
    return batch, samples_in(batch)


def main(folder: str, rank: int, processes: int, rounds: int) -> None:
    """Train as one of several processes, and write the result beside the program.

    Parameters
    ----------
    folder
        Absolute path of the folder with the program.
    rank, processes
        Number of this process, and of all.
    rounds
        Number of rounds.
    """
    torch.set_num_threads(1)
    program = pickle.loads(Path(folder, "program").read_bytes())  # noqa: S301 - written by the process that started this
    if processes > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        meeting_url = f"file://{folder}/meeting"
        distributed.init_process_group("gloo", init_method=meeting_url, rank=rank, world_size=processes)
    try:
        result = train(program, rank, processes, rounds)
    finally:
        if processes > 1:
            distributed.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
