"""Made-up but seeded schedules for the report's tests: chunks on lanes, gangs on servers, millions of runs."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.random import Generator, default_rng

from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.record.schedule import Schedule, schema
from skedge.report.build import ReportRun, ReportTable

MINUTE = 60 * SECOND


def scenario(jobs: int, servers: int = 8, lanes: int = 6, *, ids: list[str] | None = None) -> Scenario:
    """`servers` edge servers with `lanes` gpu lanes each, the first with 2 tpu lanes besides, and a cloud."""
    edge = [Server(f"edge-{i:02}", capacity={"worker:gpu": lanes, "ps:cpu": 4}) for i in range(servers)]
    edge[0] = Server("edge-00", capacity={"worker:gpu": lanes, "worker:tpu": 2, "ps:cpu": 4})
    cluster = Cluster([*edge, Server("cloud", kind="cloud")])
    names = ids or [f"job-{i:04}" for i in range(jobs)]
    given = [
        Job(id=name, arrival_s=60.0 * i, epochs=2, chunks=8, minibatches=10, minibatch_s=3.0, workers=3)
        for i, name in enumerate(names)
    ]
    frame, uploads = job_table(given)
    return Scenario(cluster, Jobs(frame, cluster, uploads), Physics(), seed=7, name="made up")


def chunked(world: Scenario, chunks: int, seed: int) -> Schedule:
    """Each job's chunks on the lanes that are free first; one in ten in the cloud, one in twelve preempted."""
    rng, cluster = default_rng(seed), world.cluster
    free = np.zeros(cluster.lanes, np.int64)
    rows: list[tuple[object, ...]] = []
    for job, arrival in enumerate(world.jobs.arrival.tolist()):
        for chunk in range(chunks):
            length, wait = (
                int(rng.lognormal(2.4, 0.7) * MINUTE),
                int(rng.integers(0, 3) * rng.integers(20, 200) * SECOND),
            )
            if rng.random() < 0.1:
                rows.append(
                    (job, chunk, cluster.cloud, None, arrival, arrival + 5 * wait, arrival + 5 * wait + length, False)
                )
                continue
            lane = int(np.argmin(np.maximum(free, arrival)))
            begin = max(int(free[lane]), arrival)
            free[lane] = begin + wait + length
            server = int(cluster.lane_server[lane])
            rows.append((job, chunk, server, lane, begin, begin + wait, int(free[lane]), bool(rng.random() < 1 / 12)))
    names = ["job", "chunk", "server", "lane", "start", "compute_from", "end", "preempted"]
    runs = pl.DataFrame(rows, schema=dict.fromkeys(names[:-1], pl.Int64) | {"preempted": pl.Boolean}, orient="row")
    return _schedule(world, runs.with_columns(pl.lit(1).alias("workers")), rng)


def gangs(world: Scenario, seed: int) -> Schedule:
    """Gangs of 1 to 4 workers, each on the server that is free first, some stopped and started again elsewhere."""
    rng, cluster = default_rng(seed), world.cluster
    lanes = int(cluster.workers[1, 0])
    free = np.zeros((len(cluster.servers) - 1, lanes), np.int64)
    rows: list[tuple[object, ...]] = []
    for job, arrival in enumerate(world.jobs.arrival.tolist()):
        for last in (False, True) if rng.random() < 0.3 else (True,):
            n = int(rng.integers(1, 5))
            ready = np.sort(free, axis=1)[:, n - 1]
            server = int(np.argmin(ready))
            begin = max(int(ready[server]), arrival)
            end = begin + int(rng.lognormal(3.2, 0.6) * MINUTE)
            free[server][np.argsort(free[server])[:n]] = end
            rows.append((job, server, n, begin, begin + 30 * SECOND, end, not last))
    names = ["job", "server", "workers", "start", "compute_from", "end", "preempted"]
    runs = pl.DataFrame(rows, schema=dict.fromkeys(names[:-1], pl.Int64) | {"preempted": pl.Boolean}, orient="row")
    empty = pl.lit(None, pl.Int32)
    return _schedule(world, runs.with_columns(empty.alias("lane"), empty.alias("chunk")), rng)


def huge(world: Scenario, rows: int, seed: int) -> Schedule:
    """`rows` runs back to back on the lanes, jobs in stretches of a few chunks."""
    rng, lanes = default_rng(seed), world.cluster.lanes
    per = rows // lanes
    length = rng.integers(5, 400, (lanes, per)) * SECOND
    end = np.cumsum(length, axis=1)
    job = np.minimum(np.cumsum(rng.random((lanes, per)) < 0.5, axis=1) * lanes % len(world.jobs), len(world.jobs) - 1)
    runs = pl.DataFrame({
        "job": job.ravel(), "chunk": np.tile(np.arange(per), lanes),
        "server": np.repeat(world.cluster.lane_server, per), "lane": np.repeat(np.arange(lanes), per),
        "workers": np.ones(lanes * per, np.int64), "start": (end - length).ravel(),
        "compute_from": (end - length).ravel(), "end": end.ravel(), "preempted": rng.random(lanes * per) < 0.02,
    })  # fmt: skip
    return _schedule(world, runs, rng)


def _schedule(world: Scenario, runs: pl.DataFrame, rng: Generator) -> Schedule:
    tables = schema(world.cluster.server_ids)
    servers = pl.Enum(world.cluster.server_ids)
    name = (
        pl.col("server")
        .cast(pl.UInt32)
        .replace_strict(dict(enumerate(world.cluster.server_ids)), return_dtype=pl.String)
    )
    runs = runs.with_columns(name.cast(servers), pl.lit(1.0).alias("work"), pl.lit(False).alias("colocated")).select(
        pl.col(c).cast(t) for c, t in tables["runs"].items()
    )
    held = (
        runs.group_by("job", "server")
        .agg(pl.col("start").min(), pl.col("end").max(), pl.len().alias("chunks"), pl.col("compute_from").min())
        .sort("job", "server")
    )
    uploads = held.select(
        "job", pl.lit("origin").alias("from_site"), pl.col("server").alias("to_server"), "chunks",
        (pl.col("chunks") * 12.5).alias("mb"), "start", pl.col("compute_from").alias("end"),
    )  # fmt: skip
    ps = held.with_columns(pl.lit(0).alias("slot"), pl.lit(1).alias("count"))
    tables_made = {
        "runs": runs,
        "uploads": _typed(uploads, tables["uploads"]),
        "ps": _typed(ps, tables["ps"]),
        "plans": pl.DataFrame(schema=tables["plans"]),
        "prices": pl.DataFrame(schema=tables["prices"]),
        "decisions": pl.DataFrame(schema=tables["decisions"]),
        "jobs": _jobs(world, runs, tables["jobs"], rng),
        "outages": pl.DataFrame(schema=tables["outages"]),
    }
    return Schedule(**tables_made)


def _typed(frame: pl.DataFrame, types: dict[str, object]) -> pl.DataFrame:
    return frame.select(pl.col(c).cast(t) for c, t in types.items())  # type: ignore[arg-type]


def _jobs(world: Scenario, runs: pl.DataFrame, types: dict[str, object], rng: Generator) -> pl.DataFrame:
    """One row per job; one in fifty without an end, rejected."""
    jobs = pl.DataFrame({"job": np.arange(len(world.jobs)), "id": world.jobs.ids, "arrival": world.jobs.arrival})
    ends = runs.group_by("job").agg(pl.col("start").min().alias("first_start"), pl.col("end").max().alias("completion"))
    jobs = jobs.with_columns(pl.col("job").cast(pl.Int32)).join(ends, on="job", how="left", maintain_order="left")
    jobs = jobs.with_columns(pl.min_horizontal("arrival", "first_start").alias("arrival"))
    gone = pl.col("completion").is_null() | pl.Series(rng.random(len(world.jobs)) < 0.02)
    jobs = jobs.with_columns(
        pl.when(gone).then(None).otherwise(pl.col("completion")).alias("completion"),
        pl.when(gone).then(pl.lit("rejected")).otherwise(pl.lit("finished")).alias("state"),
        pl.when(gone).then(pl.lit("no server has room")).alias("reason"),
        pl.col("arrival").alias("admitted"), pl.lit(1.0).alias("work"), pl.lit(None, pl.Float64).alias("value"),
    )  # fmt: skip
    return _typed(jobs.with_columns((pl.col("completion") - pl.col("arrival")).alias("jct")), types)


def utilisation(world: Scenario, schedule: Schedule, points: int = 300) -> pl.DataFrame:
    """Busy share, waiting and running jobs and submissions at `points` times."""
    runs, jobs = schedule.runs, schedule.jobs
    end = int(runs["end"].max() or 1)  # type: ignore[arg-type]
    grid = np.linspace(0, end, points).astype(np.int64)
    on_lane = runs.filter(pl.col("server") != "cloud")
    busy = _open(grid, on_lane["start"].to_numpy(), on_lane["end"].to_numpy(), on_lane["workers"].to_numpy())
    done = jobs.filter(pl.col("completion").is_not_null())
    arrival, first, last = (done[c].to_numpy() for c in ("arrival", "first_start", "completion"))
    ones = np.ones(len(arrival))
    counts = np.diff(np.searchsorted(np.sort(world.jobs.arrival), np.append(grid, 2**62)))
    return pl.DataFrame({
        "time_s": grid / SECOND, "busy_share": busy / max(world.cluster.lanes, 1),
        "waiting_jobs": _open(grid, arrival, first, ones), "running_jobs": _open(grid, first, last, ones),
        "submitted": counts,
    })  # fmt: skip


def _open(grid: np.ndarray, start: np.ndarray, end: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weight of the intervals that hold each time of `grid`."""

    def passed(at: np.ndarray) -> np.ndarray:
        order = np.argsort(at)
        return np.append(0, np.cumsum(weight[order]))[np.searchsorted(at[order], grid, side="right")]

    return np.asarray(passed(start) - passed(end), np.float64)


def report_run(label: str, world: Scenario, schedule: Schedule) -> ReportRun:
    """A run with metrics that follow from the schedule."""
    jct = schedule.jobs["jct"].drop_nulls().to_numpy() / SECOND
    metrics: dict[str, float | int | None] = {
        "jobs": schedule.jobs.height, "finished": len(jct), "rejected": schedule.jobs.height - len(jct),
        "jct_mean_s": float(jct.mean()) if len(jct) else None,
        "jct_p50_s": float(np.median(jct)) if len(jct) else None,
        "jct_p90_s": float(np.quantile(jct, 0.9)) if len(jct) else None,
        "makespan_s": int(schedule.runs["end"].max() or 0) / SECOND,  # type: ignore[arg-type]
        "preemptions": int(schedule.runs["preempted"].sum()), "utilisation_mean": 0.731,
        "uploaded_mb": float(schedule.uploads["mb"].sum()), "jct_rate": None,
    }  # fmt: skip
    return ReportRun(label, world, schedule, metrics, utilisation(world, schedule))


def comparison(runs: list[ReportRun]) -> ReportTable:
    """The runs' metrics with made-up intervals around the means."""
    keys = [
        "finished",
        "rejected",
        "jct_mean_s",
        "jct_p50_s",
        "jct_p90_s",
        "makespan_s",
        "preemptions",
        "utilisation_mean",
    ]

    def cell(key: str, value: float | int | None) -> dict[str, float | None] | str:
        if value is None:
            return "–"
        return {"mean": value, "low": value * 0.95, "high": value * 1.06} if key.startswith("jct") else {"mean": value}

    rows = [[r.label, *(cell(k, r.metrics[k]) for k in keys)] for r in runs]
    return ReportTable(["policy", *keys], rows, {"jct_mean_s": [0]}, note="Intervals: 95 %, 5 seeds.")


SETTINGS = {
    "seed": "7",
    "skedge": "0.1.0",
    "python": "3.11",
    "command": "skedge compare scenario.yaml --policies aonline,fifo,tiresias --seeds 5",
}
