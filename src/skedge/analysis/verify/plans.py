"""Rule M19: plans, the decisions that make them, and when they are broken."""

from __future__ import annotations

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns, end_times

from .matching import surplus
from .rules import Findings


def check_plans(c: Columns, findings: Findings, slack: int) -> None:
    """Check that plans and decisions to reserve match, and that a plan is broken if its job outlasts it."""
    d, p = c.decisions, c.plans
    rows = np.flatnonzero(d.has("verb", "reserve"))
    if not len(rows) and not len(p):
        return
    reservations = pl.DataFrame({name: d[name][rows] for name in ("job", "time", "server")})
    plan_rows = pl.DataFrame({"job": p["job"], "time": p["made_at"], "server": p["server"]})
    differ = surplus(reservations.with_columns(n=1), plan_rows.with_columns(n=1))
    for job, time, server, n in differ.head(findings.limit).iter_rows():
        text = "decision to reserve than plans" if n > 0 else "plan than decisions to reserve"
        findings.add("M19", job, time, f"there is one more {text} on server {server}")
    _same_value(c, findings, rows)
    _broken_marks(c, findings, slack)


def _same_value(c: Columns, findings: Findings, rows: np.ndarray) -> None:
    """Check that all reservations of a job at one instant have the same value, as they form one plan."""
    d = c.decisions
    table = pl.DataFrame({"job": d["job"][rows], "time": d["time"][rows], "value": d.frame["value"].gather(rows)})
    several = (
        table.group_by("job", "time", maintain_order=True).agg(pl.col("value").n_unique()).filter(pl.col("value") > 1)
    )
    for job, time, _ in several.head(findings.limit).iter_rows():
        findings.add("M19", job, time, "has several values for the servers of one plan")


def _broken_marks(c: Columns, findings: Findings, slack: int) -> None:
    """Check that a plan is marked broken at its end exactly if it is the job's newest and the job has not ended."""
    p, ends = c.plans, end_times(c)
    table = pl.DataFrame({name: p[name] for name in ("job", "made_at", "to")}).with_columns(broken=p.frame["broken_at"])
    plans = table.group_by("job", "made_at").agg(
        pl.col("to").max(), pl.col("broken").max(), marks=pl.col("broken").fill_null(-1).n_unique()
    )  # fmt: skip
    plans = plans.sort("job", "made_at").with_columns(next=pl.col("made_at").shift(-1).over("job"))
    step = c.scenario.physics.step
    for job, made_at, to, broken, marks, after in plans.iter_rows():
        end = -(-to // step) * step
        outlived = (after is None or after >= end) and ends[job] > end + slack
        if (
            marks > 1
            or (broken is not None and abs(broken - end) > slack)
            or (slack == 0 and outlived == (broken is None))
        ):
            text = f"its plan made at {made_at} µs ends at {to} µs and is marked broken at {broken} µs; "
            findings.add(
                "M19", job, made_at, text + (f"it must be marked at {end} µs" if outlived else "it must not be marked")
            )
