"""What a job trains: the :class:`Training` that its own code makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

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
        Returns an optimizer of the parameters; it runs on the parameter server, or in each worker with `local_steps`.
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
        Called with the model on the parameter server: changes the mean gradients of a round before they are applied;
        with `local_steps` in each worker, the gradients of a mini-batch.
    scheduler
        Returns a scheduler of the optimizer. It is stepped once for every D_j mini-batches in the parameters, so
        E_j B_j times in all, however many updates there are; with `local_steps` once for every mini-batch of the chunk.
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
        for first, second in (("loss", "step"), ("chunk", "loader")):
            if (getattr(self, first) is None) == (getattr(self, second) is None):
                raise ValueError(f"a Training has either {first} or {second}")

    @property
    def metric_name(self) -> str:
        """The name of what :func:`skedge.live.worker.sgd.accuracies` measures."""
        return "accuracy" if self.metric is None else getattr(self.metric, "__name__", type(self.metric).__name__)

    def backward(self, model: nn.Module, batch: Any) -> float:
        """Compute the gradients of a mini-batch, in the parameters; returns the loss."""
        if self.step is not None:
            result = self.step(model, batch)
            return float(result.detach() if isinstance(result, Tensor) else result)
        assert self.loss is not None  # noqa: S101 - it has either
        *inputs, targets = batch
        loss = self.loss(model(*inputs), targets)
        loss.backward()
        return float(loss.detach())
