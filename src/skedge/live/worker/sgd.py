"""Synchronous SGD through a parameter server, mini-batch by mini-batch: the arithmetic, without any network.

A worker computes gradients from the parameters of a version and one mini-batch of its chunk (:func:`gradient`). The
parameter server averages the gradients of one round, updates once, and counts the mini-batches of each chunk in the
same step (:class:`ParameterServer`). A chunk's progress and the parameters therefore always agree: a checkpoint holds
both, and after any crash each chunk counts each epoch exactly once. With `local_steps` a worker trains several
mini-batches by itself (:class:`LocalSGD`), and the server takes the mean of the workers' parameters.

The result does not depend on which worker computes when: the mini-batches of a chunk and the random numbers of a
forward pass are functions of (seed, chunk, step). With one worker, a preempted job ends with the same bits as an
undisturbed one.
"""

from __future__ import annotations

import io
import math
import threading
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from skedge.core.errors import TrainingError
from skedge.live.training import Data, State, Training

from .code_errors import told
from .device import CPU, moved
from .loader_batches import LoaderBatches, samples_in, seed_all
from .loader_batches import seed_of as _seed
from .minibatch_ledger import MinibatchLedger
from .program import Program
from .stage_clock import StageClock

_RANDOM = threading.Lock()
"""Guards torch's random generator, of which there is one per process."""


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

    Parameters
    ----------
    data
        All samples of the chunk; the first dimension of each tensor counts them.
    program
        Gives B_j and the seed.
    chunk, step
        The chunk, and the number of its mini-batch, counted over all epochs from 0.

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
    # from (seed, chunk, epoch) alone: whoever trains the mini-batch, and whenever, gets the same samples
    rows = torch.randperm(samples, generator=generator)
    first, last = (samples * end // program.minibatches for end in (batch, batch + 1))
    return tuple(part[rows[first:last]] for part in data)


Source = Data | LoaderBatches
"""The source of a chunk's mini-batches."""


def source_of(training: Training, program: Program, chunk: int, data: Data) -> Source:
    """The source of a chunk's mini-batches: `data` as they were sent, or the job's loader, created here.

    Parameters
    ----------
    training, program
        What the job trains.
    chunk
        Number of the chunk.
    data
        Its data, as stored on this server; not used if the job has a loader.

    Raises
    ------
    TrainingError
        If the loader cannot be made.
    """
    if training.loader is None:
        return data
    try:
        loader = training.loader(chunk)
    except (Exception, SystemExit) as error:  # the job's own code: whatever it raises is its reason to fail
        raise TrainingError(f"chunk {chunk}: its data cannot be read: {told(error)}") from error
    return LoaderBatches(loader, program.seed, chunk, program.minibatches)


def gradient(
    model: nn.Module,
    training: Training,
    program: Program,
    data: Source,
    state: State,
    chunk: int,
    step: int,
    device: str = CPU,
    clock: StageClock | None = None,
) -> Contribution:
    """Gradients of mini-batch `step` of a chunk at the parameters `state`, or :func:`contribution`.

    What is returned is on the CPU; the device has then done its work.

    Parameters
    ----------
    model
        A model of the job, on `device`; its parameters and gradients are overwritten.
    training, program
        What the job trains.
    data
        The source of the chunk's mini-batches.
    state
        Parameters and buffers to compute at.
    chunk, step
        The chunk, and the number of its mini-batch, counted over all epochs from 0.
    device
        Where it is computed, as PyTorch names it.
    clock
        Notes the ends of the stages ``deserialize``, when the parameters are in the model, and ``compute``, when the
        backward pass has ended. On a GPU what is still queued there then counts as the stage after it.

    Raises
    ------
    TrainingError
        If the loss is not finite, or the model fails on the data.
    """
    clock = clock or StageClock()
    model.load_state_dict(state)
    clock.end("deserialize")
    return contribution(model, training, program, data, chunk, step, device, clock)


def gradient_here(
    model: nn.Module,
    training: Training,
    program: Program,
    data: Source,
    chunk: int,
    step: int,
    device: str,
    clock: StageClock,
) -> Contribution:
    """Gradients of a mini-batch at the parameters and buffers that the model has.

    Parameters
    ----------
    model, training, program, data, chunk, step, device
        As :func:`gradient` has them.
    clock
        Notes the end of the stage ``compute``.
    """
    model.train()
    model.zero_grad(set_to_none=True)
    with _RANDOM:
        batch, samples = data(step) if isinstance(data, LoaderBatches) else _cut(data, program, chunk, step)
        try:
            # dropout and the like draw the same numbers wherever the mini-batch is trained
            seed_all(_seed(program.seed, chunk, step, 1))
            value = training.backward(model, moved(batch, device))
        except (Exception, SystemExit) as error:  # the job's own code: whatever it raises is its reason to fail
            raise TrainingError(f"chunk {chunk}, mini-batch {step}: {told(error)}") from error
    clock.end("compute")
    if not math.isfinite(value):
        raise TrainingError(f"the loss is {value} at chunk {chunk}, mini-batch {step}")
    gradients = {name: p.grad.detach().to_dense().cpu() for name, p in model.named_parameters() if p.grad is not None}
    if not gradients:
        raise TrainingError(
            f"chunk {chunk}, mini-batch {step}: no parameter has a gradient; `step` calls loss.backward()"
        )
    buffers = {name: b.detach().clone().cpu() for name, b in model.named_buffers()}
    return Contribution(chunk, step, gradients, buffers, value, samples)


def contribution(
    model: nn.Module,
    training: Training,
    program: Program,
    data: Source,
    chunk: int,
    step: int,
    device: str,
    clock: StageClock,
) -> Contribution:
    """What a worker brings to a round, from the parameters and buffers that its model has.

    Parameters
    ----------
    model, training, program, data, chunk, step, device, clock
        As :func:`gradient_here` has them; with `local_steps` the parameters of the model are changed.
    """
    if program.local_steps == 1:
        return gradient_here(model, training, program, data, chunk, step, device, clock)
    return LocalSGD(model, training, program).train(data, chunk, step, device, clock)


class LocalSGD:
    """Trains several mini-batches of a chunk by itself (local SGD, Stich 2019, Algorithm 1).

    The optimizer is the job's, and begins anew in each round: its state is not sent, so that a round depends on the
    parameters, the chunk and the mini-batch alone. It is at the place of the job's schedule that the chunk has reached.
    """

    def __init__(self, model: nn.Module, training: Training, program: Program) -> None:
        self.model, self.training, self.program = model, training, program
        self.optimizer = training.optimizer(model.parameters())
        self.scheduler = None if training.scheduler is None else training.scheduler(self.optimizer)

    def train(self, data: Source, chunk: int, step: int, device: str, clock: StageClock) -> Contribution:
        """The way that the parameters have gone over the mini-batches of a round, in the place of gradients.

        Parameters
        ----------
        data, chunk, step, device, clock
            As :func:`gradient_here` has them.
        """
        model, parts = self.model, list[Contribution]()
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a schedule that is stepped before the optimizer
            self._follow_schedule(step)
        for number in range(step, step + self.program.local_minibatches(step)):
            parts.append(gradient_here(model, self.training, self.program, data, chunk, number, device, clock))
            if self.training.clip is not None:
                self.training.clip(model)
            update(self.optimizer, parts[-1].samples, self.program.lr_by_batch)
            self._follow_schedule(1)
            clock.end("compute")
        with torch.no_grad():
            ways = {name: (before[name] - parameter).cpu() for name, parameter in model.named_parameters()}
        samples = sum(part.samples for part in parts)
        loss = sum(part.loss * part.samples for part in parts) / samples
        return Contribution(chunk, step, ways, parts[-1].buffers, loss, samples)

    def _follow_schedule(self, steps: int) -> None:
        if self.scheduler is not None:
            for _ in range(steps):
                self.scheduler.step()


def update(optimizer: torch.optim.Optimizer, samples: int, lr_by_batch: int | None) -> None:
    """Update by the gradients of a number of samples; the learning rate is scaled for this update only."""
    groups = optimizer.param_groups
    rates = [group["lr"] for group in groups] if lr_by_batch else []
    for group, rate in zip(groups, rates, strict=False):
        group["lr"] = rate * samples / (lr_by_batch or 1)
    optimizer.step()
    for group, rate in zip(groups, rates, strict=False):
        group["lr"] = rate


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
    values = []
    for state in states:
        model.load_state_dict(state)
        model.eval()
        seed_all(_seed(program.seed, -2))
        with torch.no_grad():
            values.append(float(metric(model, test)))
        if not math.isfinite(values[-1]):
            raise TrainingError(f"its {training.metric_name} is {values[-1]}")
    return values


def accuracy(model: nn.Module, test: Data | Iterable[Data]) -> float:
    """Share of samples that the model classifies correctly; test data may be one piece, or mini-batches."""
    right = total = 0
    for *inputs, targets in [test] if isinstance(test, tuple) else test:
        right += int((model(*inputs).argmax(dim=1) == targets).sum())
        total += len(targets)
    return right / total


def progress_in(saved: bytes) -> list[int]:
    """Mini-batches of each chunk that are in a checkpoint made by :meth:`ParameterServer.dump`."""
    checkpoint = torch.load(io.BytesIO(saved), weights_only=True)
    return [int(count) for count in checkpoint["progress"]]


class ParameterServer(MinibatchLedger):
    """The parameters of one job, and which mini-batches are in them."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.training, self.module = program.make(), program.module()
        seed_all(_seed(program.seed))
        self.model = self.training.model()
        self.optimizer = self.training.optimizer(self.model.parameters())
        self.scheduler = None if self.training.scheduler is None else self.training.scheduler(self.optimizer)
        if isinstance(self.scheduler, ReduceLROnPlateau):
            raise TrainingError("its scheduler is a ReduceLROnPlateau, which needs a metric at each step; take another")
        self.losses: list[tuple[int, float]] = []

    def state(self) -> State:
        """Parameters and buffers of the current version."""
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def apply(self, version: int, contributions: Sequence[Contribution]) -> int:
        """Update once by the mean of the new gradients, and count them; returns the new version.

        Mini-batches are weighted by their samples, so a round is one step on the union of its mini-batches. Those that
        do not count (:meth:`.minibatch_ledger.MinibatchLedger.new`) are ignored. The gradients may be overwritten.
        """
        new = self.new(version, contributions)
        if not new:
            return self.version
        total = sum(c.samples for c in new)
        for name, parameter in self.model.named_parameters():
            brought = [c for c in new if name in c.gradients]
            if brought == new and len(new) == 1:
                parameter.grad = new[0].gradients[name]  # its weight is 1
            elif brought:
                # in place, as these are the largest pieces of memory that there are
                parameter.grad, *others = (c.gradients[name] * (c.samples / total) for c in brought)
                for other in others:
                    parameter.grad += other
        if self.program.local_steps > 1:
            self._go_along()
        else:
            if self.training.clip is not None:
                self.training.clip(self.model)
            update(self.optimizer, total, self.program.lr_by_batch)
        self.optimizer.zero_grad(set_to_none=True)  # now, so that the next gradients get their memory
        for name, buffer in self.model.named_buffers():
            if buffer.is_floating_point():
                buffer.copy_(sum(c.buffers[name] * (c.samples / total) for c in new))
            else:
                buffer.copy_(torch.stack([c.buffers[name] for c in new]).amax(dim=0))
        before = sum(self.progress) // self.program.chunks
        self.count(new)
        self._follow_schedule(sum(self.progress) // self.program.chunks - before)
        self.losses.append((self.version, sum(c.loss * c.samples for c in new) / total))
        return self.version

    def _follow_schedule(self, steps: int) -> None:
        """Step the scheduler by work done, as the number of updates depends on which chunks train together."""
        if self.scheduler is not None:
            for _ in range(steps):
                self.scheduler.step()

    def _go_along(self) -> None:
        """Go the mean of the ways that the workers have gone: their parameters' mean."""
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad)

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
            state = torch.load(io.BytesIO(saved), weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            if self.scheduler is not None:
                self.scheduler.load_state_dict(state["scheduler"])
        except Exception as error:
            raise TrainingError(f"the checkpoint cannot be read: {told(error)}") from error
        self.program.check_same(state.get("module", self.module))
        self.version, self.progress, self.losses = state["version"], state["progress"], state["losses"]


class ColocatedWorker:
    """A worker in the process of its parameter server: its model has the server's parameters themselves.

    Buffers are its own, as those of any worker: the server averages them with those of others. A job that changes
    parameters while it computes gradients, which has no effect in a process of its own, gets a copy of them.

    Attributes
    ----------
    shares
        Whether its parameters are the server's; None: not known yet.
    """

    def __init__(self, server: ParameterServer) -> None:
        self.server, self.model = server, server.training.model()
        normalises = any(getattr(module, "max_norm", None) is not None for module in self.model.modules())
        self.shares: bool | None = False if normalises or server.program.local_steps > 1 else None

    def gradient(self, source: Source, chunk: int, step: int, clock: StageClock) -> Contribution:
        """Gradients of a mini-batch at the server's parameters, as :func:`gradient` has them.

        Parameters
        ----------
        source
            The source of the chunk's mini-batches.
        chunk, step
            The chunk, and the number of its mini-batch, counted over all epochs from 0.
        clock
            Notes the ends of the stages, as there.
        """
        server, is_first = self.server, self.shares is None
        if self.shares:
            self._link()
        else:
            self.model.load_state_dict(server.model.state_dict())
        clock.end("deserialize")
        computed = contribution(self.model, server.training, server.program, source, chunk, step, CPU, clock)
        if is_first:
            pairs = zip(self.model.parameters(), server.model.parameters(), strict=True)
            self.shares = all(torch.equal(own, unchanged) for own, unchanged in pairs)
        return computed

    def _link(self) -> None:
        """Have the server's parameters themselves, wherever its optimizer has put them, and copies of its buffers."""
        for own, shared in zip(self.model.parameters(), self.server.model.parameters(), strict=True):
            if own.data_ptr() != shared.data_ptr():
                own.data = shared.data
        with torch.no_grad():
            for buffer, shared in zip(self.model.buffers(), self.server.model.buffers(), strict=True):
                buffer.copy_(shared)
