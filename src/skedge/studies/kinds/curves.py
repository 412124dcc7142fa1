"""Accuracy over epochs of jobs of a workload in which they are preempted or move (JSAC'22 Fig. 3, Okita Fig. 6)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, model_validator

from skedge.studies.figure import Figure, Line
from skedge.studies.judge import Part
from skedge.studies.outcome import Outcome, format_cell, mean_of, points
from skedge.studies.trial import Fields, Trial, TrialResult, seeded

_AMONG, _ALONE = "among others", "alone"
"""How a job is trained."""


class Curves(BaseModel):
    """Settings of a study of accuracy over epochs.

    Attributes
    ----------
    shown
        Ids of the jobs whose accuracy is drawn.
    last_share, within, least
        A job converges if its mean accuracy over the seeds ends at `least` or above and changes by at most `within`
        over the last `last_share` of its epochs.
    undisturbed
        If given: each job that is shown is trained alone, too, under this policy, which never moves it.
    margin
        With `undisturbed`, the claim: the mean difference of the accuracies at the end is at most this.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["curves"]
    policy: str
    jobs: list[dict[str, Any]] = Field(min_length=1)
    shown: list[str] = Field(min_length=1)
    last_share: float = Field(gt=0, le=1)
    within: float = Field(ge=0, le=1)
    least: float = Field(ge=0, le=1)
    undisturbed: str | None = None
    margin: float | None = Field(None, gt=0, lt=1)

    @model_validator(mode="after")
    def _pairs_have_a_margin(self) -> Curves:
        if (self.undisturbed is None) != (self.margin is None):
            raise ValueError("undisturbed and margin go together")
        return self

    def trials(self, shared: Fields, seed: int) -> list[Trial]:
        """The run of a seed, and then each job alone with the same data, first parameters and order of samples."""
        jobs = tuple(seeded({**shared, **job}, seed) for job in self.jobs)
        trials = [Trial(f"seed{seed}", self.policy, seed, jobs, {"how": _AMONG}, frozenset(self.shown))]
        for job in jobs if self.undisturbed is not None else ():
            if (name := str(job["id"])) in self.shown:
                label, place = f"{name}-alone-seed{seed}", {"how": _ALONE}
                trials.append(Trial(label, str(self.undisturbed), seed, (job,), place, frozenset([name])))
        return trials

    def rows(self, result: TrialResult) -> list[dict[str, Any]]:
        """A row for each job and epoch."""
        return [
            result.row(
                job=job,
                epoch=epoch,
                accuracy=accuracy,
                displaced=result.preemptions.get(job, 0),
                deployments=result.deployments.get(job, 0),
            )
            for job, curve in result.curves.items()
            for epoch, accuracy in curve
        ]

    def outcome(self, all_rows: pl.DataFrame) -> Outcome:
        """Judge whether every job converges, and to the same accuracy as alone."""
        rows = all_rows.filter(pl.col("how") == _AMONG)
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
        if self.margin is not None:
            parts += [*self._same_parts(all_rows, self.margin), _moved_part(all_rows)]
        columns = ("job", "epochs", "accuracy %", "moves at the end, points", "chunks displaced")
        figure = Figure("Accuracy over epochs", "epochs trained", "test accuracy", lines, limits=(0.0, 1.0))
        return Outcome(tuple(parts), columns, tuple(table), figure)

    def _same_parts(self, rows: pl.DataFrame, margin: float) -> Iterator[Part]:
        """Each job ends as accurate as alone, in the mean; pairs have the same seed."""
        ends = rows.sort("epoch").group_by("job", "seed", "how").agg(pl.col("accuracy").last())
        pairs = ends.pivot("how", index=["job", "seed"], values="accuracy").sort("seed")
        for job in self.shown:
            job_pairs = pairs.filter(pl.col("job") == job)
            difference = job_pairs[_AMONG] - job_pairs[_ALONE]
            text = f"{job} ends within {100 * margin:g} points of its training alone and unmoved, in the mean"
            yield Part(text, tuple(difference), f"{format_cell(points(mean_of(difference)))} points", within=margin)

    def _line(self, rows: pl.DataFrame, job: str) -> Line:
        by_epoch = rows.group_by("epoch").agg("accuracy").sort("epoch")
        return Line(job, tuple(map(float, by_epoch["epoch"])), tuple(map(mean_of, by_epoch["accuracy"])))

    def _movement(self, line: Line) -> tuple[float, int]:
        """The range of the mean accuracy over the last epochs, and the number of these epochs."""
        # at least two epochs, as one cannot move
        n_epochs = max(math.ceil(self.last_share * len(line.x)), 2)
        means = [value.mean for value in line.values[-n_epochs:]]
        return max(means) - min(means), n_epochs


def _moved_part(rows: pl.DataFrame) -> Part:
    """The study is void if some job was never moved among others, or if one was moved alone."""
    # over all seeds: a single one would make the difference meaningless
    among, alone = (rows.filter(pl.col("how") == how)["deployments"] for how in (_AMONG, _ALONE))
    least, most = min(among.to_list()), max(alone.to_list())
    numbers = f"placements one after another: at least {least} of a job among others, at most {most} of one alone"
    return Part("jobs among others were moved, those alone were not", least > 1 and most == 1, numbers)


def _displacements(rows: pl.DataFrame, job: str) -> Sequence[int]:
    return rows.filter(pl.col("job") == job).unique("seed")["displaced"].to_list()
