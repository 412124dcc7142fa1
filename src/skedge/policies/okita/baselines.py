"""FIFO and DRF in Okita's model: workers, PS and data are fixed when a job begins, and stay until it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import whole_chunks
from skedge.core.model.ties import NOISE
from skedge.policies.drf.progressive_filling import ONE_PS, progressive_filling

from .dta import Transfers, send
from .pa import Weights, place, rooms
from .sites import SiteJob, SitePlacement, Sites, room
from .slots import Decision, Progress, SiteScheduler, free_after

if TYPE_CHECKING:
    from numpy.random import Generator


class FixedScheduler(SiteScheduler):
    """Base of FIFO and DRF: workers and PS of a job are fixed when it begins.

    Parameters
    ----------
    weights
        Of PA.
    skips
        Whether a job that does not fit is passed over.
    """

    skips = False

    def __init__(self, sites: Sites, weights: Weights | None = None) -> None:
        super().__init__(sites)
        # `sites` is replaced while some are out of service; `full` tells whether it is
        self.full, self.weights = sites, weights or Weights()
        self.most: dict[int, int] = {}
        self.counts: dict[int, int] = {}
        self.placements: dict[int, SitePlacement] = {}

    def count(self, job: SiteJob, free: int) -> int:
        """Workers that the rule gives a job when `free` are free, at least 1."""
        raise NotImplementedError

    def arrive(self, job: SiteJob) -> None:
        """As :meth:`.slots.SiteScheduler.arrive`; jobs that can never run are given up."""
        super().arrive(job)
        there = rooms(self.sites, job, job.chunks, self.sites.capacity, self.weights)
        self.most[job.id] = min(there.most, job.most_workers(job.chunks))
        if self.most[job.id] == 0:
            self.give_up(job.id)

    def interrupted(self, job: int) -> None:
        """Restart the job, if there is room, with the number of workers that its rule now gives."""
        self.placements.pop(job, None)
        self.counts.pop(job, None)

    def decide(self, slot: int) -> list[Decision]:
        """Started jobs continue; then the others start in order of arrival, each if it fits the free resources."""
        self.placements = {job: at for job, at in self.placements.items() if job in self.active}
        decisions = [_continues(self.active[job], at) for job, at in self.placements.items()]
        free = free_after(self.sites, {number: at.job for number, at in self.active.items()}, decisions)
        blocked = False
        for at in sorted(self.active.values(), key=lambda at: (at.job.arrival, at.job.id)):
            if at.job.id in self.placements:
                continue
            placement = self._place(at, free, blocked, new=at.job.arrival == slot)
            if placement is None:
                blocked = not self.skips
                decisions.append(Decision(at.job.id, "delay", at.left))
            else:
                free = np.maximum(free - placement.demand(at.job), 0.0)
                decisions.append(_begins(self.sites, at, placement))
        return decisions

    def _place(self, at: Progress, free: Floats, blocked: bool, *, new: bool) -> SitePlacement | None:
        """Where the job begins, or None; it is given its number of workers on arrival, or when its turn comes."""
        job = at.job
        held = int(room(free, job.demands[0]).sum())
        # a number is drawn once per job: on arrival, or when it is first in line
        if job.id not in self.counts and held > 0 and (new or not blocked):
            self.counts[job.id] = min(self.count(job, held), self.most[job.id])
        if blocked or job.id not in self.counts:
            return None
        placement = place(self.sites, job, rooms(self.sites, job, at.left, free, self.weights), self.counts[job.id])
        if placement is not None:
            self.placements[job.id] = placement
        elif self.sites is not self.full:  # more than the sites in service can hold: draw the number again
            there = rooms(self.sites, job, at.left, self.sites.capacity, self.weights)
            if self.counts[job.id] > there.most:
                del self.counts[job.id]
        return placement


class SiteFifo(FixedScheduler):
    """FIFO; `rng` draws the workers, one number a job."""

    def __init__(self, sites: Sites, rng: Generator, weights: Weights | None = None) -> None:
        super().__init__(sites, weights)
        self.rng = rng

    def count(self, job: SiteJob, free: int) -> int:  # noqa: ARG002
        """Uniform in 1 .. A/2."""
        return int(self.rng.integers(1, max(1, free // 2) + 1))


class SiteDrf(FixedScheduler):
    """DRF."""

    skips = True

    def count(self, job: SiteJob, free: int) -> int:
        """The job's share among all that are not complete."""
        jobs = [at.job for at in self.active.values()]
        total = self.sites.capacity.sum(axis=0)
        workers, _ = progressive_filling(
            np.array([one.worker for one in jobs], float),
            np.array([one.ps for one in jobs], float),
            # one PS per job in Okita's model, however many workers it has
            np.full(len(jobs), ONE_PS),
            np.array([self.most[one.id] for one in jobs]),
            total.copy()[None, :],
            np.where(total > 0, total, np.inf),
        )
        # at least 1: a share below one worker must not keep the job out for ever
        return max(1, min(int(workers[jobs.index(job), 0]), free))


def even(left: Ints, workers: Ints) -> Ints:
    """Chunks by site if every worker has an equal share, by largest remainder; shape ``(sites,)``."""
    exact = left.sum() * workers / workers.sum()
    whole = np.floor(exact + NOISE).astype(np.int64)
    rest = int(left.sum() - whole.sum())
    # remainders that differ by rounding alone are ties, and go to the lower site
    whole[np.argsort(-np.round(exact - whole, 9), kind="stable")[:rest]] += 1
    return whole


def _begins(sites: Sites, at: Progress, placement: SitePlacement) -> Decision:
    """The first slot: all data move."""
    moved = send(sites, at.left, even(at.left, placement.workers))
    return Decision(
        at.job.id, "run", at.left, placement, moved._replace(trained=_trained(moved.trained, placement, at.job))
    )


def _continues(at: Progress, placement: SitePlacement) -> Decision:
    nothing = Transfers(_trained(at.left, placement, at.job), np.zeros((0, 3), np.int64), 0.0)
    return Decision(at.job.id, "run", at.left, placement, nothing)


def _trained(there: Ints, placement: SitePlacement, job: SiteJob) -> Ints:
    return np.minimum(there, [whole_chunks(job.rate, int(y)) for y in placement.workers])
