"""Okita's problem (2) by trying everything: for two or three sites and few chunks.

A state is a slot and the remaining chunks of every job, site by site. From it a single chunk moves, or a slot passes
with workers and PSs anywhere; Dijkstra's algorithm finds the cheapest way to a state without chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import product
from math import floor

from skedge.core.model.scenario import Scenario

Left = tuple[tuple[int, ...], ...]
Use = tuple[tuple[tuple[int, ...], int], ...]
"""By job: workers by site, and the site of its PS, -1 if it has none."""


def least_cost(scenario: Scenario) -> float:
    """Least total cost of a schedule that finishes every job.

    Raises
    ------
    AssertionError
        If some job can never run.
    """
    data = tuple(tuple(row) for row in scenario.jobs.data.tolist())
    arrivals = [-(-int(a) // scenario.physics.slot) for a in scenario.jobs.arrival]
    end = max(arrivals) + sum(map(sum, data))  # a slot without training after the last arrival can be left out
    heap: list[tuple[float, int, Left]] = [(0.0, 0, data)]
    visited: set[tuple[int, Left]] = set()
    while heap:
        cost, slot, left = heappop(heap)
        if not any(map(any, left)):
            return cost
        if (slot, left) in visited:
            continue
        visited.add((slot, left))
        for step_cost, after in _moves(scenario, arrivals, slot, left):
            heappush(heap, (cost + step_cost, slot, after))
        if slot < end:
            for step_cost, after in _slots(scenario, arrivals, slot, left):
                heappush(heap, (cost + step_cost, slot + 1, after))
    raise AssertionError("some job can never run")


def _moves(scenario: Scenario, arrivals: list[int], slot: int, left: Left) -> Iterator[tuple[float, Left]]:
    """A chunk moves to another site: the cost, and the chunks after it."""
    cost, mb = scenario.cluster.transfer_cost, scenario.jobs.chunk_mb
    assert cost is not None
    for j, chunks in enumerate(left):
        if arrivals[j] > slot:
            continue
        for source, target in product(range(len(chunks)), repeat=2):
            if source != target and chunks[source]:
                after = list(chunks)
                after[source] -= 1
                after[target] += 1
                yield float(cost[source, target] * mb[j]), (*left[:j], tuple(after), *left[j + 1 :])


def _slots(scenario: Scenario, arrivals: list[int], slot: int, left: Left) -> Iterator[tuple[float, Left]]:
    """All uses of a slot in which each worker is of use: the cost, and the chunks after it."""
    jobs, q = scenario.jobs, scenario.cluster.transfer_cost
    assert q is not None
    choices = [list(_choices(scenario, j, chunks)) if arrivals[j] <= slot else [] for j, chunks in enumerate(left)]
    for use in product(*([((0,) * len(chunks), -1), *options] for options, chunks in zip(choices, left, strict=True))):
        if not _fits(scenario, use):
            continue
        cost, after = 0.0, []
        for j, (workers, ps) in enumerate(use):
            trained = _trained(scenario, j, left[j], workers)
            after.append(tuple(n_left - n for n_left, n in zip(left[j], trained, strict=True)))
            cost += sum(float(q[r, ps] * jobs.exchange_mb[j]) * n for r, n in enumerate(workers) if n)
            f = jobs.latency[j]
            if any(trained) and not any(after[-1]) and f is not None:
                cost += f((slot + 1) - float(jobs.arrival[j]) / scenario.physics.slot)
        yield cost, tuple(after)


def _choices(scenario: Scenario, j: int, chunks: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Numbers of workers of which one fewer would train less, and any site of the PS."""
    rate = float(scenario.slot_chunks[j])
    useful = [
        [n for n in range(n_left + 1) if n == 0 or _most(rate, n_left, n) > _most(rate, n_left, n - 1)]
        for n_left in chunks
    ]
    for workers in product(*useful):
        if any(workers):
            yield from ((workers, ps) for ps in range(len(chunks)))


def _most(rate: float, n_left: int, workers: int) -> int:
    return min(n_left, floor(rate * workers + 1e-9))


def _trained(scenario: Scenario, j: int, chunks: tuple[int, ...], workers: tuple[int, ...]) -> list[int]:
    rate = float(scenario.slot_chunks[j])
    return [_most(rate, n_left, n) for n_left, n in zip(chunks, workers, strict=True)]


def _fits(scenario: Scenario, use: Use) -> bool:
    amounts, jobs = scenario.cluster.amounts, scenario.jobs
    for site in range(len(amounts)):
        usage = [
            sum(
                use[j][0][site] * float(jobs.worker_needs[j, k]) + (use[j][1] == site) * float(jobs.ps_needs[j, k])
                for j in range(len(use))
            )
            for k in range(amounts.shape[1])
        ]
        if any(t > c * (1 + 1e-9) for t, c in zip(usage, amounts[site].tolist(), strict=True)):
            return False
    return True
