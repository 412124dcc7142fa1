"""The accuracy cost of preemption: the same jobs trained alone, and preempted by others."""

from __future__ import annotations

from typing import Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from skedge.analysis.intervals import Estimate
from skedge.studies.figure import Figure, Line
from skedge.studies.judge import Part
from skedge.studies.outcome import Outcome, format_cell, mean_of, points
from skedge.studies.trial import Fields, Trial, TrialResult, seeded


class Disturbed(BaseModel):
    """Settings of a study of accuracy with and without preemption.

    Attributes
    ----------
    jobs
        Each is trained alone, and then with `others` arriving later.
    margin
        The claim: the mean difference of accuracies is at most this.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["disturbed"]
    policy: str
    jobs: list[dict[str, Any]] = Field(min_length=1)
    others: list[dict[str, Any]] = Field(min_length=1)
    margin: float = Field(gt=0, lt=1)

    def trials(self, shared: Fields, seed: int) -> list[Trial]:
        """Each job, undisturbed and preempted."""
        later_jobs = [seeded({**shared, **job}, seed) for job in self.others]
        trials = []
        for fields in self.jobs:
            job = seeded({**shared, **fields}, seed)
            # the same seed in both settings: the same data, first parameters and order of samples
            for setting, jobs in (("undisturbed", (job,)), ("preempted", (job, *later_jobs))):
                place = {"job": str(job["id"]), "how": setting}
                trials.append(Trial(f"{job['id']}-{setting}-seed{seed}", self.policy, seed, jobs, place))
        return trials

    def rows(self, result: TrialResult) -> list[dict[str, Any]]:
        """One row: accuracy of the job at the end, and how often its chunks were displaced."""
        job = str(result.trial.place["job"])
        return [result.row(accuracy=result.accuracy[job], displaced=result.preemptions.get(job, 0))]

    def outcome(self, rows: pl.DataFrame) -> Outcome:
        """Judge the mean difference of each job; pairs have the same seed."""
        pairs = rows.pivot("how", index=["job", "seed"], values=["accuracy", "displaced"]).with_columns(
            difference=pl.col("accuracy_preempted") - pl.col("accuracy_undisturbed")
        )
        by_job = {str(job["id"]): pairs.filter(pl.col("job") == str(job["id"])) for job in self.jobs}
        parts = [self._within(job, job_pairs) for job, job_pairs in by_job.items()]
        table = [
            (
                job,
                points(mean_of(job_pairs["accuracy_undisturbed"])),
                points(mean_of(job_pairs["accuracy_preempted"])),
                points(mean_of(job_pairs["difference"])),
                mean_of(job_pairs["displaced_preempted"]),
            )
            for job, job_pairs in by_job.items()
        ]
        columns = ("job", "undisturbed %", "preempted %", "difference, points", "chunks displaced")
        return Outcome((*parts, _was_preempted(pairs)), columns, tuple(table), self._figure(by_job))

    def _within(self, job: str, pairs: pl.DataFrame) -> Part:
        difference = pairs.sort("seed")["difference"]
        text = f"{job}: preempted within {100 * self.margin:g} points of undisturbed, in the mean"
        return Part(text, tuple(difference), f"{format_cell(points(mean_of(difference)))} points", within=self.margin)

    def _figure(self, by_job: dict[str, pl.DataFrame]) -> Figure:
        x = tuple(map(float, range(len(by_job))))
        means = tuple(points(mean_of(pairs["difference"])) for pairs in by_job.values())
        seeds = [(i, 100 * d) for i, pairs in enumerate(by_job.values()) for d in pairs["difference"]]
        lines = (
            Line("mean, 95 % interval", x, means, joined=False),
            Line("a seed", tuple(i + 0.1 for i, _ in seeds), tuple(Estimate(d) for _, d in seeds), joined=False),
        )
        guides = tuple((sign * 100 * self.margin, "the margin") for sign in (-1, 1))
        title = "Accuracy preempted less accuracy undisturbed"
        return Figure(title, "model", "difference [points]", lines, tuple(by_job), guides)


def _was_preempted(pairs: pl.DataFrame) -> Part:
    """The study is void if no job was preempted, or if the undisturbed job was."""
    # over all seeds: a single one would make the difference meaningless
    low, high = min(pairs["displaced_preempted"].to_list()), max(pairs["displaced_undisturbed"].to_list())
    numbers = f"chunks displaced: at least {low} of a preempted job, at most {high} of an undisturbed one"
    return Part("preempted jobs were preempted, the others were not", low > 0 and high == 0, numbers)
