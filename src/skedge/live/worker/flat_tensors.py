"""Named tensors in one piece of memory: the form in which parameters and gradients travel between a job's processes.

All processes of a job make the same model, so a layout says which bytes belong to which tensor, and none of that is
sent. What is read is tensors whatever the bytes are: no code, no sizes of the sender's choice.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from skedge.core.errors import TrainingError
from skedge.live.training import State

_ALIGNMENT = 64
"""Each tensor begins at a multiple of it [bytes], as those that PyTorch makes."""


@dataclass(frozen=True)
class _Place:
    """Where a tensor is: its first byte, its type and its shape."""

    start: int
    dtype: torch.dtype
    shape: torch.Size

    @property
    def end(self) -> int:
        return self.start + self.dtype.itemsize * math.prod(self.shape)


class FlatLayout:
    """Where each of several named tensors is in one piece of memory.

    Parameters
    ----------
    tensors
        Tensors by name; their types and shapes count, not their values.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.places = dict[str, _Place]()
        end = 0
        for name, tensor in tensors.items():
            place = _Place(end, tensor.dtype, tensor.shape)
            self.places[name], end = place, math.ceil(place.end / _ALIGNMENT) * _ALIGNMENT
        self.size = end

    def views(self, memory: bytes | bytearray | memoryview) -> State:
        """The tensors in `memory`, which they share; of memory that cannot be written they must not be changed.

        Raises
        ------
        TrainingError
            If it has another size than the layout.
        """
        if len(memory) != self.size:
            raise TrainingError(f"tensors of {len(memory)} bytes have come; those of its model have {self.size}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it cannot be written
            return {name: _view(memory, place) for name, place in self.places.items()}

    def pack(self, tensors: Mapping[str, Tensor], n_more: int = 0) -> bytearray:
        """The values of `tensors`, sparse ones as dense, in new memory; 0 for names that it lacks.

        Parameters
        ----------
        tensors
            By name; of the types and shapes of the layout.
        n_more
            Bytes that the memory has after them.
        """
        memory = bytearray(self.size + n_more)
        views = self.views(memoryview(memory)[: self.size])
        for name, tensor in tensors.items():
            views[name].copy_(tensor.detach().to_dense())
        return memory


def _view(memory: bytes | bytearray | memoryview, place: _Place) -> Tensor:
    count = math.prod(place.shape)
    if count == 0:
        return torch.empty(place.shape, dtype=place.dtype)
    return torch.frombuffer(memory, dtype=place.dtype, count=count, offset=place.start).view(place.shape)
