"""The times of training that ``/metrics`` has: each is counted once, as it is measured."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from skedge.live.controller.metrics import Metrics
from skedge.live.coordinator.report import Report
from skedge.live.world.training_facts import TrainingFacts


def counts(metrics: Metrics) -> dict[str, tuple[float, float]]:
    """(number, sum) of each histogram of times that has any."""
    samples = {s.name: s.value for f in text_string_to_metric_families(metrics.text()) for s in f.samples}
    names = ("first_update", "worker_release", "preemption")
    both = {name: tuple(samples[f"skedge_{name}_seconds_{what}"] for what in ("count", "sum")) for name in names}
    return {name: (number, total) for name, (number, total) in both.items() if number}


def test_each_time_is_counted_once() -> None:
    """A team's first update is in each of its reports; a team that is put again has another one."""
    metrics, facts = Metrics(dict, lambda: False), TrainingFacts()
    facts.timed = metrics.time
    assert counts(metrics) == {}
    facts.note(Report("chunk", 0, 1, first_s=0.3))
    facts.note(Report("stopped", 0, 1, first_s=0.3, freed_s=0.02))
    facts.note(Report("chunk", 0, 2, first_s=0.3))
    assert counts(metrics) == {
        "first_update": (2, pytest.approx(0.6)),
        "worker_release": (1, pytest.approx(0.02)),
    }
    facts.note(Report("finished", 0, 1, first_s=0.5))
    facts.note_preemption(0.1)
    assert counts(metrics)["first_update"] == (3, pytest.approx(1.1))
    assert counts(metrics)["preemption"] == (1, pytest.approx(0.1))


def test_what_a_past_controller_measured_is_not_counted_again() -> None:
    rebuilding = True
    metrics = Metrics(dict, lambda: rebuilding)
    metrics.time("preemption", 1.0)
    assert counts(metrics) == {}
    rebuilding = False
    metrics.time("preemption", 1.0)
    assert counts(metrics) == {"preemption": (1, 1.0)}
