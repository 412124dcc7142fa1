"""States and contributions as bytes, as the processes of a job send them."""

from __future__ import annotations

from torch import nn

from skedge.live.worker.program import Program
from skedge.live.worker.sgd import Contribution, ParameterServer
from skedge.live.worker.wire_format import WireFormat


def format_of(program: Program) -> WireFormat:
    """The format of a program's model."""
    return WireFormat(program.make().model())


def state_bytes(server: ParameterServer) -> bytearray:
    """The parameters and buffers of a parameter server."""
    return WireFormat(server.model).state.pack(server.state())


def contribution_bytes(model: nn.Module, contribution: Contribution) -> bytearray:
    """A contribution to a model."""
    return WireFormat(model).pack(contribution)
