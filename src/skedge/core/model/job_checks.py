"""Checks of a jobs table: columns, types, ranges and fit to the cluster; and the order of jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from skedge.core.errors import ScenarioError

from .cluster import Cluster
from .fields import Maybe, Number, Pair, Rule, ValuesOf
from .job_fields import (
    DATA,
    DEFAULT_TENANT,
    EXTRA_SCHEMA,
    JOB_FIELDS,
    JOB_SCHEMA,
    PS_NEEDS,
    WORKER_NEEDS,
    Floats,
    Ints,
    Kind,
)
from .latency import latency_from
from .value import UTILITY_RULES

UTILITY = tuple(f"utility_{name}" for name in UTILITY_RULES)
"""Columns of a utility, in the order of :class:`~skedge.core.model.value.Sigmoid`."""
_DEFAULTS = {f.name: f.default or 0 for f in JOB_FIELDS if f.row.table == "optional" and f.name in EXTRA_SCHEMA}
_KINDS: dict[Kind, str] = {
    "slots": "servers with slots",
    "resources": "servers with resources",
    "sites": "a cluster that has transfer_cost",
}
"""The kinds of cluster, for messages."""


def numeric(frame: pl.DataFrame, name: str) -> Any:
    """A numeric column in its type, with the default for missing values (``max_lag``: 0 for None)."""
    if name in JOB_SCHEMA:
        return frame[name].to_numpy().astype(_DTYPE[JOB_SCHEMA[name]])
    dtype = _DTYPE[EXTRA_SCHEMA[name]]
    if name not in frame.columns:
        return np.full(len(frame), _DEFAULTS[name], dtype)
    return frame[name].fill_null(_DEFAULTS[name]).to_numpy().astype(dtype)


_DTYPE = {int: np.int64, float: np.float64}


def needs(frame: pl.DataFrame, prefix: str, resources: tuple[str, ...]) -> Floats:
    """Demand for each of `resources`, shape ``(jobs, resources)``."""
    table = np.zeros((len(frame), len(resources)))
    for i, resource in enumerate(resources):
        if prefix + resource in frame.columns:
            table[:, i] = frame[prefix + resource].fill_null(0).to_numpy()
    return table


def data_of(frame: pl.DataFrame, cluster: Cluster) -> Ints:
    """Chunks of each job by site, D_i^r, shape ``(jobs, servers)``; without columns if no job has data at a site."""
    names = {DATA + site: i for i, site in enumerate(cluster.server_ids)}
    columns = [name for name in frame.columns if name in names]
    table = np.zeros((len(frame), len(names) if columns else 0), np.int64)
    for name in columns:
        table[:, names[name]] = frame[name].fill_null(0).to_numpy()
    return table


def tenants_of(frame: pl.DataFrame, cluster: Cluster) -> Ints:
    """The number of each job's tenant; 0 without tenants."""
    if cluster.sharing is None:
        return np.zeros(len(frame), np.int64)
    place = {name: i for i, name in enumerate(cluster.sharing.names)}
    if "tenant" not in frame.columns:
        return np.full(len(frame), place[DEFAULT_TENANT])
    return np.array([place[name] for name in frame["tenant"].fill_null(DEFAULT_TENANT)], np.int64)


def labels_of(frame: pl.DataFrame, column: str) -> tuple[tuple[str, ...], Ints]:
    """The texts of an optional column in order of first appearance, and the number of each job's; missing is empty."""
    if column not in frame.columns:
        return ("",), np.zeros(len(frame), np.int64)
    texts = frame[column].fill_null("")
    names = texts.unique(maintain_order=True)
    numbers = texts.replace_strict(names, pl.Series(range(len(names)), dtype=pl.Int64), return_dtype=pl.Int64)
    return tuple(names), numbers.to_numpy()


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


def checked_table(frame: pl.DataFrame, cluster: Cluster) -> pl.DataFrame:
    """Check `frame` and return it with the right columns and types.

    Raises
    ------
    ScenarioError
        Names the first wrong row of the first check that fails, with its column and value.
    """
    missing = [c for c in JOB_SCHEMA if c not in frame.columns]
    if missing:
        raise ScenarioError(f"jobs: column {missing[0]!r} is missing; needed are {', '.join(JOB_SCHEMA)}")
    kinds = schema_of(frame)
    # types first: on a column of another type the other checks would be errors of polars
    _refuse(frame, [check for column, kind in kinds.items() for check in _type_checks(frame, column, kind)])
    frame = frame.select(pl.col(c).cast(t) for c, t in kinds.items())
    _check_utility_columns(frame)
    _refuse(frame, _table_checks(tuple(frame.columns), cluster.kind))
    return frame


def _type_checks(frame: pl.DataFrame, column: str, kind: Any) -> Iterator[_Check]:
    """Check that the values of a column can be those of its type, and that none loses its fraction."""
    dtype, target = frame.schema[column], pl.DataType.from_python(kind) if isinstance(kind, type) else kind
    # whole numbers within the ranges survive the cast
    if dtype == target or (dtype.is_integer() and target.is_numeric()):
        return
    value, right = pl.col(column), "text" if target == pl.String else "a number"
    if target.is_integer():
        right = "a whole number"
        if dtype.is_float():
            yield _check(value.is_finite() & (value != value.round()), column, right)
    # what the cast turns into null; lists cannot be cast at all
    lost = pl.lit(value=True) if dtype.is_nested() else value.cast(target, strict=False).is_null()
    yield _check(value.is_not_null() & lost, column, right)


@cache
def _table_checks(columns: tuple[str, ...], kind: Kind) -> list[_Check]:
    """The checks of a table with these columns; kept, as a service checks a table for every job."""
    return [
        *_presence_checks(),
        *_value_checks(columns),
        *_utility_checks(columns),
        *_kind_checks(columns, kind),
        *_cross_column_checks(),
    ]


def _presence_checks() -> Iterator[_Check]:
    for column in JOB_SCHEMA:
        yield _check(pl.col(column).is_null(), column, "a value; it is missing")


def _value_checks(columns: Sequence[str]) -> Iterator[_Check]:
    """Check each column by the row of its field."""
    for column in columns:
        rule = next(_number(f.row.check) for f in JOB_FIELDS if f.holds(column))
        if rule is not None:
            yield _check(pl.col(column).is_not_null() & _outside(pl.col(column), rule), column, rule.right)


def _number(rule: Rule) -> Number | None:
    """The rule of a number within `rule`; None if it is not about numbers."""
    while isinstance(rule, Maybe | Pair | ValuesOf):
        rule = rule.rule
    return rule if isinstance(rule, Number) else None


def _outside(column: pl.Expr, rule: Number) -> pl.Expr:
    finite = column.is_finite() | (column == np.inf) if rule.endless else column.is_finite()
    return ~(finite & (column > rule.low if rule.above else column >= rule.low) & (column <= rule.high))


def _kind_checks(columns: Sequence[str], kind: Kind) -> Iterator[_Check]:
    """Reject optional columns of fields that do not apply to this kind of cluster."""
    for f in JOB_FIELDS:
        if f.row.table == "optional" and kind not in f.row.kinds:
            right = f"left out: it goes with {' or '.join(_KINDS[kind] for kind in f.row.kinds)}"
            for column in filter(f.holds, columns):
                yield _check(pl.col(column).is_not_null(), column, right)


def _cross_column_checks() -> Iterator[_Check]:
    """Checks of columns against each other."""
    yield _check(pl.col("minibatch_s") + pl.col("ps_update_s") <= 0, "minibatch_s", "above 0 (with ps_update_s)")
    for kind in ("edge", "cloud"):
        above = pl.col(f"upload_{kind}_lo_s") > pl.col(f"upload_{kind}_hi_s")
        yield _check(above, f"upload_{kind}_lo_s", f"at most upload_{kind}_hi_s")
    yield _check(pl.col("id").is_duplicated(), "id", "unique; it is used twice")


def schema_of(frame: pl.DataFrame) -> dict[str, Any]:
    """The columns of `frame` that describe jobs, in order, and their types."""
    extra = {name: kind for name, kind in EXTRA_SCHEMA.items() if name in frame.columns}
    needs = dict.fromkeys((c for c in frame.columns if c.startswith((WORKER_NEEDS, PS_NEEDS))), pl.Float64)
    data = dict.fromkeys((c for c in frame.columns if c.startswith(DATA)), pl.Int64)
    # a column of nulls says as much as one that is missing
    present = {name: kind for name, kind in (extra | needs | data).items() if frame[name].null_count() < len(frame)}
    return {**JOB_SCHEMA, **present}


def _check_utility_columns(frame: pl.DataFrame) -> None:
    missing = [name for name in UTILITY if name not in frame.columns]
    if 0 < len(missing) < len(UTILITY):
        raise ScenarioError(f"jobs: column {missing[0]!r} is missing; a utility has height, steepness and target")


def _utility_checks(columns: Sequence[str]) -> Iterator[_Check]:
    present = [name for name in UTILITY if name in columns]
    for name, (_, rule) in zip(present, UTILITY_RULES.values(), strict=False):
        column = pl.col(name)
        lacks = pl.any_horizontal(pl.col(present).is_not_null()) & column.is_null()
        yield _check(lacks, name, "a number: a utility has height, steepness and target")
        yield _check(column.is_not_null() & _outside(column, rule), name, rule.right)
    if "internal_mbps" in columns:
        slower = pl.col("internal_mbps") < pl.col("bandwidth_mbps")
        yield _check(slower, "internal_mbps", "at least bandwidth_mbps")


def check_on_slots(frame: pl.DataFrame, cluster: Cluster) -> None:
    """Check that a server has the types of each job; a cloud has every type."""
    columns = ("worker_type", cluster.worker_types), ("ps_type", cluster.ps_types)
    _refuse(
        frame,
        [
            _check(~pl.col(name).is_in(list(types)), name, f"a type that a server has ({', '.join(types) or 'none'})")
            for name, types in columns
            # a cloud alone has every type, and lists none
            if types or cluster.cloud is None
        ],
    )
    _refuse(frame, list(_sharing_checks(frame, cluster)))


def _sharing_checks(frame: pl.DataFrame, cluster: Cluster) -> Iterator[_Check]:
    """Tenants are those of the cluster; without any, neither tenants nor classes mean anything."""
    for name in ("tenant", "priority"):
        if name in frame.columns and cluster.sharing is None:
            yield _check(pl.col(name).is_not_null(), name, "left out: it goes with cluster.sharing")
    if "tenant" in frame.columns and cluster.sharing is not None:
        names = cluster.sharing.names
        wrong = pl.col("tenant").is_not_null() & ~pl.col("tenant").is_in(names)
        yield _check(wrong, "tenant", f"a tenant of cluster.sharing ({', '.join(names)})")


def check_on_resources(frame: pl.DataFrame, cluster: Cluster) -> None:
    """Check that servers have the resources that each job needs."""
    _refuse(frame, list(_needs_checks(frame, cluster)))


def check_at_sites(frame: pl.DataFrame, cluster: Cluster) -> None:
    """Check needs, data and latency cost."""
    _refuse(frame, [*_needs_checks(frame, cluster), *_site_checks(frame, cluster)])
    _check_latency(frame)


def _site_checks(frame: pl.DataFrame, cluster: Cluster) -> Iterator[_Check]:
    """Check that each job gives the location of all its chunks."""
    columns = [c for c in frame.columns if c.startswith(DATA)]
    for column in columns:
        if column.removeprefix(DATA) not in cluster.server_ids:
            have = ", ".join(cluster.server_ids[:5]) + (", ..." if len(cluster.servers) > 5 else "")
            yield _check(pl.col(column).is_not_null(), column, f"for one of the sites ({have})")
    for column in ("upload_edge_hi_s", "upload_cloud_hi_s"):
        yield _check(pl.col(column) > 0, column, "0: at sites data move at once, at the cost of transfer_cost")
    data = pl.sum_horizontal(pl.col(columns).fill_null(0)) if columns else pl.lit(0)
    yield _check(data == 0, "data", "above 0 for some site: there is nothing to train", data)
    yield _check(data != pl.col("chunks"), "chunks", "the sum of its data over the sites")


def _check_latency(frame: pl.DataFrame) -> None:
    """Check that each job at sites has a latency cost."""
    names = [c for c in frame.columns if c.startswith("latency")]
    # row by row: the parameters that a latency cost takes depend on its kind
    for row, fields in enumerate(frame.select("id", *names).iter_rows(named=True)):
        name = fields["id"]
        try:
            cost = latency_from(fields)
        except ScenarioError as error:
            raise ScenarioError(f"jobs[{row}] (id {name!r}): {error}") from error
        if cost is None:
            raise ScenarioError(f"jobs[{row}] (id {name!r}): latency is missing; a job at sites has a latency cost")


def _needs_checks(frame: pl.DataFrame, cluster: Cluster) -> Iterator[_Check]:
    have = ", ".join(cluster.resources)
    for prefix in (WORKER_NEEDS, PS_NEEDS):
        columns = [c for c in frame.columns if c.startswith(prefix)]
        for column in columns:
            if column.removeprefix(prefix) not in cluster.resources:
                yield _check(pl.col(column) > 0, column, f"of a resource that a server has ({have})")
        needs = pl.sum_horizontal(pl.col(columns)) if columns else pl.lit(0.0)
        yield _check(needs <= 0, prefix + "*", f"above 0 for one of {have}", needs)


def _check(wrong: pl.Expr, column: str, right: str, value: pl.Expr | None = None) -> _Check:
    return _Check(wrong, column, right, pl.col(column) if value is None else value)


def _refuse(frame: pl.DataFrame, checks: Sequence[_Check]) -> None:
    """Raise an error for the first wrong row of the first check that fails; all checks are computed in one pass."""
    if frame.is_empty() or not checks:
        return
    failed = frame.select(check.wrong.any().alias(str(i)) for i, check in enumerate(checks)).row(0)
    for check, fails in zip(checks, failed, strict=True):
        if fails:
            row = frame.with_row_index("row").select("row", "id", value=check.value, wrong=check.wrong)
            number, name, value, _ = row.filter(pl.col("wrong")).row(0)
            raise ScenarioError(f"jobs[{number}] (id {name!r}): {check.column} = {value!r}; it must be {check.right}")


def sorted_jobs(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` by (arrival, id); ids that are all whole numbers are ordered as numbers."""
    number = frame["id"].cast(pl.Int64, strict=False)
    # job 10 comes after job 9; one id that is no number makes all of them text
    key = number if number.null_count() == 0 else frame["id"]
    return frame.with_columns(key.alias("_key")).sort("arrival_s", "_key", maintain_order=True).drop("_key")
