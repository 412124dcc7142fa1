"""The same instances for the product: scenarios, verified runs, and their answers in the plain path's terms."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from reference.aonline_model import CLOUD, Instance, Result
from skedge.analysis.metrics.metrics import metrics
from skedge.analysis.verify.verify import verify
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.policy import Policy
from skedge.core.record.schedule import Schedule
from skedge.sim.world import SimulatedWorld

HOUR = 3600 * SECOND
"""The unit of the golden cases, a slot [µs]."""


@dataclass(frozen=True)
class Run:
    """A finished, verified run."""

    scenario: Scenario
    kernel: Kernel
    schedule: Schedule
    meta: dict[str, Any]

    @property
    def metrics(self) -> dict[str, Any]:
        return metrics(self.scenario, self.schedule, self.meta)


def play(scenario: Scenario, policy: Policy, *, check: bool = True) -> Run:
    """Run `policy` in the simulated world; the books must balance and the record must keep every rule."""
    kernel = Kernel(scenario, policy)
    world = SimulatedWorld(kernel)
    drive_to_end(kernel, world)
    kernel.validate_state()
    schedule, meta = kernel.record.schedule(world.runs()), {"lanes": asdict(policy.lanes)}
    if check:
        assert verify(scenario, schedule, meta) == []
    return Run(scenario, kernel, schedule, meta)


def scenario_of(instance: Instance, unit: int = 1, *, cloud: bool = True, physics: Physics | None = None) -> Scenario:
    """`instance` with a unit of `unit` µs as a scenario; workers of a server must be listed by type."""
    servers = [
        Server(str(s), "edge", _capacity(server.workers, server.ps), _float(server.storage))
        for s, server in enumerate(instance.servers)
    ]
    cluster = Cluster([*servers, Server("cloud", "cloud")] if cloud else servers)
    name = {s: str(s) for s in range(len(servers))} | ({CLOUD: "cloud"} if cloud else {})

    def seconds(time: Fraction | int) -> float:
        return float(Fraction(time) * unit / SECOND)

    jobs = [
        Job(
            id=str(j), arrival_s=seconds(job.r), epochs=job.E, chunks=job.D, minibatches=job.B,
            minibatch_s=seconds(job.m), ps_update_s=seconds(job.G), gradient_mb=float(job.q),
            bandwidth_mbps=float(8 * Fraction(job.b) * SECOND / unit), worker_type=job.type, ps_type=job.ps_type,
            chunk_mb=float(job.u), upload_s={name[s]: seconds(d) for s, d in job.delta.items() if s in name},
        )
        for j, job in enumerate(instance.jobs)
    ]  # fmt: skip
    frame, given_delays = job_table(jobs)
    slot = instance.grain * unit
    physics = physics or Physics(
        slotted=slot > 1, slot=slot if slot > 1 else HOUR, speedup=float(1 + Fraction(instance.epsilon))
    )
    return Scenario(cluster, Jobs(frame, cluster, given_delays), physics)


def _capacity(workers: tuple[str, ...], ps: tuple[str, ...]) -> dict[str, int]:
    listed = [f"worker:{t}" for t in workers] + [f"ps:{t}" for t in ps]
    return {resource: listed.count(resource) for resource in dict.fromkeys(listed)}


def _float(storage: Fraction | int | None) -> float | None:
    return None if storage is None else float(storage)


# -- answers: the same shape from a run of the product and from the plain path ----------------------------------------


def chunks_of_run(run: Run) -> list[tuple[int, int, int, int, int]]:
    """(job, chunk, server, worker, postponed) of every dispatched chunk, in order of dispatch; CLOUD, CLOUD there."""
    cluster = run.scenario.cluster
    rows = (
        run.schedule.decisions.filter(pl.col("verb") == "dispatch").select("job", "chunk", "lane", "postponed").rows()
    )
    return [(job, d, *_place(cluster, lane), postponed) for job, d, lane, postponed in rows]


def _place(cluster: Cluster, lane: int | None) -> tuple[int, int]:
    return (CLOUD, CLOUD) if lane is None else (int(cluster.lane_server[lane]), int(cluster.lane_slot[lane]))


def chunks_of_plain(result: Result) -> list[tuple[int, int, int, int, int]]:
    return [
        (c.job, c.d, c.place[0], CLOUD if c.place[0] == CLOUD else c.place[1], cost.postponed)
        for c, cost in zip(result.chunks, result.costs, strict=True)
    ]


def alphas_of_run(run: Run) -> list[float]:
    """alpha_jd in order of dispatch [s]."""
    return run.schedule.decisions.filter(pl.col("verb") == "dispatch")["value"].to_list()


def runs_of_run(run: Run) -> list[tuple[int, int, int, int, int, int]]:
    """(job, chunk, server, worker, from, to), sorted."""
    cluster = run.scenario.cluster
    rows = run.schedule.runs.select("job", "chunk", "lane", "start", "end").rows()
    return sorted((job, d, *_place(cluster, lane), start, end) for job, d, lane, start, end in rows)


def runs_of_plain(result: Result, unit: int = 1) -> list[tuple[Any, ...]]:
    return sorted(
        (c.job, c.d, place[0], CLOUD if place[0] == CLOUD else place[1], start * unit, stop * unit)
        for place, runs in result.timelines.items()
        for c, start, stop in runs
    )


def ps_of_run(run: Run) -> dict[int, list[tuple[int, int, int, int]]]:
    """[from, to, server, PS] by job, in order of time."""
    out: dict[int, list[tuple[int, int, int, int]]] = {}
    for job, server, slot, start, end in run.schedule.ps.select("job", "server", "slot", "start", "end").rows():
        place = (CLOUD, CLOUD) if slot is None else (int(server), slot)
        out.setdefault(job, []).append((start, end, *place))
    return {job: sorted(rows) for job, rows in out.items()}


def ps_of_plain(result: Result, unit: int = 1) -> dict[int, list[tuple[Any, ...]]]:
    return {j: [(start * unit, stop * unit, *place) for start, stop, *place in rows] for j, rows in result.ps.items()}


def completions_of_run(run: Run) -> list[int | None]:
    return run.schedule.jobs["completion"].to_list()


def completions_of_plain(instance: Instance, result: Result, unit: int = 1) -> list[Any]:
    return [None if j in result.rejected else result.job_completion(j) * unit for j in range(len(instance.jobs))]
