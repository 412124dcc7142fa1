"""Reports and charts of recorded runs.

A run is seen through a protocol, so that the module of runs need not be imported here, nor reports there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import polars as pl

from skedge.core.model.scenario import Scenario
from skedge.core.record.schedule import Schedule

from .build import ReportRun, build_report, unique_labels
from .notebook import notebook_html
from .plots import Plots
from .table import metrics_table


class ReportableRun(Protocol):
    """The attributes of a run that a report shows."""

    @property
    def policy(self) -> str:
        """The policy as ``name:key=value,...``."""

    @property
    def meta(self) -> Mapping[str, Any]:
        """Content of ``run.json``."""

    @property
    def scenario(self) -> Scenario:
        """The resolved scenario."""

    @property
    def schedule(self) -> Schedule:
        """The record."""

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Numbers of the run by key."""

    @property
    def utilisation(self) -> pl.DataFrame:
        """Utilisation over time."""


def report_run(run: ReportableRun, label: str | None = None) -> ReportRun:
    """The run as reports and charts take it, under `label`; None: the policy."""
    return ReportRun(label or run.policy, run.scenario, run.schedule, run.metrics, run.utilisation)


def side_by_side(runs: Sequence[ReportableRun]) -> list[ReportRun]:
    """Runs as reports and charts take them; those of one policy are told apart by numbers."""
    labels = unique_labels([run.policy for run in runs])
    return [report_run(run, label) for label, run in zip(labels, runs, strict=True)]


def report_of_runs(runs: Sequence[ReportableRun], title: str, command: str) -> str:
    """The report of runs side by side as one HTML page; `command` is how it was made."""
    versions = ", ".join(f"{name} {number}" for name, number in runs[0].meta.get("versions", {}).items())
    return build_report(side_by_side(runs), title=title, settings={"versions": versions, "command": command})


def run_html(run: ReportableRun) -> str:
    """Metrics and lanes of a run, as Jupyter shows them."""
    return notebook_html(repr(run), metrics_table([(run.policy, run.metrics)]), [Plots([report_run(run)]).lanes()])
