"""Bytes with their digest in front, so that half-written or damaged ones are never taken for whole."""

from __future__ import annotations

from hashlib import blake2b

_SIZE = 16


def framed(content: bytes) -> bytes:
    """`content`, its digest in front."""
    return _digest(content) + content


def unframed(frame: bytes) -> bytes | None:
    """The content of a frame; None if it is not whole."""
    content = frame[_SIZE:]
    return content if _digest(content) == frame[:_SIZE] else None


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_SIZE).digest()
