"""ILP (4) of JSAC'22 at zeta = 1 by trying everything: in every slot, each chunk on each worker, or in the cloud."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache

from .optimum_of_chunks import PlainJob

Left = tuple[tuple[int, ...], ...]
"""Slots that each chunk still needs, by job; the chunks of a job are alike, so they are sorted."""


def least_fractional_flow(jobs: list[PlainJob], lengths: list[int], cloud_ready: list[int | None]) -> Fraction:
    """Least sum of f_jd over all y, a slot counted by its end [slots].

    Parameters
    ----------
    jobs
        Their `chunk_slots` and `cloud_completion` are at zeta = 0 and of whole jobs, and not used.
    lengths
        Slots that a chunk takes at zeta = 1.
    cloud_ready
        When a job's data are in the cloud; None without one.
    """
    last = max(max(job.ready, default=0) for job in jobs) + max(filter(None, cloud_ready), default=0)
    last += sum(job.chunks * length for job, length in zip(jobs, lengths, strict=True)) + 1

    @cache
    def least(slot: int, left: Left) -> Fraction | None:
        if not any(map(any, left)):
            return Fraction(0)
        if slot > last:
            return None
        best = None
        for trained in set(_choices(jobs, cloud_ready, slot, left, frozenset(range(len(jobs[0].ready))), 0)):
            rest = least(slot + 1, _after(left, trained))
            if rest is not None:
                cost = sum(
                    (Fraction(sum(units) * (slot + 1 - job.arrival), job.chunks * length)
                     for units, job, length in zip(trained, jobs, lengths, strict=True)), Fraction(0)
                )  # fmt: skip
                best = cost + rest if best is None else min(best, cost + rest)
        return best

    total = least(0, tuple((length,) * job.chunks for job, length in zip(jobs, lengths, strict=True)))
    assert total is not None
    return total


def _choices(
    jobs: list[PlainJob], cloud_ready: list[int | None], slot: int, left: Left, free: frozenset[int], job: int
) -> Iterator[Left]:
    """Which chunks of the jobs from `job` on are trained in a slot (1) or not (0), on the workers that are free."""
    if job == len(jobs):
        yield ()
        return
    for trained, still_free in _of_job(jobs[job].ready, cloud_ready[job], slot, left[job], free):
        for others in _choices(jobs, cloud_ready, slot, left, still_free, job + 1):
            yield (trained, *others)


def _of_job(
    ready: tuple[int, ...], cloud: int | None, slot: int, left: tuple[int, ...], free: frozenset[int]
) -> Iterator[tuple[tuple[int, ...], frozenset[int]]]:
    if not left:
        yield (), free
        return
    # it waits, is on a worker, or in the cloud, which takes no worker
    places: list[tuple[int, frozenset[int]]] = [(0, free)]
    if left[0]:
        places += [(1, free - {worker}) for worker in free if ready[worker] <= slot]
    if left[0] and cloud is not None and cloud <= slot:
        places.append((1, free))
    for units, still_free in places:
        for rest, last_free in _of_job(ready, cloud, slot, left[1:], still_free):
            yield (units, *rest), last_free


def _after(left: Left, trained: Left) -> Left:
    return tuple(
        tuple(sorted(n - one for n, one in zip(of_job, ones, strict=True)))
        for of_job, ones in zip(left, trained, strict=True)
    )
