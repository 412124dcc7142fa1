"""The points of a sweep: carried out in processes of this machine or on a Ray cluster, and kept if that is wanted.

A point is a function with its arguments, and its result depends on nothing else. Points that were kept are not carried
out again, so a sweep that was ended continues where it was, with the same results.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from joblib import delayed

from skedge.core.errors import InputError, SkedgeError

from .cluster import check_answers
from .kept import Kept
from .parallel import parallel

_LIBRARIES = ("numpy", "numba", "polars", "scipy")

_ANOTHER = "a node of the Ray cluster has another skedge or other libraries, or none: every node needs the same ones"


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
    done = parallel(tasks, where.processes, joining=where.joining) if where.ray is None else _on_ray(tasks, where.ray)
    with closing(done):
        for key, result in done:
            if where.kept is not None:
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


def _done_there(program: str, *given: Any) -> tuple[str, Any]:
    """A point on a node of a cluster, which must have the same program."""
    if _program() != program:
        raise SkedgeError(_ANOTHER)
    return _done(*given)


def _done(key: str, function: Callable[..., Any], given: tuple[Any, ...]) -> tuple[str, Any]:
    return key, function(*given)


# -- Ray ---------------------------------------------------------------------------------------------------------------


def _on_ray(tasks: deque[Any], address: str) -> Generator[tuple[str, Any], None, None]:
    """Carry out `tasks` on a Ray cluster, one per CPU; those of a node that is lost are carried out again elsewhere.

    Tasks may be added while results are taken.
    """
    with _cluster(address) as ray:
        remote = ray.remote(_done_there).options(num_cpus=1, max_retries=-1)
        waiting = list[Any]()
        try:
            while tasks or waiting:
                while tasks:
                    waiting.append(remote.remote(_program(), *tasks.popleft()[1]))
                (one, *_), waiting = ray.wait(waiting, num_returns=1)
                try:
                    yield ray.get(one)
                except ray.exceptions.RayTaskError as error:
                    if isinstance(error.cause, SkedgeError):
                        raise error.cause from None  # Ray's own error contains the whole traceback
                    if isinstance(error.cause, ImportError):
                        raise SkedgeError(_ANOTHER) from error
                    raise
                except ray.exceptions.RayError as error:
                    raise SkedgeError(f"the Ray cluster at {address} lost a point: {error}") from error
        finally:
            for one in waiting:
                ray.cancel(one, force=True)


@contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """Ray, connected to the cluster at `address`."""
    if importlib.util.find_spec("ray") is None:
        raise InputError("--ray needs Ray: pip install 'skedge[live]'")
    import ray  # noqa: PLC0415 - Ray is an extra

    check_answers(address)
    before = ray.is_initialized()
    try:
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise SkedgeError(f"no Ray cluster answers at {address}: {error}") from error
    try:
        yield ray
    finally:
        if not before:
            ray.shutdown()
