"""Metrics of utility and of resource use: those of PD-ORS Sec. V.

They are given where they apply: utilities if all jobs have one, use by resource on servers with resources.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skedge.analysis.columns import Columns
from skedge.core.model import Floats, Ints
from skedge.core.time import SECOND

Numbers = dict[str, float | int | None]


def worth(c: Columns, completion: str = "end") -> Numbers:
    """Total utility, acceptance and median training time; empty unless all jobs have a utility.

    The utility of a job is that of its JCT in slots, less one slot if `completion` is ``index`` (PD-ORS as printed
    takes u of the index of the last slot). Jobs not complete by the horizon count 0. Acceptance is the fraction of jobs
    not rejected. The training time is the JCT, at most T, and T for jobs not complete by the horizon; without a
    horizon, only finished jobs are included.
    """
    jobs, physics, t = c.scenario.jobs, c.scenario.physics, c.jobs
    if not len(jobs) or None in jobs.utility:
        return {}
    done = t["completion"] >= 0
    if physics.horizon is not None:
        done &= t["completion"] <= physics.horizon
    slots = np.maximum((t["completion"] - t["arrival"]) / physics.slot - (completion == "index"), 0.0)
    values = [u(float(slots[i])) for i, job in enumerate(t["job"]) if done[i] and (u := jobs.utility[int(job)])]
    rejected = int(t.has("state", "rejected").sum())
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
    """Fraction of each resource held from `first` to `last` [µs], or to the horizon if there is one."""
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
    """For workers and for PSs: start and end [µs] of holdings, and amounts taken, shape ``(rows, resources)``."""
    jobs, found = c.scenario.jobs, []
    for t, count, needs in ((c.gangs, "workers", jobs.worker_needs), (c.ps, "count", jobs.ps_needs)):
        found.append((t["start"], t["end"], t[count][:, None] * needs[t["job"]]))
    return found
