"""Training on Ray: agents, parameter servers, trainers, checkpoints and users' code.

A job's own code imports :class:`Training` from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .training import Data, Training

__all__ = ["Data", "Training"]


def __getattr__(name: str) -> Any:
    """Import PyTorch only where a name of :mod:`.training` is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import training  # noqa: PLC0415

    return getattr(training, name)
