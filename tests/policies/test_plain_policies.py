"""Gang policies and Preemptive against plain programs, run by run, on random instances with upload delays.

``INSTANCES=300 pytest -m "" tests/policies/test_plain_policies.py`` takes as many instances of each;
the default is a sample.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from builders.batch import decisions_of, plain_terms, plain_to_compare
from builders.drivers import difference
from builders.gang_policies import job, scenario
from builders.product import Run, play
from builders.she_instances import small
from builders.thorough import thorough_except
from reference.batch import Setting, a_online
from reference.gang_policies import fifo, preemptive, srtf, tiresias
from reference.gang_world import Interval, rows_of
from skedge.core.model.cluster import Physics
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.core.registry import make_policy

INSTANCES = int(os.environ.get("INSTANCES", "24"))


def instance(seed: int, *, overhead: bool = True) -> Scenario:
    """Up to four servers and nine jobs with delays up to their length; every job fits; both physics of data."""
    rng = np.random.default_rng(seed)
    workers = rng.integers(1, 4, int(rng.integers(1, 5))).tolist()
    most = min(sum(workers), 4)
    jobs = [
        job(
            str(j), float(rng.integers(0, 24)) / 2, int(rng.integers(1, most + 1)), float(rng.integers(1, 16)) / 2,
            chunks=int(rng.integers(most, most + 3)), chunk_mb=1.0,
            upload_s={f"s{s}": float(rng.integers(0, 7)) / 2 for s in range(len(workers))},
        )
        for j in range(int(rng.integers(2, 10)))
    ]  # fmt: skip
    physics = Physics(
        data="kept" if rng.integers(3) else "last_place",
        checkpoint_overhead=int(rng.integers(0, 3)) * SECOND // 2 if overhead else 0,
    )
    return scenario(jobs, [(n, len(jobs)) for n in workers], physics=physics, seed=seed)


def long_restores(seed: int) -> Scenario:
    """A short job, then longer ones, then many short ones that come faster than a checkpoint is restored."""
    rng = np.random.default_rng(seed)
    workers = rng.integers(1, 3, int(rng.integers(1, 3))).tolist()
    lengths = [1.0, *rng.integers(8, 30, 3), *rng.integers(1, 4, 14)]
    jobs = [
        job(
            str(j), j * float(rng.integers(2, 8)), int(rng.integers(1, min(sum(workers), 3) + 1)), float(length),
            chunks=3, upload_s={f"s{s}": float(rng.integers(0, 3)) / 2 for s in range(len(workers))},
        )
        for j, length in enumerate(lengths)
    ]  # fmt: skip
    physics = Physics(checkpoint_overhead=int(rng.integers(5, 40)) * SECOND)
    return scenario(jobs, [(n, len(jobs)) for n in workers], physics=physics, seed=seed)


def rows(played: Run) -> list[tuple[int, int, int, int, int, int]]:
    """As the plain programs give them: (job, server, workers, from, computing from, to)."""
    server = pl.col("server").to_physical().cast(pl.Int64)
    table = played.schedule.runs.select("job", server, "workers", "start", "compute_from", "end")
    return sorted(table.rows())


Plain = Callable[[Scenario], list[Interval]]
S = SECOND
PLAIN: dict[str, Plain] = {
    "srtf": srtf,
    "srtf:placement=literal": lambda s: srtf(s, keep_running=False),
    "tiresias:limit_s=4": lambda s: tiresias(s, 4 * S, math.inf),
    "tiresias:limit_s=4,placement=literal": lambda s: tiresias(s, 4 * S, math.inf, keep_running=False),
    "tiresias:limit_s=3,knob=0.5,placement=literal": lambda s: tiresias(s, 3 * S, 0.5, keep_running=False),
    "tiresias:limit_s=2,knob=2": lambda s: tiresias(s, 2 * S, 2),
    "tiresias": lambda s: tiresias(s, None, math.inf),
    "tiresias:knob=0.5": lambda s: tiresias(s, None, 0.5),
    "tiresias:placement=literal": lambda s: tiresias(s, None, math.inf, keep_running=False),
    "preemptive": preemptive,
}
TIRESIAS = [spec for spec in PLAIN if spec.startswith("tiresias")]


@pytest.mark.parametrize("spec", thorough_except(["srtf", "tiresias:limit_s=4", "tiresias", "preemptive"], PLAIN))
def test_the_product_runs_what_the_plain_program_runs(spec: str) -> None:
    """The same workers, from and to the same times, computing from the same times; every record is verified."""
    again = moved = 0
    for seed in range(INSTANCES):
        s = instance(seed, overhead="knob" not in spec)
        played = play(s, make_policy(spec))
        assert rows(played) == sorted(rows_of(PLAIN[spec](s))), seed
        again += int(played.metrics["preemptions"] or 0)
        moved += int(played.metrics["migrations"] or 0)
    assert min(again, moved) > INSTANCES / 10


@pytest.mark.parametrize("backfill", [False, True])
def test_fifo_runs_what_the_plain_program_runs(backfill: bool) -> None:
    """Strict FIFO, in which a job waits behind one that does not fit, and with backfilling."""
    waited = 0
    for seed in range(INSTANCES):
        s = instance(seed)
        played = play(s, make_policy(f"fifo:backfill={str(backfill).lower()}"))
        assert rows(played) == sorted(rows_of(fifo(s, backfill=backfill))), seed
        starts, arrivals = dict(played.schedule.runs.select("job", "start").rows()), s.jobs.arrival.tolist()
        waited += sum(start > arrivals[job] for job, start in starts.items())
    assert waited > INSTANCES


@pytest.mark.parametrize("spec", thorough_except(["tiresias", "tiresias:placement=literal"], TIRESIAS))
def test_jobs_preempted_while_they_restore_attain_no_service(spec: str) -> None:
    """With restores of several preemptions' time, by the plain program and by both drivers; D4."""
    cut = 0
    for seed in range(INSTANCES):
        s = long_restores(seed)
        played = play(s, make_policy(spec))
        assert rows(played) == sorted(rows_of(PLAIN[spec](s))), seed
        assert difference(s, spec) == [], seed
        cut += int((played.schedule.runs["compute_from"] == played.schedule.runs["end"]).sum())
    assert cut > INSTANCES / 4


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        ("", Setting(batchsche=True)),
        (":upload=where_placed", Setting(batchsche=True, where_placed=True)),
        (":tie=printed", Setting(batchsche=True, printed_tie=True)),
    ],
)
def test_batchsche_decides_as_the_plain_program(options: str, setting: Setting) -> None:
    """With delays of up to ten slots: the same batches offer and accept the same, by the same plans."""
    beyond = 0
    for seed in range(INSTANCES):
        s = small(seed)
        played = play(s, make_policy(f"batchsche{options}"))
        plain, _ = a_online(s, setting)
        assert plain_to_compare(decisions_of(played)) == plain_terms(plain), seed
        runs = played.schedule.runs
        beyond += int((runs["compute_from"] > runs["start"]).sum())
    assert beyond > INSTANCES
