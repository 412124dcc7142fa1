"""JSAC'22's problem (2) by trying everything: every worker for each chunk, every order of the jobs, slot by slot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product


@dataclass(frozen=True)
class PlainJob:
    """Times in slots.

    `ready`: when its data reach each worker; `chunk_slots`: p at zeta = 0; `cloud_completion`: None without a cloud.
    """

    arrival: int
    chunks: int
    chunk_slots: int
    ready: tuple[int, ...]
    cloud_completion: int | None


def least_total(jobs: list[PlainJob]) -> int:
    """Least sum of c_j - r_j over all schedules in which a chunk stays on its worker and may be interrupted."""
    best = None
    for placed in product(*(list(_places(job)) for job in jobs)):
        for order in permutations(range(len(jobs))):
            total = _total(jobs, placed, order)
            best = total if best is None else min(best, total)
    assert best is not None
    return best


def _places(job: PlainJob) -> Iterator[tuple[int, ...] | None]:
    """Chunks by worker; None: in the cloud."""
    if job.cloud_completion is not None:
        yield None
    for counts in product(range(job.chunks + 1), repeat=len(job.ready)):
        if sum(counts) == job.chunks:
            yield counts


def _total(jobs: list[PlainJob], placed: tuple[tuple[int, ...] | None, ...], order: tuple[int, ...]) -> int:
    completions = [job.cloud_completion if place is None else 0 for job, place in zip(jobs, placed, strict=True)]
    for worker in range(len(jobs[0].ready)):
        work = {j: p[worker] * jobs[j].chunk_slots for j, p in enumerate(placed) if p is not None and p[worker]}
        slot = 0
        while work:
            job = next((j for j in order if j in work and jobs[j].ready[worker] <= slot), None)
            slot += 1
            if job is not None:
                work[job] -= 1
                if work[job] == 0:
                    del work[job]
                    completions[job] = max(completions[job] or 0, slot)
    return sum((c or 0) - job.arrival for job, c in zip(jobs, completions, strict=True))
