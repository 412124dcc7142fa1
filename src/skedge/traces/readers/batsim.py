"""Workloads of the simulator Batsim, JSON: `jobs` with `id`, `subtime`, `res` and `profile`, and `profiles` by name.

The running time of a job is that of its profile, which is known of profiles of type ``delay``. The others state
operations and bytes, whose time depends on a platform.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from skedge.core.errors import TraceError
from skedge.traces.frame import Fractional, Trace, finished
from skedge.traces.table import left_out, read_bytes


def read_batsim(path: Path | str, statuses: Collection[str] = ("passed",), fractional: Fractional = "skip") -> Trace:
    """Read a workload of Batsim; its resources count as GPUs, and all jobs passed.

    Omitted and counted: jobs whose profile is not of type ``delay``.

    Raises
    ------
    TraceError
        Names the file, the job and the field that is missing or wrong.
    """
    path = Path(path)
    data = _data(path)
    delays = {name: _delay(path, name, profile) for name, profile in data["profiles"].items()}
    rows = [_row(path, i, job, delays) for i, job in enumerate(data["jobs"])]
    kinds = {"id": pl.String, "submit_s": pl.Float64, "gpus": pl.Float64, "duration_s": pl.Float64}
    jobs = pl.DataFrame(rows, schema=kinds, orient="row").with_columns(status=pl.lit("passed"), group=pl.lit(""))
    jobs, skipped = left_out(jobs, {"profile without a delay": pl.col("duration_s").is_null()})
    return finished(jobs, path, statuses, skipped, fractional)


def _data(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_bytes(path))
    except ValueError as error:
        raise TraceError(f"{path}: is not JSON: {error}") from error
    wrong = not isinstance(data, dict) or next(
        (name for name, kind in (("jobs", list), ("profiles", dict)) if not isinstance(data.get(name), kind)), None
    )
    if wrong:
        raise TraceError(f"{path}: is no workload of Batsim, which has a list `jobs` and a mapping `profiles`")
    return data


def _delay(path: Path, name: str, profile: object) -> float | None:
    """Running time of a profile [s]; None of a profile of another type."""
    if not isinstance(profile, Mapping) or profile.get("type") != "delay":
        return None
    return _number(path, f"profile {name!r}", profile, "delay")


def _row(path: Path, i: int, job: object, delays: Mapping[str, float | None]) -> tuple[str, float, float, float | None]:
    where = f"job {i}"
    if not isinstance(job, Mapping) or "id" not in job:
        raise TraceError(f"{path}: {where}: it must be a mapping with id, subtime, res and profile")
    if job.get("profile") not in delays:
        raise TraceError(f"{path}: {where}, profile: {job.get('profile')!r}; it must be one of `profiles`")
    numbers = (_number(path, where, job, "subtime"), _number(path, where, job, "res"))
    return str(job["id"]), *numbers, delays[job["profile"]]


def _number(path: Path, where: str, fields: Mapping[str, Any], name: str) -> float:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise TraceError(f"{path}: {where}, {name}: {value!r}; it must be a number of 0 or more")
    return float(value)
