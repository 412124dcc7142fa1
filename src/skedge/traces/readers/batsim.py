"""Workloads of the simulator Batsim, JSON: `jobs` with `id`, `subtime`, `res` and `profile`, and `profiles` by name.

The running time of a job is that of its profile, which is known of profiles of type ``delay``, and of those composed of
them. The others state operations and bytes, whose time depends on a platform. Batsim kills a job at its `walltime`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from skedge.core.errors import TraceError
from skedge.traces.frame import Fractional, Trace, Unit, make_trace
from skedge.traces.table import drop_rows, read_bytes


def read_batsim(path: Path | str, statuses: Collection[str] = ("passed",), fractional: Fractional = "skip") -> Trace:
    """Read a workload of Batsim as a trace of resources.

    A job that reaches its walltime runs until then, and was killed; one whose profile returns another code than 0
    failed; the others passed. Omitted and counted: jobs whose profile has no known time.

    Raises
    ------
    TraceError
        Names the file, the job and the field that is missing or wrong.
    """
    path = Path(path)
    data = _data(path)
    profiles = data["profiles"]
    delays = {name: _delay(path, profiles, name, ()) for name in profiles}
    failing = {name for name, profile in profiles.items() if isinstance(profile, Mapping) and profile.get("ret", 0)}
    rows = [_row(path, i, job, delays) for i, job in enumerate(data["jobs"])]
    jobs = pl.DataFrame(rows, schema=_ROW, orient="row")
    # null without a walltime, which `when` takes for false
    over_walltime = pl.col("walltime_s") < pl.col("duration_s")
    jobs = jobs.with_columns(
        duration_s=pl.when(over_walltime).then("walltime_s").otherwise("duration_s"),
        status=pl.when(over_walltime).then(pl.lit("killed")).when(pl.col("profile").is_in(failing)).then(pl.lit("failed"))
        .otherwise(pl.lit("passed")),
        group=pl.lit(""),
    )  # fmt: skip
    jobs, skipped = drop_rows(jobs, {"profile without a delay": pl.col("duration_s").is_null()})
    return make_trace(jobs, path, statuses, skipped, fractional, unit=Unit("resource"))


_ROW = {
    "id": pl.String,
    "submit_s": pl.Float64,
    "gpus": pl.Float64,
    "duration_s": pl.Float64,
    "walltime_s": pl.Float64,
    "profile": pl.String,
}


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


def _delay(path: Path, profiles: Mapping[str, Any], name: str, within: tuple[str, ...]) -> float | None:
    """Running time of a profile [s]; None of a profile whose time depends on a platform."""
    profile, place = profiles.get(name), f"profile {name!r}"
    if not isinstance(profile, Mapping):
        return None
    if profile.get("type") == "delay":
        return _number(path, place, profile, "delay")
    # a profile that is part of itself has no duration, and would recurse for ever
    if profile.get("type") not in _COMPOSED or not isinstance(profile.get("seq"), list) or name in within:
        return None
    delays = [_delay(path, profiles, str(part), (*within, name)) for part in profile["seq"]]
    repeats = _number(path, place, {"repeat": 1, **profile}, "repeat")
    return None if None in delays else repeats * sum(delay for delay in delays if delay is not None)


_COMPOSED = ("composed", "sequential_composition")


def _row(path: Path, i: int, job: object, delays: Mapping[str, float | None]) -> tuple[Any, ...]:
    place = f"job {i}"
    if not isinstance(job, Mapping) or "id" not in job:
        raise TraceError(f"{path}: {place}: it must be a mapping with id, subtime, res and profile")
    if not isinstance(job.get("profile"), str) or job["profile"] not in delays:
        raise TraceError(f"{path}: {place}, profile: {job.get('profile')!r}; it must be one of `profiles`")
    numbers = (_number(path, place, job, "subtime"), _number(path, place, job, "res"))
    # -1 means that there is none
    walltime = None if job.get("walltime", -1) in (-1, None) else _number(path, place, job, "walltime")
    return str(job["id"]), *numbers, delays[job["profile"]], walltime, job["profile"]


def _number(path: Path, place: str, fields: Mapping[str, Any], name: str) -> float:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise TraceError(f"{path}: {place}, {name}: {value!r}; it must be a number of 0 or more")
    return float(value)
