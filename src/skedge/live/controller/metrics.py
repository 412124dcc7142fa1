"""What Prometheus scrapes at ``GET /metrics``; the names follow Kueue's, with ``jobs`` for ``workloads``.

Counters and histograms grow as things happen, and begin at zero with a new controller. The rest is read when asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Counter as Counted
from prometheus_client.core import GaugeMetricFamily, Histogram

from skedge.core.events import CANCELLED, Allocate, Event, Order, Suspend
from skedge.core.model.time import SECOND

_WAITS = (0.1, 1, 10, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600)
_DECISIONS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1)
_TIMES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_RATIOS = (0.25, 0.5, 0.75, 0.9, 1.1, 1.5, 2, 4, 8)
"""Limits of the histograms: waits, decisions, times of training [s]; a job's time divided by the time foreseen."""

Read = Mapping[str, Mapping[tuple[str, ...], float]]
"""Values read when asked: by metric, then by the values of its labels."""

_READ = {
    "skedge_jobs": ("Jobs by state.", ("state",)),
    "skedge_pending_jobs": ("Waiting jobs by reason.", ("reason",)),
    "skedge_stalled_jobs": ("Jobs that train and of which no mini-batch has come for long.", ()),
    "skedge_server_busy_ratio": ("Workers of a server that train, of all that it has.", ("server",)),
    "skedge_server_up": ("1 if a server is in service.", ("server",)),
    "skedge_tenant_workers": ("Edge workers that a tenant's jobs hold.", ("tenant",)),
    "skedge_forecast_held_ratio": ("Intervals of forecasts that held the completion; 0.8 is meant.", ()),
    "skedge_journal_blocked": ("1 while the journal cannot be written.", ()),
}
"""Description and labels of the metrics that are read when asked."""

_TIMED = {
    "first_update": "From when a job's workers hold their place to the first update with their gradients.",
    "worker_release": "From the order to suspend a worker until its mini-batch had ended.",
    "preemption": "From the decision to displace a chunk to the displacing job's first update with its own.",
}
"""Times of training that are counted as they are measured, by the word of their histogram's name."""


class Metrics:
    """The metrics of one controller.

    Parameters
    ----------
    read
        Returns the values that are read when asked.
    rebuilding
        Whether the run is rebuilt from its journal now: what its past controllers measured is not counted again.
    """

    def __init__(self, read: Callable[[], Read], rebuilding: Callable[[], bool]) -> None:
        self._rebuilding = rebuilding
        self._registry, self._arrived = CollectorRegistry(), dict[int, int]()
        options: Any = {"registry": self._registry}
        self.submitted = Counted("skedge_submitted_jobs", "Jobs taken.", **options)
        self.finished = Counted("skedge_finished_jobs", "Jobs that have left, by how.", ["state"], **options)
        self.suspended = Counted("skedge_preempted_jobs", "Times that a running job was suspended.", **options)
        self.evicted = Counted("skedge_evicted_jobs", "Times that a job lost work with its server.", **options)
        self.restarted = Counted(
            "skedge_restarted_processes", "Processes of jobs that were started again, by why.", ["why"], **options
        )
        self.waited = Histogram(
            "skedge_admission_wait_seconds", "From a job's arrival to its first start.", buckets=_WAITS, **options
        )
        self.decided = Histogram(
            "skedge_decision_seconds", "Answer to one event, journal included.", buckets=_DECISIONS, **options
        )
        self.off = Histogram(
            "skedge_forecast_error_ratio",
            "Time that a job took divided by the time foreseen.",
            buckets=_RATIOS,
            **options,
        )
        self._times = {
            name: Histogram(f"skedge_{name}_seconds", text, buckets=_TIMES, **options) for name, text in _TIMED.items()
        }
        self._registry.register(_ValuesOnRequest(read))

    def note(self, event: Event, orders: Sequence[Order]) -> None:
        """Count what an event and the orders that answer it say."""
        self.submitted.inc(len(event.arrived))
        self._arrived |= dict.fromkeys(event.arrived, event.time)
        for job in event.started:
            if job in self._arrived:
                self.waited.observe((event.time - self._arrived.pop(job)) / SECOND)
        self.suspended.inc(len(preempted(event, orders)))
        self.evicted.inc(len(event.interrupted))
        self.finished.labels("COMPLETED").inc(len(event.finished))
        for _, reason in event.failed:
            self.finished.labels("CANCELLED" if reason == CANCELLED else "FAILED").inc()
        for job in event.left:
            self._arrived.pop(job, None)

    def time(self, name: str, seconds: float) -> None:
        """Count a time of :data:`_TIMED`."""
        if not self._rebuilding():
            self._times[name].observe(seconds)

    def text(self) -> str:
        """All of them in Prometheus's format."""
        return generate_latest(self._registry).decode()


def preempted(event: Event, orders: Sequence[Order]) -> tuple[int, ...]:
    """Running jobs that were suspended: displaced on their lanes, or gangs by an order that does not move them."""
    moved = {order.job for order in orders if isinstance(order, Allocate)}
    stopped = (order.job for order in orders if isinstance(order, Suspend))
    return event.paused + tuple(job for job in stopped if job not in moved)


class _ValuesOnRequest:
    """A collector of the values that are read when asked."""

    def __init__(self, read: Callable[[], Read]) -> None:
        self._read = read

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The metrics without values, so that none is read when this is registered."""
        for name, (text, labels) in _READ.items():
            yield GaugeMetricFamily(name, text, labels=labels)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics with their values."""
        values = self._read()
        for name, (text, labels) in _READ.items():
            family = GaugeMetricFamily(name, text, labels=labels)
            for key, value in values.get(name, {}).items():
                family.add_metric(key, value)
            yield family


def by_label(names: Iterable[str], expected: tuple[str, ...] = ()) -> dict[tuple[str, ...], float]:
    """How often each name occurs; those of `expected` that do not occur have 0."""
    counts = Counter(names)
    return {(name,): float(counts[name]) for name in (*expected, *(counts.keys() - set(expected)))}
