"""Preemptive and DRF decide once: the record is the same from the compiled loop and event by event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from builders.crossing import instance
from builders.gang_policies import random_scenarios
from skedge.core.model.scenario import Scenario
from skedge.scenario.file import scenario_of
from skedge.simulate import run

POLICIES = ("preemptive", "drf")


def different(scenario: Scenario, policy: str) -> list[str]:
    """The tables in which the records of the two drivers differ."""
    records = []
    for limit in (0, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("skedge.simulate.LARGE", limit)
            patch.setattr("skedge.simulate.SMALL", limit)
            records.append(run(scenario, policy))
    compiled, driven = records
    # only Python measures how long each decision takes
    assert compiled.decisions_s is None
    assert driven.decisions_s is not None
    tables = driven.schedule.tables()
    return [name for name, table in compiled.schedule.tables().items() if not table.equals(tables[name])]


def scenarios_of(feature: str) -> Iterator[Scenario]:
    """Where no server fails: data kept or not, with and without cloud, estimates, co-location; else also outages."""
    if feature == "lasting servers":
        for scenario, data in product(random_scenarios(range(40)), ("kept", "last_place")):
            yield replace(scenario, physics=replace(scenario.physics, data=data))
    else:
        yield from (instance(feature, seed) for seed in range(40))


@pytest.mark.parametrize("feature", ["lasting servers", "alone", "cloud", "storage", "estimates", "batches"])
@pytest.mark.parametrize("policy", POLICIES)
def test_both_drivers_make_the_same_record(policy: str, feature: str) -> None:
    faults = {scenario.seed: different(scenario, policy) for scenario in scenarios_of(feature)}
    assert {seed: tables for seed, tables in faults.items() if tables} == {}


@pytest.mark.parametrize("policy", POLICIES)
def test_both_drivers_make_the_same_record_of_a_longer_run(policy: str) -> None:
    assert different(scenario_of("demo-divisible"), policy) == []
