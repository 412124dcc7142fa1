"""The page's answers about recorded runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import polars as pl

from skedge.core.errors import InputError
from skedge.core.facts import scenario_facts
from skedge.core.model.sharing import share_of
from skedge.core.model.time import SECOND
from skedge.explain import explain
from skedge.report.build import unique
from skedge.report.curves import jct_distribution
from skedge.report.table import metrics_table, table_view
from skedge.run import Run

from .shapes import lanes, site_map
from .training import training

_STATES = {"finished": "COMPLETED", "rejected": "FAILED", "failed": "FAILED", "cancelled": "CANCELLED"}
"""The service's states of jobs that have left, by those of the record."""


class Recorded:
    """Answers about `runs`, which are shown under unique labels.

    Parameters
    ----------
    runs
        At least one.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self.labels = unique([run.policy for run in runs])
        self.answers: Mapping[str, Callable[[Mapping[str, str]], Any]] = {
            "/v1/view": lambda _: self.overview(),
            "/v1/view/lanes": lambda _: self.lanes,
            "/v1/view/map": lambda asked: self.map(_number(asked, "run")),
            "/v1/view/compare": lambda _: self.compared,
            "/v1/jobs": lambda asked: self.jobs(
                _number(asked, "run"), _number(asked, "since"), _number(asked, "most", 1000)
            ),
        }

    def answer(self, path: str, asked: Mapping[str, str]) -> Any:
        """The answer to a question; None if there is no such question.

        Raises
        ------
        InputError
            If a value is wrong, or there is no such run or job.
        """
        if path in self.answers:
            return self.answers[path](asked)
        before, question, job = path.rpartition("/v1/view/jobs/")
        if question and job and not before:
            at = asked.get("at_s")
            return self.why(_number(asked, "run"), job, None if at is None else _seconds(at))
        before, question, job = path.rpartition("/v1/view/training/")
        return self.training(_number(asked, "run"), job) if question and job and not before else None

    def overview(self) -> dict[str, Any]:
        """What is viewed."""
        facts = scenario_facts(self.runs[0].scenario)
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
    def compared(self) -> dict[str, Any]:
        """All runs side by side; a job's times are None where it did not finish, or is not in that run."""
        rows = [(label, run.metrics) for label, run in zip(self.labels, self.runs, strict=True)]
        times = [dict(run.jobs.select("id", pl.col("jct") / SECOND).iter_rows()) for run in self.runs]
        names = dict.fromkeys(name for of in times for name in of)
        return {
            "labels": self.labels,
            "table": table_view(metrics_table(rows)),
            "jct": jct_distribution([run.jobs for run in self.runs]),
            "jobs": [{"job": name, "jct_s": [of.get(name) for of in times]} for name in names],
        }

    def jobs(self, run: int, since: int, most: int) -> list[dict[str, Any]]:
        """One row for each of the first `most` jobs from number `since` on."""
        of = self._run(run)
        some = of.jobs.slice(since, most)
        mine = of.schedule.runs.filter(pl.col("job").is_in(some["job"].implode()))
        at = pl.col("server").cast(pl.String).unique().sort()
        used = {job: row for job, *row in mine.group_by("job").agg(at, pl.col("work").sum()).iter_rows()}
        return [
            _job_row(row, *used.get(row["job"], ([], 0.0))) | share_of(of.scenario, row["job"])
            for row in some.iter_rows(named=True)
        ]

    def why(self, run: int, job: str, at_s: float | None = None) -> dict[str, Any]:
        """The decision on a job with its terms (:func:`skedge.explain.explain`), and its timeline."""
        found = explain(self._run(run), job, at_s)
        said = {**found.__dict__, "timeline": found.timeline.to_dicts(), "help": []}
        return json.loads(json.dumps(said, default=str))  # terms are a policy's own: what JSON lacks becomes text

    def training(self, run: int, job: str) -> dict[str, Any]:
        """How a job was trained; of a live run with its loss and accuracy."""
        of = self._run(run)
        return training(of.scenario, of.schedule, job, of.meta.get("training", {}).get(job, {}))

    def _run(self, number: int) -> Run:
        if number >= len(self.runs):
            raise InputError(f"run: {number}: there are {len(self.runs)}, numbered from 0")
        return self.runs[number]


def _job_row(row: Mapping[str, Any], servers: list[str], work: float) -> dict[str, Any]:
    finished = row["state"] == "finished"
    left = row["completion"] if finished else None
    start = row["first_start"]
    forecast = dict.fromkeys(("forecast_s", "forecast_from_s", "forecast_to_s", "now_s"))
    return {
        "n": row["job"],
        "job": row["id"],
        "state": _STATES[row["state"]],
        "submitted_s": row["arrival"] / SECOND,
        "ended_s": None if left is None else left / SECOND,
        "progress": 1.0 if finished else min(work / row["work"], 1.0) if row["work"] else 0.0,
        "servers": servers,
        "start_s": None if start is None else start / SECOND,
        **forecast,
        "never_completes": False,
        "reason": {"token": "completed" if finished else row["state"]},
        "message": row["reason"] or ("completed" if finished else row["state"]),
    }


def _number(asked: Mapping[str, str], name: str, default: int = 0) -> int:
    text = asked.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise InputError(f"{name}: {text[:40]!r} is no whole number from 0 on")
    return int(text)


def _seconds(text: str) -> float:
    try:
        at = float(text)
    except ValueError:
        at = -1.0
    if not 0 <= at < 1e12:
        raise InputError(f"at_s: {text[:40]!r} is no time in seconds")
    return at
