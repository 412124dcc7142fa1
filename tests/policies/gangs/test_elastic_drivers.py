"""Preemptive and DRF decide once: the record is the same from the compiled loop and event by event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, product

import pytest

from builders.crossing import instance
from builders.drivers import difference
from builders.gang_policies import random_scenarios
from builders.thorough import thorough_except
from skedge.core.model.scenario import Scenario
from skedge.scenario.file import scenario_of

POLICIES = ("preemptive", "drf")
FEATURES = ("lasting servers", "alone", "cloud", "storage", "estimates", "batches")


def scenarios_of(feature: str) -> Iterator[Scenario]:
    """Where no server fails: data kept or not, with and without cloud, estimates, co-location; else also outages."""
    if feature == "lasting servers":
        for scenario, data in product(random_scenarios(range(40)), ("kept", "last_place")):
            yield replace(scenario, physics=replace(scenario.physics, data=data))
    else:
        yield from (instance(feature, seed) for seed in range(40))


@pytest.mark.parametrize(
    ("policy", "feature"),
    thorough_except(zip(cycle(POLICIES), FEATURES, strict=False), product(POLICIES, FEATURES)),
)
def test_both_drivers_make_the_same_record(policy: str, feature: str) -> None:
    faults = [(s.seed, s.physics.data, difference(s, policy)) for s in scenarios_of(feature)]
    assert [fault for fault in faults if fault[-1]] == []


@pytest.mark.parametrize("policy", POLICIES)
def test_both_drivers_make_the_same_record_of_a_longer_run(policy: str) -> None:
    assert difference(scenario_of("demo-divisible"), policy) == []
