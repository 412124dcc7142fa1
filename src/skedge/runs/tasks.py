"""Tasks, run in processes of this machine or on a Ray cluster; their results may be cached.

A task is a function with its arguments, and its result depends on nothing else. Tasks whose results are cached are not
run again, so a study or comparison that was interrupted continues where it was, with the same results.
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

from .on_ray import on_ray
from .parallel import parallel
from .result_cache import ResultCache

_LIBRARIES = ("numpy", "numba", "polars", "scipy")


@dataclass(frozen=True)
class Executor:
    """Where tasks run, and where their results are cached.

    Attributes
    ----------
    processes
        Number of processes on this machine; -1: one per core.
    ray
        Address of an existing Ray cluster (``HOST:PORT``, ``auto``) that runs the tasks instead.
    cache
        Cache of the results; None: they are not cached.
    use_this_process
        This process is one of the processes.
    """

    processes: int = -1
    ray: str | None = None
    cache: ResultCache | None = None
    use_this_process: bool = False

    @property
    def is_local_uncached(self) -> bool:
        """Whether tasks run on this machine and are not cached, so that they can write files themselves."""
        return self.ray is None and self.cache is None


@dataclass(frozen=True)
class KeyedTask:
    """A call of `function` with `arguments`; equal `key` means equal results (:func:`key_of`)."""

    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class TransientResult:
    """A result that is not cached, as its cause may be gone the next time: the task is run again."""


def run_tasks(
    tasks: Sequence[KeyedTask],
    executor: Executor,
    label: str = "points",
    next_tasks: Callable[[Any], Sequence[KeyedTask]] | None = None,
) -> Generator[Any, None, None]:
    """Run `tasks` and yield their results as they become available, cached ones first.

    Parameters
    ----------
    tasks
        Their order is kept in the queue, but not in the results.
    executor
        Where they run.
    label
        Noun for the tasks in the message on cached results.
    next_tasks
        Called with each result; returns the tasks that follow from it, which are run, too.

    Raises
    ------
    InputError
        If the cache's folder cannot be used, or Ray is not installed.
    SkedgeError
        If a task raises it, or the cluster is lost.
    """
    queue, followers = deque[Any](), next_tasks or _no_tasks

    def cached(tasks: Sequence[KeyedTask], label: str | None = None) -> Iterator[Any]:
        """Cached results of `tasks` and of the tasks that follow from them; the other tasks are queued."""
        while tasks:
            n_found, follow_ups = 0, list[KeyedTask]()
            for task in tasks:
                # one at a time: a caller may reduce each result before the next is read
                entry = None if executor.cache is None else executor.cache.get(task.key)
                if entry is None:
                    queue.append(_joblib_task(task))
                    continue
                n_found += 1
                follow_ups += followers(entry[0])
                yield entry[0]
            if label is not None and executor.cache is not None and executor.cache.say is not None:
                executor.cache.say(f"{n_found} of {len(tasks)} {label} found in {executor.cache.folder}")
            tasks, label = follow_ups, None

    yield from cached(tasks, label)
    if executor.ray is None:
        outcomes = parallel(queue, executor.processes, use_this_process=executor.use_this_process)
    else:
        outcomes = on_ray(queue, executor.ray, _program)
    with closing(outcomes):
        for key, result in outcomes:
            if executor.cache is not None and not isinstance(result, TransientResult):
                executor.cache.add(key, result)
            following = list(cached(followers(result)))  # before the yield: idle processes wait for the queue
            yield result
            yield from following


def _no_tasks(_: Any) -> Sequence[KeyedTask]:
    """No task follows."""
    return ()


def _joblib_task(task: KeyedTask) -> Any:
    """The task as joblib takes it."""
    return delayed(_run_keyed)(task.key, task.function, task.arguments)


def key_of(*parts: object) -> str:
    """Key of a task: a hash of its inputs (values whose ``repr`` is exact) and of the program that runs it."""
    return blake2b(f"{_program()} {parts!r}".encode(), digest_size=16).hexdigest()


@cache
def _program() -> str:
    """Hash of the package's sources, and versions of what the results depend on."""
    # any change of the sources changes every key: no cached result outlives the code that made it
    package = Path(__file__).parents[1]
    sources = blake2b(digest_size=8)
    for path in sorted(package.rglob("*.py")):
        sources.update(path.read_bytes())
    versions = [f"{name} {version(name)}" for name in _LIBRARIES]
    return " ".join([sources.hexdigest(), f"python {sys.version_info[:2]}", *versions])


def _run_keyed(key: str, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[str, Any]:
    return key, function(*args)
