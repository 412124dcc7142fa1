"""Runs side by side in one HTML file that needs no network and no server.

The page holds its styles, its scripts and its data. The data stand in a ``script`` element of type
``application/json`` and reach the page only as text nodes; a content security policy names the hashes of the page's own
scripts, so that nothing else in it can run. The same runs give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from skedge.core.model.cluster import Ints
from skedge.core.model.scenario import Scenario
from skedge.core.record.schedule import Schedule

from .bars import Bars, choose_bars
from .curves import jct_distribution, over_time
from .encode import finite_or_none, int_column, pack_ints, script_json
from .rows import Layout, lay_out
from .scenario_summary import scenario_summary
from .shell import asset, fill, gantt_section
from .site_section import site_section
from .table import ReportTable, metrics_table, table_view

__all__ = ["BAR_CAP", "ReportRun", "ReportTable", "build_report"]

BAR_CAP = 20_000
"""Default limit of embedded bars per run; about 40 bytes each."""

_SCRIPTS = (
    "format.js", "charts.js", "gantt_draw.js", "gantt_input.js", "gantt.js", "comparison.js", "explorer.js",
    "report.js",
)  # fmt: skip
"""The page's own scripts, in the order in which they are embedded."""

_GANTT_LABELS = {
    "choice": "Policy", "group": "View", "taller": ' aria-label="Taller rows"',
    "flatter": ' aria-label="Flatter rows"', "chart": "",
}  # fmt: skip

_UTILISATION = ("time_s", "busy_share", "waiting_jobs", "running_jobs", "submitted")


@dataclass(frozen=True)
class ReportRun:
    """One run of the report.

    Attributes
    ----------
    label
        Name of the policy as the report shows it; unique in a report.
    scenario, schedule
        The scenario, and the resulting schedule.
    metrics
        Numbers of the run by key (``jct_mean_s``); None: does not apply.
    utilisation
        Columns time_s, busy_share (0..1), waiting_jobs, running_jobs, submitted. A value holds from its row's time to
        the next row's; `submitted` counts the jobs submitted in that interval.
    """

    label: str
    scenario: Scenario
    schedule: Schedule
    metrics: Mapping[str, float | int | None]
    utilisation: pl.DataFrame


def build_report(
    runs: Sequence[ReportRun],
    comparison: ReportTable | None = None,
    title: str = "skedge report",
    settings: Mapping[str, str] | None = None,
    *,
    bar_cap: int = BAR_CAP,
) -> str:
    """Build the report as one HTML file.

    Parameters
    ----------
    runs
        At least one; they are drawn in the order given.
    comparison
        The table at the top; None: the runs' own metrics.
    title
        Heading of the page, as plain text.
    settings
        What a reader needs to repeat the report, by name: seed, versions. A setting named `command` is shown as one.
    bar_cap
        Most bars that the Gantt chart of a run embeds (:mod:`skedge.report.bars`); the page says what is left out.

    Raises
    ------
    ValueError
        If there is no run, a label is used twice, or a column of a run's utilisation is missing.
    """
    _check(runs)
    data = {
        "title": title,
        "settings": list((settings or {}).items()),
        "facts": _facts(runs),
        "comparison": table_view(comparison or metrics_table([(r.label, r.metrics) for r in runs])),
        "jct": jct_distribution([r.schedule.jobs for r in runs]),
        "time": over_time([r.utilisation for r in runs], _runs_of_distinct_arrivals(runs)),
        **run_views(runs, bar_cap),
    }
    return _page(title, data, site_section([(r.label, r.scenario, r.schedule) for r in runs]))


def _check(runs: Sequence[ReportRun]) -> None:
    if not runs:
        raise ValueError("report: no runs; at least one is needed")
    labels = [r.label for r in runs]
    duplicate = next((name for name in labels if labels.count(name) > 1), None)
    if duplicate is not None:
        raise ValueError(f"report: label {duplicate!r} is used twice; labels must be unique")
    for run in runs:
        missing = [c for c in _UTILISATION if c not in run.utilisation.columns]
        if missing:
            raise ValueError(f"report: run {run.label!r}: utilisation has no column {missing[0]!r}")


def unique_labels(labels: Sequence[str]) -> list[str]:
    """The labels, with a number each where a label occurs several times."""
    return [f"{label} ({i})" if labels.count(label) > 1 else label for i, label in enumerate(labels, 1)]


def _runs_of_distinct_arrivals(runs: Sequence[ReportRun]) -> list[int]:
    """Pick the first run of every set of arrivals: runs of one scenario see the same submissions."""
    # Backwards, so that the first run of equal arrivals is the one that stays.
    first = {r.scenario.jobs.arrival.tobytes(): i for i, r in reversed(list(enumerate(runs)))}
    return sorted(first.values())


def _facts(runs: Sequence[ReportRun]) -> list[tuple[str, str]]:
    """List the settings of the scenarios; values that differ between runs are shown side by side."""
    by_run = [scenario_summary(r.scenario) for r in runs]
    return [(name, " | ".join(dict.fromkeys(f[name] for f in by_run))) for name in by_run[0]]


def run_views(runs: Sequence[ReportRun], cap: int) -> dict[str, Any]:
    """Describe the runs for a page, each by at most `cap` bars, and the names of all jobs in them, each once."""
    names: dict[str, int] = {}
    return {"runs": [_run_view(r, cap, names) for r in runs], "names": list(names)}


def _run_view(run: ReportRun, cap: int, names: dict[str, int]) -> dict[str, Any]:
    bars = choose_bars(run.schedule.runs, run.scenario.cluster.server_ids, cap)
    layout = lay_out(bars.frame, run.scenario)
    jobs = run.schedule.jobs
    # Of more jobs than the cap only those with a bar are listed: a page of millions of names opens in no browser.
    job_rows = np.arange(jobs.height) if jobs.height <= cap else np.unique(int_column(bars.frame, "job"))
    return {
        "label": run.label,
        "metrics": {key: finite_or_none(value) for key, value in run.metrics.items()},
        "servers": run.scenario.cluster.server_ids,
        "jobs": _job_columns(jobs, job_rows, names),
        "gantt": _gantt(bars, layout, run.scenario),
        "uploads": _table_rows(run, "uploads", bars, job_rows, cap),
        "ps": _table_rows(run, "ps", bars, job_rows, cap),
    }


def _job_columns(jobs: pl.DataFrame, job_rows: Ints, names: dict[str, int]) -> dict[str, Any]:
    frame = jobs[job_rows]
    ids = frame["id"].to_list()
    reasons = zip(ids, frame["state"].cast(pl.String), frame["reason"], strict=True)
    return {
        "total": jobs.height,
        "job": pack_ints(job_rows),
        # Names stand once in the page for all runs, which mostly have the same jobs: here are their numbers.
        "name": pack_ints(np.array([names.setdefault(i, len(names)) for i in ids], np.int64)),
        "rejected": {str(k): reason or "" for k, (_, state, reason) in enumerate(reasons) if state == "rejected"},
        **{c: pack_ints(int_column(frame, c)) for c in ("arrival", "first_start", "completion", "jct")},
    }


def _gantt(bars: Bars, layout: Layout, scenario: Scenario) -> dict[str, Any]:
    frame = bars.frame
    # Lengths instead of ends: small numbers take fewer bytes (pack_ints).
    start, end, compute = (int_column(frame, c) for c in ("start", "end", "compute_from"))
    return {
        "span": bars.span,
        "window": bars.window,
        "merged": bars.merged,
        "lanes_cut": bars.lanes_cut,
        "runs_total": bars.runs_total,
        "bars_total": bars.bars_total,
        "runs_shown": int(frame["merged"].sum()),
        "groups": layout.group_views(scenario),
        "bars": {
            **{
                c: pack_ints(int_column(frame, c)) for c in ("job", "chunk", "server", "workers", "preempted", "merged")
            },
            "lane": pack_ints(_lane_slots(int_column(frame, "lane"), scenario)),
            "start": pack_ints(start),
            "length": pack_ints(end - start),
            "wait": pack_ints(np.clip(compute - start, 0, end - start)),
        },
        "pieces": {"row": pack_ints(layout.row), "height": pack_ints(layout.height), "bar": pack_ints(layout.bar)},
    }


def _lane_slots(lane: Ints, scenario: Scenario) -> Ints:
    """Look up the number of each bar's lane on its server; -1 without a lane."""
    # The appended -1 is where runs without a lane, of number -1, look up theirs.
    slots = np.append(scenario.cluster.lane_slot, -1)
    return np.where(lane < 0, -1, slots[np.minimum(lane, len(slots) - 1)])


def _table_rows(run: ReportRun, table: str, bars: Bars, job_rows: Ints, cap: int) -> dict[str, Any]:
    """Choose at most `cap` rows of `uploads` or `ps`.

    All if they are few; otherwise those of the listed jobs in the bars' window.
    """
    frame: pl.DataFrame = getattr(run.schedule, table)
    total, server = frame.height, "to_server" if table == "uploads" else "server"
    # Rows of jobs or times without a bar would have nothing to belong to in the page.
    if total > cap:
        frame = frame.filter(pl.col("job").is_in(pl.Series(job_rows).implode()))
        if bars.window is not None:
            frame = frame.filter((pl.col("start") < bars.window[1]) & (pl.col("end") > bars.window[0]))
    frame = frame.sort("start", "job", "end").head(cap)
    frame = frame.with_columns(pl.col(server).cast(pl.Enum(run.scenario.cluster.server_ids)).alias("server"))
    names = ("job", "server", "start", "chunks" if table == "uploads" else "slot")
    view: dict[str, Any] = {"total": total, **{name: pack_ints(int_column(frame, name)) for name in names}}
    view["length"] = pack_ints(int_column(frame, "end") - int_column(frame, "start"))
    return view | ({"mb": frame["mb"].fill_null(0.0).round(3).to_list()} if table == "uploads" else {})


def _page(title: str, data: Mapping[str, Any], sites: str) -> str:
    # Stripped, as in the page: a hash is of the exact text between the tags of a script.
    vendor = asset("vendor/uPlot.iife.min.js").strip()
    script = "\n".join(['"use strict";', *(asset(name) for name in _SCRIPTS)]).strip()
    parts = {
        "title": html.escape(title),
        "csp": f"default-src 'none'; style-src 'unsafe-inline'; script-src {_hash(vendor)} {_hash(script)}; "
        "base-uri 'none'; form-action 'none'",
        "licence": asset("vendor/LICENSE").strip(),
        "vendor_css": asset("vendor/uPlot.min.css").strip(),
        "css": asset("report.css").strip(),
        "sites": sites,
        "gantt": gantt_section(_GANTT_LABELS),
        "data": script_json(data),
        "vendor_js": vendor,
        "script": script,
    }
    return fill(asset("template.html"), parts)


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
