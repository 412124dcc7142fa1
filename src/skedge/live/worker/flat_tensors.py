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
from torch import Tensor, nn

from skedge.core.errors import TrainingError
from skedge.live.training import State

_ALIGNMENT = 64
"""Each tensor begins at a multiple of it [bytes] from the start."""


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

    def pack(self, tensors: Mapping[str, Tensor], n_more: int = 0, memory: bytearray | None = None) -> bytearray:
        """The values of `tensors`, sparse ones as dense, in new memory, with 0 for names that it lacks; or in `memory`.

        Parameters
        ----------
        tensors
            By name; of the types and shapes of the layout.
        n_more
            Bytes that the memory has after them.
        memory
            What an earlier call has returned, to be used again; names that it lacks keep their values.
        """
        memory = bytearray(self.size + n_more) if memory is None else memory
        views = self.views(memoryview(memory)[: self.size])
        for name, tensor in tensors.items():
            views[name].copy_(tensor.detach().to_dense())
        return memory


class SharedState:
    """The parameters and buffers of a model in a piece of memory that is sent, or received, as it is.

    What the model, its optimizer or the job's code has put elsewhere is copied, and so is the whole state of a model
    of which more depends on where its tensors are (:func:`_may_be_placed`).

    Parameters
    ----------
    model
        The model; its values are put into the memory.
    layout
        That of its ``state_dict``, and of `beside`.
    beside
        Tensors that are copied with it, by name.

    Attributes
    ----------
    memory
        The memory.
    """

    def __init__(self, model: nn.Module, layout: FlatLayout, beside: State | None = None) -> None:
        self.model, self.beside = model, beside or {}
        # that of a tensor, which is aligned
        self.memory: memoryview = torch.empty(layout.size, dtype=torch.uint8).numpy().data
        self.views = layout.views(self.memory)
        self.is_placed = _may_be_placed(model)
        self.write()
        if self.is_placed:
            for name, tensor in model.state_dict(keep_vars=True).items():
                if tensor.numel():
                    tensor.data = self.views[name]

    def write(self) -> memoryview:
        """The memory, with the state that the model has."""
        for name, tensor in self.model.state_dict().items():
            if tensor.data_ptr() != self.views[name].data_ptr():
                self.views[name].copy_(tensor)
        for name, tensor in self.beside.items():
            self.views[name].copy_(tensor)
        return self.memory

    def read(self) -> None:
        """Have the model hold the state that is in the memory."""
        for name, tensor in self.beside.items():
            tensor.copy_(self.views[name])
        if not self.is_placed:
            self.model.load_state_dict({name: view for name, view in self.views.items() if name not in self.beside})
            return
        for name, tensor in self.model.state_dict().items():
            if tensor.data_ptr() != self.views[name].data_ptr():
                tensor.copy_(self.views[name])


def _may_be_placed(model: nn.Module) -> bool:
    """Whether a model is the same with its parameters and buffers elsewhere, and loading a state copies these alone.

    Not if they have another layout than the dense one, share memory with each other or with an attribute of a module,
    or are read in the model's own way.
    """
    own: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    own |= dict(model.named_buffers(remove_duplicate=False))
    state: dict[str, Tensor] = model.state_dict(keep_vars=True)
    if any(own.get(name) is not tensor or not _is_dense_here(tensor) for name, tensor in state.items()):
        return False
    storages = [
        _storage(tensor) for tensor in {id(tensor): tensor for tensor in own.values() if tensor.numel()}.values()
    ]
    attributes = {
        _storage(value) for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor)
    }
    if len(set(storages)) < len(storages) or attributes.intersection(storages):
        return False
    return type(model).load_state_dict is nn.Module.load_state_dict and all(map(_is_loaded_plainly, model.modules()))


def _is_loaded_plainly(module: nn.Module) -> bool:
    load = type(module)._load_from_state_dict  # noqa: SLF001 - there is no other way
    hooks = module._load_state_dict_pre_hooks or module._load_state_dict_post_hooks  # noqa: SLF001
    return not hooks and (load is nn.Module._load_from_state_dict or load.__module__.startswith("torch.nn."))  # noqa: SLF001


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _is_dense_here(tensor: object) -> bool:
    """Whether something is a dense tensor on the CPU."""
    if not isinstance(tensor, Tensor) or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return False
    return tensor.is_contiguous()


def _view(memory: bytes | bytearray | memoryview, place: _Place) -> Tensor:
    count = math.prod(place.shape)
    if count == 0:
        return torch.empty(place.shape, dtype=place.dtype)
    return torch.frombuffer(memory, dtype=place.dtype, count=count, offset=place.start).view(place.shape)
