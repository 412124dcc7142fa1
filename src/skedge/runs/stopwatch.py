"""CPU time of a run by stage. It is not part of the record, which is byte-identical on all machines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from skedge.core.events import Event, Order, OrderBatch
from skedge.core.kernel.drive import World
from skedge.core.policy import Policy, View
from skedge.platform.jit import watchers

STAGES = {
    "start": "starting Python and importing",
    "compile": "compiling kernels, which are kept for later runs",
    "load": "reading or drawing the scenario, calibrating the policy",
    "decide": "the policy's decisions",
    "kernel": "checking orders, applying them to the books, noting them",
    "world": "the simulated world",
    "loop": "decisions, kernel, world and record, where they are one compiled loop",
    "record": "making the record's tables",
    "verify": "checking the record against every rule",
    "metrics": "computing the metrics",
    "write": "writing the run folder",
}
"""The stages of ``skedge run``; a kernel that was compiled before is loaded in the stage that first calls it."""


class _CompileClock:
    """CPU time that this process has spent compiling [s]: one thread at a time compiles."""

    def __init__(self) -> None:
        self.spent = self.since = 0.0

    def __call__(self, begins: bool) -> None:
        if begins:
            self.since = time.thread_time()
        else:
            self.spent += time.thread_time() - self.since


_compiling = _CompileClock()
watchers.append(_compiling)


def compiled_s() -> float:
    """CPU time that this process has spent compiling so far [s]."""
    return _compiling.spent


class Stopwatch:
    """CPU time of this process by stage: every moment counts for one stage.

    Reading the CPU clock is a system call, which can take longer than a decision. So the simulation is timed as a
    whole, and its CPU time split in proportion to the wall-clock time of its stages. Compiling counts for no stage but
    its own.

    Parameters
    ----------
    since
        CPU time of the process from which the first stage, ``start``, counts [s]; None: from now on.

    Attributes
    ----------
    seconds
        CPU time by stage [s], of all threads, up to the last change of stage.
    """

    def __init__(self, since: float | None = None) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.stage, self.since = "start", time.process_time() if since is None else since
        self.passed, self.inner, self.from_ = dict.fromkeys(STAGES, 0.0), "", 0.0
        self.compiled = compiled_s()

    @contextmanager
    def counting(self, stage: str) -> Iterator[None]:
        """Count for `stage` inside the block."""
        before = self.stage
        self._count(stage)
        try:
            yield
        finally:
            self._count(before)

    @contextmanager
    def simulating(self, stage: str) -> Iterator[None]:
        """Count for `stage` and for those to which :meth:`switch` changes inside the block."""
        self.passed = dict.fromkeys(STAGES, 0.0)
        # compiling counts for its own stage alone, so it is taken out of the wall clock, too
        self.inner, self.from_ = stage, time.perf_counter() - compiled_s()
        before_s = self.seconds[stage]
        try:
            with self.counting(stage):
                yield
        finally:
            self.switch(stage)
            cpu, wall = self.seconds[stage] - before_s, sum(self.passed.values())
            self.seconds[stage] = before_s
            for part, seconds in self.passed.items():
                # the measured CPU time of the whole is split by shares of wall-clock time
                self.seconds[part] += cpu * seconds / wall

    def switch(self, stage: str) -> str:
        """Count for `stage` from now on, in a simulation; returns the stage before."""
        before, now = self.inner, time.perf_counter() - compiled_s()
        self.passed[before] += now - self.from_
        self.inner, self.from_ = stage, now
        return before

    def _count(self, stage: str) -> None:
        now, compiled = time.process_time(), compiled_s()
        self.seconds[self.stage] += now - self.since - (compiled - self.compiled)
        self.seconds["compile"] += compiled - self.compiled
        # what was compiled since the last change is in `now` as well: it was subtracted above
        self.stage, self.since, self.compiled = stage, now, compiled

    def profile(self, jobs: int) -> dict[str, Any]:
        """CPU time by stage and in all [s], `jobs` per second of it, and the peak memory of the process [GB]."""
        import resource  # noqa: PLC0415 - only Unix has it, and only profiles need it

        self._count(self.stage)
        total = sum(self.seconds.values())
        unit = 1e9 if sys.platform == "darwin" else 1e6  # macOS counts bytes, Linux kilobytes
        return {
            "cpu_s": dict(self.seconds),
            "total_cpu_s": total,
            "jobs_per_cpu_s": jobs / total,
            "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit,
        }


class WatchedPolicy:
    """A policy whose decisions count for the stage ``decide``, without the kernel's work between its orders."""

    def __init__(self, policy: Policy, watch: Stopwatch) -> None:
        self.policy, self.watch = policy, watch

    def __getattr__(self, name: str) -> Any:
        """Forward all other attributes to the policy."""
        return getattr(self.policy, name)

    def decide(self, event: Event, view: View) -> Iterator[Order | OrderBatch]:
        """Decide as the policy does."""
        switch = self.watch.switch
        before = switch("decide")
        decided = self.policy.decide(event, view) or ()
        orders = iter((decided,) if isinstance(decided, OrderBatch) else decided)
        while (order := next(orders, None)) is not None:
            switch(before)
            yield order
            switch("decide")
        switch(before)


class WatchedWorld:
    """A world whose work counts for the stage ``world``."""

    def __init__(self, world: World, watch: Stopwatch) -> None:
        self.world, self.watch = world, watch

    def next_event(self) -> Event | None:
        """The world's next event."""
        before = self.watch.switch("world")
        event = self.world.next_event()
        self.watch.switch(before)
        return event

    def perform(self, order: Order) -> None:
        """Carry out an order in the world."""
        before = self.watch.switch("world")
        self.world.perform(order)
        self.watch.switch(before)
