"""The values of a table of jobs, as public dumps write them: numbers, exact products, times, durations, states."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import polars as pl

from skedge.core.errors import TraceError
from skedge.traces.table import numbers, refuse

from .mapping import NUMBER, TraceMapping, columns_of, factors

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
"""Units of times that are numbers [s]."""

MISSING = ("", "-", "nan", "none", "null", "n/a", "na", "nat", "unknown", "undefined", "\\n", "<na>", "#n/a")
"""Texts, in lower case, of a value that is not known."""

_NO_TIME = (*MISSING, "-1", "-1.0", str(-(2**63)), "0000-00-00 00:00:00", "0000-00-00", "not set", "not_set")
"""Texts of an unknown time: no trace goes back to -1 s; the long number is the integer of pandas' NaT."""

_ENDLESS = (*MISSING, "unlimited", "infinite", "partition_limit", "invalid")
"""Texts of an unknown duration."""

NO_STATUS, SKIP = "none", "skip"
"""Beside the statuses of a trace: a job without one, and a job to leave out."""

MEANING: Mapping[str, str] = {
    **dict.fromkeys(("completed", "complete", "pass", "passed", "succeeded", "success", "successful"), "passed"),
    **dict.fromkeys(("terminated", "finished", "done", "ok"), "passed"),
    **dict.fromkeys(("failed", "fail", "failure", "error", "timeout", "node_fail", "out_of_memory", "oom"), "failed"),
    **dict.fromkeys(("boot_fail", "launch_failed", "reconfig_fail", "crashed", "oomkilled", "timedout"), "failed"),
    **dict.fromkeys(("cancelled", "canceled", "killed", "preempted", "deadline", "stopped", "evicted"), "killed"),
    **dict.fromkeys(("aborted", "deleted", "interrupted"), "killed"),
    **dict.fromkeys(("running", "pending", "waiting", "queued", "suspended", "requeued", "submitted"), SKIP),
    **dict.fromkeys(("configuring", "completing", "requeue_fed", "requeue_hold", "resizing", "resv_del_hold"), SKIP),
    **dict.fromkeys(("revoked", "signaling", "special_exit", "stage_out", "power_up_node", "update_db"), SKIP),
    **dict.fromkeys(("expediting", "created", "starting", "initializing", "held", "new", "ready"), SKIP),
}
"""Final state of a job by the first word of its status, in lower case; a mapping's `statuses` come first."""

_DECIMALS = 12
"""Decimals of a number that count: a file that was computed in floats has 6.999999999999999 for 7."""

_DATES = (
    *("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M%#z", "%Y-%m-%d"),
    *("%Y%m%d %H%M%S", "%Y%m%d %H%M%S%#z"),
)
_WITH_OFFSET = r" \d.*[+-]\d\d:?(\d\d)?$"

_CLOCKS: Sequence[tuple[str, tuple[int, ...]]] = (
    (r"^(?:(-?\d+)(?:-| days?,? ?\+?))?(\d+):(\d+):(\d+(?:\.\d+)?)$", (86400, 3600, 60, 1)),
    (r"^(\d+):(\d+(?:\.\d+)?)$", (60, 1)),
    (r"^(\d+)-(\d+)(?::(\d+))?$", (86400, 3600, 60)),
    (r"^P(?:(\d+)D)?T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?$", (86400, 3600, 60, 1)),
    (r"^(?:(\d+)d ?)?(?:(\d+)h ?)?(?:(\d+)m(?:in)? ?)?(?:(\d+(?:\.\d+)?)s(?:ec)?)?$", (86400, 3600, 60, 1)),
)
"""Forms of durations, Slurm's first, and the seconds of each group: 1-02:03:04, 03:04, 1-02, PT1H2M, 1h 30min."""


def missing(column: str, texts: Sequence[str] = MISSING) -> pl.Expr:
    """Whether a value of `column` is one of `texts`, which say that it is not known."""
    return pl.col(column).is_null() | pl.col(column).str.to_lowercase().is_in(texts)


def amounts(
    table: pl.DataFrame, path: Path, column: str, texts: Sequence[str] = MISSING, high: float | None = None
) -> pl.Series:
    """`column` as numbers.

    Parameters
    ----------
    table, path, column
        As for :func:`~skedge.traces.table.numbers`.
    texts
        Values, in lower case, that are not known: null in the result.
    high
        The largest number allowed; None: :func:`~skedge.traces.table.numbers` decides.

    Raises
    ------
    TraceError
        Names line, column and value of what is no number.
    """
    return numbers(table, path, column, -math.inf, high=high, unknown=missing(column, texts))


class ExactNumbers(NamedTuple):
    """Exact numbers: whole multiples of 1 / `parts`; null where the value is missing."""

    multiples: pl.Series
    parts: int


def exact_gpus(table: pl.DataFrame, path: Path, mapping: TraceMapping) -> ExactNumbers:
    """The GPUs of each row: of a product, or of the numbers that a pattern finds in a text.

    Raises
    ------
    TraceError
        Names line, column and value of what is no number; or a column with more decimals than 64 bits add up.
    """
    if mapping.gpus_pattern is not None:
        texts = table[mapping.gpus]
        meaning = {text: _sum_of_matches(text, mapping.gpus_pattern) for text in texts.unique()}
        return _exact_numbers(texts, meaning, path, mapping.gpus)
    names = columns_of(mapping.gpus)
    for name in names:
        amounts(table, path, name)  # refuses what is no number
    columns = [pl.when(~missing(name)).then(pl.col(name)).alias(name) for name in names]
    texts = table.select("_line", text=pl.concat_str(columns or [pl.lit("")], separator=_BETWEEN))["text"]
    # in fractions, as 0.1 x 30 GPUs are 3 and not 3.0000000000000004; few rows differ, so each combination is computed
    # once
    meaning = {text: _product_of(mapping.gpus, text) for text in texts.unique() if text is not None}
    return _exact_numbers(texts, meaning, path, mapping.gpus)


_BETWEEN = "\x1f"


def _product_of(text: str, values: str) -> Fraction | None:
    """The product `text` with the `values` of its columns; None if it divides by 0."""
    operands = iter(values.split(_BETWEEN))
    result = Fraction(1)
    for operator, factor in factors(text):
        value = Fraction(factor) if NUMBER(factor) else round(Fraction(next(operands)), _DECIMALS)
        if operator == "/" and not value:
            return None
        result = result / value if operator == "/" else result * value
    return result


def _sum_of_matches(text: str | None, patterns: Sequence[str]) -> Fraction | None:
    """The sum of the numbers that the first pattern that fits finds; None if none fits."""
    for pattern in patterns:
        if matches := [match[1] for match in re.finditer(pattern, text or "") if match[1]]:
            return sum((Fraction(match) for match in matches), Fraction())
    return None


def _exact_numbers(texts: pl.Series, meaning: Mapping[str, Fraction | None], path: Path, column: str) -> ExactNumbers:
    values = {text: value for text, value in meaning.items() if value is not None}
    # a common denominator, so that the parts of a job add up exactly, as whole numbers
    parts = math.lcm(*(value.denominator for value in values.values()))
    numerators = {text: int(value * parts) for text, value in values.items()}
    # even if all rows were parts of one job, the sum must fit into 64 bits
    if max(map(abs, numerators.values()), default=0) * len(texts) >= 2**62:
        raise TraceError(f"{path}: column {column}: its numbers have too many decimals to be added up")
    kind = pl.Int64
    multiples = (
        texts.replace_strict(numerators, default=None, return_dtype=kind)
        if numerators
        else pl.Series([None], dtype=kind)
    )
    return ExactNumbers(multiples if numerators else multiples.new_from_index(0, len(texts)), parts)


def as_floats(exact: str, parts: int) -> pl.Expr:
    """The column of multiples `exact` as floats; whole numbers stay whole."""
    value = pl.col(exact)
    integers = (value // parts).cast(pl.Float64)
    return pl.when(value % parts == 0).then(integers).otherwise(value.cast(pl.Float64) / parts)


def durations(table: pl.DataFrame, path: Path, text: str) -> pl.Series:
    """A product of columns and numbers in seconds; null where a value is missing. Columns may have times of a clock."""
    return _product(table, text, lambda column: _spans(table, path, column))


def sizes(table: pl.DataFrame, path: Path, text: str) -> pl.Series:
    """A product of columns and numbers in MB; null where a value is missing."""
    return _product(table, text, lambda column: amounts(table, path, column))


def _product(table: pl.DataFrame, text: str, values: Callable[[str], pl.Series]) -> pl.Series:
    """The product that `text` states, of numbers and of the `values` of columns."""
    value = pl.repeat(1.0, len(table), eager=True)
    for operator, factor in factors(text):
        by = float(factor) if NUMBER(factor) else values(factor)
        value = value / by if operator == "/" else value * by
    return value


def _spans(table: pl.DataFrame, path: Path, column: str) -> pl.Series:
    """`column`, numbers or times such as 1-02:03:04 or 1h30m, in seconds."""
    unread = ~missing(column, _ENDLESS) & ~is_number(column)
    if not table.select(unread.any()).item():
        return amounts(table, path, column, _ENDLESS)
    # the first form that fits: 03:04 is minutes and seconds, as Slurm has it
    seconds = table.select(pl.coalesce(*(_clock(column, form, lengths) for form, lengths in _CLOCKS))).to_series()
    right = "a number, or a duration like 02:03:04 or 1-02:03:04"
    refuse(table, unread & pl.lit(seconds.is_null()), path, column, right)
    read = table.with_columns(pl.when(unread).then(seconds.cast(pl.String)).otherwise(pl.col(column)).alias(column))
    return amounts(read, path, column, _ENDLESS)


def _clock(column: str, form: str, lengths: Sequence[int]) -> pl.Expr:
    fits = pl.col(column).str.contains(form)
    groups = (pl.col(column).str.extract(form, i + 1).cast(pl.Float64).fill_null(0) for i in range(len(lengths)))
    return pl.when(fits).then(sum((g * n for g, n in zip(groups, lengths, strict=True)), pl.lit(0.0)))


def is_number(column: str) -> pl.Expr:
    """Whether a value is a number."""
    return pl.col(column).cast(pl.Float64, strict=False).is_not_null()


def are_numbers(table: pl.DataFrame, column: str, form: str) -> bool:
    """Whether the times in `column` are numbers, by the `time` of a mapping, or as most of them are."""
    if form != "auto":
        return form in UNITS
    number, stated = is_number(column), ~missing(column, _NO_TIME)
    # by majority: then an error names the few values that are otherwise, not the many
    return bool(table.select((number & stated).sum() * 2 >= stated.sum()).item())


def times(table: pl.DataFrame, path: Path, column: str, form: str) -> pl.Series:
    """`column` as seconds since some instant; null where the value is missing.

    Parameters
    ----------
    table, path, column
        As for :func:`~skedge.traces.table.numbers`.
    form
        The `time` of a mapping: ``auto``, ``iso``, a unit of :data:`UNITS`, or a format of ``strptime``.

    Raises
    ------
    TraceError
        Names line, column and value of what is no time; or where only some times have an offset from UTC.
    """
    if are_numbers(table, column, form):
        return amounts(table, path, column, _NO_TIME, 2.0**63) * UNITS.get(form, 1.0)
    iso = form in ("auto", "iso")
    # the year 9999 stands for a time that has not come
    unknown = table.select(missing(column, _NO_TIME) | pl.col(column).str.starts_with("9999-")).to_series()
    texts = _as_iso(table[column]) if iso else table[column]
    seconds = _epochs(texts, _DATES if iso else (form,))
    example = "a time like 2020-04-01 08:05:39" if iso else f"a time in the format {form}"
    right = f"{example}; `time` states the format or the unit ({', '.join(UNITS)})"
    refuse(table, pl.lit(~unknown & seconds.is_null()), path, column, right)
    if iso:
        _refuse_mixed(table, path, column, texts.str.contains(_WITH_OFFSET), unknown)
    return pl.select(pl.when(~unknown).then(seconds)).to_series()


def _refuse_mixed(table: pl.DataFrame, path: Path, column: str, offset: pl.Series, unknown: pl.Series) -> None:
    # a time without an offset is local, of a zone that is not known, and cannot be ordered among the others
    offsets = offset.filter(~unknown)
    if offsets.any() and not offsets.all():
        right = "a time with its offset from UTC, as other rows have it"
        refuse(table, pl.lit(~offset & ~unknown), path, column, right)


def _as_iso(texts: pl.Series) -> pl.Series:
    # one form out of many: slashes, T before the time, Z or UTC for the offset, a comma before fractions
    dashes = texts.str.replace(r"^(\d{4})/(\d{1,2})/(\d{1,2})", "${1}-${2}-${3}")
    spaces = dashes.str.replace(r"(\d)[Tt](\d)", "${1} ${2}")
    return spaces.str.replace("([Zz]| ?UTC| ?GMT)$", "+00:00").str.replace(r",(\d+)$", ".${1}")


def _epochs(texts: pl.Series, forms: Sequence[str]) -> pl.Series:
    """Seconds since 1970 by the first of `forms` that fits; null if none does."""
    seconds = pl.repeat(None, len(texts), dtype=pl.Float64, eager=True)
    for form in forms:
        stamp = texts.str.to_datetime(form, strict=False, time_unit="us")
        seconds = seconds.fill_null(stamp.dt.epoch("us") / 1e6)
        if not seconds.null_count():
            break
    return seconds


def states(table: pl.DataFrame, path: Path, mapping: TraceMapping) -> pl.Series:
    """The final states, :data:`SKIP` of a job that has none yet, and :data:`NO_STATUS` where it is missing."""
    if mapping.status is None:
        return pl.repeat("passed", len(table), dtype=pl.String, eager=True)
    column = mapping.status
    # the first word: Slurm writes `CANCELLED by 1234`, and a column that is too narrow ends in +
    word = pl.col(column).str.to_lowercase().str.extract("^([^ +]*)")
    stated = pl.col(column).replace_strict(mapping.statuses, default=None, return_dtype=pl.String)
    usual = word.replace_strict(MEANING, default=mapping.statuses.get("*"), return_dtype=pl.String)
    # the mapping's own words first, then the usual ones or its `*`; a job without a status is what is left
    status = pl.coalesce(stated, usual, pl.when(missing(column)).then(pl.lit(NO_STATUS)))
    right = "a status that is known; `statuses` of the mapping says what it means: passed, failed, killed or skip"
    refuse(table, status.is_null(), path, column, right)
    return table.select(status).to_series()
