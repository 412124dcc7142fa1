"""Rigid jobs that no gang policy can hold: left out for all policies, unless the workload is elastic.

A policy that allocates one worker at a time, or dispatches chunks, trains a job of 8 GPUs on 4 GPUs; a gang policy
rejects it. Such jobs would have policies finish different jobs, of which a comparison says nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from skedge.core.errors import ScenarioError
from skedge.core.model.cluster import Cluster

from .load import work_s
from .schema import WorkloadForm

LARGER = "larger than the cluster"
"""Reason in the source of the jobs."""


def drop_oversized_jobs(
    form: WorkloadForm | None, jobs: pl.DataFrame, source: dict[str, Any], cluster: Cluster
) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Leave out the jobs that all edge workers of their type together cannot hold at once.

    None is left out where there is a cloud, which takes what the edge cannot hold, or `form` is elastic or not rigid.

    Parameters
    ----------
    form
        The workload; None: jobs that are not made from a trace.
    jobs
        A jobs table.
    source
        The origin of the jobs.
    cluster
        Its servers have typed slots.

    Returns
    -------
    tuple
        The jobs that remain, and their origin with the number of those left out.

    Raises
    ------
    ScenarioError
        If no job is left.
    """
    if form is None or form.making != "rigid":
        return jobs, source
    if form.elastic:
        return jobs, {**source, "elastic": True}
    if cluster.cloud is not None:
        return jobs, source
    workers = dict(zip(cluster.worker_types, cluster.workers.sum(axis=0).tolist(), strict=True))
    # over all servers: a gang may be spread over several
    fits = np.array([k <= workers.get(kind, 0) for kind, k in jobs.select("worker_type", "workers").iter_rows()])
    if fits.all():
        return jobs, source
    if not fits.any():
        fewest = int(jobs["workers"].min())  # type: ignore[arg-type]
        raise ScenarioError(f"cluster: every job asks for {fewest} workers or more, which it does not have of its type")
    rest = jobs.filter(fits)
    skipped = {**source.get("skipped", {}), LARGER: int((~fits).sum())}
    changed: dict[str, Any] = {**source, "jobs": len(rest), "skipped": skipped}
    if "gpu_hours" in source:
        changed["gpu_hours"] = {**source["gpu_hours"], "jobs": round(work_s(rest) / 3600, 3)}
    return rest, changed
