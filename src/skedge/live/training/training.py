"""What a job trains: its own code's :class:`Training`, and the :class:`Program` that divides it into mini-batches."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from skedge.core.errors import TrainingError
from skedge.core.kinds import kind_of

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
        """The name of what :func:`.sgd.accuracies` measures."""
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
