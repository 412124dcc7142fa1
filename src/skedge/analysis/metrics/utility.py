"""Metrics of utility and of resource use: those of PD-ORS Sec. V.

Utilities exist if all jobs have one, use by resource on servers with resources.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skedge.analysis.columns import Columns
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.time import SECOND

from .sums import Sums

Numbers = dict[str, float | int | None]


def utility_of(c: Columns, completion: str) -> float | None:
    """Total utility of the jobs; None unless all have one.

    The utility of a job is that of its JCT in slots, less one slot if `completion` is ``index`` (PD-ORS as printed
    takes u of the index of the last slot). Jobs not complete by the horizon count 0.
    """
    jobs, t = c.scenario.jobs, c.jobs
    if not len(jobs) or None in jobs.utility:
        return None
    in_time = _complete_by_horizon(c)
    # The index of a slot is one less than the number of slots that end with it, hence "index" takes one off.
    slots = np.maximum((t["completion"] - t["arrival"]) / c.scenario.physics.slot - (completion == "index"), 0.0)
    values = [u(float(slots[i])) for i, job in enumerate(t["job"]) if in_time[i] and (u := jobs.utility[int(job)])]
    return float(sum(values))


def training_times(c: Columns) -> Floats:
    """JCTs [s], at most T, and T for jobs not complete by the horizon; without a horizon, of the finished jobs only."""
    horizon, in_time = c.scenario.physics.horizon, _complete_by_horizon(c)
    jct: Floats = (c.jobs["completion"] - c.jobs["arrival"])[in_time] / SECOND
    if horizon is None:
        return jct
    # A job that is not complete by T counts as T, as in the figures of PD-ORS: a policy gains nothing in the median by
    # leaving long jobs undone.
    return np.concatenate([np.minimum(jct, horizon / SECOND), np.full(int((~in_time).sum()), horizon / SECOND)])


def _complete_by_horizon(c: Columns) -> NDArray[np.bool_]:
    """True for the jobs that are complete, and by the horizon if there is one."""
    completion, horizon = c.jobs["completion"], c.scenario.physics.horizon
    is_complete: NDArray[np.bool_] = completion >= 0
    return is_complete if horizon is None else is_complete & (completion <= horizon)


def utility_metrics(utility: float | None, training: Floats, s: Sums) -> Numbers:
    """Total utility, acceptance and median training time; empty unless all jobs have a utility.

    Acceptance is the fraction of jobs not rejected. The order of `training` may be changed. The censored share is the
    fraction of the jobs that count with the horizon in it, as they were not complete by then: if it is a half or more,
    the median is a bound from below.
    """
    if utility is None:
        return {}
    n_late = s.finished_after_horizon
    return {
        "utility_total": utility,
        "acceptance_share": 1 - s.rejected / s.jobs,
        "training_time_p50_s": float(np.median(training, overwrite_input=True)) if len(training) else None,
        "censored_share": 0.0 if n_late is None else 1 - (s.finished - n_late) / s.jobs,
    }


def use_by_resource(c: Columns, first: int, last: int) -> Numbers:
    """Fraction of each resource held from `first` to `last` [µs], or to the horizon if there is one."""
    cluster, horizon = c.scenario.cluster, c.scenario.physics.horizon
    # Prices and plans of resources end at the horizon, and so does this measure.
    if horizon is not None:
        first, last = 0, horizon
    used = np.zeros(len(cluster.resources))
    for start, end, amount in holdings(c):
        overlap = np.minimum(end, last) - np.maximum(start, first)
        used += np.maximum(overlap, 0).astype(np.float64) @ amount
    room = cluster.amounts.sum(axis=0) * (last - first)
    # A resource that no server has is used to 0, not to NaN.
    shares = np.divide(used, room, out=np.zeros_like(used), where=room > 0)
    return {f"utilisation_{r}_share": float(share) for r, share in zip(cluster.resources, shares, strict=True)}


def holdings(c: Columns) -> list[tuple[Ints, Ints, Floats]]:
    """For workers and for PSs: start and end [µs] of holdings, and amounts taken, shape ``(rows, resources)``."""
    jobs, tables = c.scenario.jobs, []
    for t, count, needs in ((c.gangs, "workers", jobs.worker_needs), (c.ps, "count", jobs.ps_needs)):
        tables.append((t["start"], t["end"], t[count][:, None] * needs[t["job"]]))
    return tables
