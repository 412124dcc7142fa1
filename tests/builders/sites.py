"""Scenarios of Okita's random sites and jobs, and the policies that run there."""

from __future__ import annotations

from dataclasses import replace

from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.policies.okita.sites import SiteJob, Sites

SLOT = 100 * SECOND


TOGETHER = "oasis:split_sites=false"
POLICIES = ("okita", "fifo", "drf", "oasis", TOGETHER)


def scenario_of(sites: Sites, jobs: list[SiteJob], *, horizon: int = 12, seed: int = 0) -> Scenario:
    """The instance as a scenario; jobs in the order of (arrival, id)."""
    names = [f"r{k}" for k in range(sites.capacity.shape[1])]
    servers = [
        Server(f"s{r}", capacity=dict(zip(names, row.tolist(), strict=True))) for r, row in enumerate(sites.capacity)
    ]
    cluster = Cluster(servers, sites.cost, asymmetric=sites.asymmetric)
    made = [
        Job(
            id=str(job.id), arrival_s=job.arrival * SLOT / SECOND, epochs=1, chunks=sum(job.data),
            minibatches=4, minibatch_s=SLOT / SECOND / (4 * job.rate), chunk_mb=job.chunk_mb,
            exchange_mb=job.exchange_mb, worker_needs=dict(zip(names, job.worker, strict=True)),
            ps_needs=dict(zip(names, job.ps, strict=True)),
            data={f"s{r}": n for r, n in enumerate(job.data)}, latency=job.latency,
        )
        for job in jobs
    ]  # fmt: skip
    table, given = job_table(made)
    return Scenario(
        cluster, Jobs(table, cluster, given), Physics(slot=SLOT, slotted=True, horizon=horizon * SLOT), seed
    )


def with_ps_needs(jobs: list[SiteJob]) -> list[SiteJob]:
    """A PS takes something of some resource, as the model wants it."""
    return [job if sum(job.ps) else replace(job, ps=(1, *job.ps[1:])) for job in jobs]
