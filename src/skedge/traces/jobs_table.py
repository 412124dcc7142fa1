"""Common parts of the makers of jobs tables: the table, and the needs in the evaluations of PD-ORS and Okita."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.random import Generator

from skedge.core.model.job_fields import JOB_SCHEMA, PS_NEEDS, WORKER_NEEDS, Floats

from .frame import LABELS

Range = tuple[float, float]
Counts = tuple[int, int]

WORKER_DEMAND: Mapping[str, Counts] = {"gpu": (0, 4), "cpu": (1, 10), "memory": (2, 32), "storage": (5, 10)}
PS_DEMAND: Mapping[str, Counts] = {"cpu": (1, 10), "memory": (2, 32), "storage": (5, 10)}
"""Demand of a worker and of a PS for each resource in both papers, drawn uniformly, bounds included."""


def draw_needs(
    rng: Generator, jobs: int, worker: Mapping[str, Counts], ps: Mapping[str, Counts]
) -> dict[str, Floats]:  # fmt: skip
    """Draw the demand of a worker and of a PS of each job, resource by resource.

    Parameters
    ----------
    rng
        Source of all randomness.
    jobs
        Number of jobs.
    worker, ps
        Lowest and highest demand by resource, drawn uniformly, bounds included.

    Returns
    -------
    dict
        Columns of a jobs table: whole numbers as floats, shape ``(jobs,)`` each.
    """
    return {
        prefix + resource: rng.integers(*ends, jobs, endpoint=True).astype(np.float64)
        # workers first: the order of the draws is part of what a seed means
        for prefix, needs in ((WORKER_NEEDS, worker), (PS_NEEDS, ps))
        for resource, ends in needs.items()
    }


def jobs_table(trace: pl.DataFrame, columns: Mapping[str, Any]) -> pl.DataFrame:
    """A jobs table with the arrivals and labels of `trace`, in its order; columns not in `columns` are 0 or empty."""
    labels = {name: trace[name] for name in LABELS if name in trace.columns}
    values = {"id": trace["id"], "arrival_s": trace["submit_s"], **labels, **columns}
    defaults = {
        name: pl.Series(["" if kind is str else 0], dtype=kind).new_from_index(0, len(trace))
        for name, kind in JOB_SCHEMA.items()
    }
    return pl.DataFrame(defaults | values).cast(pl.Schema(JOB_SCHEMA))
