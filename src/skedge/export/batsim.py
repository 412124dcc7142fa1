"""``jobs.csv`` and ``schedule.json`` as Batsim writes them; Evalys reads the first.

The format follows Batsim's documentation of its outputs (docs/output-jobs.rst, docs/output-schedule.rst) and the
columns that Evalys' ``JobSet.from_csv`` reads. One line per job, times in seconds from the start of the run; values
that a record does not have (energy, walltimes) are -1 or 0.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.core.record.schedule import Schedule

from .workers import workers_of

COLUMNS = (
    "job_id", "workload_name", "profile", "submission_time", "requested_number_of_resources", "requested_time",
    "success", "final_state", "starting_time", "execution_time", "finish_time", "waiting_time", "turnaround_time",
    "stretch", "allocated_resources", "consumed_energy", "metadata",
)  # fmt: skip
"""Columns of ``jobs.csv``, in order."""

STATES = {
    "finished": "COMPLETED_SUCCESSFULLY",
    "failed": "COMPLETED_FAILED",
    "cancelled": "COMPLETED_KILLED",
    "rejected": "REJECTED",
}
"""Batsim's names of the final states of a job."""


def jobs_table(scenario: Scenario, schedule: Schedule) -> pl.DataFrame:
    """Columns :data:`COLUMNS`, one row per job; times are null if the job has never run.

    ``starting_time`` is when the job first holds workers, ``finish_time`` when its last run ends, and
    ``execution_time`` the time between, pauses included. ``allocated_resources`` are all workers that it ever held
    (:mod:`skedge.export.workers`), as intervals: ``0-3 7``.
    """
    # One column of lists, so that the workers of a job are a single group_by away.
    runs = schedule.runs.with_columns(held=pl.Series(workers_of(scenario, schedule.runs), dtype=pl.List(pl.Int64)))
    ran = runs.group_by("job").agg(
        starting_time=_seconds(pl.col("start").min()),
        finish_time=_seconds(pl.col("end").max()),
        held=pl.col("held").explode().unique().sort(),
    )
    # From the left, so that jobs that never ran have a line, and lines stand in the order of the jobs.
    table = schedule.jobs.select("job", "id", "arrival", "state").join(ran, on="job", how="left", maintain_order="left")
    state = pl.col("state").cast(pl.String)
    worker_sets = [intervals(numbers or []) for numbers in table["held"].to_list()]
    table = table.with_columns(
        job_id="id",
        workload_name=pl.lit(scenario.name),
        profile="id",
        submission_time=_seconds(pl.col("arrival")),
        requested_number_of_resources=pl.Series(scenario.jobs.workers),
        requested_time=pl.lit(-1),
        success=(state == "finished").cast(pl.Int8),
        final_state=state.replace_strict(STATES),
        allocated_resources=pl.Series(worker_sets, dtype=pl.String),
        consumed_energy=pl.lit(-1),
        metadata=pl.lit(""),
    )
    start, finish, submitted = (pl.col(name) for name in ("starting_time", "finish_time", "submission_time"))
    table = table.with_columns(
        # Rounded again: a difference of two rounded floats has more digits than a µs.
        execution_time=(finish - start).round(6),
        waiting_time=(start - submitted).round(6),
        turnaround_time=(finish - submitted).round(6),
    )
    return table.with_columns(stretch=pl.col("turnaround_time") / pl.col("execution_time")).select(COLUMNS)


def _seconds(time: pl.Expr) -> pl.Expr:
    """A time in seconds, given in µs, exact to the µs."""
    return (time / SECOND).round(6)


def intervals(numbers: list[int]) -> str:
    """Ascending `numbers` as Batsim writes sets of them: ``0-3 7``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def summary(scenario: Scenario, schedule: Schedule, jobs: pl.DataFrame) -> dict[str, Any]:
    """The fields of ``schedule.json``, in order of their names; times in seconds.

    Means and largest values are over the jobs that have run; null where none has. Machines are the edge workers,
    computing while they are held.
    """
    edge_ids = [server.id for server in scenario.cluster.servers if server.kind == "edge"]
    edge = schedule.runs.filter(pl.col("server").cast(pl.String).is_in(edge_ids))
    busy_s = edge.select((pl.col("workers") * (pl.col("end") - pl.col("start"))).cast(pl.Float64).sum()).item() / SECOND
    makespan = float(jobs["finish_time"].fill_null(0.0).to_numpy().max(initial=0.0))
    states = jobs["final_state"].to_list()
    count = {state: states.count(name) for state, name in STATES.items()}
    figures = {
        "slowdown": jobs["stretch"],
        "turnaround_time": jobs["turnaround_time"],
        "waiting_time": jobs["waiting_time"],
    }
    fields = {
        "batsim_version": f"skedge {version('skedge')}",
        "consumed_joules": -1,
        "makespan": makespan,
        **{f"max_{name}": column.max() for name, column in figures.items()},
        **{f"mean_{name}": column.mean() for name, column in figures.items()},
        "nb_computing_machines": scenario.cluster.lanes,
        "nb_grouped_switches": 0,
        "nb_jobs": len(jobs),
        "nb_jobs_finished": len(jobs) - count["rejected"],
        "nb_jobs_killed": count["cancelled"],
        "nb_jobs_rejected": count["rejected"],
        "nb_jobs_success": count["finished"],
        "nb_machine_switches": 0,
        "success_rate": count["finished"] / len(jobs) if len(jobs) else None,
        "time_computing": busy_s,
        "time_idle": scenario.cluster.lanes * makespan - busy_s,
        **dict.fromkeys(("time_sleeping", "time_switching_off", "time_switching_on", "time_unavailable"), 0),
    }
    # Batsim writes the fields in this order.
    return dict(sorted(fields.items()))


def write(scenario: Scenario, schedule: Schedule, folder: Path) -> None:
    """Write ``jobs.csv`` and ``schedule.json`` into the existing `folder`."""
    jobs = jobs_table(scenario, schedule)
    jobs.write_csv(folder / "jobs.csv")
    text = json.dumps(summary(scenario, schedule, jobs), indent=2, allow_nan=False)
    (folder / "schedule.json").write_text(text + "\n", encoding="utf-8")
