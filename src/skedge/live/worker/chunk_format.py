"""The stored and sent form of a chunk: its data, and the digest of the code that made them, framed."""

from __future__ import annotations

import io
from pathlib import Path

import torch

from skedge.live.training import Data

from .framing import framed, whole


def packed(data: Data, module: str = "") -> bytes:
    """A chunk as bytes preceded by their digest; `module`: digest of the code that made it."""
    buffer = io.BytesIO()
    torch.save((data, module), buffer)
    return framed(buffer.getvalue())


def unpacked(path: Path | str) -> tuple[Data, str]:
    """A chunk from its file, and the digest of the code that made it.

    Raises
    ------
    TrainingError
        If it is missing or damaged.
    """
    data, module = torch.load(io.BytesIO(whole(Path(path))), weights_only=True)
    return data, module
