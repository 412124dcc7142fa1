"""How well a run did by what its jobs are worth, and how full its servers were: the numbers of PD-ORS Sec. V.

They are given where they mean something: utilities where every job has one, use by resource on servers with resources.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.analysis.columns import Columns
from skedge.core.model import Floats, Ints
from skedge.core.time import SECOND

Numbers = dict[str, float | int | None]


def worth(c: Columns, completion: str = "end") -> Numbers:
    """Total utility, acceptance and median training time; nothing where a job does not say what it is worth.

    The utility of a job is that of its JCT in slots, less one slot where `completion` is ``index`` (PD-ORS takes u of
    the index of the last slot as printed); jobs that are not complete by the horizon count nothing. Acceptance is the
    share of jobs that were not rejected. The training time is the JCT, at most T, and T for jobs that are not complete
    by the horizon; without a horizon it is that of the finished jobs.
    """
    jobs, physics, t = c.scenario.jobs, c.scenario.physics, c.jobs
    if not len(jobs) or None in jobs.utility:
        return {}
    done = t["completion"] >= 0
    if physics.horizon is not None:
        done &= t["completion"] <= physics.horizon
    slots = np.maximum((t["completion"] - t["arrival"]) / physics.slot - (completion == "index"), 0.0)
    values = [u(float(slots[i])) for i, job in enumerate(t["job"]) if done[i] and (u := jobs.utility[int(job)])]
    rejected = int((t.frame["state"].cast(pl.String) == "rejected").sum())
    return {
        "utility_total": float(sum(values)),
        "acceptance_share": 1 - rejected / len(jobs),
        "training_time_p50_s": _median_time(c, done),
    }


def _median_time(c: Columns, done: NDArray[np.bool_]) -> float | None:
    horizon = c.scenario.physics.horizon
    jct = (c.jobs["completion"] - c.jobs["arrival"])[done] / SECOND
    if horizon is not None:
        jct = np.concatenate([np.minimum(jct, horizon / SECOND), np.full(int((~done).sum()), horizon / SECOND)])
    return float(np.median(jct)) if len(jct) else None


def use_by_resource(c: Columns, first: int, last: int) -> Numbers:
    """Part of each resource that is held from `first` to `last` [µs], or to the horizon where there is one."""
    cluster, horizon = c.scenario.cluster, c.scenario.physics.horizon
    if horizon is not None:
        first, last = 0, horizon
    held = np.zeros(len(cluster.resources))
    for start, end, amount in holdings(c):
        inside = np.minimum(end, last) - np.maximum(start, first)
        held += np.maximum(inside, 0).astype(np.float64) @ amount
    room = cluster.amounts.sum(axis=0) * (last - first)
    shares = np.divide(held, room, out=np.zeros_like(held), where=room > 0)
    return {f"utilisation_{r}_share": float(share) for r, share in zip(cluster.resources, shares, strict=True)}


def holdings(c: Columns) -> list[tuple[Ints, Ints, Floats]]:
    """Of workers and of PSs: from when, until when [µs], and what they take, shape ``(rows, resources)``."""
    jobs, found = c.scenario.jobs, []
    for t, count, needs in ((c.gangs, "workers", jobs.worker_needs), (c.ps, "count", jobs.ps_needs)):
        found.append((t["start"], t["end"], t[count][:, None] * needs[t["job"]]))
    return found
