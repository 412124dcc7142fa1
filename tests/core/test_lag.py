"""``max_lag``: chunks that are ahead wait, in simulation and by rule M39; the oracle goes second by second."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.random import Generator, default_rng

from skedge.core.errors import ScenarioError
from skedge.core.events import Dispatch, Event, LaneFacts
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.registry import make_policy
from skedge.recorded_run import Run
from skedge.simulate import run

GPUS = {"worker:gpu": 1, "ps:cpu": 9}


def scenario(jobs: list[Job], lanes: int = 2, *, cloud: bool = False, **physics: Any) -> Scenario:
    servers = [Server(f"e{i}", "edge", GPUS) for i in range(lanes)] + [Server("cloud", "cloud")] * cloud
    cluster = Cluster(servers)
    table, given = job_table(jobs)
    return Scenario(cluster, Jobs(table, cluster, given), Physics(slot=SECOND, **physics))


def drawn(rng: Generator, lag: int | None) -> Scenario:
    """Jobs of whole seconds, so that everything happens at whole seconds."""
    jobs = []
    for i in range(int(rng.integers(2, 7))):
        chunks, epochs, batches, arrival = (int(rng.integers(1, n)) for n in (6, 6, 4, 25))
        edge, cloud = int(rng.integers(0, 3)), int(rng.integers(2, 20))
        jobs.append(
            Job(
                f"j{i}",
                float(arrival),
                epochs,
                chunks,
                batches,
                1.0,
                max_lag=lag if rng.random() < 0.8 else None,
                upload_edge_s=(edge, edge),
                upload_cloud_s=(cloud, cloud),
            )
        )
    return scenario(jobs, int(rng.integers(1, 4)), cloud=bool(rng.random() < 0.5))


@dataclass(eq=False)
class Part:
    """A chunk of the oracle: `done` is in seconds."""

    job: int
    number: int
    lane: int
    place: tuple[int, int]
    ready: int
    epoch: int
    whole: int
    lag: int
    done: int = 0


def sent(made: Run) -> list[Part]:
    """The chunks as they were dispatched; each one in the cloud has a lane of its own, below 0."""
    jobs, parts = made.scenario.jobs, list[Part]()
    rows = made.schedule.decisions.filter(pl.col("verb") == "dispatch")
    for n, row in enumerate(rows.iter_rows(named=True)):
        job, where = row["job"], "edge" if row["lane"] is not None else "cloud"
        delay = jobs.frame[f"upload_{where}_lo_s"][job]
        lane = row["lane"] if row["lane"] is not None else -1 - n
        epoch, whole = int(jobs.frame["minibatches"][job]), int(jobs.minibatches[job])
        ready = row["time"] // SECOND + int(delay)
        # sequence: jobs of equal rank in the order in which they were dispatched
        place = row["rank"], rows["job"].to_list().index(job)
        parts.append(Part(job, row["chunk"], lane, place, ready, epoch, whole, int(jobs.max_lag[job])))
    return parts


def walked(parts: list[Part], *, preemptive: bool) -> list[tuple[Any, ...]]:
    """(job, chunk, lane, start, end, preempted) of every run, second by second."""
    runs, serving, now = list[tuple[Any, ...]](), dict[int, tuple[Part, int]](), 0

    def held(part: Part) -> bool:
        slowest = min(other.done // other.epoch for other in parts if other.job == part.job)
        return part.lag > 0 and part.done % part.epoch == 0 and part.done // part.epoch >= slowest + part.lag

    def turn(part: Part) -> tuple[int, int]:
        return (part.done // part.epoch if part.lag else 0), part.number

    def best(there: list[Part], before: Part | None) -> Part | None:
        free = [part for part in there if not held(part)]
        if not preemptive and before in free:
            return before
        return min(free, key=lambda part: (part.place, turn(part)), default=None)

    while any(part.done < part.whole for part in parts):
        chosen = {}
        for lane in sorted({part.lane for part in parts}):
            there = [p for p in parts if p.lane == lane and p.ready <= now and p.done < p.whole]
            chosen[lane] = best(there, serving[lane][0] if lane in serving else None)
        for lane, part in chosen.items():
            before, since = serving.get(lane, (None, now))
            if before is not None and before is not part:
                gave = before.lag and (held(before) or (part is not None and part.job == before.job))
                cut = before.done < before.whole and not gave
                runs.append((before.job, before.number, lane, since, now, bool(cut)))
            if part is None or before is not part:
                serving.pop(lane, None)
            if part is not None:
                serving.setdefault(lane, (part, now))
        for part, _ in serving.values():
            part.done += 1
        now += 1
    runs += [(part.job, part.number, lane, since, now, False) for lane, (part, since) in serving.items()]
    return sorted((job, chunk, max(lane, -1), *rest) for job, chunk, lane, *rest in runs)


def recorded(made: Run) -> list[tuple[Any, ...]]:
    t = made.schedule.runs.with_columns(pl.col("lane").fill_null(-1))
    rows = t.select("job", "chunk", "lane", pl.col("start") // SECOND, pl.col("end") // SECOND, "preempted").rows()
    return sorted(rows)


@pytest.mark.parametrize("policy", ["aonline", "aonline:preempt_running=false"])
@pytest.mark.parametrize("lag", [1, 2])
def test_chunks_run_as_walked_second_by_second_and_every_rule_holds(policy: str, lag: int) -> None:
    """Drawn jobs, some without a bound, with and without a cloud."""
    rng, waited = default_rng(lag), 0
    for _ in range(25):
        of = drawn(rng, lag)
        made = run(of, policy)
        assert recorded(made) == walked(sent(made), preemptive=policy == "aonline")
        assert made.verify() == []
        waited += recorded(made) != recorded(run(unbounded(of), policy))
    assert waited > 5, "the bound must matter in some of them"


def unbounded(of: Scenario) -> Scenario:
    frame = of.jobs.frame
    return replace(of, jobs=Jobs(frame.drop("max_lag") if "max_lag" in frame.columns else frame, of.cluster))


def test_a_bound_that_is_never_reached_changes_no_completion() -> None:
    """Chunks take turns on a lane; when its work is done is the same."""
    rng = default_rng(7)
    for _ in range(10):
        of = drawn(rng, 99)
        with_turns, without = run(of, "aonline"), run(unbounded(of), "aonline")
        assert with_turns.jobs["completion"].to_list() == without.jobs["completion"].to_list()
        assert with_turns.verify() == []


def alone() -> Run:
    """Two chunks on two lanes, three epochs of a second; a short job takes lane 0 at 0.5 s for 2 s."""
    a = Job("a", 0.0, 3, 2, 1, 1.0, max_lag=1)
    b = Job("b", 0.5, 1, 1, 2, 1.0)
    return run(scenario([a, b]), "aonline")


def test_a_chunk_waits_while_its_job_s_slowest_is_displaced() -> None:
    """By hand: a's chunk 1 ends epoch 1 at 1 s and waits until chunk 0, displaced from 0.5 to 2.5 s, has ended it."""
    t = alone().schedule.runs
    found = t.select("job", "chunk", pl.col("start") / SECOND, pl.col("end") / SECOND, "preempted").rows()
    assert found == [
        (0, 0, 0.0, 0.5, True),
        (0, 1, 0.0, 1.0, False),
        (1, 0, 0.5, 2.5, False),
        (0, 0, 2.5, 5.0, False),
        (0, 1, 3.0, 5.0, False),
    ]


def rules(made: Run, row: int, **values: Any) -> set[str]:
    t = made.schedule.runs
    changed = t.with_row_index("row")
    for name, value in values.items():
        new = pl.when(pl.col("row") == row).then(pl.lit(value)).otherwise(pl.col(name))
        changed = changed.with_columns(new.cast(t.schema[name]).alias(name))
    schedule = replace(made.schedule, runs=changed.drop("row"))
    return {violation.rule for violation in replace(made, schedule=schedule).verify()}


def test_planted_violations_are_found() -> None:
    """Goes on while it is ahead: M39. Waits longer than it must: M22. Says that it was displaced: M11."""
    made = alone()
    assert rules(made, 0) == set()
    early = rules(made, 4, start=int(2.0 * SECOND), compute_from=int(2.0 * SECOND), end=int(4.0 * SECOND))
    assert early == {"M39", "M12"}, "and its PS is there longer than it runs"
    late = rules(made, 4, start=int(3.5 * SECOND), compute_from=int(3.5 * SECOND), end=int(5.5 * SECOND))
    assert late >= {"M22"}
    assert rules(made, 1, preempted=True) == {"M11"}


def test_in_the_cloud_a_chunk_waits_too_and_goes_on_at_once() -> None:
    """Chunk 1 is sent to the cloud, its fellow is displaced; a chunk that waits longer than it must breaks M22."""
    a = Job("a", 0.0, 3, 2, 1, 10.0, upload_cloud_s=(1, 1), max_lag=1)
    b = Job("b", 5.0, 1, 1, 2, 10.0, upload_cloud_s=(99, 99))
    made = run(scenario([a, b], lanes=1, cloud=True), "aonline")
    assert made.verify() == []
    cloud = made.schedule.runs.with_row_index("row").filter(pl.col("lane").is_null())
    assert len(cloud) == 2, "it waits once"
    row, start, end = cloud.select("row", "start", "end").rows()[1]
    assert rules(made, row, start=start + SECOND, compute_from=start + SECOND, end=end + SECOND) >= {"M22"}
    assert "M39" in rules(made, row, start=start - SECOND, compute_from=start - SECOND, end=end - SECOND)


@pytest.mark.parametrize("value", [0, -1, 1.5, "two", True, np.inf])
def test_a_bound_that_is_no_number_of_epochs_is_refused(value: Any) -> None:
    with pytest.raises(ScenarioError, match=r"job 'a'.*max_lag.* = .*it must be"):
        Job("a", 0.0, 1, 1, 1, 1.0, max_lag=value)


def test_where_no_chunk_could_keep_it_a_bound_is_refused() -> None:
    of = [Job("a", 0.0, 1, 1, 1, 1.0, max_lag=2, worker_needs={"gpu": 1}, ps_needs={"gpu": 1})]
    with pytest.raises(ScenarioError, match=r"physics.slotted: is true; max_lag \(job 'a'\) goes with continuous time"):
        scenario([replace(of[0], worker_needs={}, ps_needs={})], slotted=True)
    with pytest.raises(ScenarioError, match=r"checkpoint_overhead: 3 s; it must be 0 with max_lag"):
        scenario([replace(of[0], worker_needs={}, ps_needs={})], checkpoint_overhead=3 * SECOND)
    cluster = Cluster([Server("m", capacity={"gpu": 4.0})])
    with pytest.raises(ScenarioError, match="max_lag = 2; it must be left out"):
        Jobs(job_table(of)[0], cluster)


def test_chunks_that_took_turns_are_all_dispatched_again_though_one_was_counted() -> None:
    """Two chunks on a lane have done one chunk's work, and neither is trained, when their server is lost."""
    of = scenario([Job("a", 0.0, 3, 4, 2, 1.0)])
    kernel = Kernel(of, make_policy("aonline"))
    (sent,) = [order for order in kernel.handle(Event(0, arrived=(0,))) if isinstance(order, Dispatch)]
    there = tuple(np.flatnonzero(sent.lane == 0).tolist())
    assert len(there) == 2
    worth = LaneFacts(*(np.array([x]) for x in (6 * SECOND, 0, 0)))
    kernel.handle(Event(7 * SECOND, started=(0,), chunks=worth))
    lost = Event(8 * SECOND, servers=((0, "server_lost"),), lost=((0, there),))
    assert [order.chunks for order in kernel.handle(lost) if isinstance(order, Dispatch)] == [there]
