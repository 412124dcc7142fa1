"""Several policies on workloads of a growing number of jobs: the common part of JSAC'22 Fig. 4, 5 and 6."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator, default_rng
from pydantic import BaseModel, ConfigDict, Field

from skedge.studies.trial import Fields, Trial, seeded
from skedge.traces.makers.synthetic import GPU_SHARE

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
    worker_types
        Types of workers, of which each job asks for one at random.
    gang_share
        A gang's workers as a share of its job's chunks, rounded, at least 1; None: the GPUs of a job of the trace
        (:data:`skedge.traces.makers.synthetic.GPU_SHARE`), at most its chunks.
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
    worker_types: list[str] = Field(["gpu"], min_length=1)
    gang_share: float | None = Field(None, gt=0, le=1)

    def trials(self, shared: Fields, seed: int) -> list[Trial]:
        """Every policy on every number of jobs."""
        jobs = self._draw_jobs(shared, seed)
        return [
            Trial(f"{policy}-{count}jobs-seed{seed}", policy, seed, jobs[:count], {"policy": policy, "jobs": count})
            for count in self.jobs
            for policy in self.policies
        ]

    def _draw_jobs(self, shared: Fields, seed: int) -> tuple[Fields, ...]:
        """The largest workload of a seed."""
        rng, drawn_jobs = default_rng([seed, _STREAM]), []
        # streams of their own, so that a gang's size does not change what else is drawn
        type_rng, gang_rng = default_rng([seed, _STREAM, 1]), default_rng([seed, _STREAM, 2])
        # job by job, so that a smaller workload is a prefix of the largest one
        for i in range(max(self.jobs)):
            chunks, epochs = (int(rng.integers(*bounds, endpoint=True)) for bounds in (self.chunks, self.epochs))
            model = self.models[i % len(self.models)]
            job = {
                "id": f"{i:02}-{model['model']}",
                "arrival_s": round(float(rng.uniform(0, self.span_s)), 3),
                "epochs": epochs,
                "chunks": chunks,
                # policies of gangs ask for `workers`, A_online for `chunks`
                "workers": self._gang(chunks, gang_rng),
                "worker_type": str(type_rng.choice(self.worker_types)),
                "train": {"factory": self.factory, "args": {**model, "chunks": chunks}},
            }
            drawn_jobs.append(seeded({**shared, **job}, seed))
        return tuple(drawn_jobs)

    def _gang(self, chunks: int, rng: Generator) -> int:
        """A gang's workers."""
        if self.gang_share is not None:
            return max(round(self.gang_share * chunks), 1)
        shares = np.array(list(GPU_SHARE.values()))
        return min(int(rng.choice(list(GPU_SHARE), p=shares / shares.sum())), chunks)
