"""Synchronous SGD through a parameter server, mini-batch by mini-batch: the arithmetic, without any network.

A worker computes gradients from the parameters of a version and one mini-batch of its chunk (:func:`gradient`). The
parameter server averages the gradients of one round, updates once, and counts the mini-batches of each chunk in the
same step (:class:`ParameterServer`). A chunk's progress and the parameters therefore always agree: a checkpoint holds
both, and after any crash each chunk counts each epoch exactly once.

The result does not depend on which worker computes when: the mini-batches of a chunk and the random numbers of a
forward pass are functions of (seed, chunk, step). With one worker, a preempted job ends with the same bits as an
undisturbed one.
"""

from __future__ import annotations

import importlib
import io
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader

from skedge.core.errors import TrainingError
from skedge.core.kinds import kind_of

from .batches import Loaded, samples_in, seed_all
from .batches import seed_of as _seed
from .code import digest, install, installed

if TYPE_CHECKING:
    from skedge.core.model import Cluster
    from skedge.scenario.schema import TrainForm

Data = tuple[Tensor, ...]
"""One or more input tensors, then the targets; all of equal length."""

Step = Callable[[nn.Module, Any], "Tensor | float"]
"""Called with (model, mini-batch): leaves the gradients in the parameters and returns the loss."""

State = dict[str, Tensor]
"""Parameters and buffers of a model by name."""

_RANDOM = threading.Lock()
"""Guards torch's random generator, of which there is one per process."""


@dataclass(frozen=True)
class Training:
    """What a job trains. Its factory must return an equal one on every call with the same arguments, on any server.

    Attributes
    ----------
    model
        Returns a new model with the same initial parameters at each call.
    optimizer
        Returns an optimizer of the parameters; it runs on the parameter server.
    loss
        Scalar loss of (outputs, targets); if a mini-batch has several inputs, the model receives all of them.
    chunk
        Returns the data of chunk d, 0 <= d < D_j; called on the controller's node, from which the data are sent.
    test
        Returns the test data; called on the controller's node.
    loader
        Replaces `chunk`: returns the DataLoader of chunk d, on the server that trains it. No data are sent.
    step
        Replaces `loss` if a mini-batch needs more than that: called with (model, output of the collate function).
    clip
        Called with the model on the parameter server: changes the mean gradients of a round before they are applied.
    scheduler
        Returns a scheduler of the optimizer. It is stepped once for every D_j mini-batches in the parameters, so
        E_j B_j times in all, however many updates there are.
    metric
        Called with (model, test data); default: share of samples classified correctly.
    """

    model: Callable[[], nn.Module]
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]
    loss: Callable[[Tensor, Tensor], Tensor] | None = None
    chunk: Callable[[int], Data] | None = None
    test: Callable[[], Any] | None = None
    loader: Callable[[int], DataLoader[Any]] | None = None
    step: Step | None = None
    clip: Callable[[nn.Module], Any] | None = None
    scheduler: Callable[[Optimizer], LRScheduler] | None = None
    metric: Callable[[nn.Module, Any], float] | None = None

    def __post_init__(self) -> None:
        for one, other in (("loss", "step"), ("chunk", "loader")):
            if (getattr(self, one) is None) == (getattr(self, other) is None):
                raise ValueError(f"a Training has either {one} or {other}")

    @property
    def metric_name(self) -> str:
        """The name of what :func:`accuracies` measures."""
        return "accuracy" if self.metric is None else getattr(self.metric, "__name__", type(self.metric).__name__)

    def backward(self, model: nn.Module, batch: Any) -> float:
        """Compute the gradients of a mini-batch, in the parameters; returns the loss."""
        if self.step is not None:
            found = self.step(model, batch)
            return float(found.detach() if isinstance(found, Tensor) else found)
        assert self.loss is not None  # noqa: S101 - it has either
        *inputs, targets = batch
        loss = self.loss(model(*inputs), targets)
        loss.backward()
        return float(loss.detach())


@dataclass(frozen=True)
class Program:
    """The source of a job's :class:`Training`, and how its data are divided into mini-batches.

    Attributes
    ----------
    factory
        ``package.module:function``.
    args
        Keyword arguments of the factory.
    chunks, epochs, minibatches
        D_j, E_j, B_j.
    seed
        Seed of the order of samples and of the forward passes' random numbers.
    watch
        True if accuracy is also measured after each epoch, not only at the end.
    shuffle
        True if the samples are shuffled across all chunks, by `seed`: chunks are then alike, and the order in which
        they are trained does not bias the model.
    lr_by_batch
        Samples per round for which the optimizer's learning rate is given: in a round of n samples it is scaled by
        n / `lr_by_batch` (linear scaling, Goyal et al. 2017). None: the same rate in every round.
    code
        The archive with the factory's module (:mod:`.code`); empty: the module is installed.
    """

    factory: str
    args: Mapping[str, Any]
    chunks: int
    epochs: int
    minibatches: int
    seed: int = 0
    watch: bool = False
    shuffle: bool = False
    lr_by_batch: int | None = None
    code: bytes = field(default=b"", repr=False)

    @property
    def steps(self) -> int:
        """Mini-batches of one chunk over all epochs, E_j B_j."""
        return self.epochs * self.minibatches

    def make(self) -> Training:
        """Call the factory.

        Raises
        ------
        TrainingError
            If the module does not import, has no such function, or the function fails; the message says which.
        """
        module, _, name = self.factory.partition(":")
        if not name:
            raise TrainingError(f"factory {self.factory!r}: write it as package.module:function")
        try:
            if self.code:
                install(self.code, module)
            self.module()  # its digest, taken before the import
            made = getattr(importlib.import_module(module), name)(**self.args)
        except (Exception, SystemExit) as error:
            raise TrainingError(f"factory {self.factory!r} fails: {type(error).__name__}: {error}") from error
        if not isinstance(made, Training):
            raise TrainingError(f"factory {self.factory!r} makes a {type(made).__name__}; it must make a Training")
        return made

    def module(self) -> str:
        """SHA-256 of the factory's code: of the shipped archive, or of the installed module."""
        return digest(self.code) if self.code else installed(self.factory.partition(":")[0])

    def check_same(self, other: str) -> None:
        """Check that another process of the job has the same code.

        Raises
        ------
        TrainingError
            If its code differs.
        """
        self.check_same_as(self.module(), other)

    def check_same_as(self, one: str, other: str) -> None:
        """Check that two processes of the job have the same code (:meth:`module`).

        Raises
        ------
        TrainingError
            If their code differs.
        """
        if one != other:
            raise TrainingError(
                f"the module of its factory {self.factory!r} differs between processes (SHA-256 {one[:12]} and "
                f"{other[:12]}); install the same everywhere, or ship it with the job: train.code"
            )


def program_of(
    train: TrainForm, chunks: int, epochs: int, minibatches: int, cluster: Cluster, code: bytes = b""
) -> Program:
    """The program of a job with these D_j, E_j, B_j. Data that originate at sites stay there and are not shuffled."""
    shuffle = kind_of(cluster).shuffles(train.shuffle)
    return Program(
        train.factory, dict(train.args), chunks, epochs, minibatches, train.seed, shuffle=shuffle,
        lr_by_batch=train.lr_by_batch, code=code,
    )  # fmt: skip


class ChunkData:
    """The data of a job's chunks, made on first use.

    Shuffled chunks (:attr:`Program.shuffle`) are cut from one permutation of all samples, so the first chunk costs as
    much as all of them.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.training, self.module = program, program.make(), program.module()
        self.whole: Data | None = None
        self.labels: dict[int, dict[int, int]] = {}

    def __call__(self, chunk: int) -> Data:
        """Data of chunk d, 0 <= d < D_j."""
        make = self.training.chunk
        if make is None:
            return ()  # the loader reads them on the server that trains them
        if not self.program.shuffle or self.program.chunks == 1:
            return make(chunk)
        if self.whole is None:
            self.whole = self._shuffled(make)
        count = len(self.whole[0])
        first, last = (count * end // self.program.chunks for end in (chunk, chunk + 1))
        return tuple(part[first:last].clone() for part in self.whole)

    def _shuffled(self, make: Callable[[int], Data]) -> Data:
        parts = [make(chunk) for chunk in range(self.program.chunks)]
        whole = [torch.cat(column) for column in zip(*parts, strict=True)]
        rows = torch.randperm(len(whole[0]), generator=torch.Generator().manual_seed(_seed(self.program.seed, -1)))
        return tuple(part[rows] for part in whole)

    def counted(self, chunk: int) -> Data:
        """Data of a chunk; counts its labels."""
        data = self(chunk)
        if data and isinstance(data[-1], Tensor):
            self.note_labels(chunk, data[-1])
        return data

    def note_labels(self, chunk: int, targets: Tensor) -> None:
        """Count the labels of a chunk if they are integers."""
        if targets.ndim == 1 and not targets.is_floating_point():
            labels, counts = targets.unique(return_counts=True)
            self.labels[chunk] = dict(zip(labels.tolist(), counts.tolist(), strict=True))

    def unlike(self) -> tuple[int, float] | None:
        """The chunk whose label distribution differs most from that of all chunks, and the distance.

        The distance is the total variation distance: 0 if the shares of all labels are equal, 1 if no label is in both.
        None while the labels of some chunk are unknown.
        """
        if len(self.labels) < self.program.chunks:
            return None
        whole = Counter[int]()
        for counts in self.labels.values():
            whole.update(counts)
        total = sum(whole.values())

        def distance(chunk: int) -> float:
            counts = self.labels[chunk]
            size = sum(counts.values())
            return sum(abs(counts.get(label, 0) / size - n / total) for label, n in whole.items()) / 2

        chunk = max(self.labels, key=distance)
        return chunk, distance(chunk)


@dataclass(frozen=True)
class Contribution:
    """The contribution of one worker to a round: the gradients of one mini-batch of one chunk.

    Attributes
    ----------
    chunk, step
        The chunk, and the number of its mini-batch, counted over all epochs from 0.
    gradients
        Gradients by parameter name.
    buffers
        Buffers by name, after the forward pass (the running statistics of batch normalisation).
    loss
        Mean loss over the samples of the mini-batch.
    samples
        Number of samples: the weight of the mini-batch in the round.
    """

    chunk: int
    step: int
    gradients: State
    buffers: State
    loss: float
    samples: int = 1


def minibatch(data: Data, program: Program, chunk: int, step: int) -> Data:
    """Mini-batch `step` of a chunk, whose samples are reshuffled in each epoch.

    Raises
    ------
    TrainingError
        If the chunk has fewer samples than mini-batches.
    """
    samples = len(data[0])
    if samples < program.minibatches:
        raise TrainingError(f"chunk {chunk} has {samples} samples, fewer than its {program.minibatches} mini-batches")
    epoch, batch = divmod(step, program.minibatches)
    generator = torch.Generator().manual_seed(_seed(program.seed, chunk, epoch))
    rows = torch.randperm(samples, generator=generator)
    first, last = (samples * end // program.minibatches for end in (batch, batch + 1))
    return tuple(part[rows[first:last]] for part in data)


Source = Data | Loaded
"""The source of a chunk's mini-batches."""


def source_of(training: Training, program: Program, chunk: int, sent: Data) -> Source:
    """The source of a chunk's mini-batches: the data that were `sent`, or the job's loader, created here.

    Raises
    ------
    TrainingError
        If the loader cannot be made.
    """
    if training.loader is None:
        return sent
    try:
        loader = training.loader(chunk)
    except (Exception, SystemExit) as error:  # the job's own code: whatever it raises is its reason to fail
        raise TrainingError(f"chunk {chunk}: its data cannot be read: {type(error).__name__}: {error}") from error
    return Loaded(loader, program.seed, chunk, program.minibatches)


def gradient(
    model: nn.Module, training: Training, program: Program, data: Source, state: State, chunk: int, step: int
) -> Contribution:
    """Gradients of mini-batch `step` of a chunk at the parameters `state`.

    Raises
    ------
    TrainingError
        If the loss is not finite, or the model fails on the data.
    """
    model.load_state_dict(state)
    model.train()
    model.zero_grad(set_to_none=True)
    with _RANDOM:
        batch, samples = data(step) if isinstance(data, Loaded) else _cut(data, program, chunk, step)
        try:
            seed_all(_seed(program.seed, chunk, step, 1))
            value = training.backward(model, batch)
        except (Exception, SystemExit) as error:  # the job's own code: whatever it raises is its reason to fail
            raise TrainingError(f"chunk {chunk}, mini-batch {step}: {error}") from error
    if not math.isfinite(value):
        raise TrainingError(f"the loss is {value} at chunk {chunk}, mini-batch {step}")
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    if not gradients:
        raise TrainingError(
            f"chunk {chunk}, mini-batch {step}: no parameter has a gradient; `step` calls loss.backward()"
        )
    buffers = {name: b.detach().clone() for name, b in model.named_buffers()}
    return Contribution(chunk, step, gradients, buffers, value, samples)


def _cut(data: Data, program: Program, chunk: int, step: int) -> tuple[Data, int]:
    batch = minibatch(data, program, chunk, step)
    return batch, samples_in(batch)


def accuracies(program: Program, states: Iterable[State]) -> list[float]:
    """The job's metric on its test data, for each of several states; default: :func:`accuracy`.

    Raises
    ------
    TrainingError
        If the job has no test data.
    """
    training = program.make()
    if training.test is None:
        raise TrainingError("it has no test data")
    model, test, metric = training.model(), training.test(), training.metric or accuracy
    found = []
    for state in states:
        model.load_state_dict(state)
        model.eval()
        seed_all(_seed(program.seed, -2))
        with torch.no_grad():
            found.append(float(metric(model, test)))
        if not math.isfinite(found[-1]):
            raise TrainingError(f"its {training.metric_name} is {found[-1]}")
    return found


def accuracy(model: nn.Module, test: Data | Iterable[Data]) -> float:
    """Share of samples that the model classifies correctly; test data may be one piece, or mini-batches."""
    right = total = 0
    for *inputs, targets in [test] if isinstance(test, tuple) else test:
        right += int((model(*inputs).argmax(dim=1) == targets).sum())
        total += len(targets)
    return right / total


def progress_in(saved: bytes) -> list[int]:
    """Mini-batches of each chunk that are in a checkpoint made by :meth:`ParameterServer.dump`."""
    kept = torch.load(io.BytesIO(saved), weights_only=True)
    return [int(done) for done in kept["progress"]]


class ParameterServer:
    """The parameters of one job, and the progress of each of its chunks.

    Attributes
    ----------
    version
        Number of updates so far.
    progress
        Mini-batches of each chunk that are in the parameters.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.training, self.module = program, program.make(), program.module()
        seed_all(_seed(program.seed))
        self.model = self.training.model()
        self.optimizer = self.training.optimizer(self.model.parameters())
        self.scheduler = None if self.training.scheduler is None else self.training.scheduler(self.optimizer)
        if isinstance(self.scheduler, ReduceLROnPlateau):
            raise TrainingError("its scheduler is a ReduceLROnPlateau, which needs a metric at each step; take another")
        self.version = 0
        self.progress = [0] * program.chunks
        self.losses: list[tuple[int, float]] = []

    def state(self) -> State:
        """Parameters and buffers of the current version."""
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def apply(self, version: int, contributions: Sequence[Contribution]) -> int:
        """Update once by the mean of the new gradients, and count them; returns the new version.

        Mini-batches are weighted by their samples, so a round is one step on the union of its mini-batches. A repeated
        call changes nothing, as its version has passed. A contribution that is not its chunk's next mini-batch is
        ignored.
        """
        if version != self.version:
            return self.version
        new = [c for c in contributions if self.progress[c.chunk] == c.step < self.program.steps]
        if not new:
            return self.version
        self.optimizer.zero_grad(set_to_none=True)
        total = sum(c.samples for c in new)
        for name, parameter in self.model.named_parameters():
            brought = [c.gradients[name] * (c.samples / total) for c in new if name in c.gradients]
            if brought:
                parameter.grad = torch.stack(brought).sum(dim=0)
        if self.training.clip is not None:
            self.training.clip(self.model)
        self._step(total)
        for name, buffer in self.model.named_buffers():
            if buffer.is_floating_point():
                buffer.copy_(sum(c.buffers[name] * (c.samples / total) for c in new))
            else:
                buffer.copy_(torch.stack([c.buffers[name] for c in new]).amax(dim=0))
        before = sum(self.progress) // self.program.chunks
        for c in new:
            self.progress[c.chunk] += 1
        self._follow_schedule(sum(self.progress) // self.program.chunks - before)
        self.version += 1
        self.losses.append((self.version, sum(c.loss * c.samples for c in new) / total))
        return self.version

    def _follow_schedule(self, steps: int) -> None:
        """Step the scheduler by work done, as the number of updates depends on which chunks train together."""
        if self.scheduler is not None:
            for _ in range(steps):
                self.scheduler.step()

    def _step(self, samples: int) -> None:
        """Update by a round of `samples` samples; the learning rate is scaled for this update only."""
        groups, of = self.optimizer.param_groups, self.program.lr_by_batch
        rates = [group["lr"] for group in groups] if of else []
        for group, rate in zip(groups, rates, strict=False):
            group["lr"] = rate * samples / (of or 1)
        self.optimizer.step()
        for group, rate in zip(groups, rates, strict=False):
            group["lr"] = rate

    def dump(self) -> bytes:
        """The whole state of training as bytes."""
        buffer = io.BytesIO()
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
                "module": self.module,
                "version": self.version,
                "progress": self.progress,
                "losses": self.losses,
            },
            buffer,
        )
        return buffer.getvalue()

    def restore(self, saved: bytes) -> None:
        """Restore a state made by :meth:`dump`.

        Raises
        ------
        TrainingError
            If it is damaged or belongs to another job.
        """
        try:
            kept = torch.load(io.BytesIO(saved), weights_only=True)
            self.model.load_state_dict(kept["model"])
            self.optimizer.load_state_dict(kept["optimizer"])
            if self.scheduler is not None:
                self.scheduler.load_state_dict(kept["scheduler"])
        except Exception as error:
            raise TrainingError(f"the checkpoint cannot be read: {type(error).__name__}: {error}") from error
        self.program.check_same(kept.get("module", self.module))
        self.version, self.progress, self.losses = kept["version"], kept["progress"], kept["losses"]
