"""Small jobs and clusters for gang policies, and where a run put a job. Times are in seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from builders.aonline_instances import Pick, one_of
from builders.product import Run, play
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.registry import make_policy

SERVERS = ((1, 1),)
"""(workers, PSs) of each server: here one server with one worker."""


def job(name: str, r: float, k: int, p: float, **options: Any) -> Job:
    """A gang of k workers that trains for p seconds; every worker one chunk. No uploads unless options say so."""
    given: dict[str, Any] = {"upload_s": {}, "chunks": k, "gradient_mb": 0.0, **options}
    return Job(id=name, arrival_s=r, epochs=1, minibatches=1, minibatch_s=p, workers=k, **given)


def scenario(
    jobs: Sequence[Job],
    servers: Sequence[tuple[int, int]] = SERVERS,
    *,
    cloud: bool = False,
    physics: Physics | None = None,
    seed: int = 0,
) -> Scenario:
    listed = [Server(f"s{s}", capacity={"worker:gpu": w, "ps:cpu": p}) for s, (w, p) in enumerate(servers)]
    cluster = Cluster([*listed, Server("cloud", "cloud")] if cloud else listed)
    known = set(cluster.server_ids)
    jobs = [replace(j, upload_s={name: d for name, d in j.upload_s.items() if name in known}) for j in jobs]
    frame, given = job_table(jobs)
    return Scenario(cluster, Jobs(frame, cluster, given), physics or Physics(), seed=seed)


def run(policy: str, *args: Any, **options: Any) -> Run:
    """Playing a run verifies it."""
    return play(scenario(*args, **options), make_policy(policy))


def where(played: Run, name: str) -> list[tuple[str, int, float, float, float]]:
    """(server, workers, start, computing from, end) of every row of a job."""
    mine = played.schedule.runs.filter(pl.col("job") == played.scenario.jobs.ids.index(name)).sort("start", "server")
    rows = mine.select("server", "workers", "start", "compute_from", "end").rows()
    return [(server, n, *(t / SECOND for t in times)) for server, n, *times in rows]


def _pick(rng: np.random.Generator) -> Pick:
    return lambda lo, hi: int(rng.integers(lo, hi + 1))


def random_jobs(pick: Pick, count: int, servers: Sequence[str], *, most: int) -> list[Job]:
    return [
        job(
            str(j), pick(0, 30) / 2, pick(1, most), pick(1, 12) / 2, chunks=most, gradient_mb=float(pick(0, 1)),
            bandwidth_mbps=16.0, upload_s={s: pick(0, 6) / 2 for s in servers}, chunk_mb=1.0,
        )
        for j in range(count)
    ]  # fmt: skip


def random_scenario(pick: Pick, physics: Physics, *, cloud: bool, seed: int = 0) -> Scenario:
    servers = [(pick(1, 4), pick(1, 3)) for _ in range(pick(1, 3))]
    names = [f"s{i}" for i in range(len(servers))] + ["cloud"] * cloud
    jobs = random_jobs(pick, pick(1, 10), names, most=5)
    return scenario(jobs, servers, cloud=cloud, physics=physics, seed=seed)


def random_physics(pick: Pick) -> Physics:
    slotted = pick(0, 2) == 0
    return Physics(
        slot=2 * SECOND,
        slotted=slotted,
        colocation=one_of(pick, ("cloud", "one_server")),
        charge_upload=pick(0, 3) > 0,
        checkpoint_overhead=one_of(pick, (0, 0, 1, 3)) * (2 * SECOND if slotted else SECOND // 2),
        estimate_error=one_of(pick, (0.0, 0.0, 0.5, 2.0)),
        speedup=one_of(pick, (1.0, 1.0, 1.3)),
    )


def random_scenarios(seeds: range) -> Iterator[Scenario]:
    for seed in seeds:
        pick = _pick(np.random.default_rng(seed))
        yield random_scenario(pick, random_physics(pick), cloud=pick(0, 1) == 1, seed=seed)
