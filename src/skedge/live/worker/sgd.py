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

import copy
import io
import math
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
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

    With `local_steps`: the way that the parameters have gone over several, from `step` on, in the place of gradients,
    and the optimizer's state beside the buffers (:class:`LocalSGD`).

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
    local: LocalSGD | None = None,
) -> Contribution:
    """Gradients of mini-batch `step` of a chunk at the parameters `state`; with `local` what :class:`LocalSGD` brings.

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
    local
        Trains the model, if the job's workers train several mini-batches a round by themselves.

    Raises
    ------
    TrainingError
        If the loss is not finite, or the model fails on the data.
    """
    clock = clock or StageClock()
    load_state(model, state, local)
    clock.end("deserialize")
    if local is not None:
        return local.train(data, chunk, step, device, clock)
    return gradient_here(model, training, program, data, chunk, step, device, clock)


def load_state(model: nn.Module, state: State, local: LocalSGD | None) -> None:
    """Have parameters and buffers in a model, and the state of the optimizer that trains it by itself."""
    if local is None:
        model.load_state_dict(state)
        return
    model.load_state_dict({name: value for name, value in state.items() if name not in local.state})
    local.load(state)


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


class LocalSGD:
    """Trains several mini-batches of a chunk by itself (local SGD, Stich 2019, Algorithm 1).

    The job's optimizer does it, at the place of the job's schedule that the chunk has reached. Its state travels with
    the parameters, and the parameter server takes the mean of both (Yu, Jin and Yang 2019, Algorithm 1): momentum goes
    on from round to round, a round of one mini-batch is synchronous SGD, and a round depends on nothing else that a
    worker has.

    Parameters
    ----------
    model
        A model of the job, whose parameters are trained.
    training, program
        What the job trains.

    Attributes
    ----------
    state
        Tensors of the optimizer's state, by name; they stay the same ones.
    """

    def __init__(self, model: nn.Module, training: Training, program: Program) -> None:
        self.model, self.training, self.program = model, training, program
        self._at, self._scheduler = 0, None
        self._optimizer = self._made()
        begin_state(self._optimizer, model, training)
        self.state = optimizer_state(self._optimizer)
        self._places = list(_state_places(self._optimizer))

    def load(self, state: State) -> None:
        """Have the optimizer's state that is in `state` beside parameters and buffers."""
        for name, tensor in self.state.items():
            tensor.copy_(state[name])

    def train(self, data: Source, chunk: int, step: int, device: str, clock: StageClock) -> Contribution:
        """What a worker brings to a round, from the parameters and buffers that its model has, which are changed.

        In the place of gradients it has the way that the parameters have gone, and beside the buffers the state of the
        optimizer.

        Parameters
        ----------
        data, chunk, step, device, clock
            As :func:`gradient_here` has them.
        """
        model, samples, loss = self.model, 0, 0.0
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        self._go_to(step)
        # what is sent is put into these tensors; an optimizer may have put others in their place
        for name, own, key in self._places:
            own[key] = self.state[name]
        for number in range(step, step + self.program.local_minibatches(step)):
            part = gradient_here(model, self.training, self.program, data, chunk, number, device, clock)
            samples, loss, buffers = samples + part.samples, loss + part.loss * part.samples, part.buffers
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad = parameter.grad.to_dense()
            if self.training.clip is not None:
                self.training.clip(model)
            update(self._optimizer, part.samples, self.program.lr_by_batch)
            self._go_to(number + 1)
            clock.end("compute")
        with torch.no_grad():
            displacements = {name: (before[name] - parameter).cpu() for name, parameter in model.named_parameters()}
        beside = {name: tensor.detach().clone().cpu() for name, tensor in optimizer_state(self._optimizer).items()}
        return Contribution(chunk, step, displacements, buffers | beside, loss / samples, samples)

    def _made(self) -> torch.optim.Optimizer:
        optimizer = self.training.optimizer(self.model.parameters())
        if self.training.scheduler is not None:
            self._at, self._scheduler = 0, self.training.scheduler(optimizer)
        return optimizer

    def _go_to(self, step: int) -> None:
        """Be at the place of the schedule after so many mini-batches of the chunk."""
        if self._at > step:
            state = self._optimizer.state
            self._optimizer = self._made()
            self._optimizer.state = state
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a schedule that is stepped before the optimizer
            while self._scheduler is not None and self._at < step:
                self._scheduler.step()
                self._at += 1


def local_of(model: nn.Module, training: Training, program: Program) -> LocalSGD | None:
    """What trains a model by itself, if the job's workers do that."""
    return LocalSGD(model, training, program) if program.local_steps > 1 else None


def begin_state(optimizer: torch.optim.Optimizer, model: nn.Module, training: Training) -> None:
    """Give an optimizer that has done nothing the state that it will have, all 0, so that it can be sent.

    Parameters
    ----------
    optimizer
        The optimizer of the model's parameters.
    model
        The model.
    training
        Makes another optimizer, which shows on a copy of the model what state it has after a step.

    Raises
    ------
    TrainingError
        If that is not tensors by parameter, or they do not begin at 0.
    """
    name = type(optimizer).__name__
    prefix = f"train.local_steps: the state of its optimizer, {name}, "
    try:
        model_copy = copy.deepcopy(model)
        for parameter in model_copy.parameters():
            parameter.data.zero_()  # so that a decay of weights is no gradient
            parameter.grad = torch.zeros_like(parameter)
        optimizer_copy = training.optimizer(model_copy.parameters())
        groups = [_settings(group) for group in optimizer_copy.param_groups]
        optimizer_copy.step()
    except Exception as error:  # the job's own code: a model that cannot be copied, an optimizer of sparse gradients
        raise TrainingError(
            f"{prefix}cannot be seen, as a step of it on a copy of the model with gradients of 0 fails: {told(error)}"
        ) from error
    if groups != [_settings(group) for group in optimizer_copy.param_groups] or any(
        group.get("dampening") for group in groups
    ):
        raise TrainingError(f"{prefix}is also in its groups of parameters, or dampened, and is not sent; {_TAKE}")
    for own, like in zip(model.parameters(), model_copy.parameters(), strict=True):
        state = optimizer_copy.state.get(like, {})
        if non_tensors := [key for key, value in state.items() if value is not None and not isinstance(value, Tensor)]:
            raise TrainingError(f"{prefix}has a {non_tensors[0]!r} that is no tensor; {_TAKE}")
        nonzero_keys = [
            key for key, value in state.items() if value is not None and key != "step" and bool(value.any())
        ]
        if nonzero_keys:
            raise TrainingError(f"{prefix}has a {nonzero_keys[0]!r} that does not begin at 0; {_TAKE}")
        if state:
            optimizer.state[own] = {
                key: None if value is None else torch.zeros_like(value) for key, value in state.items()
            }


_TAKE = "take one whose state is tensors that begin at 0, such as SGD, Adam or AdamW"


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


def optimizer_state(optimizer: torch.optim.Optimizer) -> State:
    """The tensors of an optimizer's state, by the number of the parameter and the name that the optimizer has."""
    return {name: own[key] for name, own, key in _state_places(optimizer)}


def _state_places(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Where an optimizer has each tensor of its state: the name by which it is sent, a dictionary and its key there."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, parameter in enumerate(parameters):
        own = optimizer.state.get(parameter, {})
        for key in [key for key, value in own.items() if isinstance(value, Tensor)]:
            yield f"optimizer/{number}/{key}", own, key


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
    """The job's metric on its test data, for each of several states (:meth:`ParameterServer.state`).

    Default: :func:`accuracy`.

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
        model.load_state_dict({name: state[name] for name in model.state_dict()})
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
        if program.local_steps > 1:
            begin_state(self.optimizer, self.model, self.training)

    def state(self) -> State:
        """Parameters and buffers of the current version, and what workers need beside them (:meth:`beside`)."""
        return {name: value.detach().clone() for name, value in (self.model.state_dict() | self.beside()).items()}

    def beside(self) -> State:
        """The state of the optimizer, if workers train by themselves; else nothing. Not copied."""
        return optimizer_state(self.optimizer) if self.program.local_steps > 1 else {}

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
            self._go_along(new, total)
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
        if self.scheduler is not None and self.program.local_steps == 1:
            for _ in range(steps):
                self.scheduler.step()

    def _go_along(self, new: Sequence[Contribution], total: int) -> None:
        """Go the mean of the ways that the workers have gone, and have the mean of their optimizers' states."""
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad)
            for name, tensor in self.beside().items():
                if tensor.is_floating_point() and not name.endswith("/step"):
                    tensor.copy_(sum(c.buffers[name] * (c.samples / total) for c in new))
                else:  # a number of steps
                    tensor.copy_(torch.stack([c.buffers[name] for c in new]).amax(dim=0))

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
        self.local = local_of(self.model, server.training, server.program)
        normalises = any(getattr(module, "max_norm", None) is not None for module in self.model.modules())
        self.shares: bool | None = False if normalises or self.local else None

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
            load_state(self.model, server.model.state_dict() | server.beside(), self.local)
        clock.end("deserialize")
        if self.local is not None:
            return self.local.train(source, chunk, step, CPU, clock)
        computed = gradient_here(self.model, server.training, server.program, source, chunk, step, CPU, clock)
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
