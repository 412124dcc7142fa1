"""The bytes in which the parameters of a model and the contributions to it travel between the processes of a job."""

from __future__ import annotations

import struct

from torch import nn

from skedge.core.errors import TrainingError
from skedge.live.training import State

from .flat_tensors import FlatLayout
from .sgd import Contribution

_FACTS = struct.Struct("<qqqd")
"""Chunk, step, samples and loss: after the tensors, before a byte for each parameter, 1 if it has a gradient."""


class WireFormat:
    """The bytes of states of one model, and of contributions to it.

    Parameters
    ----------
    model
        The model; its values do not count.
    beside
        What travels beside its parameters and buffers (:meth:`.sgd.ParameterServer.beside`).

    Attributes
    ----------
    state
        Layout of its parameters and buffers, as ``state_dict`` has them.
    parameters
        Names of its parameters.
    contribution
        Layout of gradients and buffers.
    contribution_bytes
        Size of a contribution.
    """

    def __init__(self, model: nn.Module, beside: State | None = None) -> None:
        self.state = FlatLayout(model.state_dict() | (beside or {}))
        parameters = dict(model.named_parameters())
        self.parameters = tuple(parameters)
        self.contribution = FlatLayout(parameters | dict(model.named_buffers()) | (beside or {}))
        self.contribution_bytes = self.contribution.size + _FACTS.size + len(parameters)

    def pack(self, contribution: Contribution, memory: bytearray | None = None) -> bytearray:
        """A contribution as bytes; in `memory`, which an earlier call has returned, if there is some."""
        facts = _FACTS.pack(contribution.chunk, contribution.step, contribution.samples, contribution.loss)
        facts += bytes(name in contribution.gradients for name in self.parameters)
        content = self.contribution.pack(
            contribution.gradients | contribution.buffers, n_more=len(facts), memory=memory
        )
        content[self.contribution.size :] = facts
        return content

    def unpack(self, content: bytearray | memoryview) -> Contribution:
        """The inverse of :meth:`pack`; the tensors are in `content`.

        Raises
        ------
        TrainingError
            If it is of another model.
        """
        end, n_bytes = self.contribution.size, self.contribution_bytes
        if len(content) != n_bytes:
            raise TrainingError(f"a contribution of {len(content)} bytes has come; those to its model have {n_bytes}")
        chunk, step, samples, loss = _FACTS.unpack_from(content, end)
        tensors: State = self.contribution.views(memoryview(content)[:end])
        gradients = {name: tensors.pop(name) for name in self.parameters}
        for name, has_gradient in zip(self.parameters, content[end + _FACTS.size :], strict=True):
            if not has_gradient:
                del gradients[name]
        return Contribution(chunk, step, gradients, tensors, loss, samples)
