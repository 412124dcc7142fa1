"""The page's answers about recorded runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import polars as pl

from skedge.core.errors import InputError
from skedge.core.model.sharing import share_of
from skedge.core.model.time import SECOND
from skedge.explanation.explain import explain
from skedge.recorded_run import Run
from skedge.report.build import unique_labels
from skedge.report.curves import jct_distribution
from skedge.report.scenario_summary import scenario_summary
from skedge.report.table import metrics_table, table_view

from .shapes import lanes, site_map
from .training import training

_STATES = {"finished": "COMPLETED", "rejected": "FAILED", "failed": "FAILED", "cancelled": "CANCELLED"}
"""The service's states of jobs that have left, by those of the record."""


class RecordedRuns:
    """Answers about `runs`, which are shown under unique labels.

    Parameters
    ----------
    runs
        At least one.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.labels = unique_labels([run.policy for run in runs])
        self.answers: Mapping[str, Callable[[Mapping[str, str]], Any]] = {
            "/v1/view": lambda _: self.overview(),
            "/v1/view/lanes": lambda _: self.lanes,
            "/v1/view/map": lambda query: self.map(_int_param(query, "run")),
            "/v1/view/compare": lambda _: self.comparison,
            "/v1/jobs": lambda query: self.jobs(
                _int_param(query, "run"), _int_param(query, "since"), _int_param(query, "most", 1000)
            ),
        }

    def answer(self, path: str, query: Mapping[str, str]) -> Any:
        """The answer to a question; None if there is no such question.

        Raises
        ------
        InputError
            If a value is wrong, or there is no such run or job.
        """
        if path in self.answers:
            return self.answers[path](query)
        # Nothing may stand before the question; what follows is a job's name, slashes included.
        prefix, question, job = path.rpartition("/v1/view/jobs/")
        if question and job and not prefix:
            time_text = query.get("at_s")
            return self.explain_job(
                _int_param(query, "run"), job, None if time_text is None else _time_param(time_text)
            )
        prefix, question, job = path.rpartition("/v1/view/training/")
        return self.training(_int_param(query, "run"), job) if question and job and not prefix else None

    def overview(self) -> dict[str, Any]:
        """Title, labels and settings of the runs."""
        facts = scenario_summary(self.runs[0].scenario)
        title = self.runs[0].scenario.name
        return {"title": title, "live": False, "runs": self.labels, "facts": list(facts.items())}

    @cached_property
    def lanes(self) -> dict[str, Any]:
        """The bars of all runs."""
        return lanes([(label, run.scenario, run.schedule) for label, run in zip(self.labels, self.runs, strict=True)])

    def map(self, run: int) -> dict[str, Any]:
        """Servers and the data moved to them."""
        return site_map(self._run(run).scenario, self._run(run).schedule)

    @cached_property
    def comparison(self) -> dict[str, Any]:
        """All runs side by side; a job's times are None where it did not finish, or is not in that run."""
        rows = [(label, run.metrics) for label, run in zip(self.labels, self.runs, strict=True)]
        times = [dict(run.jobs.select("id", pl.col("jct") / SECOND).iter_rows()) for run in self.runs]
        # In order of the runs, each once: the jobs of two runs need not be the same.
        names = dict.fromkeys(name for times_of_run in times for name in times_of_run)
        return {
            "labels": self.labels,
            "table": table_view(metrics_table(rows)),
            "jct": jct_distribution([run.jobs for run in self.runs]),
            "jobs": [{"job": name, "jct_s": [times_of_run.get(name) for times_of_run in times]} for name in names],
        }

    def jobs(self, run: int, since: int, limit: int) -> list[dict[str, Any]]:
        """One row for each of the first `limit` jobs from number `since` on."""
        record = self._run(run)
        rows = record.jobs.slice(since, limit)
        # Of the rows asked for alone: a page shows a thousand jobs of what may be a million.
        job_runs = record.schedule.runs.filter(pl.col("job").is_in(rows["job"].implode()))
        servers = pl.col("server").cast(pl.String).unique().sort()
        usage = {job: row for job, *row in job_runs.group_by("job").agg(servers, pl.col("work").sum()).iter_rows()}
        return [
            _job_row(row, *usage.get(row["job"], ([], 0.0))) | share_of(record.scenario, row["job"])
            for row in rows.iter_rows(named=True)
        ]

    def explain_job(self, run: int, job: str, at_s: float | None = None) -> dict[str, Any]:
        """The decision on a job with its terms (:func:`skedge.explanation.explain.explain`), and its timeline."""
        explanation = explain(self._run(run), job, at_s)
        fields = {**explanation.__dict__, "timeline": explanation.timeline.to_dicts(), "help": []}
        return json.loads(json.dumps(fields, default=str))  # terms are a policy's own: what JSON lacks becomes text

    def training(self, run: int, job: str) -> dict[str, Any]:
        """How a job was trained; of a live run with its loss and accuracy."""
        record = self._run(run)
        return training(record.scenario, record.schedule, job, record.meta.get("training", {}).get(job, {}))

    def _run(self, number: int) -> Run:
        if number >= len(self.runs):
            raise InputError(f"run: {number}: there are {len(self.runs)}, numbered from 0")
        return self.runs[number]


def _job_row(row: Mapping[str, Any], servers: list[str], work: float) -> dict[str, Any]:
    finished = row["state"] == "finished"
    completion = row["completion"] if finished else None
    start = row["first_start"]
    forecast = dict.fromkeys(("forecast_s", "forecast_from_s", "forecast_to_s", "now_s"))
    return {
        "n": row["job"],
        "job": row["id"],
        "state": _STATES[row["state"]],
        "submitted_s": row["arrival"] / SECOND,
        "ended_s": None if completion is None else completion / SECOND,
        # Work that was lost in an outage is done again, and may add up to more than the job's.
        "progress": 1.0 if finished else min(work / row["work"], 1.0) if row["work"] else 0.0,
        "servers": servers,
        "start_s": None if start is None else start / SECOND,
        **forecast,
        "never_completes": False,
        "reason": {"token": "completed" if finished else row["state"]},
        "message": row["reason"] or ("completed" if finished else row["state"]),
    }


def _int_param(query: Mapping[str, str], name: str, default: int = 0) -> int:
    text = query.get(name, str(default))
    # isdigit() alone is true of digits that int() does not take, such as a superscript; 15 of them fit into an int64.
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise InputError(f"{name}: {text[:40]!r} is no whole number from 0 on")
    return int(text)


def _time_param(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    # No comparison is true of nan, which float() reads: it ends here too.
    if not 0 <= seconds < 1e12:
        raise InputError(f"at_s: {text[:40]!r} is no time in seconds")
    return seconds
