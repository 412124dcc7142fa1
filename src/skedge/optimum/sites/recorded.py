"""A run at sites as plans: the placements, the chunks trained, and their sources at the least cost."""

from __future__ import annotations

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import whole_chunks
from skedge.recorded_run import Run

from .milp import SitePlan
from .terms import SiteJobTerms, SiteTerms


def recorded(terms: SiteTerms, of: Run) -> list[SitePlan]:
    """The plan of every job; all of them have finished."""
    return [_plan(terms, job, of, j) for j, job in enumerate(terms.jobs)]


def _plan(terms: SiteTerms, job: SiteJobTerms, of: Run, j: int) -> SitePlan:
    slot, s = of.scenario.physics.slot, of.schedule
    ids = {name: i for i, name in enumerate(of.scenario.cluster.server_ids)}
    workers, ps, moved = dict[int, Ints](), dict[int, int](), dict[int, list[tuple[int, int, int]]]()
    for row in s.runs.filter(s.runs["job"] == j).iter_rows(named=True):
        for t in range(row["start"] // slot, row["end"] // slot):
            workers.setdefault(t, np.zeros(len(ids), np.int64))[ids[row["server"]]] += row["workers"]
    for row in s.ps.filter(s.ps["job"] == j).iter_rows(named=True):
        ps |= dict.fromkeys(range(row["start"] // slot, row["end"] // slot), ids[row["server"]])
    for row in s.uploads.filter(s.uploads["job"] == j).iter_rows(named=True):
        step = ids[row["from_site"]], ids[row["to_server"]], row["chunks"]
        moved.setdefault(row["start"] // slot, []).append(step)
    trained = _trained(job, workers, moved)
    return SitePlan(max(workers), workers, ps, _moves(terms, job, trained))


def _trained(
    job: SiteJobTerms, workers: dict[int, Ints], moved: dict[int, list[tuple[int, int, int]]]
) -> dict[int, Ints]:
    """Chunks trained by slot and site (M31, M33)."""
    left, trained = job.data.copy(), dict[int, Ints]()
    for t in sorted({*workers, *moved}):
        for source, target, chunks in moved.get(t, ()):
            left[source] -= chunks
            left[target] += chunks
        if t in workers:
            most = np.fromiter((whole_chunks(job.rate, int(n)) for n in workers[t]), np.int64, len(left))
            trained[t] = np.minimum(left, most)
            left = left - trained[t]
    return trained


def _moves(terms: SiteTerms, job: SiteJobTerms, trained: dict[int, Ints]) -> dict[int, list[tuple[int, int, int]]]:
    """The sources of the trained chunks: the cheapest assignment of chunks to sites and slots of training."""
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - takes 0.3 s to import

    came = np.repeat(np.arange(len(job.data)), job.data)
    at = [(t, r) for t, of_slot in trained.items() for r in np.repeat(np.arange(len(of_slot)), of_slot).tolist()]
    cost: Floats = terms.way[came[:, None], np.array([r for _, r in at])]
    moves: dict[int, dict[tuple[int, int], int]] = {t: {} for t in trained}
    for chunk, place in zip(*linear_sum_assignment(cost), strict=True):
        t, r = at[place]
        step = int(came[chunk]), int(r)
        moves[t][step] = moves[t].get(step, 0) + 1
    return {t: [(source, target, n) for (source, target), n in steps.items()] for t, steps in moves.items()}
