"""Servers that fail, crossed with every policy and every other feature; ``benchmarks/crossing.py`` tries many more.

A cell is a policy and a feature: the runs of its instances keep every rule and answer every job. No compiled loop and
no stream through files takes such a run, and one that asks for them has the same record. What the product refuses it
refuses in a sentence.
"""

from __future__ import annotations

import pytest

from builders.crossing import CELLS, NO_SLOTS, POLICIES, REFUSED, fault, instance, instances, refusal
from builders.thorough import thorough_except
from skedge.core.registry import registered
from skedge.loops.streamed import covers
from skedge.loops.which import loop_for
from skedge.prepare import prepare_policy
from skedge.simulate import run

INSTANCES = 10
"""Of each cell, on seeds of their own."""

FIRST = 70_000

CARRIED_OUT = [cell for cell in CELLS if cell not in REFUSED]
IN_MEMORY = [(feature, policy) for feature, policy in CARRIED_OUT if feature != "streamed"]
QUICK = [*IN_MEMORY[::2], ("streamed", "aonline"), ("streamed", "srtf")]
"""Every second one; of those that pass through files, which are slow, a policy on lanes and one of gangs."""


@pytest.mark.parametrize(("feature", "policy"), thorough_except(QUICK, CARRIED_OUT))
def test_every_policy_with_every_feature_where_servers_fail(feature: str, policy: str) -> None:
    """No violation, no exception, no job without an answer, the same record however the run is asked for."""
    faults = {(seed, of): fault(feature, of, seed) for seed, of in instances(policy, FIRST, INSTANCES)}
    assert {at: what for at, what in faults.items() if what} == {}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("feature", ["streamed", "quick"])
def test_neither_the_stream_nor_the_loops_of_lanes_and_batches_take_a_run_in_which_servers_fail(
    feature: str, policy: str
) -> None:
    """Of the cells named after the other ways to run, too: these know no failures."""
    for seed, of in instances(policy, FIRST, INSTANCES):
        scenario = instance(feature, seed)
        assert loop_for(scenario, prepare_policy(of, scenario)) is None
        assert not covers(scenario, prepare_policy(of, scenario))


@pytest.mark.parametrize(("feature", "policy"), sorted(REFUSED))
def test_what_does_not_go_with_failures_is_refused_in_a_sentence(feature: str, policy: str) -> None:
    """Bounded lag, and tenants where the policy knows none."""
    for seed, of in instances(policy, FIRST, len(POLICIES[policy])):
        assert REFUSED[feature, policy] in refusal(feature, of, seed)


@pytest.mark.parametrize("policy", NO_SLOTS)
def test_policies_without_slots_are_refused_where_servers_fail(policy: str) -> None:
    """They need resources or sites, where `physics.mtbf` is refused (tests/core/test_failures.py)."""
    assert f"policy '{policy}' needs" in refusal("alone", policy, FIRST)


def test_every_registered_policy_is_crossed() -> None:
    """A policy of ours that is in neither list fails this test."""
    ours = {name for name, point in registered().items() if point.value.startswith("skedge.")}
    assert ours == {policy.partition(":")[0] for policy in POLICIES} | set(NO_SLOTS)


def test_servers_do_fail_in_the_instances() -> None:
    """Outages hit running jobs in most of them: chunks are dispatched again, gangs are suspended."""
    for policy, verb in (("aonline", "redispatch"), ("srtf", "suspend")):
        hit = 0
        for seed, _ in instances(policy, FIRST, INSTANCES):
            decisions = run(instance("alone", seed), policy).schedule.decisions
            hit += int((decisions["verb"] == verb).any())
        assert hit > INSTANCES // 2
