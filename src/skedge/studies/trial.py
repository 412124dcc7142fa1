"""Trials and their results: the interface between studies and the engine that carries them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

Fields = Mapping[str, Any]
"""A job in the form of a scenario file."""


@dataclass(frozen=True)
class Trial:
    """One run that a study asks for.

    Attributes
    ----------
    label
        Unique in the study; also the name of its run folder.
    jobs
        In the form of a scenario file, with what they train.
    place
        Where the run stands in the study (policy, number of jobs, ...): columns of its results.
    watched
        Ids of the jobs whose accuracy is measured after each epoch.
    """

    label: str
    policy: str
    seed: int
    jobs: tuple[Fields, ...]
    place: Mapping[str, str | int]
    watched: frozenset[str] = frozenset()


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial; jobs by the ids of its file.

    Attributes
    ----------
    metrics, simulated
        Of the run, and of the simulation that foresaw it.
    displaced_workers, displaced_jobs
        See :func:`displaced_workers`.
    preemptions
        Chunks, or workers of gangs, that each job was deprived of.
    deployments
        See :func:`deployments`.
    accuracy
        At the end, on test data.
    curves
        (epoch, accuracy) of the watched jobs.
    violations
        Rules of the model that the record breaks, a sentence each.
    """

    trial: Trial
    metrics: Mapping[str, Any]
    simulated: Mapping[str, Any]
    displaced_workers: int = 0
    displaced_jobs: int = 0
    preemptions: Mapping[str, int] = field(default_factory=dict)
    deployments: Mapping[str, int] = field(default_factory=dict)
    accuracy: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    violations: tuple[str, ...] = ()

    def row(self, **columns: Any) -> dict[str, Any]:
        """A row of results: the seed, the trial's place in the study, and these columns."""
        return {"seed": self.trial.seed, **self.trial.place, **columns}


def seeded(job: Fields, seed: int) -> Fields:
    """The job with data, first parameters and order of samples drawn from `seed`."""
    train = job["train"]
    return {**job, "train": {**train, "args": {**train["args"], "seed": seed}, "seed": seed}}


def displaced_workers(runs: pl.DataFrame) -> dict[int, int]:
    """Workers that each job was deprived of, by its number.

    A chunk's worker counts when the chunk is displaced, a gang's workers when the gang stops; a gang that is placed
    elsewhere at the same instant continues and does not count. So chunks and gangs have one unit.
    """
    # a stop and a start at one instant: the anti-join leaves only workers that were taken from the job
    starts = runs.select("job", "chunk", end="start").unique()
    stops = runs.filter("preempted").join(starts, on=["job", "chunk", "end"], how="anti", nulls_equal=True)
    return dict(stops.group_by("job").agg(pl.col("workers").sum()).iter_rows())


def deployments(runs: pl.DataFrame) -> dict[int, int]:
    """How many placements of its workers each gang had one after another, by the job's number; 1 if it never moved."""
    placements = (
        runs.group_by("job", "start")
        .agg(where=pl.struct(pl.col("server").cast(pl.String), "workers").sort())
        .sort("job", "start")
        .with_columns(moved=(pl.col("where") != pl.col("where").shift()).over("job").fill_null(value=True))
    )
    return dict(placements.group_by("job").agg(pl.col("moved").sum()).iter_rows())
