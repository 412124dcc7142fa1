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
    """Most total utility; amounts, ratios and works of a scenario that are simple fractions."""
    jobs, slots = scenario.jobs, scenario.physics.slots or 0
    slot = scenario.physics.slot
    work = [[Fraction(int(scenario.true_work[j, z]), slot) for z in (0, 1)] for j in range(len(jobs))]
    choices = [sorted(_choices(scenario, j, work[j]), key=lambda c: -c[1]) for j in range(len(jobs))]
    capacity = tuple(map(tuple, scenario.cluster.amounts.tolist()))

    @cache
    def best(t: int, left: tuple[Fraction, ...]) -> float:
        """Most utility from slot t on, `left` being the part of every job that is not trained."""
        if t == slots or not any(left):
            return 0.0
        found = 0.0
        open_jobs = [j for j in range(len(jobs)) if left[j] > 0 and jobs.arrival[j] <= t * slot]
        for picked in product(*([((), Fraction(0)), *choices[j]] for j in open_jobs)):
            if _fits(scenario, capacity, open_jobs, [p for p, _ in picked]):  # type: ignore[misc]
                after, gained = list(left), 0.0
                for j, (_, part) in zip(open_jobs, picked, strict=True):
                    after[j] = max(left[j] - part, Fraction(0))
                    utility = jobs.utility[j]
                    if part and after[j] == 0 and utility is not None:
                        gained += utility((t + 1) - float(jobs.arrival[j]) / slot)
                found = max(found, gained + best(t + 1, tuple(after)))
        return found

    return best(0, (Fraction(1),) * len(jobs))


def _choices(scenario: Scenario, j: int, work: list[Fraction]) -> Iterator[tuple[Placement, Fraction]]:
    """Placements with just as many PSs as needed, and the part of the job that one trains in a slot."""
    machines, most = len(scenario.cluster.servers), int(scenario.jobs.batch[j])
    ratio = Fraction(scenario.jobs.ratio[j]).limit_denominator(100)
    for w in product(range(most + 1), repeat=machines):
        if not 1 <= sum(w) <= most:
            continue
        need = max(1, ceil(Fraction(sum(w)) / ratio))
        for s in product(range(need + 1), repeat=machines):
            if sum(s) == need:
                inside = sum(x > 0 for x in w) == 1 and all(b == 0 or a > 0 for a, b in zip(w, s, strict=True))
                yield (w, s), Fraction(sum(w)) / work[int(inside)]


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
