"""Finished points of sweeps, kept in a folder."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skedge.core.errors import InputError

if TYPE_CHECKING:
    from .sweep import Point


class Kept:
    """A folder of finished points, created if needed.

    It belongs to the user: files of results are read with pickle, so a folder from elsewhere must be trusted.
    """

    def __init__(self, folder: Path, say: Callable[[str], None] | None = None) -> None:
        """`say` receives a sentence on the points found.

        Raises
        ------
        InputError
            If `folder` is a file.
        """
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder}: finished points cannot be kept in it: it is not a folder")
        self.folder, self.say = folder, say

    def __len__(self) -> int:
        """Number of points in the folder, of this and of other sweeps."""
        return sum(1 for _ in self.folder.glob("[!.]*"))

    def found(self, points: Sequence[Point], left: list[Point], what: str | None = None) -> Iterator[Any]:
        """The kept results of `points`; those without one go to `left`. `what` names them to `say`."""
        for point in points:
            result = _read(self.folder / point.key)
            if result is None:
                left.append(point)
            else:
                yield result[0]
        if self.say is not None and what is not None:
            self.say(f"{len(points) - len(left)} of {len(points)} {what} found in {self.folder}")

    def of(self, key: str, make: Callable[[], Any]) -> Any:
        """The kept result of a point that is not for :func:`~skedge.runs.sweep.carry_out`, or what `make` returns."""
        result = _read(self.folder / key)
        if result is None:
            result = (make(),)
            _write(self.folder / key, result[0])
        return result[0]

    def add(self, key: str, result: Any) -> None:
        """Keep a result.

        Raises
        ------
        InputError
            If the folder cannot be used.
        """
        _write(self.folder / key, result)


def _read(path: Path) -> tuple[Any] | None:
    """A kept result in a tuple; None if there is none that can be read."""
    with suppress(Exception):  # whatever a damaged file does when it is read: the point is carried out again
        kept = pickle.loads(path.read_bytes())  # noqa: S301 - the user's own files, see Kept
        if isinstance(kept, dict) and kept.get("key") == path.name:
            return (kept["result"],)
    return None


def _write(path: Path, result: Any) -> None:
    """Keep a result; a sweep that is ended meanwhile leaves no half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        aside.write_bytes(pickle.dumps({"key": path.name, "result": result}, protocol=5))
        aside.replace(path)
    except OSError as error:
        raise InputError(f"{path.parent}: finished points cannot be kept in it: {error.strerror}") from error
