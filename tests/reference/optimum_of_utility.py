"""DMLRS by trying everything, slot by slot: for one or two machines, few slots, few workers."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil

from skedge.core.model.scenario import Scenario

Placement = tuple[tuple[int, ...], tuple[int, ...]]
"""Workers and PSs by machine."""


def most_utility(scenario: Scenario) -> float:
    """Most total utility of a scenario whose amounts, ratios and works are simple fractions."""
    jobs, slots = scenario.jobs, scenario.physics.slots or 0
    slot = scenario.physics.slot
    work = [[Fraction(int(scenario.true_work[j, z]), slot) for z in (0, 1)] for j in range(len(jobs))]
    choices = [sorted(_choices(scenario, j, work[j]), key=lambda c: -c[1]) for j in range(len(jobs))]
    capacity = tuple(map(tuple, scenario.cluster.amounts.tolist()))

    @cache
    def best(t: int, left: tuple[Fraction, ...]) -> float:
        """Most utility from slot t on, where `left` is the untrained part of every job."""
        if t == slots or not any(left):
            return 0.0
        value = 0.0
        open_jobs = [j for j in range(len(jobs)) if left[j] > 0 and jobs.arrival[j] <= t * slot]
        for selection in product(*([((), Fraction(0)), *choices[j]] for j in open_jobs)):
            if _fits(scenario, capacity, open_jobs, [p for p, _ in selection]):  # type: ignore[misc]
                left_after, gained = list(left), 0.0
                for j, (_, share) in zip(open_jobs, selection, strict=True):
                    left_after[j] = max(left[j] - share, Fraction(0))
                    utility = jobs.utility[j]
                    if share and left_after[j] == 0 and utility is not None:
                        gained += utility((t + 1) - float(jobs.arrival[j]) / slot)
                value = max(value, gained + best(t + 1, tuple(left_after)))
        return value

    return best(0, (Fraction(1),) * len(jobs))


def _choices(scenario: Scenario, j: int, work: list[Fraction]) -> Iterator[tuple[Placement, Fraction]]:
    """Placements with the PSs that they need and no more, and the part of the job that each trains in a slot."""
    machines, max_workers = len(scenario.cluster.servers), int(scenario.jobs.batch[j])
    ratio = Fraction(scenario.jobs.ratio[j]).limit_denominator(100)
    for w in product(range(max_workers + 1), repeat=machines):
        if not 1 <= sum(w) <= max_workers:
            continue
        n_ps = max(1, ceil(Fraction(sum(w)) / ratio))
        for s in product(range(n_ps + 1), repeat=machines):
            if sum(s) == n_ps:
                internal = sum(x > 0 for x in w) == 1 and all(b == 0 or a > 0 for a, b in zip(w, s, strict=True))
                yield (w, s), Fraction(sum(w)) / work[int(internal)]


def _fits(
    scenario: Scenario, capacity: tuple[tuple[float, ...], ...], jobs: list[int], placed: list[Placement | tuple[()]]
) -> bool:
    for h, amounts in enumerate(capacity):
        for r, amount in enumerate(amounts):
            load = sum(
                p[0][h] * scenario.jobs.worker_needs[j, r] + p[1][h] * scenario.jobs.ps_needs[j, r]
                for j, p in zip(jobs, placed, strict=True)
                if p
            )
            if load > amount + 1e-9:
                return False
    return True
