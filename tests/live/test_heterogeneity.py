"""What preemption does to a model whose chunks are not alike: offline, without Ray."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

import pytest
import torch
from torch import nn

from skedge.core.model import Cluster, Server
from skedge.live.training import (
    ChunkData,
    Contribution,
    ParameterServer,
    Program,
    State,
    accuracies,
    gradient,
    program_of,
)
from skedge.scenario_schema import TrainForm

torch.set_num_threads(1)
CHUNKS, EPOCHS, MINIBATCHES = 4, 10, 6


def program(seed: int, *, shuffle: bool) -> Program:
    of = "sorted_jobs:sorted_digits"
    return Program(of, {"chunks": CHUNKS, "seed": seed}, CHUNKS, EPOCHS, MINIBATCHES, seed, shuffle=shuffle)


def accuracy(of: Program, rounds: Sequence[Sequence[int]]) -> float:
    """Train the chunks of each round together, a mini-batch each; the accuracy at the end."""
    server, made = ParameterServer(of), ChunkData(of)
    model, data = made.training.model(), [made(chunk) for chunk in range(of.chunks)]
    for together in rounds:
        state = server.state()
        brought = [
            gradient(model, made.training, of, data[chunk], state, chunk, server.progress[chunk]) for chunk in together
        ]
        server.apply(server.version, brought)
    assert server.progress == [of.steps] * of.chunks
    return accuracies(of, [server.state()])[0]


TOGETHER = [range(CHUNKS)] * (EPOCHS * MINIBATCHES)
ONE_BY_ONE = [[chunk] for chunk in range(CHUNKS) for _ in range(EPOCHS * MINIBATCHES)]
"""As on one lane, which runs a chunk to its end before the next."""


def test_shuffled_chunks_trained_one_after_another_make_the_model_that_together_they_make() -> None:
    """Data sorted by label: within 2 points where samples are shuffled over the chunks, far below where not."""
    seeds = range(2)
    together = mean(accuracy(program(seed, shuffle=True), TOGETHER) for seed in seeds)
    shuffled = mean(accuracy(program(seed, shuffle=True), ONE_BY_ONE) for seed in seeds)
    as_given = mean(accuracy(program(seed, shuffle=False), ONE_BY_ONE) for seed in seeds)
    assert together > 0.85
    assert shuffled > together - 0.02
    assert as_given < together - 0.3


def test_shuffled_chunks_have_every_sample_once_and_the_same_at_each_making() -> None:
    of = program(0, shuffle=True)
    plain = ChunkData(program(0, shuffle=False))
    a, b = ChunkData(of), ChunkData(of)
    for chunk in range(CHUNKS):
        assert all(torch.equal(x, y) for x, y in zip(a(chunk), b(chunk), strict=True))
    have = torch.cat([a(chunk)[0] for chunk in range(CHUNKS)]).flatten(1).sum(1).sort().values
    given = torch.cat([plain(chunk)[0] for chunk in range(CHUNKS)]).flatten(1).sum(1).sort().values
    assert torch.allclose(have, given)
    labels = [set(a(chunk)[1].tolist()) for chunk in range(CHUNKS)]
    assert all(len(found) == 10 for found in labels)


def test_a_round_is_a_step_on_the_union_of_its_mini_batches() -> None:
    """Three samples and one: the gradient is that of the four together, by hand for a linear model."""

    def grad(inputs: torch.Tensor, targets: torch.Tensor) -> State:
        model = nn.Linear(2, 1, bias=False)
        nn.init.ones_(model.weight)
        nn.functional.mse_loss(model(inputs), targets).backward()
        assert model.weight.grad is not None
        return {"weight": model.weight.grad}

    inputs = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0], [1.0, 5.0]])
    targets = torch.tensor([[1.0], [0.0], [2.0], [-1.0]])
    of = Program("linear_jobs:linear", {}, 2, 1, 1)
    server = ParameterServer(of)
    three, one = grad(inputs[:3], targets[:3]), grad(inputs[3:], targets[3:])
    server.apply(0, [Contribution(0, 0, three, {}, 0.0, 3), Contribution(1, 0, one, {}, 4.0, 1)])
    moved = 1.0 - server.state()["weight"]
    assert torch.allclose(moved, grad(inputs, targets)["weight"], atol=1e-6)
    assert server.losses == [(1, 1.0)]


@pytest.mark.parametrize(("sites", "shuffles"), [(False, True), (True, False)])
def test_data_born_at_sites_stay_there(sites: bool, shuffles: bool) -> None:
    servers = [Server("a", capacity={"gpu": 1.0}), Server("b", capacity={"gpu": 1.0})]
    cluster = Cluster(servers, torch.zeros(2, 2).numpy() if sites else None)
    assert program_of(TrainForm(factory="a:b"), 2, 1, 1, cluster).shuffle is shuffles
    assert not program_of(TrainForm(factory="a:b", shuffle=False), 2, 1, 1, cluster).shuffle
