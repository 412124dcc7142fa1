"""Accuracy over epochs of some jobs of a workload in which they are preempted (JSAC'22 Fig. 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from skedge.studies.figure import Figure, Line
from skedge.studies.judge import Part
from skedge.studies.outcome import Outcome, format_cell, mean_of, points
from skedge.studies.trial import Fields, Trial, TrialResult, seeded


class Curves(BaseModel):
    """Settings of a study of accuracy over epochs.

    Attributes
    ----------
    shown
        Ids of the jobs whose accuracy is drawn.
    last_share, within, least
        A job converges if its mean accuracy over the seeds ends at `least` or above and changes by at most `within`
        over the last `last_share` of its epochs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["curves"]
    policy: str
    jobs: list[dict[str, Any]] = Field(min_length=1)
    shown: list[str] = Field(min_length=1)
    last_share: float = Field(gt=0, le=1)
    within: float = Field(ge=0, le=1)
    least: float = Field(ge=0, le=1)

    def trials(self, shared: Fields, seed: int) -> list[Trial]:
        """The one run of a seed."""
        jobs = tuple(seeded({**shared, **job}, seed) for job in self.jobs)
        return [Trial(f"seed{seed}", self.policy, seed, jobs, {"policy": self.policy}, frozenset(self.shown))]

    def rows(self, result: TrialResult) -> list[dict[str, Any]]:
        """A row for each job and epoch."""
        return [
            {"seed": result.trial.seed, "job": job, "epoch": epoch, "accuracy": accuracy, "displaced": displacements}
            for job in self.shown
            for displacements in [result.preemptions.get(job, 0)]
            for epoch, accuracy in result.curves[job]
        ]

    def outcome(self, rows: pl.DataFrame) -> Outcome:
        """Judge whether every job converges."""
        lines = tuple(self._line(rows.filter(pl.col("job") == job), job) for job in self.shown)
        table, parts = [], []
        for line in lines:
            movement, n_epochs = self._movement(line)
            accuracy = points(line.values[-1])
            displacements = mean_of(_displacements(rows, line.label))
            by_seed = rows.filter(pl.col("job") == line.label).sort("seed", "epoch")["accuracy"].to_numpy()
            by_seed = by_seed.reshape(-1, len(line.x))
            level_text = f"{line.label} is at {self.least:.0%} or above at the end"
            steady_text = f"{line.label} moves by at most {100 * self.within:g} points over the last {n_epochs} epochs"
            parts.append(Part(level_text, tuple(by_seed[:, -1] - self.least), f"{format_cell(accuracy, 1)} %"))
            # paired by seed: each seed's own change over the last epochs
            change = by_seed[:, -1] - by_seed[:, -n_epochs]
            parts.append(
                Part(steady_text, tuple(change), f"by {format_cell(points(mean_of(change)), 1)}", within=self.within)
            )
            table.append((line.label, int(line.x[-1]), accuracy, f"{100 * movement:.1f}", displacements))
        columns = ("job", "epochs", "accuracy %", "moves at the end, points", "chunks displaced")
        figure = Figure("Accuracy over epochs", "epochs trained", "test accuracy", lines, limits=(0.0, 1.0))
        return Outcome(tuple(parts), columns, tuple(table), figure)

    def _line(self, rows: pl.DataFrame, job: str) -> Line:
        by_epoch = rows.group_by("epoch").agg("accuracy").sort("epoch")
        return Line(job, tuple(map(float, by_epoch["epoch"])), tuple(map(mean_of, by_epoch["accuracy"])))

    def _movement(self, line: Line) -> tuple[float, int]:
        """The range of the mean accuracy over the last epochs, and the number of these epochs."""
        # at least two epochs, as one cannot move
        n_epochs = max(math.ceil(self.last_share * len(line.x)), 2)
        means = [value.mean for value in line.values[-n_epochs:]]
        return max(means) - min(means), n_epochs


def _displacements(rows: pl.DataFrame, job: str) -> Sequence[int]:
    return rows.filter(pl.col("job") == job).unique("seed")["displaced"].to_list()
