"""What is told of an error that a job's code has raised: its type, its message, and where in the user's code."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

import skedge

_LONGEST, _FRAMES = 1000, 40
"""Most characters of a message, and most frames of a traceback."""

_OURS = str(Path(skedge.__file__).parent)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
"""Folders of the code that is not the user's."""


def told(error: BaseException) -> str:
    """An error in one sentence, with the user's line: ``ValueError: bad shape (train.py, line 12)``."""
    message = _message(error)
    cut = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    users = [(name, line) for name, line in frames if _is_users(name)]
    place = f" ({_short(users[-1][0])}, line {users[-1][1]})" if users else ""
    return f"{type(error).__name__}: {cut}".removesuffix(": ") + place


def whole(error: BaseException) -> str:
    """The traceback of the error that the job's code raised; empty if the error is skedge's own."""
    *_, first = _causes(error)
    return "" if _is_ours(first) else "".join(traceback.format_exception(first, limit=-_FRAMES))


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the class is the job's own, too
        return "its message cannot be made"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it was raised from, up to the first that is none of ours."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ if _is_ours(cause) else None


def _is_ours(error: BaseException) -> bool:
    return type(error).__module__.startswith("skedge.")


def _is_users(name: str) -> bool:
    examples = f"{_OURS}/live/examples"
    is_ours = name.startswith(_OURS) and not name.startswith(examples)
    return not (is_ours or name.startswith(_LIBRARIES) or "/site-packages/" in name or name.startswith("<frozen"))


def _short(name: str) -> str:
    """The name of a file without the folders that say nothing to a user: those of shipped code have their digest."""
    return name.partition(">/")[2] or Path(name).name
