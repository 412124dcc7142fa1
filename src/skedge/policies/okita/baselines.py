"""FIFO and DRF in Okita's model: workers, PS and data are fixed when a job begins, and stay until it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import max_units, whole_chunks
from skedge.core.model.ties import NOISE
from skedge.policies.drf.progressive_filling import ONE_PS, progressive_filling

from .dta import Transfers, send
from .pa import Weights, place, site_rooms
from .sites import SiteJob, SitePlacement, Sites
from .slots import Decision, Progress, SiteScheduler, free_after

if TYPE_CHECKING:
    from numpy.random import Generator


class FixedScheduler(SiteScheduler):
    """Base of FIFO and DRF (Sec. V-A): workers and PS of a job are fixed when it begins.

    Parameters
    ----------
    sites
        Capacities and costs.
    weights
        Parameters of PA, which places the workers.

    Attributes
    ----------
    backfills
        True if a job that does not fit is passed over, false if it blocks those behind it.
    max_workers, counts, placements
        By job: the most workers that it can use, the workers that its rule gave it, and where it runs.
    """

    backfills = False

    def __init__(self, sites: Sites, weights: Weights | None = None) -> None:
        super().__init__(sites)
        # `sites` is replaced while some are out of service; `all_sites` tells whether it is
        self.all_sites, self.weights = sites, weights or Weights()
        self.max_workers: dict[int, int] = {}
        self.counts: dict[int, int] = {}
        self.placements: dict[int, SitePlacement] = {}

    def count(self, job: SiteJob, free: int) -> int:
        """Number of workers that the rule gives a job when the sites could hold `free` of its workers; at least 1."""
        raise NotImplementedError

    def arrive(self, job: SiteJob) -> None:
        """As :meth:`.slots.SiteScheduler.arrive`; jobs that can never run are given up."""
        super().arrive(job)
        rooms = site_rooms(self.sites, job, job.chunks, self.sites.capacity, self.weights)
        self.max_workers[job.id] = min(rooms.max_workers, job.most_workers(job.chunks))
        if self.max_workers[job.id] == 0:
            self.give_up(job.id)

    def interrupted(self, job: int) -> None:
        """Restart the job, if there is room, with the number of workers that its rule now gives."""
        self.placements.pop(job, None)
        self.counts.pop(job, None)

    def decide(self, slot: int) -> list[Decision]:
        """Started jobs continue; then the others start in order of arrival, each if it fits the free resources."""
        self.placements = {job: placement for job, placement in self.placements.items() if job in self.active}
        decisions = [_next_decision(self.active[job], placement) for job, placement in self.placements.items()]
        free = free_after(self.sites, {number: progress.job for number, progress in self.active.items()}, decisions)
        blocked = False
        for progress in sorted(self.active.values(), key=lambda progress: (progress.job.arrival, progress.job.id)):
            if progress.job.id in self.placements:
                continue
            placement = self._place(progress, free, blocked, new=progress.job.arrival == slot)
            if placement is None:
                blocked = not self.backfills
                decisions.append(Decision(progress.job.id, "delay", progress.left))
            else:
                free = np.maximum(free - placement.demand(progress.job), 0.0)
                decisions.append(_first_decision(self.sites, progress, placement))
        return decisions

    def _place(self, progress: Progress, free: Floats, blocked: bool, *, new: bool) -> SitePlacement | None:
        """The placement of a job that begins in this slot, or None; draws its number of workers if it has none."""
        job = progress.job
        free_workers = int(max_units(free, job.demands[0]).sum())
        # a number is drawn once per job: on arrival, or, where nothing was free, when it is first in line
        if job.id not in self.counts and free_workers > 0 and (new or not blocked):
            self.counts[job.id] = min(self.count(job, free_workers), self.max_workers[job.id])
        if blocked or job.id not in self.counts:
            return None
        rooms = site_rooms(self.sites, job, progress.left, free, self.weights)
        placement = place(self.sites, job, rooms, self.counts[job.id])
        if placement is not None:
            self.placements[job.id] = placement
        elif self.sites is not self.all_sites:  # more than the sites in service can hold: draw the number again
            rooms = site_rooms(self.sites, job, progress.left, self.sites.capacity, self.weights)
            if self.counts[job.id] > rooms.max_workers:
                del self.counts[job.id]
        return placement


class SiteFifo(FixedScheduler):
    """FIFO: N uniform in 1 .. A/2, A being the workers that are free on arrival.

    Parameters
    ----------
    sites, weights
        As in :class:`FixedScheduler`.
    rng
        Draws the workers, one number a job.
    """

    def __init__(self, sites: Sites, rng: Generator, weights: Weights | None = None) -> None:
        super().__init__(sites, weights)
        self.rng = rng

    def count(self, job: SiteJob, free: int) -> int:  # noqa: ARG002
        """Uniform in 1 .. A/2."""
        return int(self.rng.integers(1, max(1, free // 2) + 1))


class SiteDrf(FixedScheduler):
    """DRF: N is the job's share of a progressive filling over all jobs that are not complete."""

    backfills = True

    def count(self, job: SiteJob, free: int) -> int:
        """The job's share among all that are not complete."""
        jobs = [progress.job for progress in self.active.values()]
        total = self.sites.capacity.sum(axis=0)
        workers, _ = progressive_filling(
            np.array([competitor.worker for competitor in jobs], float),
            np.array([competitor.ps for competitor in jobs], float),
            # one PS per job in Okita's model, however many workers it has
            np.full(len(jobs), ONE_PS),
            np.array([self.max_workers[competitor.id] for competitor in jobs]),
            # shares are of all sites together, as if they were one machine
            total.copy()[None, :],
            np.where(total > 0, total, np.inf),
        )
        # at least 1: a share below one worker must not keep the job out for ever
        return max(1, min(int(workers[jobs.index(job), 0]), free))


def even_split(left: Ints, workers: Ints) -> Ints:
    """Chunks by site if every worker has an equal share ("evenly", Sec. V-A), by largest remainder."""
    exact = left.sum() * workers / workers.sum()
    chunks = np.floor(exact + NOISE).astype(np.int64)
    rest = int(left.sum() - chunks.sum())
    # remainders that differ by rounding alone are ties, and go to the lower site
    chunks[np.argsort(-np.round(exact - chunks, 9), kind="stable")[:rest]] += 1
    return chunks


def _first_decision(sites: Sites, progress: Progress, placement: SitePlacement) -> Decision:
    """The first slot: all data move at once, "in a greedy fashion", by DTA."""
    moved = send(sites, progress.left, even_split(progress.left, placement.workers))
    return Decision(
        progress.job.id,
        "run",
        progress.left,
        placement,
        moved._replace(trained=_trained(moved.trained, placement, progress.job)),
    )


def _next_decision(progress: Progress, placement: SitePlacement) -> Decision:
    """A later slot: each site trains what it has."""
    no_moves = Transfers(_trained(progress.left, placement, progress.job), np.zeros((0, 3), np.int64), 0.0)
    return Decision(progress.job.id, "run", progress.left, placement, no_moves)


def _trained(data: Ints, placement: SitePlacement, job: SiteJob) -> Ints:
    return np.minimum(data, [whole_chunks(job.rate, int(y)) for y in placement.workers])
