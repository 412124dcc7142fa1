"""Synchronous SGD through the parameter server: every chunk counts each mini-batch once, whatever happens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from wire import contribution_bytes, format_of, state_bytes

from skedge.core.errors import TrainingError
from skedge.live.training import Training
from skedge.live.worker.agent import Agent
from skedge.live.worker.checkpoint import Checkpoints, Life, OutlivedError
from skedge.live.worker.chunk_format import packed
from skedge.live.worker.job_processes import sent
from skedge.live.worker.program import Program
from skedge.live.worker.ps_actor import PSActor
from skedge.live.worker.sgd import ColocatedWorker, Contribution, ParameterServer, gradient
from skedge.live.worker.stage_clock import StageClock

torch.set_num_threads(1)
"""As the agents do: how sums are split over threads decides their last bits."""

MODELS = ["lenet", "alexnet", "resnet", "googlenet"]


def program(model: str = "lenet", chunks: int = 3, epochs: int = 2, **args: object) -> Program:
    given = {"model": model, "chunks": chunks, "samples": 90, "size": 8, **args}
    return Program("skedge.live.examples:images", given, chunks, epochs, 4)


class Worker:
    """Computes contributions as an agent does."""

    def __init__(self, of: Program) -> None:
        self.program, self.training = of, of.make()
        self.model = self.training.model()
        self.data = [self.training.chunk(d) for d in range(of.chunks)]

    def step(self, server: ParameterServer, chunk: int) -> Contribution:
        step = server.progress[chunk]
        state = server.state()
        return gradient(self.model, self.training, self.program, self.data[chunk], state, chunk, step)


def trained(of: Program, order: list[int]) -> ParameterServer:
    """One worker that trains the chunks named in `order`, a mini-batch each."""
    server, worker = ParameterServer(of), Worker(of)
    for chunk in order:
        server.apply(server.version, [worker.step(server, chunk)])
    return server


def same(a: ParameterServer, b: ParameterServer) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state().values(), b.state().values(), strict=True))


@pytest.mark.parametrize("model", MODELS)
def test_a_job_restored_from_its_checkpoint_ends_with_the_same_bits(model: str, tmp_path: Path) -> None:
    """Dropout and batch normalisation included: one worker, fixed seeds, a crash after 5 of 8 mini-batches."""
    of = program(model, chunks=1)
    kept = Checkpoints(str(tmp_path))
    straight = trained(of, [0] * of.steps)
    before = trained(of, [0] * 5)
    kept.write("job", Life(), before.version, before.dump())
    restored, worker = ParameterServer(of), Worker(of)
    saved = kept.read("job")
    assert saved is not None
    restored.restore(saved)
    while restored.progress[0] < of.steps:
        restored.apply(restored.version, [worker.step(restored, 0)])
    assert same(straight, restored)
    assert restored.losses == straight.losses


@pytest.mark.parametrize("model", MODELS)
def test_a_worker_in_the_process_of_its_parameter_server_makes_the_same_bits(model: str) -> None:
    """Now one trains there, now another in a process of its own: parameters, buffers and losses are equal."""
    of = program(model, chunks=1)
    server, worker = ParameterServer(of), Worker(of)
    colocated = ColocatedWorker(server)
    for step in range(of.steps):
        if step in (3, 4):
            server.apply(server.version, [worker.step(server, 0)])
        else:
            server.apply(server.version, [colocated.gradient(worker.data[0], 0, step, StageClock())])
    straight = trained(of, [0] * of.steps)
    assert same(straight, server)
    assert server.losses == straight.losses


def clamps(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
    """A step that changes the model's parameters, as if there were no parameter server."""
    loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
    loss.backward()
    for parameter in model.parameters():
        parameter.data.clamp_(-0.01, 0.01)
    return float(loss.detach())


def test_a_step_that_changes_parameters_itself_changes_none_of_its_parameter_server() -> None:
    """They would count in the process of the parameter server, and are lost in any other."""
    of = program(chunks=1)
    server, other, worker = ParameterServer(of), ParameterServer(of), Worker(of)
    server.training = worker.training = replace(worker.training, loss=None, step=clamps)
    colocated = ColocatedWorker(server)
    for step in range(of.steps):
        server.apply(server.version, [colocated.gradient(worker.data[0], 0, step, StageClock())])
        other.apply(other.version, [worker.step(other, 0)])
    assert colocated.shares is False
    assert same(server, other)


class Replaces(torch.optim.SGD):
    """An optimizer that puts new tensors in the place of parameters."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data = parameter.data - group["lr"] * parameter.grad


def replacing(parameters: object) -> torch.optim.Optimizer:
    return Replaces(parameters, lr=0.05)  # type: ignore[arg-type]


class Bag(torch.nn.Module):
    """Sparse gradients, which this optimizer takes as dense ones alone."""

    def __init__(self, *, sparse: bool = True, max_norm: float | None = None) -> None:
        super().__init__()
        self.rows = torch.nn.Embedding(20, 4, sparse=sparse, max_norm=max_norm)
        self.last = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.rows(x).mean(dim=1))


def rows(chunk: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randint(20, (16, 3), generator=torch.Generator().manual_seed(chunk))
    return x, (x.sum(dim=1) > 28).long()


@pytest.mark.parametrize(
    "training",
    [
        Training(Bag, replacing, torch.nn.functional.cross_entropy, rows),
        Training(Bag, torch.optim.Adam, torch.nn.functional.cross_entropy, rows),
        Training(partial(Bag, max_norm=0.5), torch.optim.Adagrad, torch.nn.functional.cross_entropy, rows),
    ],
    ids=["replaces storage", "sparse", "max_norm"],
)
def test_what_a_worker_alone_would_make_is_made_with_the_parameter_server(training: Training) -> None:
    of = program(chunks=1)
    servers, workers = [], []
    for _ in range(2):
        server = ParameterServer(of)
        torch.manual_seed(1)
        server.training, server.model = training, training.model()
        server.optimizer = training.optimizer(server.model.parameters())
        servers.append(server)
        workers.append(training.model())
    colocated = ColocatedWorker(servers[0])
    for step in range(of.steps):
        servers[0].apply(step, [colocated.gradient(rows(0), 0, step, StageClock())])
        one = gradient(workers[1], training, of, rows(0), servers[1].state(), 0, step)
        dense = {name: value.to_dense() for name, value in one.gradients.items()}
        servers[1].apply(step, [replace(one, gradients=dense)])
    assert same(*servers)
    assert servers[0].losses[-1] != servers[0].losses[0]


def test_an_update_that_is_sent_twice_counts_once() -> None:
    server, worker = ParameterServer(program()), Worker(program())
    brought = [worker.step(server, chunk) for chunk in range(3)]
    assert server.apply(0, brought) == 1
    once = server.state()
    assert server.apply(0, brought) == 1
    assert server.apply(1, brought) == 1, "the same mini-batches under a new version are left out"
    assert server.progress == [1, 1, 1]
    assert all(torch.equal(once[name], value) for name, value in server.state().items())


def test_no_mini_batch_is_skipped_or_goes_beyond_the_last() -> None:
    server, worker = ParameterServer(program(chunks=1)), Worker(program(chunks=1))
    early = worker.step(server, 0)
    ahead = Contribution(0, 3, early.gradients, early.buffers, 0.0)
    assert server.apply(0, [ahead]) == 0
    for _ in range(8):
        server.apply(server.version, [worker.step(server, 0)])
    beyond = Contribution(0, 8, early.gradients, early.buffers, 0.0)
    assert server.apply(8, [beyond]) == 8
    assert server.progress == [8]


def test_a_partial_round_is_the_mean_of_those_who_came() -> None:
    """By hand: parameters move by lr times the mean of the two gradients (the first step has no momentum yet)."""
    of = program("lenet")
    server, worker = ParameterServer(of), Worker(of)
    first = server.state()
    a, b = worker.step(server, 0), worker.step(server, 2)
    expected = {name: first[name] - 0.05 * (a.gradients[name] + b.gradients[name]) / 2 for name in a.gradients}
    server.apply(0, [a, b])
    for name, value in server.model.named_parameters():
        assert torch.allclose(value, expected[name], atol=1e-6)
    assert server.progress == [1, 0, 1]


def test_each_epoch_sees_every_sample_of_a_chunk_once() -> None:
    from skedge.live.worker.sgd import minibatch

    of = program(chunks=1, epochs=2)
    data = torch.arange(90)[:, None], torch.arange(90)
    for epoch in range(2):
        seen = torch.cat([minibatch(data, of, 0, epoch * 4 + batch)[1] for batch in range(4)])
        assert sorted(seen.tolist()) == list(range(90))


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("no.such.module:f", "No module named 'no'"),
        ("skedge.live.examples:nothing", "has no attribute 'nothing'"),
        ("skedge.live.examples", "package.module:function"),
        ("os.path:join", "missing"),
    ],
)
def test_a_wrong_factory_is_one_clear_error(factory: str, says: str) -> None:
    with pytest.raises(TrainingError, match=says):
        Program(factory, {}, 1, 1, 1).make()


def test_a_loss_that_is_not_finite_names_the_mini_batch() -> None:
    of = program("alexnet", chunks=1, lr=1e30)
    with pytest.raises(TrainingError, match=r"the loss is \w+ at chunk 0, mini-batch [1-7]"):
        trained(of, [0] * 8)


def test_a_chunk_smaller_than_its_mini_batches_is_an_error() -> None:
    of = Program("skedge.live.examples:images", {"chunks": 30, "samples": 90, "size": 8}, 30, 1, 4)
    with pytest.raises(TrainingError, match="fewer than its 4 mini-batches"):
        Worker(of).step(ParameterServer(of), 0)


def test_a_half_written_checkpoint_is_passed_over(tmp_path: Path) -> None:
    kept = Checkpoints(str(tmp_path))
    kept.write("job", Life(), 1, b"first")
    kept.write("job", Life(), 2, b"second")
    newest = tmp_path / "job" / "000000-000000-000000000002.ckpt"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert kept.read("job") == b"first"


def test_only_the_last_two_checkpoints_are_kept_and_none_after_forget(tmp_path: Path) -> None:
    kept = Checkpoints(str(tmp_path))
    for version in range(5):
        kept.write("job", Life(), version, bytes([version]))
    assert sorted(path.name[-6] for path in (tmp_path / "job").iterdir()) == ["3", "4"]
    kept.forget("job")
    assert kept.read("job") is None


def test_checkpoints_go_to_any_fsspec_url() -> None:
    kept = Checkpoints("memory://skedge-test")
    kept.write("job", Life(), 7, b"x" * 1000)
    assert kept.read("job") == b"x" * 1000
    assert kept.read("other") is None


def test_a_full_disk_fails_the_checkpoint_and_keeps_the_last(tmp_path: Path) -> None:
    kept = Checkpoints(str(tmp_path))
    kept.write("job", Life(), 1, b"first")
    real = kept._folder
    kept._folder = lambda job: "/dev/full/x"  # type: ignore[method-assign]
    with pytest.raises(TrainingError, match="cannot be written"):
        kept.write("job", Life(), 2, b"second")
    kept._folder = real  # type: ignore[method-assign]
    assert kept.read("job") == b"first"


def test_what_an_old_process_still_writes_is_older_than_a_later_load(tmp_path: Path) -> None:
    """A is frozen in mid-training; B loads its checkpoint, goes on and saves; what A saves after that is not taken."""
    of = program(chunks=1)
    a, b, worker = PSActor(str(tmp_path)), PSActor(str(tmp_path)), Worker(of)
    server = ParameterServer(of)

    def step() -> bytearray:
        brought = worker.step(server, 0)
        server.apply(server.version, [brought])
        return contribution_bytes(server.model, brought)

    steps = [step() for _ in range(5)]
    try:
        a.load("j", sent(of), Life(0, 1))
        a.apply("j", Life(0, 1), 0, steps[0])
        a.save("j", Life(0, 1))
        b.load("j", sent(of), Life(0, 2))
        b.apply("j", Life(0, 2), 1, steps[1])
        assert b.save("j", Life(0, 2)) == [2]
        for version, brought in enumerate(steps[1:], 1):
            a.apply("j", Life(0, 1), version, brought)
        with pytest.raises(OutlivedError, match="there is a later one"):
            a.save("j", Life(0, 1))
        ack, _ = b.load("j", sent(of), Life(0, 3))
        assert ack["version"] == 2
    finally:
        a.unload(Life(0, 1))
        b.unload(Life(0, 3))


def test_two_mini_batches_of_a_chunk_do_not_mix(tmp_path: Path) -> None:
    """One that is asked for again while it is computed takes no second thread; the gradients are the right ones."""
    of, agent = program("resnet", chunks=1), Agent("s", str(tmp_path))
    worker, server = Worker(of), ParameterServer(of)
    agent.store("j", 0, 0, packed(worker.data[0], of.module()), last=True)
    right = worker.step(server, 0).gradients
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(agent.gradient, "j", sent(of), 0, 0, state_bytes(server)) for _ in range(6)]
    answers = [one.result() for one in asked]
    computed = [content for facts, content in answers if "computing" not in facts]
    assert computed
    for content in computed:
        assert all(torch.equal(right[name], found) for name, found in format_of(of).unpack(content).gradients.items())
    assert not agent.computing
