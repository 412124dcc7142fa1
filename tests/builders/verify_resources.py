"""Planted violations on servers with resources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import polars as pl

from skedge.core.record.schedule import Schedule
from skedge.recorded_run import Run
from skedge.scenario.file import default_scenario
from skedge.simulate import run

HOUR = 3_600_000_000


Change = Callable[[Schedule], Schedule]


@cache
def done(policy: str = "pdors") -> Run:
    return run(default_scenario("s4", seed=1), policy)


def edit(table: str, where: pl.Expr, **columns: Any) -> Change:
    """The first row that satisfies `where`, with these columns set."""

    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table)
        row = frame.with_row_index("_row").filter(where)["_row"][0]
        at = pl.int_range(pl.len()) == row
        new = frame.with_columns(
            pl.when(at).then(value if isinstance(value, pl.Expr) else pl.lit(value)).otherwise(pl.col(name))
            .cast(frame.schema[name]).alias(name)
            for name, value in columns.items()
        )  # fmt: skip
        return replace(s, **{table: new})

    return change


def drop(table: str, where: pl.Expr) -> Change:
    """Without the first row that satisfies `where`."""

    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table)
        row = frame.with_row_index("_row").filter(where)["_row"][0]
        return replace(s, **{table: frame.filter(pl.int_range(pl.len()) != row)})

    return change


@dataclass(frozen=True)
class Planted:
    rule: str
    what: str
    change: Change


def sensitive(s: Schedule) -> pl.Expr:
    """The last row of the plan that loses most by an hour more."""
    utility, ends = done().scenario.jobs.utility, s.plans.group_by("job").agg(pl.col("to").max()).rows()
    loss = {job: utility[job](end / HOUR) - utility[job](end / HOUR + 1) for job, end in ends}  # type: ignore[misc]
    return (pl.col("job") == max(loss, key=lambda job: loss[job])) & (pl.col("to") == pl.col("to").max().over("job"))


ANY, TO = pl.lit(value=True), pl.col("to")


LAST = pl.col("end") == pl.col("end").max().over("job")


LATER = pl.col("made_at") > 0


DONE = pl.col("completion") > HOUR


RESERVED = pl.col("verb") == "reserve"


EARLY = pl.col("start") >= 5 * HOUR


PLANTED = [
    Planted("M8", "(3): a worker did less", edit("runs", ANY, work=pl.col("work") * 0.9)),
    Planted("M8", "(3): a run less", drop("runs", ANY)),
    Planted("M9", "(6): complete before its workers stop", edit("jobs", DONE, completion=pl.col("completion") - HOUR)),
    Planted("M2", "(7): workers before the arrival", edit("runs", EARLY, start=0, compute_from=0)),
    Planted("M1", "a PS in a slot, where there are none", edit("ps", ANY, slot=0)),
    Planted("M1", "a price of a resource that is not there", edit("prices", ANY, resource="tpu")),
    Planted("M10", "co-located, with PSs elsewhere", edit("runs", ~pl.col("colocated"), colocated=True)),
    Planted("M12", "PSs while it does not run", edit("ps", LAST, end=pl.col("end") + HOUR)),
    Planted("M26", "more workers than the machine holds", edit("runs", ANY, workers=10_000)),
    Planted("M26", "more PSs than the machine holds", edit("ps", ANY, count=10_000)),
    Planted("M27", "more workers than F", edit("runs", ANY, workers=201)),
    Planted("M28", "a PS too few", edit("ps", pl.col("count") > 1, count=1)),
    Planted("M29", "a price above U", edit("prices", ANY, price=1e9)),
    Planted("M29", "a price below L", edit("prices", ANY, price=1e-30)),
    Planted("M29", "a price that falls", edit("prices", LATER & (pl.col("price") > 1e-8), price=2e-10)),
    Planted("M29", "a price that does not rise with the load", drop("prices", pl.col("resource") == "cpu")),
    Planted("M29", "a price that rises with no plan", edit("prices", ANY, job=0)),
    Planted("M30", "a payoff that is not utility less cost", edit("decisions", RESERVED, value=pl.col("value") + 0.1)),
    Planted("M30", "no payoff", edit("decisions", RESERVED, value=None)),
    Planted("M30", "admitted at a loss", edit("decisions", RESERVED, value=-1.0)),
    Planted("M30", "rejected at a profit", edit("decisions", pl.col("verb") == "reject", value=1.0)),
    Planted("M30", "a plan that ends later than it was worth", lambda s: edit("plans", sensitive(s), to=TO + HOUR)(s)),
]  # fmt: skip
