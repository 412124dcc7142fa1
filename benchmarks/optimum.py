"""Policies, optima and bounds on many random instances: policy >= optimum >= every bound, and how near they are.

    python benchmarks/optimum.py [--instances 1000] [--first 0] [--seconds 10] [--problem sites]

In turn the instances have chunks (two worker types, with and without a cloud, slotted and continuous, 3 to 8 jobs),
gangs (the same, also with durations that were not announced), utilities (1 to 4 machines, 3 to 6 slots, 3 to 8 jobs),
or sites (2 or 3, 1 to 3 jobs), where CP-SAT also solves each by itself and must find what HiGHS finds. It ends at the
first that is the wrong way round, and tells how many had no optimum, because no policy finishes all jobs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np

from skedge.core.errors import InputError, SkedgeError
from skedge.core.model.cluster import Cluster, Physics
from skedge.core.model.scenario import Jobs, Scenario
from skedge.optimum.problems import PROBLEMS, covering_problems
from skedge.optimum.sites.problem import optimum_of_sites
from skedge.optimum.types import Optimum
from skedge.simulate import run
from skedge.testing import resource_scenario, site_scenario, small_scenario

SLOT = 10_000_000
POLICIES = {
    "chunks": ("aonline", "aonline:cloud=false"),
    "gangs": ("batch", "batch:order=shortest", "batchsche", "fifo", "fifo:rule=earliest_server"),
    "utility": ("pdors", "oasis", "drf", "fifo"),
    "sites": ("okita", "oasis", "drf", "fifo"),
}
ROUNDING = 1e-6


def main() -> None:
    """Draw, solve, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--problem", choices=list(MADE), action="append")
    args = parser.parse_args()
    names = args.problem or list(MADE)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    without = dict.fromkeys(names, 0)
    for seed in range(args.first, args.first + args.instances):
        name = names[seed % len(names)]
        scenario, optimum = MADE[name](seed), PROBLEMS[name].optimum
        assert optimum is not None
        try:
            best = optimum(scenario, args.seconds)
        except InputError:
            without[name] += 1
            continue
        found[name].append(row(scenario, best))
        if name == "sites":
            both_solvers(scenario, best, args.seconds)
    for name, rows in found.items():
        proved = sum(r["proved"] for r in rows)
        print(name, f"{len(rows)} instances, {proved:g} proved; {without[name]} without an optimum")
        for key in dict.fromkeys(key for r in rows for key in r if key != "proved"):
            values = np.array([r[key] for r in rows if r.get(key, 0) and r["proved"]])
            if len(values):
                half, nearly_all, most = np.quantile(values, [0.5, 0.9, 1.0])
                print(f"  {key:45} median {half:.4f}, 90 % {nearly_all:.4f}, most {most:.4f}, of {len(values)}")


def chunks(seed: int) -> Scenario:
    """A small scenario with chunks."""
    rng = np.random.default_rng(seed)
    physics = Physics(slotted=bool(rng.integers(2)), slot=SLOT)
    return small_scenario(seed, jobs=int(rng.integers(3, 9)), cloud=bool(rng.integers(2)), physics=physics)


def gangs(seed: int) -> Scenario:
    """A small scenario with gangs."""
    rng = np.random.default_rng(seed)
    colocation: Literal["cloud", "one_server"] = "one_server" if rng.integers(2) else "cloud"
    error = float(rng.integers(2))
    physics = Physics(slotted=bool(rng.integers(2)), slot=SLOT, colocation=colocation, estimate_error=error)
    return small_scenario(seed, jobs=int(rng.integers(3, 9)), cloud=bool(rng.integers(2)), physics=physics)


def utility(seed: int) -> Scenario:
    """A small scenario with utilities, on the first few of its machines."""
    rng = np.random.default_rng(seed)
    physics = Physics(slotted=True, slot=SLOT, colocation="one_server", horizon=int(rng.integers(3, 7)) * SLOT)
    whole = resource_scenario(seed, physics=physics, jobs=int(rng.integers(3, 9)))
    cluster = Cluster(whole.cluster.servers[: int(rng.integers(1, 5))])
    return replace(whole, cluster=cluster, jobs=Jobs(whole.jobs.frame, cluster))


def sites(seed: int) -> Scenario:
    """A small scenario at sites, one of them without a GPU."""
    rng = np.random.default_rng(seed)
    return site_scenario(seed, sites=int(rng.integers(2, 4)), jobs=int(rng.integers(1, 4)))


MADE: dict[str, Callable[[int], Scenario]] = {"chunks": chunks, "gangs": gangs, "utility": utility, "sites": sites}


def both_solvers(scenario: Scenario, best: Optimum, seconds: float) -> None:
    """CP-SAT from Okita's run alone: neither solver's bound is above what the other found."""
    other = optimum_of_sites(scenario, seconds, ["CP-SAT"], ["okita"])
    for value, bound in ((best.value, other.bound.value), (other.value, best.bound.value)):
        if value < bound * (1 - ROUNDING):
            sys.exit(f"{scenario.name}: {value} was found, {bound} is said to be the least")


def row(scenario: Scenario, best: Optimum) -> dict[str, float]:
    """Ratios of an instance, each at least 1: of the policies to the optimum, of the optimum to each bound."""
    lower = best.sense == "lower"
    ratios = {"proved": float(best.proved)}
    assert not best.run.verify(limit=1), scenario.name
    for bound in best.bounds:
        ratios[f"optimum to {bound.name}"] = ratio(best.value, bound.value, lower=lower)
    for attempt in best.attempts:
        if attempt.bound is not None:
            ratios[f"optimum to what {attempt.solver} proved"] = ratio(best.value, attempt.bound, lower=lower)
    for bound in PROBLEMS["work"].bounds(scenario, False) if lower else ():
        ratios[f"optimum to {bound.name} of work"] = ratio(best.value, bound.value, lower=lower)
    for policy in POLICIES[best.problem]:
        try:
            done = run(scenario, policy)
        except SkedgeError:
            continue
        value = done.metrics[best.metric]
        if value and best.problem in covering_problems(scenario, done.schedule):
            ratios[f"{policy} to optimum"] = ratio(float(value), best.value, lower=lower)
    wrong = [key for key, value in ratios.items() if key != "proved" and value < 1 - ROUNDING]
    if wrong:
        sys.exit(f"{scenario.name}: {wrong[0]} is {ratios[wrong[0]]}")
    return ratios


def ratio(value: float, reference: float, *, lower: bool) -> float:
    """How much worse `value` is; 1 where both are nothing."""
    worse, better = (value, reference) if lower else (reference, value)
    return 1.0 if worse == better else worse / max(better, 1e-12)


if __name__ == "__main__":
    main()
