"""Checks of a jobs table: columns, types, ranges and fit to the cluster; and the order of jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from .errors import ScenarioError
from .latency import latency_from
from .model import DATA, EXTRA_SCHEMA, JOB_SCHEMA, PS_NEEDS, WORKER_NEEDS, Cluster, Floats, Ints
from .time import LONGEST_S

_AT_LEAST_ONE = ("epochs", "chunks", "minibatches", "workers")
_NOT_NEGATIVE = (
    "arrival_s", "minibatch_s", "ps_update_s", "gradient_mb", "chunk_mb",
    "upload_edge_lo_s", "upload_edge_hi_s", "upload_cloud_lo_s", "upload_cloud_hi_s",
)  # fmt: skip
UTILITY = ("utility_height", "utility_steepness", "utility_target")
"""Columns of a utility, in the order of :class:`~skedge.core.value.Sigmoid`."""
_DEFAULTS = {"batch": 1.0, "ratio": 1.0, "internal_mbps": np.inf, "exchange_mb": 0.0, "max_lag": 0.0}


def extra_column(frame: pl.DataFrame, name: str) -> Floats:
    """A numeric column of :data:`~skedge.core.model.EXTRA_SCHEMA`, with the default for missing values."""
    if name not in frame.columns:
        return np.full(len(frame), _DEFAULTS[name])
    return frame[name].fill_null(_DEFAULTS[name]).to_numpy().astype(np.float64)


def needs(frame: pl.DataFrame, prefix: str, resources: tuple[str, ...]) -> Floats:
    """Demand for each of `resources`, shape ``(jobs, resources)``."""
    table = np.zeros((len(frame), len(resources)))
    for i, resource in enumerate(resources):
        if prefix + resource in frame.columns:
            table[:, i] = frame[prefix + resource].fill_null(0).to_numpy()
    return table


def data_of(frame: pl.DataFrame, cluster: Cluster) -> Ints:
    """Chunks of each job by site, D_i^r, shape ``(jobs, servers)``; without columns if there are no sites."""
    if cluster.kind != "sites":
        return np.zeros((len(frame), 0), np.int64)
    table = np.zeros((len(frame), len(cluster.servers)), np.int64)
    for i, site in enumerate(cluster.server_ids):
        if DATA + site in frame.columns:
            table[:, i] = frame[DATA + site].fill_null(0).to_numpy()
    return table


def floats(frame: pl.DataFrame, column: str) -> Floats:
    """A column as floats."""
    return frame[column].to_numpy().astype(np.float64)


@dataclass(frozen=True)
class _Check:
    """One check: rows for which `wrong` is true are rejected; the message shows `value` as the value of `column`."""

    wrong: pl.Expr
    column: str
    right: str
    value: pl.Expr


def checked(frame: pl.DataFrame, cluster: Cluster) -> pl.DataFrame:
    """Check `frame` and return it with the right columns and types.

    Raises
    ------
    ScenarioError
        Names the first wrong row of the first check that fails, with its column and value.
    """
    missing = [c for c in JOB_SCHEMA if c not in frame.columns]
    if missing:
        raise ScenarioError(f"jobs: column {missing[0]!r} is missing; needed are {', '.join(JOB_SCHEMA)}")
    try:
        frame = frame.select(pl.col(c).cast(t) for c, t in _schema_of(frame).items())
    except pl.exceptions.PolarsError as error:
        raise ScenarioError(f"jobs: a column has values of the wrong type: {error}") from error
    _utility_is_whole(frame)
    _refuse(frame, [*_of_columns(), *_of_extra(frame, cluster), *_of_ranges(cluster)])
    if cluster.kind == "sites":
        _check_latency(frame)
    return frame


def _of_columns() -> Iterator[_Check]:
    for column in JOB_SCHEMA:
        yield _check(pl.col(column).is_null(), column, "a value; it is missing")


def _of_ranges(cluster: Cluster) -> Iterator[_Check]:
    for column in _AT_LEAST_ONE:
        yield _check(pl.col(column) < 1, column, "at least 1")
    for column in _NOT_NEGATIVE:
        good = pl.col(column).is_finite() & (pl.col(column) >= 0) & (pl.col(column) <= LONGEST_S)
        yield _check(~good, column, f"a number from 0 to {LONGEST_S:g}")
    rate = pl.col("bandwidth_mbps")
    yield _check(~(rate.is_finite() & (rate > 0)), "bandwidth_mbps", "above 0")
    yield _check(pl.col("minibatch_s") + pl.col("ps_update_s") <= 0, "minibatch_s", "above 0 (with ps_update_s)")
    for kind in ("edge", "cloud"):
        above = pl.col(f"upload_{kind}_lo_s") > pl.col(f"upload_{kind}_hi_s")
        yield _check(above, f"upload_{kind}_lo_s", f"at most upload_{kind}_hi_s")
    yield _check(pl.col("id").is_duplicated(), "id", "unique; it is used twice")
    for column, types in (("worker_type", cluster.worker_types), ("ps_type", cluster.ps_types)):
        if types or (cluster.cloud is None and cluster.kind == "slots"):
            have = ", ".join(types) or "none"
            yield _check(~pl.col(column).is_in(list(types)), column, f"a type that a server has ({have})")


def _schema_of(frame: pl.DataFrame) -> dict[str, Any]:
    """The columns of `frame` that describe jobs, in order, and their types."""
    extra = {name: kind for name, kind in EXTRA_SCHEMA.items() if name in frame.columns}
    needs = dict.fromkeys((c for c in frame.columns if c.startswith((WORKER_NEEDS, PS_NEEDS))), pl.Float64)
    data = dict.fromkeys((c for c in frame.columns if c.startswith(DATA)), pl.Int64)
    said = {name: kind for name, kind in (extra | needs | data).items() if frame[name].null_count() < len(frame)}
    return {**JOB_SCHEMA, **said}


def _utility_is_whole(frame: pl.DataFrame) -> None:
    missing = [name for name in UTILITY if name not in frame.columns]
    if 0 < len(missing) < len(UTILITY):
        raise ScenarioError(f"jobs: column {missing[0]!r} is missing; a utility has height, steepness and target")


def _of_extra(frame: pl.DataFrame, cluster: Cluster) -> Iterator[_Check]:
    """Checks of batch, rates, utility and needs, and that the cluster has the resources needed."""
    there = set(frame.columns)
    positive = {name: pl.col(name).is_finite() & (pl.col(name) > 0) for name in ("ratio", "utility_height")}
    rules = {
        "batch": (pl.col("batch") >= 1, "at least 1"),
        "ratio": (positive["ratio"], "above 0"),
        "internal_mbps": (pl.col("internal_mbps") >= pl.col("bandwidth_mbps"), "at least bandwidth_mbps"),
        "utility_height": (positive["utility_height"], "above 0"),
        "utility_steepness": (
            pl.col("utility_steepness").is_finite() & (pl.col("utility_steepness") >= 0),
            "0 or more: below 0 the utility increases with time",
        ),
        "utility_target": (pl.col("utility_target").is_finite(), "a number of slots"),
        "exchange_mb": (pl.col("exchange_mb").is_finite() & (pl.col("exchange_mb") >= 0), "0 or more"),
        "max_lag": (pl.col("max_lag") >= 1, "at least 1"),
    }
    given = [name for name in UTILITY if name in there]
    for name in given:
        lacks = pl.any_horizontal(pl.col(given).is_not_null()) & pl.col(name).is_null()
        yield _check(lacks, name, "a number: a utility has height, steepness and target")
    for name, (good, right) in rules.items():
        if name in there:
            yield _check(pl.col(name).is_not_null() & ~good, name, right)
    yield from _of_needs(frame, cluster)
    if cluster.kind != "slots" and "max_lag" in there:
        right = "left out: it is of chunks that are dispatched, and none are on servers with resources"
        yield _check(pl.col("max_lag").is_not_null(), "max_lag", right)
    yield from _of_no_sites(frame) if cluster.kind != "sites" else _of_sites(frame, cluster)


def _of_no_sites(frame: pl.DataFrame) -> Iterator[_Check]:
    for column in frame.columns:
        if column.startswith((DATA, "latency")) or column == "exchange_mb":
            right = "left out: it goes with a cluster that has transfer_cost"
            yield _check(pl.col(column).is_not_null(), column, right)


def _of_sites(frame: pl.DataFrame, cluster: Cluster) -> Iterator[_Check]:
    """Check that each job gives the location of all its chunks."""
    columns = [c for c in frame.columns if c.startswith(DATA)]
    for column in columns:
        if column.removeprefix(DATA) not in cluster.server_ids:
            have = ", ".join(cluster.server_ids[:5]) + (", ..." if len(cluster.servers) > 5 else "")
            yield _check(pl.col(column).is_not_null(), column, f"for one of the sites ({have})")
        yield _check(pl.col(column) < 0, column, "0 chunks or more")
    for column in ("upload_edge_hi_s", "upload_cloud_hi_s"):
        yield _check(pl.col(column) > 0, column, "0: at sites data move at once, at the cost of transfer_cost")
    data = pl.sum_horizontal(pl.col(columns).fill_null(0)) if columns else pl.lit(0)
    yield _check(data == 0, "data", "above 0 for some site: there is nothing to train", data)
    yield _check(data != pl.col("chunks"), "chunks", "the sum of its data over the sites")


def _check_latency(frame: pl.DataFrame) -> None:
    """Check that each job at sites has a latency cost."""
    names = [c for c in frame.columns if c.startswith("latency")]
    for row, fields in enumerate(frame.select("id", *names).iter_rows(named=True)):
        name = fields["id"]
        try:
            given = latency_from(fields)
        except ScenarioError as error:
            raise ScenarioError(f"jobs[{row}] (id {name!r}): {error}") from error
        if given is None:
            raise ScenarioError(f"jobs[{row}] (id {name!r}): latency is missing; a job at sites has a latency cost")


def _of_needs(frame: pl.DataFrame, cluster: Cluster) -> Iterator[_Check]:
    have = ", ".join(cluster.resources) or "slots alone"
    for prefix in (WORKER_NEEDS, PS_NEEDS):
        columns = [c for c in frame.columns if c.startswith(prefix)]
        for column in columns:
            value = pl.col(column).fill_null(0)
            yield _check(~(value.is_finite() & (value >= 0)), column, "a number, 0 or more")
            if column.removeprefix(prefix) not in cluster.resources:
                yield _check(value > 0, column, f"of a resource that a server has ({have})")
        if cluster.kind != "slots":
            needs = pl.sum_horizontal(pl.col(columns)) if columns else pl.lit(0.0)
            yield _check(needs <= 0, prefix + "*", f"above 0 for one of {have}", needs)


def _check(wrong: pl.Expr, column: str, right: str, value: pl.Expr | None = None) -> _Check:
    return _Check(wrong, column, right, pl.col(column) if value is None else value)


def _refuse(frame: pl.DataFrame, checks: Sequence[_Check]) -> None:
    """Raise an error for the first wrong row of the first check that fails; all checks are computed in one pass."""
    if frame.is_empty():
        return
    failed = frame.select(check.wrong.any().alias(str(i)) for i, check in enumerate(checks)).row(0)
    for check, fails in zip(checks, failed, strict=True):
        if fails:
            row = frame.with_row_index("row").select("row", "id", value=check.value, wrong=check.wrong)
            number, name, value, _ = row.filter(pl.col("wrong")).row(0)
            raise ScenarioError(f"jobs[{number}] (id {name!r}): {check.column} = {value!r}; it must be {check.right}")


def in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` by (arrival, id); ids that are all whole numbers are ordered as numbers."""
    number = frame["id"].cast(pl.Int64, strict=False)
    key = number if number.null_count() == 0 else frame["id"]
    return frame.with_columns(key.alias("_key")).sort("arrival_s", "_key", maintain_order=True).drop("_key")
