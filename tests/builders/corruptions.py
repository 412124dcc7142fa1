"""A fuzzer of the verifier: it changes records at random, and the verifier must detect the change.

A corruption is one mutation of one table of a record, or two of them. A corruption that `skedge verify` does not
detect is either *equivalent* to the record (:func:`equivalent` gives the reason) or shows that a rule is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.random import Generator

from skedge.core.record.schedule import Schedule
from skedge.recorded_run import Run

TIMES = ("start", "compute_from", "end", "time", "from", "to", "made_at", "broken_at")
"""Time columns that are shifted together in a row."""

_FIGURES = 12
"""Significant digits for comparing numbers: sums in another order differ by less."""

JOB_TIMES = ("arrival", "admitted", "first_start", "completion", "jct")
"""Time columns of the jobs table."""

_STEPS = (1, -1, 1_000, -1_000_000, 1_000_000, 60_000_000, -3_600_000_000)
"""Amounts added to a time [µs]."""


@dataclass(frozen=True)
class Corruption:
    """A changed record.

    Attributes
    ----------
    kinds
        (table, column, mutation) of each change; the column is ``*`` where a row is changed as a whole.
    text
        Description of the changes.
    """

    kinds: tuple[tuple[str, str, str], ...]
    text: str
    schedule: Schedule


@dataclass
class Survivors:
    """Corruptions that the verifier did not detect, by kind of change.

    Attributes
    ----------
    tried
        Number of corruptions that changed the record.
    detected
        Number of those that the verifier detected, by rule.
    equivalent
        Number of equivalent survivors, by reason.
    open
        Other survivors, by kind of change: their number, an example, and the metrics that it changes.
    """

    tried: int = 0
    detected: Counter[str] = field(default_factory=Counter)
    equivalent: Counter[str] = field(default_factory=Counter)
    open: dict[tuple[tuple[str, str, str], ...], tuple[int, str, tuple[str, ...]]] = field(default_factory=dict)


def fuzz(run: Run, rng: Generator, count: int, *, pairs: float = 0.3) -> Survivors:
    """Corrupt the record of `run` `count` times, a fraction `pairs` of them with two changes, and verify each."""
    survivors = Survivors()
    while survivors.tried < count:
        corrupted = corrupt(run, rng, 1 + int(rng.random() < pairs))
        if corrupted is None:
            continue
        survivors.tried += 1
        changed = replace(run, schedule=corrupted.schedule)
        violations = changed.verify(limit=1)
        if violations:
            survivors.detected.update({violations[0].rule})
            continue
        reason = equivalent(run, corrupted.schedule)
        if reason is not None:
            survivors.equivalent.update({reason})
            continue
        times, text, differ = survivors.open.get(corrupted.kinds, (0, corrupted.text, ()))
        differ = differ or changed_metrics(run.metrics, changed.metrics)
        survivors.open[corrupted.kinds] = times + 1, text, differ
    return survivors


def changed_metrics(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the metrics that differ by more than rounding."""
    return tuple(name for name in before if not _same(before[name], after[name]))


def _same(a: float | None, b: float | None) -> bool:
    return a == b or (a is not None and b is not None and bool(np.isclose(a, b, rtol=1e-6, atol=1e-12)))


def equivalent(run: Run, changed: Schedule) -> str | None:
    """Why `changed` is equivalent to the record of `run` or as valid as it; None if neither holds.

    An equally valid record is not what the policy did: ``skedge verify --replay`` detects it.
    """
    slot = run.scenario.physics.slot
    changed_tables, tables = changed.tables(), run.schedule.tables()
    if run.live and all(_near(changed_tables[name], tables[name], run.tolerance) for name in tables):
        return "as good: times of a live record within its tolerance"
    for reason, read in _READINGS.items():
        if all(
            _rows(name, read(name, changed_tables[name]), slot).equals(_rows(name, read(name, tables[name]), slot))
            for name in tables
        ):
            return reason
    return None


def _near(a: pl.DataFrame, b: pl.DataFrame, tolerance: int) -> bool:
    """Whether two tables differ only in times, by at most `tolerance` µs, and in free text."""
    times = [name for name in a.columns if name in (*TIMES, *JOB_TIMES)]
    words = a.drop(*times, "reason", strict=False), b.drop(*times, "reason", strict=False)
    return words[0].equals(words[1]) and all(_close(a[name], b[name], tolerance) for name in times)


def _close(a: pl.Series, b: pl.Series, tolerance: int) -> bool:
    difference = (a - b).abs().to_numpy()
    return a.is_null().equals(b.is_null()) and bool((np.nan_to_num(difference.astype(float)) <= tolerance).all())


def _rows(name: str, table: pl.DataFrame, slot: int) -> pl.DataFrame:
    """The table in normal form: rows sorted, no free text, sums rounded; prices slot by slot."""
    words = table.drop("reason", strict=False).with_columns(cs.float().round_sig_figs(_FIGURES))
    if name == "prices" and len(words):
        steps = pl.int_ranges(pl.col("from"), pl.col("to"), slot)
        words = words.with_columns(at=steps).drop("from", "to").explode("at")
    return words.sort(words.columns, nulls_last=True)


def _without_ps(name: str, table: pl.DataFrame) -> pl.DataFrame:
    return table.drop("server", "slot") if name == "ps" else table


def _without_values(name: str, table: pl.DataFrame) -> pl.DataFrame:
    is_dispatch = pl.col("verb").cast(pl.String).is_in(["dispatch", "redispatch"])
    return table.with_columns(pl.when(is_dispatch).then("value")) if name == "decisions" else table


def _without_plans(name: str, table: pl.DataFrame) -> pl.DataFrame:
    return table.drop("from", "to", "workers", "ps", "broken_at") if name == "plans" else table


def _without_postponed(name: str, table: pl.DataFrame) -> pl.DataFrame:
    return table.filter(pl.col("verb").cast(pl.String) != "postpone") if name == "decisions" else table


def _without_replaced(name: str, table: pl.DataFrame) -> pl.DataFrame:
    if name != "decisions":
        return table
    verb = pl.col("verb").cast(pl.String)
    is_allocation = verb.str.starts_with("allocate") | (verb == "assign_ps")
    reallocated = verb.str.starts_with("allocate").any().over("job", "time")
    table = table.filter(~((verb == "suspend") & reallocated))
    table = table.with_columns(pl.when(verb != "upload").then("workers"))
    table = table.filter((verb != "upload") | pl.struct("job", "time", "verb", "server").is_first_distinct())
    delivered = verb.str.starts_with("allocate").any().over("job", "time", "server")
    table = table.filter(~((verb == "upload") & delivered))
    return table.filter(~is_allocation | pl.struct("job", "time", "verb", "server").is_last_distinct())


def _without_all(name: str, table: pl.DataFrame) -> pl.DataFrame:
    for reading in (_without_ps, _without_values, _without_plans, _without_postponed, _without_replaced):
        table = reading(name, table)
    return table


_READINGS: dict[str, Callable[[str, pl.DataFrame], pl.DataFrame]] = {
    "the same: rows in another order, the words of a reason": lambda _, table: table,
    "as good: another free PS, which no policy's record has to justify": _without_ps,
    "as good: a value that a policy found and nothing is computed of": _without_values,
    "as good: a plan that its job keeps all the same": _without_plans,
    "as good: a postponement, which nothing follows from": _without_postponed,
    "as good: an order that another of its instant replaces, or that brings what is there": _without_replaced,
    "as good: several of these": _without_all,
}
"""Reasons for equivalence, each with the transformation under which the two records are equal."""


# -- mutations -------------------------------------------------------------------------------------------------------


def corrupt(run: Run, rng: Generator, changes: int = 1) -> Corruption | None:
    """Change the record `changes` times; None if that had no effect."""
    schedule, kinds, texts = run.schedule, [], []
    for _ in range(changes):
        name = _table(schedule, rng)
        kind = str(rng.choice(list(_MUTATIONS)))
        mutated = _MUTATIONS[kind](getattr(schedule, name), rng, run)
        if mutated is None:
            return None
        column, words, table = mutated
        schedule = replace(schedule, **{name: table})
        kinds.append((name, column, kind))
        texts.append(f"{name}: {words}")
    unchanged = all(
        a.equals(b) for a, b in zip(run.schedule.tables().values(), schedule.tables().values(), strict=True)
    )
    return None if unchanged else Corruption(tuple(sorted(kinds)), "; ".join(texts), schedule)


def _table(schedule: Schedule, rng: Generator) -> str:
    return str(rng.choice([name for name, table in schedule.tables().items() if len(table)]))


Mutated = tuple[str, str, pl.DataFrame] | None


def _row(table: pl.DataFrame, rng: Generator) -> int:
    return int(rng.integers(len(table)))


def _with_values(table: pl.DataFrame, row: int, values: Mapping[str, Any]) -> pl.DataFrame:
    """`table` with these values in one row."""
    is_row = pl.int_range(pl.len()) == row
    return table.with_columns(
        pl.when(is_row).then(pl.lit(value, dtype=_plain(table.schema[name]))).otherwise(_text(name, table.schema))
        .cast(table.schema[name]).alias(name)
        for name, value in values.items()
    )  # fmt: skip


def _plain(dtype: pl.DataType) -> pl.DataType:
    return pl.String() if dtype in (pl.Categorical, pl.Enum) else dtype


def _text(name: str, schema: pl.Schema) -> pl.Expr:
    return pl.col(name).cast(_plain(schema[name]))


def _change(table: pl.DataFrame, rng: Generator, run: Run) -> Mutated:
    """Change one value."""
    column, row = str(rng.choice(table.columns)), _row(table, rng)
    value, dtype = table[column][row], table.schema[column]
    changed = _other_value(column, value, dtype, rng, run)
    if changed == value:
        return None
    return column, f"{column}[{row}]: {value} -> {changed}", _with_values(table, row, {column: changed})


def _other_value(column: str, value: Any, dtype: pl.DataType, rng: Generator, run: Run) -> Any:
    if dtype == pl.Boolean:
        return not value
    if isinstance(dtype, pl.Enum):
        return str(rng.choice(dtype.categories.to_list()))
    if dtype in (pl.String, pl.Categorical):
        return str(rng.choice([*run.scenario.cluster.server_ids, "", "other"]))
    if dtype.is_float():
        base = 1.0 if value is None else value
        return float(rng.choice([base * 2, base + 1, 0.0, -base, base * (1 + 1e-5), base * 0.5]))
    if column in (*TIMES, *JOB_TIMES):
        return int((value or 0) + rng.choice(_STEPS))
    return int((0 if value is None else value) + rng.choice([1, -1, 2, 7, 1000]))


def _null(table: pl.DataFrame, rng: Generator, _: Run) -> Mutated:
    """Replace one value by null or NaN."""
    column, row = str(rng.choice(table.columns)), _row(table, rng)
    if table[column][row] is None:
        return None
    value = float("nan") if table.schema[column].is_float() and rng.random() < 0.5 else None
    return column, f"{column}[{row}] -> {value}", _with_values(table, row, {column: value})


def _swap(table: pl.DataFrame, rng: Generator, _: Run) -> Mutated:
    """Swap the values of two rows in one column."""
    column, a, b = str(rng.choice(table.columns)), _row(table, rng), _row(table, rng)
    if table[column][a] == table[column][b]:
        return None
    swapped = _with_values(_with_values(table, a, {column: table[column][b]}), b, {column: table[column][a]})
    return column, f"{column}[{a}] <-> [{b}]", swapped


def _drop(table: pl.DataFrame, rng: Generator, _: Run) -> Mutated:
    row = _row(table, rng)
    return "*", f"drop [{row}] {table.row(row)}", pl.concat([table[:row], table[row + 1 :]])


def _duplicate(table: pl.DataFrame, rng: Generator, _: Run) -> Mutated:
    row = _row(table, rng)
    return "*", f"twice [{row}] {table.row(row)}", pl.concat([table[: row + 1], table[row:]])


def _move(table: pl.DataFrame, rng: Generator, _: Run) -> Mutated:
    """Swap two rows."""
    a, b = _row(table, rng), _row(table, rng)
    order = list(range(len(table)))
    order[a], order[b] = b, a
    return "*", f"rows {a} and {b} exchanged", table[order]


def _shift(table: pl.DataFrame, rng: Generator, _: Run) -> Mutated:
    """Shift all times of a row."""
    names = [name for name in TIMES if name in table.columns]
    row, step = _row(table, rng), int(rng.choice(_STEPS))
    values = {name: table[name][row] + step for name in names if table[name][row] is not None}
    if not values:
        return None
    return "*", f"[{row}] {table.row(row)} by {step} µs", _with_values(table, row, values)


def _relabel(table: pl.DataFrame, rng: Generator, run: Run) -> Mutated:
    """Assign a row to another job or another server."""
    column = str(rng.choice([name for name in ("job", "server", "to_server") if name in table.columns]))
    row = _row(table, rng)
    value: Any
    if column == "job":
        value = int(rng.integers(len(run.scenario.jobs)))
    else:
        value = str(rng.choice(run.scenario.cluster.server_ids))
    if value == table[column][row]:
        return None
    values: dict[str, Any] = {column: value}
    if "lane" in table.columns and column == "server" and table["lane"][row] is not None:
        lanes = np.flatnonzero(run.scenario.cluster.lane_server == run.scenario.cluster.server_ids.index(value))
        values["lane"] = int(rng.choice(lanes)) if len(lanes) else None
    return column, f"{column}[{row}] {table.row(row)} -> {values}", _with_values(table, row, values)


def _cut(table: pl.DataFrame, rng: Generator, _: Run) -> Mutated:
    """Split a row into two consecutive ones."""
    start, end = ("from", "to") if "from" in table.columns else ("start", "end")
    if start not in table.columns:
        return None
    row = _row(table, rng)
    a, b = table[start][row], table[end][row]
    if b is None or b - a < 2:
        return None
    cut_us = int(rng.integers(a + 1, b))
    first, second = {end: cut_us}, {start: cut_us}
    if "compute_from" in table.columns:
        cut_us = max(cut_us, min(table["compute_from"][row], b - 1))
        part = (cut_us - table["compute_from"][row]) / max(b - table["compute_from"][row], 1)
        first = {end: cut_us, "work": table["work"][row] * part, "preempted": True}
        second = {start: cut_us, "compute_from": cut_us, "work": table["work"][row] * (1 - part)}
    if "chunks" in table.columns and table["chunks"][row] > 1:
        first, second = _halves(table, row)
    two = pl.concat([_with_values(table[row : row + 1], 0, first), _with_values(table[row : row + 1], 0, second)])
    return "*", f"[{row}] {table.row(row)} in two at {cut_us}", pl.concat([table[:row], two, table[row + 1 :]])


def _halves(table: pl.DataFrame, row: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split an upload into two at the same time."""
    chunks, mb = table["chunks"][row], table["mb"][row]
    n = chunks // 2
    return {"chunks": n, "mb": mb * n / chunks}, {"chunks": chunks - n, "mb": mb * (chunks - n) / chunks}


def _merge(table: pl.DataFrame, rng: Generator, _: Run) -> Mutated:
    """Merge two rows of a job into one, from the start of the first to the end of the last."""
    start, end = ("from", "to") if "from" in table.columns else ("start", "end")
    if start not in table.columns or "job" not in table.columns:
        return None
    row = _row(table, rng)
    later = [i for i in range(row + 1, len(table)) if table["job"][i] == table["job"][row]]
    if not later or table[end][row] is None:
        return None
    second = later[0]
    values: dict[str, Any] = {start: min(table[start][row], table[start][second])}
    values[end] = max(table[end][row], table[end][second])
    if "work" in table.columns:
        values |= {"work": table["work"][row] + table["work"][second], "preempted": table["preempted"][second]}
    if "chunks" in table.columns:
        values = {
            "chunks": table["chunks"][row] + table["chunks"][second],
            "mb": table["mb"][row] + table["mb"][second],
        }
    row_of_both = _with_values(table, row, values)
    return (
        "*",
        f"[{row}] and [{second}] of job {table['job'][row]} as one",
        pl.concat([row_of_both[:second], row_of_both[second + 1 :]]),
    )


def _invent(table: pl.DataFrame, rng: Generator, run: Run) -> Mutated:
    """Add a row derived from an existing one."""
    row = _row(table, rng)
    longer = pl.concat([table, table[row : row + 1]])
    changed = _CHANGES[int(rng.integers(len(_CHANGES)))](longer[len(table) :], rng, run)
    if changed is None:
        return None
    column, words, added_row = changed
    return column, f"a row like [{row}] {table.row(row)}, {words}", pl.concat([table, added_row])


def _forget(table: pl.DataFrame, rng: Generator, _: Run) -> Mutated:
    """Drop all rows of a job."""
    if "job" not in table.columns:
        return None
    job = table["job"][_row(table, rng)]
    return "*", f"all rows of job {job} dropped", table.filter(pl.col("job") != job)


_CHANGES: tuple[Callable[[pl.DataFrame, Generator, Run], Mutated], ...] = (_change, _shift, _relabel)

_MUTATIONS: dict[str, Callable[[pl.DataFrame, Generator, Run], Mutated]] = {
    "change": _change, "null": _null, "swap": _swap, "drop": _drop, "duplicate": _duplicate, "move": _move,
    "shift": _shift, "relabel": _relabel, "cut": _cut, "merge": _merge, "invent": _invent, "forget": _forget,
}  # fmt: skip


def survivor_lines(survivors: Survivors) -> Iterator[str]:
    """The open survivors, one line each, most frequent first."""
    for kinds, (times, text, differ) in sorted(survivors.open.items(), key=lambda item: -item[1][0]):
        place = " + ".join(f"{table}.{column} {kind}" for table, column, kind in kinds)
        yield f"{times:5d}  {place}  [{', '.join(differ) or 'no metric'}]  e.g. {text}"
