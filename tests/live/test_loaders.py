"""Jobs with a loader of their own: each mini-batch is the same whoever reads it, and the schedule follows the data."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

from skedge.core.errors import TrainingError
from skedge.live.training import Training
from skedge.live.worker.loader_batches import LoaderBatches, seed_all, seed_of
from skedge.live.worker.program import Program
from skedge.live.worker.sgd import ParameterServer, accuracies, gradient, source_of

torch.set_num_threads(1)

SAMPLES, BATCHES, EPOCHS = 22, 6, 3
"""Mini-batches of 4, 4, 4, 4, 4 and 2 samples."""


class Noisy(Dataset[Any]):
    """Number i, with random numbers of all three generators."""

    def __init__(self, first: int = 0) -> None:
        self.first = first

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, i: int) -> tuple[int, Tensor]:
        noise = torch.tensor([float(torch.rand(())), random.random(), np.random.rand()])  # noqa: NPY002, S311
        return self.first + i, noise


class Stream(IterableDataset[Any]):
    """The same in a fixed order."""

    def __iter__(self) -> Iterator[Any]:
        return (Noisy()[i] for i in range(SAMPLES))


def read(loader: DataLoader[Any], steps: list[int], seed: int = 5) -> dict[int, Any]:
    loaded = LoaderBatches(loader, seed, 0, BATCHES)
    return {step: loaded(step) for step in steps}


def alike(a: Any, b: Any) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a[0], b[0], strict=True)) and a[1] == b[1]


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "shuffled": lambda: DataLoader(Noisy(), batch_size=4, shuffle=True),
    "with a generator": lambda: DataLoader(Noisy(), batch_size=4, shuffle=True, generator=torch.Generator()),
    "weighted": lambda: DataLoader(Noisy(), 4, sampler=WeightedRandomSampler(torch.arange(1.0, 23).tolist(), SAMPLES)),
    "with workers": lambda: DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=2),
    "stream": lambda: DataLoader(Stream(), batch_size=4),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_a_mini_batch_is_the_same_whoever_reads_it(kind: str) -> None:
    """Straight through; backwards, each by a process of its own; from the middle, as after a restart."""
    straight = read(LOADERS[kind](), list(range(BATCHES * EPOCHS)))
    assert [straight[step][1] for step in range(BATCHES)] == [4, 4, 4, 4, 4, 2]
    torch.rand(17)
    for step in reversed(straight):
        assert alike(straight[step], read(LOADERS[kind](), [step])[step])
    for step, batch in read(LOADERS[kind](), list(range(7, BATCHES * EPOCHS))).items():
        assert alike(straight[step], batch)


def test_each_epoch_reads_every_sample_once_in_an_order_of_its_own() -> None:
    seen = read(LOADERS["shuffled"](), list(range(BATCHES * EPOCHS)))
    orders = [
        [i for step in range(epoch * BATCHES, (epoch + 1) * BATCHES) for i in seen[step][0][0].tolist()]
        for epoch in range(EPOCHS)
    ]
    assert all(sorted(order) == list(range(SAMPLES)) for order in orders)
    assert len({tuple(order) for order in orders}) == EPOCHS
    other = read(LOADERS["shuffled"](), [0], seed=6)
    assert other[0][0][0].tolist() != orders[0][:4]


def test_a_loader_of_another_length_is_one_sentence() -> None:
    with pytest.raises(TrainingError, match="chunk 0: its loader has 5 mini-batches an epoch, the job 6"):
        read(DataLoader(Noisy(), batch_size=4, drop_last=True), [0])
    with pytest.raises(TrainingError, match="its stream ends before mini-batch 5 of an epoch"):
        read(DataLoader(Stream(), batch_size=4, drop_last=True), [5])
    with pytest.raises(TrainingError, match="its loader is a list; it must be a DataLoader"):
        LoaderBatches([], 0, 0, 1)  # type: ignore[arg-type]


def test_data_that_are_not_on_the_server_are_one_sentence(tmp_path: Path) -> None:
    class Files(Dataset[Any]):
        def __len__(self) -> int:
            return SAMPLES

        def __getitem__(self, i: int) -> bytes:
            return (tmp_path / f"{i}").read_bytes()

    with pytest.raises(TrainingError, match="chunk 0, mini-batch 0: its data cannot be read: FileNotFoundError"):
        read(DataLoader(Files(), batch_size=4), [0])


def test_data_can_be_fetched_by_url() -> None:
    """A chunk of numbers lies in an object store (fsspec's memory file system)."""
    with fsspec.open("memory://own/chunk-1.npy", "wb") as file:
        np.save(file, np.arange(22))

    def loader(chunk: int) -> DataLoader[Any]:
        with fsspec.open(f"memory://own/chunk-{chunk}.npy", "rb") as file:
            return DataLoader(TensorDataset(torch.from_numpy(np.load(file))), batch_size=4)

    source = source_of(replace(TRAINING, loader=loader), Program("", {}, 2, 1, BATCHES), 1, ())
    assert isinstance(source, LoaderBatches)
    assert source(1)[0][0].tolist() == [4, 5, 6, 7]
    with pytest.raises(TrainingError, match="chunk 2: its data cannot be read: FileNotFoundError"):
        source_of(replace(TRAINING, loader=loader), Program("", {}, 3, 1, BATCHES), 2, ())


class TwoInputs(nn.Module):
    """Of numbers and noise, with dropout and batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 2))

    def forward(self, number: Tensor, noise: Tensor) -> Tensor:
        out: Tensor = self.layers(torch.cat([number[:, None] / SAMPLES, noise], dim=1))
        return out


def collate(samples: list[Any]) -> dict[str, Tensor]:
    numbers, noise = zip(*samples, strict=True)
    return {"number": torch.tensor(numbers), "noise": torch.stack(noise)}


def step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    loss = nn.functional.cross_entropy(model(batch["number"], batch["noise"]), batch["number"] % 2)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    return loss


def share_of_odd(model: nn.Module, batches: DataLoader[Any]) -> float:
    found = torch.cat([model(batch["number"], batch["noise"]).argmax(dim=1) for batch in batches])
    return float(found.float().mean())


def loader(chunk: int) -> DataLoader[Any]:
    return DataLoader(Noisy(chunk), batch_size=4, shuffle=True, collate_fn=collate)


TRAINING = Training(
    TwoInputs,
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    loader=loader,
    step=step,
    scheduler=lambda optimizer: CosineAnnealingLR(optimizer, BATCHES * EPOCHS),
    test=lambda: DataLoader(Noisy(), batch_size=8, collate_fn=collate),
    metric=share_of_odd,
)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Program]:
    """Programs whose factory makes TRAINING, with changes."""

    def make(chunks: int = 1, **changes: Any) -> Program:
        monkeypatch.setattr(Program, "make", lambda _: replace(TRAINING, **changes))
        return Program("own:job", {}, chunks, EPOCHS, BATCHES)

    return make


class Worker:
    """Computes contributions as an agent does."""

    def __init__(self, of: Program) -> None:
        self.program, self.training = of, of.make()
        self.model = self.training.model()
        self.data = [source_of(self.training, of, d, ()) for d in range(of.chunks)]

    def round(self, server: ParameterServer, *chunks: int) -> None:
        state = server.state()
        server.apply(
            server.version,
            [
                gradient(self.model, self.training, self.program, self.data[d], state, d, server.progress[d])
                for d in chunks
            ],
        )


def test_a_job_of_one_chunk_is_what_an_ordinary_loop_computes(program: Callable[..., Program]) -> None:
    """The loop written out: step, optimizer, cosine schedule, over the same mini-batches with the same seeds."""
    of = program()
    server, worker = ParameterServer(of), Worker(of)
    first = server.state()
    while server.progress[0] < of.steps:
        worker.round(server, 0)
    model, data = TwoInputs(), LoaderBatches(loader(0), of.seed, 0, BATCHES)
    model.load_state_dict(first)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = CosineAnnealingLR(optimizer, BATCHES * EPOCHS)
    for number in range(of.steps):
        batch = data(number)[0]
        seed_all(seed_of(of.seed, 0, number, 1))
        optimizer.zero_grad()
        step(model, batch)
        optimizer.step()
        schedule.step()
    assert all(torch.equal(server.state()[name], value) for name, value in model.state_dict().items())
    assert schedule.get_last_lr() == server.scheduler.get_last_lr()


def test_a_job_that_is_restored_at_any_point_ends_with_the_same_bits(program: Callable[..., Program]) -> None:
    of = program()
    straight, worker = ParameterServer(of), Worker(of)
    saved = {}
    while straight.progress[0] < of.steps:
        saved[straight.progress[0]] = straight.dump()
        worker.round(straight, 0)
    for at in (0, 1, 7, 17):
        again, another = ParameterServer(of), Worker(of)
        again.restore(saved[at])
        while again.progress[0] < of.steps:
            another.round(again, 0)
        assert all(torch.equal(straight.state()[name], value) for name, value in again.state().items())


def rate(server: ParameterServer) -> float:
    return float(server.optimizer.param_groups[0]["lr"])


def test_the_schedule_follows_the_data_however_many_updates_they_take(program: Callable[..., Program]) -> None:
    """By hand: 0.1 (1 + cos(pi t / 18)) / 2 at t = mini-batches that are trained over chunks; 0 at the end."""
    of = program(chunks=2)
    together, one_by_one, worker = ParameterServer(of), ParameterServer(of), Worker(of)
    for _ in range(9):
        worker.round(together, 0, 1)
    for chunk in [0] * 18:
        worker.round(one_by_one, chunk)
    assert (together.version, one_by_one.version) == (9, 18)
    assert rate(together) == pytest.approx(0.05)
    assert rate(one_by_one) == pytest.approx(0.05)
    while one_by_one.progress[1] < of.steps:
        worker.round(one_by_one, 1)
    assert rate(one_by_one) == pytest.approx(0.0, abs=1e-12)


def test_clip_sees_the_mean_gradient_before_it_is_applied(program: Callable[..., Program]) -> None:
    def clip(model: nn.Module) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)

    of = program(clip=clip, scheduler=None)
    server, worker = ParameterServer(of), Worker(of)
    before = torch.cat([p.detach().flatten().clone() for p in server.model.parameters()])
    worker.round(server, 0)
    moved = torch.cat([p.detach().flatten() for p in server.model.parameters()]) - before
    assert float(moved.norm()) == pytest.approx(0.1 * 1e-3, rel=1e-3)


def test_the_metric_is_the_jobs_own(program: Callable[..., Program]) -> None:
    """By hand: a model whose bias says odd of everything."""
    of = program()
    model = TwoInputs()
    nn.init.zeros_(model.layers[2].weight)
    model.layers[2].bias.data = torch.tensor([0.0, 1.0])
    assert accuracies(of, [model.state_dict()]) == [1.0]
    with pytest.raises(TrainingError, match="has no test data"):
        accuracies(program(test=None), [model.state_dict()])


def plateau(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return ReduceLROnPlateau(optimizer)


def test_what_a_job_lacks_is_one_sentence(program: Callable[..., Program]) -> None:
    of = program(step=lambda model, batch: model(batch["number"], batch["noise"]).sum())
    with pytest.raises(TrainingError, match="no parameter has a gradient; `step` calls loss"):
        Worker(of).round(ParameterServer(of), 0)
    with pytest.raises(TrainingError, match="ReduceLROnPlateau"):
        ParameterServer(program(scheduler=plateau))
    with pytest.raises(ValueError, match="either chunk or loader"):
        replace(TRAINING, loader=None)
    with pytest.raises(ValueError, match="either loss or step"):
        replace(TRAINING, loss=nn.functional.cross_entropy)
