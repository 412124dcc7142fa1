"""What preemption does to a model whose chunks are not alike: offline, without Ray."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from statistics import mean

import polars as pl
import pytest
import torch
from torch import nn

from skedge.core.model.cluster import Cluster, Job, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.live.training import State
from skedge.live.worker.chunk_data import ChunkData
from skedge.live.worker.labels import unlike, warning
from skedge.live.worker.program import Program, program_of
from skedge.live.worker.sgd import Contribution, ParameterServer, accuracies, gradient, local_of
from skedge.live.worker.worker_main import Caller, JobWorker
from skedge.scenario.schema import TrainForm
from skedge.simulate import run

torch.set_num_threads(1)
CHUNKS, EPOCHS, MINIBATCHES = 4, 10, 6


def program(seed: int, *, shuffle: bool, mixed: float = 0.0) -> Program:
    args = {"chunks": CHUNKS, "seed": seed, "mixed": mixed}
    return Program("sorted_jobs:sorted_digits", args, CHUNKS, EPOCHS, MINIBATCHES, seed, shuffle=shuffle)


def rounds(lanes: int, others: int, max_lag: int | None = None, *, turns: bool = False) -> list[list[int]]:
    """The chunks of a job that train together, mini-batch by mini-batch, on lanes held as simulated under A_online.

    A mini-batch takes a second. `others`: that many short jobs of 6 s each take the first lane, one every 8 s.
    `turns`: a lane trains the least trained of its chunks, as live; else one after another.
    """
    cluster = Cluster([Server(f"e{i}", capacity={"worker:gpu": 1, "ps:cpu": 9}) for i in range(lanes)])
    far = {f"e{i}": 9999.0 for i in range(1, lanes)}
    jobs = [Job("a", 0.0, EPOCHS, CHUNKS, MINIBATCHES, 1.0, max_lag=max_lag)]
    jobs += [Job(f"b{i}", 4.0 + 8 * i, 1, 1, 6, 1.0, upload_s=far) for i in range(others)]
    made = run(Scenario(cluster, Jobs(job_table(jobs)[0], cluster, job_table(jobs)[1])), "aonline")
    assert made.verify() == []
    runs = made.schedule.runs.filter(pl.col("job") == 0).select("lane", "chunk", "start", "end").rows()
    done, on = dict.fromkeys(range(CHUNKS), 0), {chunk: lane for lane, chunk, *_ in runs}
    found = list[list[int]]()
    for at in range(max(end for *_, end in runs) // SECOND):
        now = [(lane, chunk) for lane, chunk, start, end in runs if start <= at * SECOND < end]
        if turns:
            now = [(lane, min((c for c in on if on[c] == lane), key=lambda c: (done[c], c))) for lane, _ in now]
        for _, chunk in now:
            done[chunk] += 1
        found += [[chunk for _, chunk in now]] if now else []
    return found


def accuracy(of: Program, rounds: Sequence[Sequence[int]]) -> float:
    """Train the chunks of each round together, a mini-batch each; the accuracy at the end."""
    server, made = ParameterServer(of), ChunkData(of)
    model, data = made.training.model(), [made(chunk) for chunk in range(of.chunks)]
    local = local_of(model, made.training, of)
    for together in rounds:
        state = server.state()
        brought = [
            gradient(model, made.training, of, data[chunk], state, chunk, server.progress[chunk], local=local)
            for chunk in together
        ]
        server.apply(server.version, brought)
    assert server.progress == [of.steps] * of.chunks
    return accuracies(of, [server.state()])[0]


def trained(found: Sequence[Sequence[int]], *, shuffle: bool, mixed: float = 0.0, seeds: int = 2) -> list[float]:
    """Accuracy for each seed."""
    alike = tuple(tuple(sorted(together)) for together in found)
    return [_trained_once(alike, shuffle, mixed, seed) for seed in range(seeds)]


@cache
def _trained_once(found: tuple[tuple[int, ...], ...], shuffle: bool, mixed: float, seed: int) -> float:
    """Tests compare with the same models, each of which is trained once."""
    return accuracy(program(seed, shuffle=shuffle, mixed=mixed), found)


SITUATIONS: dict[str, tuple[int, int, int | None, bool]] = {
    "undisturbed": (CHUNKS, 0, None, False),
    "preempted": (CHUNKS, 5, None, False),
    "max_lag 1": (CHUNKS, 5, 1, False),
    "on one lane": (1, 0, None, False),
    "turns": (1, 0, None, True),
}
"""Lanes, jobs that preempt, `max_lag`, whether chunks take turns."""


def in_situation(name: str) -> list[list[int]]:
    lanes, others, max_lag, turns = SITUATIONS[name]
    return rounds(lanes, others, max_lag, turns=turns)


@pytest.mark.thorough
def test_preempted_a_model_is_as_good_as_undisturbed_by_shuffling_or_by_a_bounded_lag() -> None:
    """Data sorted by label: within 2 points by default and with ``max_lag: 1``, far below with neither."""
    alone, preempted, bounded = (in_situation(name) for name in ("undisturbed", "preempted", "max_lag 1"))
    shuffled, as_given = (mean(trained(alone, shuffle=shuffle)) for shuffle in (True, False))
    assert min(shuffled, as_given) > 0.85
    assert mean(trained(preempted, shuffle=True)) > shuffled - 0.02
    assert mean(trained(bounded, shuffle=False)) > as_given - 0.02
    assert mean(trained(preempted, shuffle=False)) < as_given - 0.3


def test_chunks_that_take_turns_on_one_lane_make_the_model_that_they_make_together() -> None:
    """Sorted by label and not shuffled; one after another they do not."""
    together = mean(trained(in_situation("undisturbed"), shuffle=False))
    assert mean(trained(in_situation("turns"), shuffle=False)) > together - 0.02
    assert mean(trained(in_situation("on one lane"), shuffle=False)) < together - 0.3


TOGETHER = [range(CHUNKS)] * (EPOCHS * MINIBATCHES)
ONE_BY_ONE = [[chunk] for chunk in range(CHUNKS) for _ in range(EPOCHS * MINIBATCHES)]
"""As on one lane, which runs a chunk to its end before the next."""


def test_shuffled_chunks_trained_one_after_another_make_the_model_that_together_they_make() -> None:
    """Data sorted by label: within 2 points where samples are shuffled over the chunks, far below where not."""
    together = mean(trained(TOGETHER, shuffle=True))
    shuffled, as_given = (mean(trained(ONE_BY_ONE, shuffle=shuffle)) for shuffle in (True, False))
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


def test_the_learning_rate_follows_the_samples_of_a_round_where_that_is_asked_for() -> None:
    """Meant for 4 samples: a round of 2 moves half as far, one of 4 as far as without; the optimizer keeps its rate."""

    def moved(lr_by_batch: int | None, samples: int) -> float:
        server = ParameterServer(Program("linear_jobs:linear", {}, 2, 1, 1, lr_by_batch=lr_by_batch))
        before = server.state()["weight"]
        rate = server.optimizer.param_groups[0]["lr"]
        server.apply(0, [Contribution(0, 0, {"weight": torch.ones(1, 2)}, {}, 0.0, samples)])
        assert server.optimizer.param_groups[0]["lr"] == rate
        return float((before - server.state()["weight"]).sum())

    plain = moved(None, 2)
    assert plain > 0
    assert moved(4, 4) == pytest.approx(plain)
    assert moved(4, 2) == pytest.approx(plain / 2)


def test_how_unlike_chunks_are_is_the_distance_of_their_labels() -> None:
    """By hand: of 8 samples with labels 0 and 1 a chunk with zeros alone is half of all away; equal ones not at all."""
    made = ChunkData(Program("sorted_jobs:sorted_digits", {"chunks": 2}, 2, 1, 1))
    made.note_labels(0, torch.zeros(4, dtype=torch.int64))
    assert unlike(made.labels, 2) is None, "one is not known yet"
    made.note_labels(1, torch.ones(4, dtype=torch.int64))
    assert unlike(made.labels, 2) == (0, 0.5)
    made.note_labels(0, torch.tensor([0, 1, 0, 1]))
    made.note_labels(1, torch.tensor([1, 0, 1, 0]))
    assert unlike(made.labels, 2) == (0, 0.0)
    made.labels.clear()
    made.note_labels(0, torch.zeros(4))
    assert made.labels == {}, "real numbers are no labels"


def test_the_label_warning_needs_no_process_that_has_made_all_chunks() -> None:
    """Each answer has the counts of its own chunks: another job's data may be made by other processes in between."""
    program = Program("sorted_jobs:sorted_digits", {"chunks": 2}, 2, 1, 1)
    labels: dict[int, dict[int, int]] = {}
    for chunk in range(2):
        facts, _ = JobWorker(Caller()).contents(pickle.dumps(program), (chunk,))
        assert warning(program, labels) is None, "one is not known yet"
        labels.update((number, dict(counts)) for number, counts in json.loads(json.dumps(facts))["labels"])
    assert "differ from those of all chunks" in (warning(program, labels) or "")
    assert warning(replace(program, shuffle=True), labels) is None
