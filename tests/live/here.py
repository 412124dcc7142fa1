"""Agents and parameter servers as objects of this process, called as Ray's actors are: a trainer needs no cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from skedge.live import host
from skedge.live.worker import bridge, ps_actor
from skedge.live.worker.agent import Agent
from skedge.live.worker.checkpoint import Life
from skedge.live.worker.ps_actor import PSActor
from skedge.live.worker.watchdog import WatchdogLimits


class Called:
    """An actor's method."""

    def __init__(self, pool: ThreadPoolExecutor, method: Any, returns: int = 1) -> None:
        self.pool, self.method, self.returns = pool, method, returns

    def options(self, num_returns: int) -> Called:
        return Called(self.pool, self.method, num_returns)

    def remote(self, *given: Any, **named: Any) -> Any:
        """References to what it returns."""
        found: list[Future[Any]] = [Future() for _ in range(self.returns)]
        self.pool.submit(self._run, found, given, named)
        return found[0] if self.returns == 1 else tuple(found)

    def _run(self, found: list[Future[Any]], given: tuple[Any, ...], named: dict[str, Any]) -> None:
        try:
            answer = self.method(*(one.result() if isinstance(one, Future) else one for one in given), **named)
        except BaseException as error:
            for one in found:
                one.set_exception(_of_task(error))
            return
        for one, part in zip(found, (answer,) if self.returns == 1 else answer, strict=True):
            one.set_result(part)


class Actor:
    """An object whose methods are called as those of an actor."""

    def __init__(self, of: object, threads: int) -> None:
        self.of, self.pool = of, ThreadPoolExecutor(threads)

    def __getattr__(self, name: str) -> Called:
        return Called(self.pool, getattr(self.of, name))


class Machine:
    """Processes of one job on one server.

    Attributes
    ----------
    agent, ps
        The agent, and the parameter server.
    way
        How a round is trained: by ``calls``, as on machines that do not reach each other; in ``windows``, of which the
        parameter server's process trains the first worker's part; by connected ``links`` alone; or over a ``bridge``,
        as on two machines.
    """

    def __init__(self, folder: Path, watch: WatchdogLimits, way: str) -> None:
        chunks = str(folder / "chunks")
        self.agent, self.way = Agent("edge-0", chunks), way
        self.ps = PSActor(str(folder / "checkpoints"), watch, folder=chunks)
        self.agents, self._ps, self.job_code = {0: Actor(self.agent, 4)}, Actor(self.ps, 2), self
        self._loads, self.loads = count(1), 0

    def parameter_server(self, _: int) -> Actor:
        return self._ps

    def trains(self, _: int) -> bool:
        return self.way == "windows"

    def life(self, controllers: int) -> Life:
        self.loads = next(self._loads)
        return Life(controllers, self.loads)

    def release(self, _: int, actor: Actor, life: Life) -> None:
        host.call(actor, "unload", life)

    def outcome(self, *_: Any) -> dict[str, Any]:
        return {"accuracy": None}


def _of_task(error: BaseException) -> BaseException:
    import ray  # not earlier: it reads its settings when it is imported

    return ray.exceptions.RayTaskError("method", "traceback", error)


@contextmanager
def machine(folder: Path, patch: pytest.MonkeyPatch, watch: WatchdogLimits, way: str = "windows") -> Iterator[Machine]:
    """A machine, where Ray's calls find what its methods return; jobs' processes find the modules beside this one."""
    import ray

    def waited(refs: list[Future[Any]], num_returns: int, timeout: float) -> tuple[list[Future[Any]], ...]:
        done, left = wait(refs, timeout)
        return list(done), list(left)

    def put(content: Any) -> Future[Any]:
        ref: Future[Any] = Future()
        ref.set_result(content)
        return ref

    patch.setattr(ray, "wait", waited)
    patch.setattr(ray, "get", lambda ref, timeout=None: ref.result(timeout))
    patch.setattr(ray, "put", put)
    patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    patch.setattr(bridge, "node_address", lambda: "127.0.0.1")
    if way in ("calls", "bridge"):
        patch.setattr(ps_actor, "machine", lambda: "another one")
    if way == "calls":
        patch.setenv("RAY_USE_TLS", "1")
    one = Machine(folder, watch, way)
    try:
        yield one
    finally:
        one.ps.unload(one.ps.life)
        one.agent.forget("j")
