"""Several policies on workloads of a growing number of jobs: the common part of JSAC'22 Fig. 4, 5 and 6."""

from __future__ import annotations

from typing import Any

from numpy.random import default_rng
from pydantic import BaseModel, ConfigDict, Field

from skedge.studies.trial import Fields, Trial, seeded

_STREAM = 5
"""Stream of a seed from which the jobs are drawn."""


class Growing(BaseModel):
    """Settings of a study over the number of jobs.

    Attributes
    ----------
    low
        The policy that is claimed to stay low.
    jobs
        Numbers of jobs; the smaller workloads of a seed are parts of its largest.
    span_s
        Time in which the jobs arrive at random, whatever their number [s].
    models
        The models that the jobs train, in turn: a name and arguments of the factory.
    epochs, chunks
        Ranges of random draws.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    policies: list[str] = Field(min_length=2)
    low: str
    jobs: list[int] = Field(min_length=2)
    span_s: float
    factory: str
    models: list[dict[str, Any]] = Field(min_length=1)
    epochs: tuple[int, int]
    chunks: tuple[int, int]

    def trials(self, shared: Fields, seed: int) -> list[Trial]:
        """Every policy on every number of jobs."""
        jobs = self._draw_jobs(shared, seed)
        return [
            Trial(f"{policy}-{count}jobs-seed{seed}", policy, seed, jobs[:count], {"policy": policy, "jobs": count})
            for count in self.jobs
            for policy in self.policies
        ]

    def _draw_jobs(self, shared: Fields, seed: int) -> tuple[Fields, ...]:
        """The largest workload of a seed; a gang asks for a worker per chunk."""
        rng, drawn_jobs = default_rng([seed, _STREAM]), []
        # job by job, so that a smaller workload is a prefix of the largest one
        for i in range(max(self.jobs)):
            chunks, epochs = (int(rng.integers(*bounds, endpoint=True)) for bounds in (self.chunks, self.epochs))
            model = self.models[i % len(self.models)]
            job = {
                "id": f"{i:02}-{model['model']}",
                "arrival_s": round(float(rng.uniform(0, self.span_s)), 3),
                "epochs": epochs,
                "chunks": chunks,
                # policies of gangs ask for `workers`, A_online for `chunks`: the same parallelism
                "workers": chunks,
                "train": {"factory": self.factory, "args": {**model, "chunks": chunks}},
            }
            drawn_jobs.append(seeded({**shared, **job}, seed))
        return tuple(drawn_jobs)
