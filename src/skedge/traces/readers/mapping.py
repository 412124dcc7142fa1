"""The form of a mapping: which columns of a table of jobs hold what a trace needs."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Column = Annotated[str, Field(min_length=1)]


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Columns = Annotated[
    list[Column], BeforeValidator(_as_list, json_schema_input_type=Column | list[Column]), Field(min_length=1)
]
"""One text, or several."""


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


class JoinedTable(_Form):
    """A second table, whose columns are named ``table.column`` in the mapping."""

    path: str = Field(description="path from the trace's folder")
    by: list[Column] = Field(min_length=1, description="columns that are equal in both tables")
    columns: list[Column] | None = Field(None, description="names of the columns of a file without a header")


class TraceMapping(_Form):
    """The columns of a table of jobs, comma-separated or the like, that hold what a trace needs.

    `gpus`, `duration`, `interarrival` and `data_mb` may be products of columns and numbers, such as ``plan_gpu / 100``
    or ``run_ms / 1000``.
    """

    arrival: Column | None = Field(None, description="time of submission")
    interarrival: Column | None = Field(None, description="instead of arrival: time since the row before's submission")
    duration: Column | None = Field(None, description="running time [s]; where it is missing, from start to end")
    start: Column | None = None
    end: Column | None = None
    gpus: Column = Field(description="GPUs of the job; jobs with 0 are left out and counted")
    gpus_pattern: Columns | None = Field(
        None, description="regular expressions; all that the first group of the first that fits finds is added up"
    )
    unit: Column = Field("GPU", description="what gpus counts, for a trace of other devices: one of them")
    id: Column | None = Field(None, description="name of the job, unique; default: the line")
    user: Column | None = Field(None, description="who submitted the job; kept by the jobs that are made")
    group: Column | None = Field(None, description="virtual cluster or class; default: the user")
    gpu_type: Column | None = Field(None, description="GPU that the job asked for; kept by the jobs that are made")
    tenant: Column | None = Field(None, description="tenant of cluster.sharing; kept by the jobs that are made")
    priority: Column | None = Field(None, description="class in cluster.sharing, a whole number, higher goes first")
    data_mb: Column | None = Field(None, description="size of the job's data [MB]; where missing, it is drawn")
    status: Column | None = Field(None, description="final state; default: all jobs passed")
    statuses: dict[str, Literal["passed", "failed", "killed", "skip"]] = Field(
        {}, description="meaning of a status; '*': of all others"
    )
    time: str = Field("auto", description="s, ms, us, ns, min, h, d, iso, or a format such as %d/%m/%Y %H:%M")
    where: dict[str, str | list[str]] = Field({}, description="rows to take: value or values by column")
    parts: Column | None = Field(None, description="instead of id: rows of one name are parts of one job")
    attempts: Column | None = Field(
        None, description="instead of id: rows of one name are attempts of one job, one after the other"
    )
    components: str | None = Field(
        None, description="regular expression of what is cut off a name to get that of the job whose part the row is"
    )
    steps: str | None = Field(
        None, description="regular expression of names of rows that are steps of a job with a row of its own"
    )
    instead: dict[Column, Columns] = Field({}, description="columns to take where the file lacks the one named")
    separator: str = Field(",", min_length=1, max_length=1)
    columns: list[Column] | None = Field(None, description="names of the columns of a file without a header")
    join: dict[str, JoinedTable] = {}

    @model_validator(mode="after")
    def _check_complete(self) -> TraceMapping:
        if (self.arrival is None) == (self.interarrival is None):
            raise ValueError("it must have either arrival, or interarrival")
        if self.interarrival is not None and not columns_of(self.interarrival):
            raise ValueError(f"interarrival {self.interarrival!r} names no column")
        if self.duration is None and self.start is None and self.end is None:
            raise ValueError("it must have either duration, or start and end")
        if (self.start is None) != (self.end is None):
            raise ValueError("start and end go together")
        if sum(name is not None for name in (self.id, self.parts, self.attempts)) > 1:
            two = [name for name in ("id", "parts", "attempts") if getattr(self, name) is not None]
            raise ValueError(f"{two[0]} does not go with {two[1]}, which names the jobs")
        if (self.steps or self.components) and self.name is None:
            raise ValueError("steps and components go with id, parts or attempts, which names the rows")
        if self.statuses and self.status is None:
            raise ValueError("statuses goes with status, the column that has them")
        for pattern in self.gpus_pattern or ():
            _check_pattern("gpus_pattern", pattern, 1)
        for field in _PRODUCTS:
            if any(operator == "/" and _is_zero(factor) for operator, factor in factors(getattr(self, field) or "")):
                raise ValueError(f"{field} {getattr(self, field)!r} divides by 0")
        for field in ("steps", "components"):
            _check_pattern(field, getattr(self, field) or "", 0)
        return self

    @property
    def name(self) -> str | None:
        """The column that names the rows."""
        return self.parts or self.attempts or self.id

    def for_columns(self, columns: Collection[str]) -> TraceMapping:
        """The mapping for a file with these columns: `instead` of those that it lacks; either a duration or a span."""
        replacement = {
            column: next((alternative for alternative in alternatives if alternative in columns), column)
            for column, alternatives in self.instead.items()
            if column not in columns
        }
        names = {field: replacement[old] for field in _COLUMNS if (old := getattr(self, field)) in replacement}
        fitted = self.model_copy(update=names)
        has_duration = fitted.duration is not None and set(columns_of(fitted.duration)) <= set(columns)
        has_span = fitted.start in columns and fitted.end in columns
        # a mapping may name both, for files of either kind: what the file lacks is dropped, or it would be refused as
        # missing
        if has_duration and not has_span:
            return fitted.model_copy(update={"start": None, "end": None})
        return fitted.model_copy(update={"duration": None}) if has_span and not has_duration else fitted

    def used_columns(self) -> list[str]:
        """The names that it uses as columns."""
        single = [getattr(self, field) for field in _COLUMNS if field not in _PRODUCTS]
        products = [name for field in _PRODUCTS if (text := getattr(self, field)) for name in columns_of(text)]
        return list(dict.fromkeys([*(name for name in single if name), *self.where, *products]))


_PRODUCTS = ("gpus", "duration", "interarrival", "data_mb")
_COLUMNS = (
    *("arrival", "start", "end", "id", "parts", "attempts"),
    *("user", "group", "gpu_type", "tenant", "priority", "status", *_PRODUCTS),
)
"""Fields that name columns."""


def _check_pattern(field: str, pattern: str, least: int) -> None:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"{field} {pattern!r} is not a regular expression: {error}") from None
    if groups < least:
        raise ValueError(f"{field} {pattern!r} has no group in brackets for the number of GPUs")


NUMBER = re.compile(r"[0-9.]+").fullmatch
"""Whether a factor is a number, and no column."""


def factors(text: str) -> Sequence[tuple[str, str]]:
    """The factors of a product, each with ``*`` or ``/`` before it."""
    # with a * in front the first factor is like the others
    return [(operator, factor.strip()) for operator, factor in re.findall(r"([*/])([^*/]+)", f"*{text}")]


def _is_zero(factor: str) -> bool:
    return bool(NUMBER(factor)) and float(factor) == 0


def columns_of(text: str) -> list[str]:
    """The columns in a product."""
    return [factor for _, factor in factors(text) if not NUMBER(factor)]
