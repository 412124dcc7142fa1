"""The device that a process of a job computes on: the CPU, or a GPU of its server (CUDA)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

CPU = "cpu"


def moved(batch: Any, device: str) -> Any:
    """A mini-batch of any form, with all its tensors on a device; copies to a GPU are pinned and do not block."""
    if device == CPU:
        return batch
    if isinstance(batch, Tensor):
        target = torch.device(device)
        return (batch.pin_memory() if target.type == "cuda" else batch).to(target, non_blocking=True)
    if isinstance(batch, Mapping):
        return {name: moved(part, device) for name, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(part, device) for part in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(moved(part, device) for part in batch)
    return batch


def gpus_here() -> int:
    """Number of GPUs that this process may use."""
    return torch.cuda.device_count()
