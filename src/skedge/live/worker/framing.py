"""Bytes preceded by their digest, so that partial or damaged content is detected."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from skedge.core.errors import TrainingError
from skedge.live.durable import read

_SIZE = 16


def framed(content: bytes) -> bytes:
    """`content` preceded by its digest."""
    return _digest(content) + content


def unframed(frame: bytes) -> bytes | None:
    """The content of a frame; None if it is incomplete or damaged."""
    content = frame[_SIZE:]
    return content if _digest(content) == frame[:_SIZE] else None


def whole(path: Path) -> bytes:
    """The content of a chunk's file.

    Raises
    ------
    TrainingError
        If it is missing or damaged.
    """
    try:
        frame = read(path)
    except OSError as error:
        raise TrainingError(f"chunk file {path}: {error.strerror}") from error
    content = unframed(frame)
    if content is None:
        raise TrainingError(f"chunk file {path}: is truncated or damaged ({len(frame)} bytes)")
    return content


def chunk_path(folder: Path, chunk: int) -> Path:
    """Where a chunk is kept, in the folder of the chunks of its job."""
    return folder / f"{chunk:06d}.pt"


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_SIZE).digest()
