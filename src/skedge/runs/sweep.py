"""The points of a sweep: carried out in processes of this machine or on a Ray cluster, and kept if that is wanted.

A point is a function with its arguments, and its result depends on nothing else. Points that were kept are not carried
out again, so a sweep that was ended continues where it was, with the same results.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from joblib import delayed

from .kept import Kept
from .on_ray import on_ray
from .parallel import parallel

_LIBRARIES = ("numpy", "numba", "polars", "scipy")


@dataclass(frozen=True)
class Where:
    """Where the points of a sweep are carried out and kept.

    Attributes
    ----------
    processes
        Number of processes on this machine; -1: one per core.
    ray
        Address of an existing Ray cluster (``HOST:PORT``, ``auto``) that carries them out instead.
    kept
        Where finished points are kept; None: nowhere.
    joining
        This process is one of the processes.
    """

    processes: int = -1
    ray: str | None = None
    kept: Kept | None = None
    joining: bool = False

    @property
    def here(self) -> bool:
        """Whether points run on this machine and are not kept, so that they can write files themselves."""
        return self.ray is None and self.kept is None


@dataclass(frozen=True)
class Point:
    """A point of a sweep: `function` of `given`; equal `key` means equal results (:func:`key_of`)."""

    key: str
    function: Callable[..., Any]
    given: tuple[Any, ...]


class Passing:
    """A result that is not kept, as its cause may be gone the next time: the point is carried out again."""


def carry_out(
    points: Sequence[Point], where: Where, what: str = "points", then: Callable[[Any], Sequence[Point]] | None = None
) -> Generator[Any, None, None]:
    """Carry out `points` and yield their results as they become available: first those that were kept.

    Parameters
    ----------
    what
        Names the points that were kept (:class:`~.kept.Kept`).
    then
        The points that follow from a result, which are carried out, too.

    Raises
    ------
    InputError
        If the folder of finished points cannot be used, or Ray is not installed.
    SkedgeError
        If a point raises it, or the cluster is lost.
    """
    tasks, follows = deque[Any](), then or _nothing

    def kept(points: Sequence[Point], what: str | None = None) -> Iterator[Any]:
        """The results of those that were kept, and of kept ones that follow from them; the others are to do."""
        while points:
            left, more = list[Point](), list[Point]()
            if where.kept is None:
                left += points
            else:
                for result in where.kept.found(points, left, what):
                    more += follows(result)
                    yield result
            tasks.extend(map(_task, left))
            points, what = more, None

    yield from kept(points, what)
    if where.ray is None:
        done = parallel(tasks, where.processes, joining=where.joining)
    else:
        done = on_ray(tasks, where.ray, _program)
    with closing(done):
        for key, result in done:
            if where.kept is not None and not isinstance(result, Passing):
                where.kept.add(key, result)
            following = list(kept(follows(result)))  # at once, as others wait for what is to do
            yield result
            yield from following


def _nothing(_: Any) -> Sequence[Point]:
    """Nothing follows."""
    return ()


def _task(point: Point) -> Any:
    """The point as joblib takes it."""
    return delayed(_done)(point.key, point.function, point.given)


def key_of(*what: object) -> str:
    """Key of a point: a hash of what is done (values whose ``repr`` is exact) and of the program that does it."""
    return blake2b(f"{_program()} {what!r}".encode(), digest_size=16).hexdigest()


@cache
def _program() -> str:
    """Hash of the package's sources, and versions of what the results depend on."""
    package = Path(__file__).parents[1]
    sources = blake2b(digest_size=8)
    for path in sorted(package.rglob("*.py")):
        sources.update(path.read_bytes())
    versions = [f"{name} {version(name)}" for name in _LIBRARIES]
    return " ".join([sources.hexdigest(), f"python {sys.version_info[:2]}", *versions])


def _done(key: str, function: Callable[..., Any], given: tuple[Any, ...]) -> tuple[str, Any]:
    return key, function(*given)
