"""A run at sites as plans: the placements, the chunks trained, and their sources at the least cost."""

from __future__ import annotations

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import whole_chunks
from skedge.recorded_run import Run

from .milp import SitePlan
from .terms import SiteJobTerms, SiteTerms


def plans_of_run(terms: SiteTerms, result: Run) -> list[SitePlan]:
    """The plan of every job; all of them have finished."""
    return [_plan(terms, job, result, j) for j, job in enumerate(terms.jobs)]


def _plan(terms: SiteTerms, job: SiteJobTerms, result: Run, j: int) -> SitePlan:
    slot, schedule = result.scenario.physics.slot, result.schedule
    ids = {name: i for i, name in enumerate(result.scenario.cluster.server_ids)}
    workers, ps, moves = dict[int, Ints](), dict[int, int](), dict[int, list[tuple[int, int, int]]]()
    for row in schedule.runs.filter(schedule.runs["job"] == j).iter_rows(named=True):
        for t in range(row["start"] // slot, row["end"] // slot):
            workers.setdefault(t, np.zeros(len(ids), np.int64))[ids[row["server"]]] += row["workers"]
    for row in schedule.ps.filter(schedule.ps["job"] == j).iter_rows(named=True):
        ps |= dict.fromkeys(range(row["start"] // slot, row["end"] // slot), ids[row["server"]])
    for row in schedule.uploads.filter(schedule.uploads["job"] == j).iter_rows(named=True):
        move = ids[row["from_site"]], ids[row["to_server"]], row["chunks"]
        moves.setdefault(row["start"] // slot, []).append(move)
    chunks_trained = _chunks_trained(job, workers, moves)
    return SitePlan(max(workers), workers, ps, _moves(terms, job, chunks_trained))


def _chunks_trained(
    job: SiteJobTerms, workers: dict[int, Ints], moves: dict[int, list[tuple[int, int, int]]]
) -> dict[int, Ints]:
    """Chunks trained by slot and site (M31, M33)."""
    left, chunks_trained = job.data.copy(), dict[int, Ints]()
    for t in sorted({*workers, *moves}):
        for source, target, chunks in moves.get(t, ()):
            left[source] -= chunks
            left[target] += chunks
        if t in workers:
            capacity = np.fromiter((whole_chunks(job.rate, int(n)) for n in workers[t]), np.int64, len(left))
            chunks_trained[t] = np.minimum(left, capacity)
            left = left - chunks_trained[t]
    return chunks_trained


def _moves(
    terms: SiteTerms, job: SiteJobTerms, chunks_trained: dict[int, Ints]
) -> dict[int, list[tuple[int, int, int]]]:
    """The sources of the trained chunks: the cheapest assignment of chunks to sites and slots of training."""
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - takes 0.3 s to import

    origin = np.repeat(np.arange(len(job.data)), job.data)
    places = [
        (t, r) for t, counts in chunks_trained.items() for r in np.repeat(np.arange(len(counts)), counts).tolist()
    ]
    cost: Floats = terms.path_cost[origin[:, None], np.array([r for _, r in places])]
    moves: dict[int, dict[tuple[int, int], int]] = {t: {} for t in chunks_trained}
    for chunk, place in zip(*linear_sum_assignment(cost), strict=True):
        t, r = places[place]
        move = int(origin[chunk]), int(r)
        moves[t][move] = moves[t].get(move, 0) + 1
    return {t: [(source, target, n) for (source, target), n in steps.items()] for t, steps in moves.items()}
