"""A run as Chrome-trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

The format is the JSON object form of the Trace Event Format. A server is a process, and a worker or a PS slot is a
thread. A run is a complete event (``ph`` X) on each of its workers, with an event inside it for the time in which it
waits for data. Jobs are asynchronous events from arrival to completion, in a separate process. Times are µs, as in the
record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from skedge.core.model.scenario import Scenario
from skedge.core.record.schedule import Schedule

from .workers import workers_of

_JOBS = 1
"""Process number of the jobs; that of server s is s + 2."""

_PS = 1_000_000
"""First thread number of PSs."""

_Event = dict[str, Any]


def events(scenario: Scenario, schedule: Schedule) -> Iterator[_Event]:
    """All events of the trace, names of processes and threads first."""
    runs, server = schedule.runs, {name: s + 2 for s, name in enumerate(scenario.cluster.server_ids)}
    workers_of_run = workers_of(scenario, runs)
    # A list, as it is read twice: for the names of the threads, and for the events.
    places = list(_ps_places(schedule.ps))
    yield from _names(scenario, server, runs, workers_of_run, places)
    yield from _job_events(schedule.jobs)
    ids = scenario.jobs.ids
    for number, (row, workers) in enumerate(zip(runs.iter_rows(named=True), workers_of_run, strict=True)):
        for worker in workers:
            yield from _run_events(number, row, server[row["server"]], worker, ids[row["job"]])
    for row, tid in places:
        base = {"pid": server[row["server"]], "tid": tid, "ts": row["start"], "dur": row["end"] - row["start"]}
        yield {"ph": "X", "cat": "ps", "name": ids[row["job"]], **base}


def _names(
    scenario: Scenario,
    server: dict[str, int],
    runs: pl.DataFrame,
    workers_of_run: list[list[int]],
    places: list[tuple[dict[str, Any], int]],
) -> Iterator[_Event]:
    yield {"ph": "M", "name": "process_name", "pid": _JOBS, "tid": 0, "args": {"name": "jobs"}}
    for name, pid in server.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
    cluster = scenario.cluster
    # The record says how many workers a run holds, not which exist: only those that ever work get a thread.
    pid_of_worker = {
        w: server[name] for name, workers in zip(runs["server"], workers_of_run, strict=True) for w in workers
    }
    for worker, pid in sorted(pid_of_worker.items()):
        on_edge = worker < cluster.lanes
        name = f"{cluster.worker_types[cluster.lane_type[worker]]} {cluster.lane_slot[worker]}" if on_edge else "worker"
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": worker + 1, "args": {"name": name}}
    for pid, tid in sorted({(server[row["server"]], tid) for row, tid in places}):
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": f"PS {tid - _PS}"}}


def _job_events(jobs: pl.DataFrame) -> Iterator[_Event]:
    for row in jobs.filter(pl.col("completion").is_not_null()).iter_rows(named=True):
        # Begin and end are one event by cat, id and pid; a job without an end would be drawn to the end of the trace.
        base = {"cat": "job", "name": row["id"], "id": row["job"], "pid": _JOBS, "tid": 0}
        yield {"ph": "b", "ts": row["arrival"], **base}
        yield {"ph": "e", "ts": row["completion"], **base}


def _run_events(number: int, row: dict[str, Any], pid: int, worker: int, name: str) -> Iterator[_Event]:
    base = {"ph": "X", "pid": pid, "tid": worker + 1, "ts": row["start"]}
    about = {key: row[key] for key in ("chunk", "workers", "work", "colocated", "preempted") if row[key] is not None}
    yield {**base, "cat": "run", "name": name, "dur": row["end"] - row["start"], "args": {"run": number, **about}}
    if row["compute_from"] > row["start"]:
        # Within the run and drawn below it, as it begins at the same time and is shorter.
        yield {**base, "cat": "upload", "name": "waits for data", "dur": row["compute_from"] - row["start"]}


def _ps_places(ps: pl.DataFrame) -> Iterator[tuple[dict[str, Any], int]]:
    """Rows of the PS table with their threads; concurrent PSs in the cloud get separate threads."""
    free_from: list[int] = []
    for row in ps.sort("start", maintain_order=True).iter_rows(named=True):
        if row["slot"] is not None:
            yield row, _PS + row["slot"]
            continue
        # The lowest thread that is free: as many lines as there are PSs at once.
        place = next((i for i, end in enumerate(free_from) if end <= row["start"]), len(free_from))
        free_from[place : place + 1] = [row["end"]]
        yield row, _PS + place


def write(scenario: Scenario, schedule: Schedule, path: Path) -> None:
    """Write the trace to `path`, event by event."""
    with path.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        # One by one, as a large run has millions; JSON has no comma after the last.
        for n, event in enumerate(events(scenario, schedule)):
            file.write((",\n" if n else "") + json.dumps(event, allow_nan=False))
        file.write("\n]}\n")
