"""What must hold of every policy whatever it decides: scaled times, other names, a server of no use, a single job.

Each property is tried on a few seeded scenarios of each kind; ``INVARIANTS=50`` tries as many seeds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b

import numpy as np
import pytest

from builders.changed_scenarios import assert_same, pinned, renamed, scaled, with_server
from skedge.core.model.cluster import Physics, Server
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.core.record.schedule import Schedule
from skedge.core.registry import make_policy, registered
from skedge.prepare import offers
from skedge.simulate import run
from skedge.testing import resource_scenario, site_scenario, small_scenario

SEEDS = range(int(os.environ.get("INVARIANTS", "1")))
SLOT = 10 * SECOND
VARIANTS = (
    "aonline:q_mode=eq5", "aonline:q_mode=fractional", "aonline:preempt_running=false", "aonline:cloud=false",
    "batch:T=20,price_norm=none", "batch:literal_cost_d=true,T=5", "srtf:allow_cloud=true", "srtf:sticky=true",
    "srtf:placement=literal", "tiresias:limit_s=100,knob=1", "tiresias:knob=2", "fifo:backfill=true",
    "fifo:rule=earliest_server", "optimus:servers=free", "okita:colocate=true",
)  # fmt: skip
SPECS = sorted([*registered(), *VARIANTS])


def scattered(scenario: Scenario) -> Scenario:
    """Delays given one by one, and arrivals at any millisecond, so that no two are equal."""
    rng = np.random.default_rng(scenario.seed + 1000)
    last = float(scenario.jobs.arrival.max()) / SECOND + 1
    thousandths = np.sort(rng.choice(int(1000 * last), len(scenario.jobs), replace=False))
    return pinned(scenario, thousandths / 1000)


@cache
def scenarios(seed: int) -> dict[str, Scenario]:
    """One of each kind; estimates are exact, because true durations are drawn by the jobs' names."""
    exact = Physics(slotted=True, slot=SLOT, colocation="one_server", horizon=12 * SLOT)
    made = {
        "slots": small_scenario(seed, jobs=12, physics=Physics(checkpoint_overhead=500_000)),
        "slots, slotted": small_scenario(
            seed, jobs=12, cloud=False, physics=Physics(slotted=True, slot=SLOT, colocation="one_server")
        ),
        "resources": resource_scenario(seed, jobs=8, physics=exact),
        "sites": site_scenario(seed, jobs=10),
    }
    return {kind: scattered(scenario) for kind, scenario in made.items()}


KINDS = tuple(scenarios(0))


def fitting() -> Iterator[tuple[str, str]]:
    """(policy, kind of scenario) of all that go together."""
    for spec in SPECS:
        yield from ((spec, kind) for kind in KINDS if _fits(spec, kind))


def _fits(spec: str, kind: str) -> bool:
    if "earliest_server" in spec or "backfill" in spec:
        return kind.startswith("slots")
    return make_policy(spec).needs <= offers(scenarios(0)[kind])


everywhere = pytest.mark.parametrize(("spec", "kind"), list(fitting()))


@cache
def record(spec: str, kind: str, seed: int) -> Schedule:
    return run(scenarios(seed)[kind], spec).schedule


# -- scaling -----------------------------------------------------------------------------------------------------------


def times_scaled(spec: str, k: int) -> str:
    """The policy with its parameters that are times scaled too: Tiresias' limit [worker-s]."""
    return spec.replace("limit_s=100", f"limit_s={100 * k}")


@everywhere
def test_scaling_all_times_scales_the_record(spec: str, kind: str) -> None:
    """Times of the scenario and of the policy are multiplied by 8: the same is decided, 8 times as late.

    Where work is divided among workers a run ends at the next whole µs: 1 ms is allowed for all roundings of a run.
    """
    for seed in SEEDS:
        longer = run(scaled(scenarios(seed)[kind], 8), times_scaled(spec, 8)).schedule
        assert_same(record(spec, kind, seed), longer, k=8, within=1000)


# -- names -------------------------------------------------------------------------------------------------------------


@everywhere
def test_other_names_and_another_order_of_the_jobs_file_change_names_alone(spec: str, kind: str) -> None:
    """No two jobs arrive together, so ids break no tie, whatever their order; that of servers, which does, is kept."""
    for seed in SEEDS:
        scenario = scenarios(seed)[kind]
        jobs = {name: f"job-{number:03}" for number, name in enumerate(sorted(scenario.jobs.ids, reverse=True))}
        servers = {name: f"z{9 - i}" for i, name in enumerate(scenario.cluster.server_ids)}
        assert_same(
            record(spec, kind, seed), run(renamed(scenario, jobs, servers), spec).schedule, names=jobs | servers
        )


# -- a server of no use ------------------------------------------------------------------------------------------------

USELESS = {
    "slots": Server("useless", capacity={"worker:z": 3, "ps:z": 2}),
    "slots, slotted": Server("useless", capacity={"worker:z": 3, "ps:z": 2}),
    "resources": Server("useless", capacity={"gpu": 0.0, "memory": 0.0}),
    "sites": Server("useless", capacity={"gpu": 0.0, "memory": 0.0}),
}
"""Slots of types that no job asks for; servers with nothing of what each job needs."""


@everywhere
def test_a_server_that_no_job_can_use_changes_nothing(spec: str, kind: str) -> None:
    """Batch schedulers count servers and types in their prices: see the next test. (Okita: see `with_server`.)"""
    if spec.startswith("batch"):
        with pytest.raises(AssertionError, match=r"prices\.price"):
            assert_same(record(spec, kind, 0), run(with_server(scenarios(0)[kind], USELESS[kind]), spec).schedule)
        return
    for seed in SEEDS:
        scenario = with_server(scenarios(seed)[kind], USELESS[kind])
        assert_same(record(spec, kind, seed), run(scenario, spec).schedule)


@pytest.mark.parametrize("kind", ["slots", "slots, slotted"])
@pytest.mark.parametrize("spec", ["batch:T=60", "batch:T=60,price_norm=none", "batchsche:T=60"])
def test_a_server_without_slots_counts_in_the_prices_of_batch_as_a_longer_horizon_does(spec: str, kind: str) -> None:
    """(7), (8): the norm is 2 T S U, S the servers, so with S + 1 of them and T S / (S + 1) nothing changes."""
    for seed in SEEDS:
        scenario = scenarios(seed)[kind]
        servers = len(scenario.cluster.servers)
        shorter = spec.replace("T=60", f"T={60 * servers // (servers + 1)}")
        assert 60 * servers % (servers + 1) == 0
        assert_same(record(spec, kind, seed), run(with_server(scenario, Server("empty")), shorter).schedule)


def test_a_stream_of_random_numbers_is_of_the_seed_and_its_purpose() -> None:
    """Records stay the same: default_rng([seed, the 8 bytes of BLAKE2b of the purpose, modulo 2^32])."""
    for purpose in ("policy", "a", "b", "c", "d"):
        word = int.from_bytes(blake2b(purpose.encode(), digest_size=8).digest(), "little") % 2**32
        assert small_scenario(3).rng(purpose).integers(2**60) == np.random.default_rng([3, word]).integers(2**60)
