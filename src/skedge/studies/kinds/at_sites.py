"""A metric of several policies at sites, on real training (Okita Fig. 4 and 5)."""

from __future__ import annotations

from typing import Any, Literal

import polars as pl
from numpy.random import Generator, default_rng
from pydantic import BaseModel, ConfigDict, Field

from skedge.studies.figure import Figure, Line
from skedge.studies.judge import Part
from skedge.studies.outcome import Cell, Outcome, format_cell, format_mean, mean_of
from skedge.studies.trial import Fields, Trial, TrialResult, seeded

from .sweep import MATTERS

_STREAM = 6
"""Stream of a seed from which the jobs are drawn."""


class SitePolicies(BaseModel):
    """Settings of a study of several policies on jobs whose data lie at many sites.

    Attributes
    ----------
    below
        Pairs of policies: the metric of the first is claimed to be below that of the second.
    metric, unit
        The metric compared, and its unit.
    jobs, slots, slot_s
        Number of jobs, number of slots at whose beginnings they arrive at random, and length of a slot [s].
    sites
        Names of the servers.
    models
        The models that the jobs train, in turn: a name and arguments of the factory.
    epochs, site_chunks, tau, chunk_mb, exchange_mb
        Ranges of random draws: E, chunks at each site, and the latency, data and exchange of Okita's setting.
    worker_needs, ps_needs
        Ranges by resource.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["at sites"]
    policies: list[str] = Field(min_length=2)
    below: list[tuple[str, str]] = Field(min_length=1)
    metric: str
    unit: str
    jobs: int = Field(ge=1)
    slots: int = Field(ge=1)
    slot_s: float = Field(gt=0)
    sites: list[str] = Field(min_length=1)
    factory: str
    models: list[dict[str, Any]] = Field(min_length=1)
    epochs: tuple[int, int]
    site_chunks: tuple[int, int]
    tau: tuple[float, float]
    chunk_mb: tuple[float, float]
    exchange_mb: tuple[float, float]
    worker_needs: dict[str, tuple[int, int]]
    ps_needs: dict[str, tuple[int, int]]

    def trials(self, shared: Fields, seed: int) -> list[Trial]:
        """Every policy on the jobs of a seed."""
        # a stream of its own, so that other draws from the same seed do not change the jobs
        rng = default_rng([seed, _STREAM])
        jobs = tuple(seeded({**shared, **self._job(i, rng)}, seed) for i in range(self.jobs))
        return [Trial(f"{policy}-seed{seed}", policy, seed, jobs, {"policy": policy}) for policy in self.policies]

    def _job(self, i: int, rng: Generator) -> Fields:
        """The fields of a job that it does not share with the others."""
        data = {site: int(rng.integers(*self.site_chunks, endpoint=True)) for site in self.sites}
        model = self.models[i % len(self.models)]
        return {
            "id": f"{i:02}-{model['model']}",
            "arrival_s": int(rng.integers(self.slots)) * self.slot_s,
            "epochs": int(rng.integers(*self.epochs, endpoint=True)),
            "data": data,
            "chunk_mb": float(rng.uniform(*self.chunk_mb)),
            "exchange_mb": float(rng.uniform(*self.exchange_mb)),
            "latency": {"kind": "exponential", "tau": float(rng.uniform(*self.tau))},
            "worker_needs": {name: int(rng.integers(*ends, endpoint=True)) for name, ends in self.worker_needs.items()},
            "ps_needs": {name: int(rng.integers(*ends, endpoint=True)) for name, ends in self.ps_needs.items()},
            "train": {"factory": self.factory, "args": {**model, "chunks": sum(data.values())}},
        }

    def rows(self, result: TrialResult) -> list[dict[str, Any]]:
        """One row: the metric of the run and of the simulation that predicted it, and the mean accuracy of its jobs."""
        live, simulated = (metrics[self.metric] for metrics in (result.metrics, result.simulated))
        # shown, and no part of the claim: it would reveal training that went wrong
        accuracy = sum(result.accuracy.values()) / len(result.accuracy)
        return [result.row(value=live, simulated=simulated, accuracy=accuracy)]

    def outcome(self, rows: pl.DataFrame) -> Outcome:
        """Judge each pair."""
        by_policy = {policy: rows.filter(pl.col("policy") == policy) for policy in self.policies}
        parts = tuple(self._below(by_policy[low], by_policy[high], low, high) for low, high in self.below)
        table: list[tuple[Cell, ...]] = [
            (policy, *(mean_of(policy_rows[name]) for name in ("value", "simulated", "accuracy")))
            for policy, policy_rows in by_policy.items()
        ]
        lines = tuple(
            Line(policy, (float(i),), (mean_of(policy_rows["value"]),), joined=False)
            for i, (policy, policy_rows) in enumerate(by_policy.items())
        )
        name = f"{self.metric} [{self.unit}]"
        figure = Figure(f"{name} by policy", "policy", name, lines, names=tuple(self.policies))
        return Outcome(
            parts, ("policy", f"live [{self.unit}]", f"simulated [{self.unit}]", "accuracy"), tuple(table), figure
        )

    def _below(self, low: pl.DataFrame, high: pl.DataFrame, low_policy: str, high_policy: str) -> Part:
        # paired by seed: both policies ran on the same jobs, so that differences vary less than the values
        pairs = low.join(high.select("seed", other="value"), on="seed").sort("seed")
        gap = pairs["other"] - pairs["value"]
        high_mean = mean_of(high["value"])
        numbers = f"{format_mean(low['value'])} against {format_cell(high_mean)}, by {format_mean(gap)}"
        return Part(f"{low_policy} is below {high_policy}", tuple(gap), numbers, least=MATTERS * high_mean.mean)
