"""Synchronous SGD through a parameter server, mini-batch by mini-batch: the arithmetic, without any network.

A worker turns the parameters of a version and one mini-batch of its chunk into gradients (:func:`gradient`). The
parameter server averages what the workers of one round bring, updates once, and counts each chunk's mini-batches in the
same breath (:class:`ParameterServer`). So a chunk's progress and the parameters cannot disagree: a checkpoint holds
both, and after any crash each chunk counts each epoch exactly once.

Nothing here depends on who computes or when: the mini-batches of a chunk and the random numbers of a forward pass are
functions of (seed, chunk, step). With one worker a preempted job ends with the same bits as an undisturbed one.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from skedge.core.errors import TrainingError

if TYPE_CHECKING:
    from skedge.core.model import Cluster
    from skedge.scenario_schema import TrainForm

Data = tuple[Tensor, Tensor]
"""Inputs and targets, equally long."""

State = dict[str, Tensor]
"""Parameters and buffers of a model by name."""

_RANDOM = threading.Lock()
"""Torch has one random generator a process; workers of one server are threads."""


@dataclass(frozen=True)
class Training:
    """What a job trains. Its factory makes the same one on every call with the same arguments, wherever it is called.

    Attributes
    ----------
    model
        Made anew at each call, with the same first parameters.
    optimizer
        Of the parameters; it runs on the parameter server.
    loss
        Of (outputs, targets), a scalar.
    chunk
        Data of chunk d, 0 <= d < D_j.
    test
        Data that accuracy is measured on.
    """

    model: Callable[[], nn.Module]
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]
    loss: Callable[[Tensor, Tensor], Tensor]
    chunk: Callable[[int], Data]
    test: Callable[[], Data]


@dataclass(frozen=True)
class Program:
    """Where a job's :class:`Training` comes from, and how its mini-batches are cut.

    Attributes
    ----------
    factory
        ``package.module:function``.
    args
        Keyword arguments of the factory.
    chunks, epochs, minibatches
        D_j, E_j, B_j.
    seed
        Of the order of samples and of the forward passes' random numbers.
    watch
        Whether accuracy is measured after each epoch, and not only at the end.
    shuffle
        Whether the samples of all chunks are shuffled over the chunks, by `seed`: chunks are then alike, and the order
        in which they are trained does not bias the model.
    lr_by_batch
        Samples of a round for which the optimizer's learning rate is meant: in a round of n samples it is scaled by
        n / `lr_by_batch` (linear scaling, Goyal et al. 2017). None: it is the same in every round.
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

    @property
    def steps(self) -> int:
        """Mini-batches of one chunk over all epochs, E_j B_j."""
        return self.epochs * self.minibatches

    def make(self) -> Training:
        """Call the factory.

        Raises
        ------
        TrainingError
            If the module does not import, has no such function, or the function fails; says which.
        """
        module, _, name = self.factory.partition(":")
        if not name:
            raise TrainingError(f"factory {self.factory!r}: write it as package.module:function")
        try:
            made = getattr(importlib.import_module(module), name)(**self.args)
        except (Exception, SystemExit) as error:
            raise TrainingError(f"factory {self.factory!r} fails: {type(error).__name__}: {error}") from error
        if not isinstance(made, Training):
            raise TrainingError(f"factory {self.factory!r} makes a {type(made).__name__}; it must make a Training")
        return made


def program_of(train: TrainForm, chunks: int, epochs: int, minibatches: int, cluster: Cluster) -> Program:
    """The program of a job with these D_j, E_j, B_j. Data that were born at sites stay there: they are not shuffled."""
    shuffle = train.shuffle and cluster.transfer_cost is None
    return Program(
        train.factory, dict(train.args), chunks, epochs, minibatches, train.seed, shuffle=shuffle,
        lr_by_batch=train.lr_by_batch,
    )  # fmt: skip


class ChunkData:
    """The data of a job's chunks; made when they are first asked for.

    Shuffled ones (:attr:`Program.shuffle`) are cut from one permutation of all samples: the first costs as much as all.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.training = program, program.make()
        self.whole: Data | None = None
        self.labels: dict[int, dict[int, int]] = {}

    def __call__(self, chunk: int) -> Data:
        """Data of chunk d, 0 <= d < D_j."""
        if not self.program.shuffle or self.program.chunks == 1:
            return self.training.chunk(chunk)
        if self.whole is None:
            self.whole = self._shuffled()
        inputs, targets = self.whole
        first, last = (len(inputs) * end // self.program.chunks for end in (chunk, chunk + 1))
        return inputs[first:last].clone(), targets[first:last].clone()

    def counted(self, chunk: int) -> Data:
        """Data of a chunk, whose labels are counted."""
        data = self(chunk)
        self.note_labels(chunk, data[1])
        return data

    def note_labels(self, chunk: int, targets: Tensor) -> None:
        """Count the labels of a chunk, where they are whole numbers."""
        if targets.ndim == 1 and not targets.is_floating_point():
            labels, counts = targets.unique(return_counts=True)
            self.labels[chunk] = dict(zip(labels.tolist(), counts.tolist(), strict=True))

    def unlike(self) -> tuple[int, float] | None:
        """The chunk whose labels differ most from all chunks' together, and by how much; None while some are unknown.

        The total variation distance: 0 where the shares of all labels are equal, 1 where no label is in both.
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

    def _shuffled(self) -> Data:
        parts = [self.training.chunk(chunk) for chunk in range(self.program.chunks)]
        inputs, targets = (torch.cat(column) for column in zip(*parts, strict=True))
        rows = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(_seed(self.program.seed, -1)))
        return inputs[rows], targets[rows]


@dataclass(frozen=True)
class Contribution:
    """What one worker brings to a round: the gradients of one mini-batch of one chunk.

    Attributes
    ----------
    chunk, step
        Which mini-batch of the chunk, counted over all epochs from 0.
    gradients
        By parameter.
    buffers
        By buffer, after the forward pass (the running statistics of batch normalisation).
    loss
        Of the mini-batch, a mean over its samples.
    samples
        How many it has: its weight in the round.
    """

    chunk: int
    step: int
    gradients: State
    buffers: State
    loss: float
    samples: int = 1


def _seed(*parts: int) -> int:
    text = ":".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def minibatch(data: Data, program: Program, chunk: int, step: int) -> Data:
    """Mini-batch `step` of a chunk: its samples are shuffled anew in each epoch.

    Raises
    ------
    TrainingError
        If the chunk has fewer samples than mini-batches.
    """
    inputs, targets = data
    if len(inputs) < program.minibatches:
        raise TrainingError(
            f"chunk {chunk} has {len(inputs)} samples, fewer than its {program.minibatches} mini-batches"
        )
    epoch, batch = divmod(step, program.minibatches)
    generator = torch.Generator().manual_seed(_seed(program.seed, chunk, epoch))
    rows = torch.randperm(len(inputs), generator=generator)
    first, last = (len(inputs) * end // program.minibatches for end in (batch, batch + 1))
    return inputs[rows[first:last]], targets[rows[first:last]]


def gradient(
    model: nn.Module, training: Training, program: Program, data: Data, state: State, chunk: int, step: int
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
    inputs, targets = minibatch(data, program, chunk, step)
    try:
        with _RANDOM:
            torch.manual_seed(_seed(program.seed, chunk, step, 1))
            loss = training.loss(model(inputs), targets)
        loss.backward()
    except (Exception, SystemExit) as error:  # the job's own code: whatever it raises is its reason to fail
        raise TrainingError(f"chunk {chunk}, mini-batch {step}: {error}") from error
    value = float(loss.detach())
    if not torch.isfinite(loss.detach()):
        raise TrainingError(f"the loss is {value} at chunk {chunk}, mini-batch {step}")
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    buffers = {name: b.detach().clone() for name, b in model.named_buffers()}
    return Contribution(chunk, step, gradients, buffers, value, len(targets))


def accuracies(program: Program, states: Iterable[State]) -> list[float]:
    """Share of the test data that the model classifies rightly, for each of several states of one job."""
    training = program.make()
    model = training.model()
    inputs, targets = training.test()
    found = []
    for state in states:
        model.load_state_dict(state)
        model.eval()
        with torch.no_grad():
            found.append(float((model(inputs).argmax(dim=1) == targets).float().mean()))
    return found


def progress_in(saved: bytes) -> list[int]:
    """Mini-batches of each chunk that are in a checkpoint, as :meth:`ParameterServer.dump` gave it."""
    kept = torch.load(io.BytesIO(saved), weights_only=True)
    return [int(done) for done in kept["progress"]]


class ParameterServer:
    """The parameters of one job, and how far each of its chunks is trained.

    Attributes
    ----------
    version
        Updates so far.
    progress
        Mini-batches of each chunk that are in the parameters.
    """

    def __init__(self, program: Program) -> None:
        torch.manual_seed(_seed(program.seed))
        self.program, self.training = program, program.make()
        self.model = self.training.model()
        self.optimizer = self.training.optimizer(self.model.parameters())
        self.version = 0
        self.progress = [0] * program.chunks
        self.losses: list[tuple[int, float]] = []

    def state(self) -> State:
        """Parameters and buffers of the present version."""
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def apply(self, version: int, contributions: Sequence[Contribution]) -> int:
        """Update once by the mean of the gradients that are new, and count them; returns the version then.

        Mini-batches count by their samples, so a round is one step on the union of its mini-batches. A call that was
        carried out before changes nothing: its version has passed. A contribution that does not follow its chunk's
        progress is left out.
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
        self._step(total)
        for name, buffer in self.model.named_buffers():
            if buffer.is_floating_point():
                buffer.copy_(sum(c.buffers[name] * (c.samples / total) for c in new))
            else:
                buffer.copy_(torch.stack([c.buffers[name] for c in new]).amax(dim=0))
        for c in new:
            self.progress[c.chunk] += 1
        self.version += 1
        self.losses.append((self.version, sum(c.loss * c.samples for c in new) / total))
        return self.version

    def _step(self, samples: int) -> None:
        """Update by a round of so many samples; the learning rate of the optimizer itself stays as it is."""
        groups, of = self.optimizer.param_groups, self.program.lr_by_batch
        rates = [group["lr"] for group in groups] if of else []
        for group, rate in zip(groups, rates, strict=False):
            group["lr"] = rate * samples / (of or 1)
        self.optimizer.step()
        for group, rate in zip(groups, rates, strict=False):
            group["lr"] = rate

    def dump(self) -> bytes:
        """Everything that training depends on, in one piece."""
        buffer = io.BytesIO()
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "version": self.version,
                "progress": self.progress,
                "losses": self.losses,
            },
            buffer,
        )
        return buffer.getvalue()

    def restore(self, saved: bytes) -> None:
        """Go back to what :meth:`dump` gave.

        Raises
        ------
        TrainingError
            If it is damaged or of another job.
        """
        try:
            kept = torch.load(io.BytesIO(saved), weights_only=True)
            self.model.load_state_dict(kept["model"])
            self.optimizer.load_state_dict(kept["optimizer"])
        except Exception as error:
            raise TrainingError(f"the checkpoint cannot be read: {type(error).__name__}: {error}") from error
        self.version, self.progress, self.losses = kept["version"], kept["progress"], kept["losses"]
