"""SRTF, Tiresias-L and FIFO decide once: the record is the same from the compiled loop and event by event."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, product

import numpy as np
import polars as pl
import pytest

from builders import gang_policies
from builders.crossing import instance
from builders.drivers import difference, driven
from builders.gang_policies import job, random_scenarios
from builders.paths import CASES
from builders.thorough import thorough_except
from skedge.core.events import Event
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.sharing import Sharing, Tenant
from skedge.core.registry import make_policy
from skedge.policies.gangs.edge import too_few
from skedge.scenario.file import scenario_of
from skedge.sim.compiled import use_loop
from skedge.sim.world import SimulatedWorld
from skedge.simulate import run

FEATURES = ("lasting servers", "tenants", "alone", "sharing", "cloud", "estimates", "batches")
POLICIES = (
    "fifo",
    "fifo:backfill=true",
    "fifo:backfill=true,allow_cloud=true",
    "srtf",
    "srtf:allow_cloud=true",
    "srtf:placement=literal",
    "srtf:sticky=true",
    "srtf:placement=literal,sticky=true,allow_cloud=true",
    "tiresias",
    "tiresias:knob=0.5",
    "tiresias:limit_s=4",
    "tiresias:limit_s=4,knob=1,allow_cloud=true",
    "tiresias:limit_s=2,knob=2,sticky=true",
    "tiresias:limit_s=2,knob=0.3,placement=literal",
)


def shared(scenario: Scenario) -> Scenario:
    """The scenario with three tenants and three classes; what bounds their preemptions is drawn by its seed."""
    rng, n = np.random.default_rng([scenario.seed, 2]), len(scenario.jobs)
    sharing = Sharing(
        {"a": Tenant(2, float(rng.choice([0.4, 1]))), "b": Tenant(0.3, float(rng.choice([0.5, 0.8])))},
        min_runtime_s=float(rng.choice([0, 1.5, 5])),
        most_preemptions=(None, 0, 1, 2)[rng.integers(4)],
        ageing_s=(None, 0.7, 3)[rng.integers(3)],
    )
    cluster = Cluster(scenario.cluster.servers, sharing=sharing)
    tenants, classes = pl.Series(rng.choice(sharing.names, n)), pl.Series(rng.integers(0, 3, n))
    frame = scenario.jobs.frame.with_columns(tenant=tenants, priority=classes)
    return replace(scenario, cluster=cluster, jobs=Jobs(frame, cluster, scenario.jobs.fixed_delays))


def scenarios_of(feature: str) -> Iterator[Scenario]:
    """Where no server fails: data kept or not, with and without cloud, estimates, slots, tenants; else also outages."""
    if feature in {"lasting servers", "tenants"}:
        for scenario in random_scenarios(range(40)):
            data = ("kept", "kept", "last_place")[scenario.seed % 3]
            physics = replace(scenario.physics, data=data)
            made = replace(scenario, physics=physics)
            yield shared(made) if feature == "tenants" else made
    else:
        yield from (instance(feature, seed) for seed in range(20))


@pytest.mark.parametrize(
    ("policy", "feature"),
    thorough_except(zip(POLICIES, cycle(FEATURES), strict=False), product(POLICIES, FEATURES)),
)
def test_both_drivers_make_the_same_record(policy: str, feature: str) -> None:
    faults = {scenario.seed: difference(scenario, policy) for scenario in scenarios_of(feature)}
    assert {seed: tables for seed, tables in faults.items() if tables} == {}


@pytest.mark.parametrize("policy", ["fifo", "srtf", "tiresias", "tiresias:knob=2"])
def test_both_drivers_make_the_same_record_of_many_types_of_workers(policy: str) -> None:
    assert difference(scenario_of("s1"), policy) == []
    assert difference(scenario_of("demo"), policy) == []


def test_both_drivers_make_the_same_record_of_restores_that_are_cut() -> None:
    """Its attained service below 0 once crashed the process."""
    assert difference(scenario_of(str(CASES / "tiresias-restores.yaml")), "tiresias") == []


@pytest.mark.parametrize("compiled", [True, False])
def test_reasons_are_numbered_in_order_of_first_use(*, compiled: bool) -> None:
    """Each rejection has its own words, with the demand in them; a job that asks for the same has the same."""
    jobs = [job("a", 0, 2, 100), job("b", 1, 3, 1), job("c", 2, 2, 5), job("d", 3, 4, 1), job("e", 4, 3, 1)]
    kernel = Kernel(gang_policies.scenario(jobs, [(2, 1)]), make_policy("srtf"))
    world = SimulatedWorld(kernel)
    assert not compiled or use_loop(world, kernel)
    drive_to_end(kernel, world)
    reasons = ["shortest_remaining_time", too_few(3, 2), "preempted", too_few(4, 2)]
    assert kernel.record.decisions.reasons == {reason: number for number, reason in enumerate(reasons)}
    assert kernel.record.rejected == {1: reasons[1], 3: reasons[3], 4: reasons[1]}


def test_no_function_is_compiled_twice() -> None:
    """A column of a table is no contiguous array: a compiled function that is given one is compiled again for it."""
    code = """
import gc, numpy as np, skedge.simulate
from skedge.platform.jit import CompiledFunction, compiled
from skedge.testing import small_scenario

total = compiled(lambda array: array.sum())
total(np.zeros(2)), total(np.zeros((2, 2))[:, 0])
for n_jobs in (0, 10**9):
    skedge.simulate.LARGE = skedge.simulate.SMALL = n_jobs
    for policy in ("srtf", "tiresias", "fifo", "preemptive", "drf"):
        skedge.simulate.run(small_scenario(0), policy)
functions = [f for f in gc.get_objects() if isinstance(f, CompiledFunction)]
forms = [(f.__name__, vars(f).get(form)) for f in functions for form in ("dispatcher", "step")]
signatures = [(name, len(form.signatures)) for name, form in forms if form is not None]
print(sum(n == 1 for _, n in signatures) > 15, [name for name, n in signatures if n > 1])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=900)
    assert (ended.stdout, ended.stderr) == ("True ['<lambda>']\n", "")


def test_a_compiled_run_reports_each_job_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skedge.simulate.LARGE", 0)
    monkeypatch.setattr("skedge.sim.compiled.EVENTS", 50)
    demo, seen = scenario_of("demo"), list[Event]()
    made = run(demo, "srtf", progress=seen.append)
    assert made.decisions_s is None
    assert made.verify() == []
    finished = [job for event in seen for job in event.finished]
    assert len(seen) > 5
    assert len(set(finished)) == len(finished) > 0.8 * len(demo.jobs)


@pytest.mark.parametrize("policy", ["srtf", "tiresias:limit_s=400,knob=2", "fifo:backfill=true"])
def test_compiled_runs_keep_to_tenants_and_classes(policy: str) -> None:
    for scenario in random_scenarios(range(20)):
        assert driven(shared(scenario), policy, compiled=True).verify() == []
