"""SRTF, Tiresias-L and FIFO, and the placement that they share. Times are in seconds unless a name ends in ``_us``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.aonline_instances import one_of
from builders.gang_policies import (
    _pick,
    job,
    random_physics,
    random_scenario,
    random_scenarios,
    run,
    scenario,
    where,
)
from builders.paths import CASES
from builders.product import Run, play
from builders.thorough import thorough_after, thorough_except
from reference.gang_policies import default_limit
from skedge.core.engine.ledger import HELD
from skedge.core.events import Event
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Ints, Job, Physics
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import NEVER, SECOND, ticks
from skedge.core.registry import make_policy
from skedge.policies.gangs.base import RANKED
from skedge.policies.gangs.edge import ACTIVE
from skedge.policies.gangs.placement import place
from skedge.policies.gangs.tiresias import (
    attained,
    begin,
    execute,
    learn,
    next_demotion,
    no_clocks,
    promote,
    with_clocks,
)
from skedge.scenario.file import load_scenario
from skedge.sim.world import SimulatedWorld

bounded = settings(
    max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def held(played: Run, name: str) -> list[tuple[float, float]]:
    """When a job holds workers: (start, end) of its allocations."""
    ids = played.scenario.jobs.ids
    mine = played.schedule.runs.filter(pl.col("job") == ids.index(name)).unique(["start", "end"]).sort("start")
    return [(start / SECOND, end / SECOND) for start, end in mine.select("start", "end").rows()]


def completion(played: Run, name: str) -> float:
    value = played.schedule.jobs["completion"][played.scenario.jobs.ids.index(name)]
    return float(value) / SECOND


# -- placement --------------------------------------------------------------------------------------------------------


def placed(room: Sequence[int], delay: Sequence[int], k: int) -> list[tuple[int, int]]:
    server, count = np.zeros(len(room) + 1, np.int64), np.zeros(len(room) + 1, np.int64)
    n = place(np.array(room, np.int64), np.array(delay, np.int64), k, server, count)
    return list(zip(server[:n].tolist(), count[:n].tolist(), strict=True))


def best_subset(room: Sequence[int], delay: Sequence[int], k: int) -> list[tuple[int, int]]:
    """The stated rule, over all subsets: fewest servers, least largest delay, least sum of delays, first by number."""
    subsets = (c for n in range(1, len(room) + 1) for c in combinations(range(len(room)), n))
    able = (c for c in subsets if sum(room[s] for s in c) >= k)
    best = min(able, key=lambda c: (len(c), max(delay[s] for s in c), sum(delay[s] for s in c), c))
    left, out = k, []
    for s in sorted(best, key=lambda s: (delay[s], s)):
        out.append((s, min(left, room[s])))
        left -= out[-1][1]
    return out


@bounded
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6), st.integers(1, 18))
def test_placement_is_the_best_subset_of_servers(servers: list[tuple[int, int]], k: int) -> None:
    """On the smallest set of servers; then least largest delay, least sum, first; filled by delay."""
    room, delay = [r for r, _ in servers], [d for _, d in servers]
    if sum(room) >= k:
        assert placed(room, delay, k) == best_subset(room, delay, k)


def test_placement_is_the_best_subset_in_volume() -> None:
    """3,000 seeded clusters of up to six servers."""
    rng = np.random.default_rng(5)
    for _ in range(3000):
        n = int(rng.integers(1, 7))
        room, delay = rng.integers(0, 5, n).tolist(), rng.integers(0, 4, n).tolist()
        if sum(room):
            k = int(rng.integers(1, sum(room) + 1))
            assert placed(room, delay, k) == best_subset(room, delay, k)


# -- SRTF -------------------------------------------------------------------------------------------------------------


def least_total_completion(jobs: Sequence[tuple[int, int]]) -> int:
    """Least sum of (c - r) on one machine over all preemptive schedules, by trying every job in every unit of time."""

    @cache
    def best(t: int, left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        waiting = sum(p > 0 and r <= t for (r, _), p in zip(jobs, left, strict=True))
        options = [j for j, p in enumerate(left) if p and jobs[j][0] <= t]
        if not options:
            return best(t + 1, left)
        return waiting + min(best(t + 1, (*left[:j], left[j] - 1, *left[j + 1 :])) for j in options)

    return best(0, tuple(p for _, p in jobs))


def srpt(jobs: Sequence[tuple[int, int]]) -> list[int]:
    """Completions of shortest remaining processing time, unit by unit."""
    left, ends, t = [p for _, p in jobs], [0] * len(jobs), 0
    while any(left):
        ready = [j for j, p in enumerate(left) if p and jobs[j][0] <= t]
        t += 1
        if ready:
            j = min(ready, key=lambda j: (left[j], j))
            left[j] -= 1
            ends[j] = t
    return ends


def test_srtf_on_one_worker_is_srpt_and_optimal() -> None:
    """60 seeded sets of up to five unit gangs: completions are SRPT's, and no preemptive schedule has a smaller sum."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        jobs = sorted((int(rng.integers(0, 8)), int(rng.integers(1, 5))) for _ in range(int(rng.integers(1, 6))))
        played = run("srtf", [job(str(j), r, 1, p) for j, (r, p) in enumerate(jobs)])
        ends = [int(c // SECOND) for c in played.schedule.jobs["completion"]]
        assert ends == srpt(jobs)
        assert sum(c - r for c, (r, _) in zip(ends, jobs, strict=True)) == least_total_completion(jobs)


def test_srtf_lets_a_shorter_newcomer_preempt() -> None:
    """a has 6 left at 4 when b with 2 arrives: b 4-6, a 0-4 and 6-12."""
    played = run("srtf", [job("a", 0, 1, 10), job("b", 4, 1, 2)])
    assert held(played, "a") == [(0, 4), (6, 12)]
    assert held(played, "b") == [(4, 6)]


def test_srtf_does_not_let_a_longer_newcomer_preempt() -> None:
    """a has 6 left at 4, b needs 7."""
    played = run("srtf", [job("a", 0, 1, 10), job("b", 4, 1, 7)])
    assert held(played, "a") == [(0, 10)]


def test_srtf_scans_on_behind_a_job_that_does_not_fit() -> None:
    """One of two workers is taken by a; b wants two and waits, c, ranked behind b, takes the other until b can run."""
    jobs = [job("a", 0, 1, 3), job("b", 1, 2, 4), job("c", 1, 1, 8)]
    played = run("srtf", jobs, [(2, 2)])
    assert held(played, "a") == [(0, 3)]
    assert held(played, "c") == [(1, 3), (7, 13)]
    assert held(played, "b") == [(3, 7)]


def test_a_running_job_is_moved_by_literal_placement_alone() -> None:
    """b is shorter and nearer to s0, where a runs, while s1 is free: literally a must move and upload again."""
    near_s0 = {"s0": 1.0, "s1": 2.0}
    jobs = [job("a", 0, 1, 20, upload_s=near_s0), job("b", 5, 1, 3, upload_s=near_s0)]
    literal = run("srtf:placement=literal", jobs, [(1, 1), (1, 1)])
    assert where(literal, "a") == [("s0", 1, 0, 1, 5), ("s1", 1, 5, 7, 23)]
    assert literal.metrics["migrations"] == 1
    kept = run("srtf", jobs, [(1, 1), (1, 1)])
    assert where(kept, "a") == [("s0", 1, 0, 1, 21)]
    assert where(kept, "b") == [("s1", 1, 5, 7, 10)]
    assert kept.metrics["migrations"] == 0


def test_a_job_that_returns_leaves_its_last_place_to_those_that_run_there() -> None:
    """Servers of 2 and 1; b (k=2) runs on both from 1, c (k=2) on s0 from 2 to 3, a then on s1. b returns at 3.

    s0 is free and does for b, so that a, ranked behind b, keeps its worker on s1, which was b's.
    """
    jobs = [job("a", 0, 1, 8), job("b", 1, 2, 4), job("c", 2, 2, 1)]
    kept = run("srtf", jobs, [(2, 3), (1, 3)])
    assert where(kept, "b")[-1] == ("s0", 2, 3, 3, 6)
    assert where(kept, "a") == [("s0", 1, 0, 0, 2), ("s1", 1, 2, 2, 8)]


@pytest.mark.parametrize("policy", thorough_after(1, ["srtf", "tiresias:limit_s=3", "tiresias:limit_s=2,knob=1"]))
def test_keep_running_displaces_no_job_while_unheld_workers_would_have_done(policy: str) -> None:
    """150 seeded scenarios, after every event: no job takes a worker that another held while enough others were free.

    Free for a job are the workers that no job held when the event came, less those that jobs before it in rank take.
    """
    placed = displaced = 0
    for seed in range(150):
        pick = _pick(np.random.default_rng(seed))
        s = ending(random_scenario(pick, Physics(), cloud=False, seed=seed), policy)
        made: Any = make_policy(policy)
        kernel, before = Kernel(s, made), dict[int, dict[int, int]]()

        def look(event: Event, _: object, made: Any = made, kernel: Kernel = kernel, before: Any = before) -> None:
            nonlocal placed, displaced
            row = RANKED if policy == "srtf" else ACTIVE
            ranked = made.edge.lists[row, : made.edge.lengths[row]].tolist()
            now = {job: dict(kernel.engine.placement(job)) for job in kernel.engine.holders()}
            still = {job: at for job, at in before.items() if kernel.status[job] < 2}
            idle = kernel.scenario.cluster.workers.sum(axis=1)
            for at in still.values():
                for server, n in at.items():
                    idle[server] -= n
            for one in ranked:
                if one not in now or now[one] == still.get(one):
                    continue
                takes, enough = now[one], np.maximum(idle, 0).sum() >= sum(now[one].values())
                from_others = any(n > max(idle[server], 0) for server, n in takes.items())
                placed, displaced = placed + 1, displaced + from_others
                assert not (from_others and enough), (kernel.scenario.seed, event.time, one)
                for server, n in takes.items():
                    idle[server] -= n
            before.clear()
            before.update(now)

        drive_to_end(kernel, SimulatedWorld(kernel), look)
    assert placed > 300
    assert displaced > 30


def test_moving_to_another_server_pays_the_upload_again() -> None:
    """a, moved at 5, has 20 - 4 left and waits 2 s for its data on s1: it ends at 5 + 2 + 16."""
    near_s0 = {"s0": 1.0, "s1": 2.0}
    jobs = [job("a", 0, 1, 20, upload_s=near_s0, chunk_mb=10.0), job("b", 5, 1, 3, upload_s=near_s0)]
    played = run("srtf:placement=literal", jobs, [(1, 1), (1, 1)])
    assert completion(played, "a") == 23
    of_a = played.schedule.uploads.filter(pl.col("job") == 0).select("to_server", "start", "end", "mb").rows()
    assert of_a == [("s0", 0, SECOND, 10.0), ("s1", 5 * SECOND, 7 * SECOND, 10.0)]


def test_resuming_where_the_data_are_pays_no_upload() -> None:
    """a is preempted at 4 on its only server and resumes at 4 + 2 + 1, computing at once."""
    jobs = [job("a", 0, 1, 10, upload_s={"s0": 1.0}), job("b", 4, 1, 2, upload_s={"s0": 1.0})]
    assert where(run("srtf", jobs), "a") == [("s0", 1, 0, 1, 4), ("s0", 1, 7, 7, 14)]


def test_free_uploads_start_at_once() -> None:
    """With ``charge_upload: false`` the same jobs take no time to upload."""
    jobs = [job("a", 0, 1, 10, upload_s={"s0": 1.0}), job("b", 4, 1, 2, upload_s={"s0": 1.0})]
    played = run("srtf", jobs, physics=Physics(charge_upload=False))
    assert where(played, "a") == [("s0", 1, 0, 0, 4), ("s0", 1, 6, 6, 12)]


def test_sticky_job_waits_for_its_server() -> None:
    """c displaces a from s0; s1 is free from 6, but a sticky job resumes only where its data are, at 10."""
    jobs = [
        job("a", 0, 1, 20, upload_s={"s0": 0.0, "s1": 1.0}),
        job("b", 0, 1, 6, upload_s={"s0": 9.0, "s1": 0.0}),
        job("c", 4, 1, 6, upload_s={"s0": 0.0, "s1": 1.0}),
    ]
    assert [row[:3] for row in where(run("srtf:sticky=true", jobs, [(1, 1), (1, 1)]), "a")] == [
        ("s0", 1, 0),
        ("s0", 1, 10),
    ]
    assert [row[:3] for row in where(run("srtf", jobs, [(1, 1), (1, 1)]), "a")] == [("s0", 1, 0), ("s1", 1, 6)]


def test_checkpoint_overhead_is_paid_at_every_resumption() -> None:
    """a is preempted at 4 and resumes at 6; with an overhead of 3 it computes from 9 on and ends at 15, not 12."""
    jobs = [job("a", 0, 1, 10), job("b", 4, 1, 2)]
    played = run("srtf", jobs, physics=Physics(checkpoint_overhead=3 * SECOND))
    assert where(played, "a") == [("s0", 1, 0, 0, 4), ("s0", 1, 6, 9, 15)]
    assert where(played, "b") == [("s0", 1, 4, 4, 6)]


def test_gang_holds_its_workers_to_the_end_of_the_slot() -> None:
    """Slots of 10 s. A job that arrives at 3 is seen at 10, needs 12 s and gives its workers up at 30."""
    physics = Physics(slot=10 * SECOND, slotted=True)
    played = run("srtf", [job("a", 3, 2, 12), job("b", 8, 2, 5)], [(2, 2)], physics=physics)
    assert held(played, "b") == [(10, 20)]
    assert held(played, "a") == [(20, 40)]
    assert played.schedule.jobs["jct"].to_list() == [37 * SECOND, 12 * SECOND]


def test_gang_work_is_rounded_to_slots_once_at_its_end() -> None:
    """15 s of work in slots of 10 s: 10 s before the preemption at 10, 5 s after it, up to the next boundary."""
    physics = Physics(slot=10 * SECOND, slotted=True)
    played = run("srtf", [job("a", 0, 1, 15), job("b", 10, 1, 2)], physics=physics)
    assert held(played, "b") == [(10, 20)]
    assert held(played, "a") == [(0, 10), (20, 30)]


# -- Tiresias-L -------------------------------------------------------------------------------------------------------


def before(played: Run, time_us: int) -> list[tuple[Any, ...]]:
    """All that happened before a time: runs, cut there."""
    rows = (
        played.schedule.runs.filter(pl.col("start") < time_us).select("job", "server", "workers", "start", "end").rows()
    )
    return sorted((*row[:4], min(row[4], time_us)) for row in rows)


@pytest.mark.thorough
def test_tiresias_knows_no_durations() -> None:
    """Permuting the lengths of the jobs changes nothing before the first completion; 40 seeded sets of jobs."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        arrivals = [(float(rng.integers(0, 10)), int(rng.integers(1, 4))) for _ in range(6)]
        lengths = rng.integers(8, 40, 6).astype(float)
        policy = f"tiresias:limit_s={int(rng.integers(4, 30))},knob={one_of(_pick(rng), ('1', '0.5', 'inf'))}"
        runs = [
            run(
                policy,
                [job(str(j), r, k, p) for j, ((r, k), p) in enumerate(zip(arrivals, order, strict=True))],
                [(3, 3)],
            )
            for order in (lengths, rng.permutation(lengths))
        ]
        first = min(played.schedule.jobs["completion"].min() for played in runs)
        assert before(runs[0], first) == before(runs[1], first)


def test_srtf_does_know_durations() -> None:
    """The same permutation changes SRTF: which of two jobs that arrive together runs first."""
    runs = [run("srtf", [job("a", 0, 1, p), job("b", 0, 1, 9 - p)]) for p in (4, 5)]
    assert [held(played, "a")[0][0] for played in runs] == [0, 4]


def test_tiresias_demotes_when_the_limit_is_reached_and_not_later() -> None:
    """Two workers attain 7 worker-seconds at 3.5, which is no arrival and no completion: b starts there."""
    played = run("tiresias:limit_s=7", [job("a", 0, 2, 10), job("b", 1, 1, 2)], [(2, 2)])
    assert held(played, "a") == [(0, 3.5), (5.5, 12)]
    assert held(played, "b") == [(3.5, 5.5)]


def test_tiresias_promotes_a_job_that_has_waited_knob_times_its_execution() -> None:
    """a is demoted at 4 and, having executed 4, promoted after waiting 2 * 4, at 12; b's limit is never reached.

    Promoted, a started first and takes the worker; b (8 of 20 done, so demoted at 8 with limit 4 too) waits.
    """
    played = run("tiresias:limit_s=4,knob=2", [job("a", 0, 1, 6), job("b", 1, 1, 3), job("c", 1, 1, 3)])
    assert held(played, "b") == [(4, 7)]
    assert held(played, "c") == [(7, 10)]
    assert held(played, "a") == [(0, 4), (10, 12)]


def test_tiresias_promotes_every_due_job_before_it_selects() -> None:
    """Limit 1, knob 1, two workers. a (k=1, 3 s) is demoted at 1; b and then c (k=2) run; c is demoted at 2.

    At 2 a has executed 1 and waited 1: it is promoted, though it would be selected in the second queue too. So c, which
    is promoted at 2.5, waits until a is demoted at 3. c is demoted at 3.5, is promoted since it has waited 0.5, and
    demoted at 4, when a has waited 1 and is promoted: a ends at 5, c at 5.5.
    """
    jobs = [job("a", 0, 1, 3), job("b", 0.5, 2, 0.5), job("c", 1, 2, 2)]
    played = run("tiresias:limit_s=1,knob=1", jobs, [(2, 3)])
    assert held(played, "a") == [(0, 1), (2, 3), (4, 5)]
    assert held(played, "c") == [(1.5, 2), (3, 4), (5, 5.5)]
    assert played.schedule.jobs["jct"].to_list() == [5 * SECOND, SECOND, 4.5 * SECOND]


def test_tiresias_without_a_knob_never_promotes() -> None:
    """Short jobs arrive without end: demoted at 4, a resumes only when none of them is left, at 22."""
    jobs = [job("a", 0, 1, 6), *(job(f"b{i}", 1 + 3 * i, 1, 3) for i in range(6))]
    assert held(run("tiresias:limit_s=4", jobs), "a") == [(0, 4), (22, 24)]
    assert held(run("tiresias:limit_s=4,knob=1", jobs), "a")[1][0] == 8


def test_tiresias_job_demoted_and_promoted_at_one_instant_runs_on() -> None:
    """Limit 4, knob 0.5: a, demoted at 10, would give way to c, has waited enough, is promoted and runs on to 13.

    b runs 0-4 and is demoted; a runs from 4; b, having waited 2, is promoted at 6 and runs its last 2. a resumes at 8
    and has executed 4 at 10: it is demoted, and promoted because it has waited 2 >= 0.5 * 4.
    """
    played = run("tiresias:limit_s=4,knob=0.5", [job("b", 0, 1, 6), job("a", 1, 1, 7), job("c", 9, 1, 3)])
    assert held(played, "b") == [(0, 4), (6, 8)]
    assert held(played, "a") == [(4, 6), (8, 13)]
    assert held(played, "c") == [(13, 16)]


def test_tiresias_counts_upload_as_executed_time() -> None:
    """D3: a holds its worker from 0, uploads until 3, and is demoted at 4 with 1 s of training done."""
    jobs = [job("a", 0, 1, 6, upload_s={"s0": 3.0}), job("b", 1, 1, 2)]
    assert where(run("tiresias:limit_s=4", jobs), "a") == [("s0", 1, 0, 3, 4), ("s0", 1, 6, 6, 11)]


def test_the_limit_of_tiresias_follows_the_jobs_that_have_finished() -> None:
    """One worker. Until a finishes at 3 nobody is demoted; then the limit is just above its 3 s of service.

    b, which has the worker next, is demoted at 3 + 3.1; c, which arrived at 4, takes it until it is demoted as well, or
    is done: its 2 s are below the limit, so c runs from the demotion on, and b ends last.
    """
    played = run("tiresias", [job("a", 0, 1, 3), job("b", 1, 1, 9), job("c", 4, 1, 2)])
    assert held(played, "a") == [(0, 3)]
    (first, second), (c,) = held(played, "b"), held(played, "c")
    limit = first[1] - first[0]
    assert 3 < limit <= 3 * 9 / 8
    assert c == (first[1], first[1] + 2)
    assert second == (c[1], 14)


def rows_of_jobs(n: int, *, held: int) -> Ints:
    """Rows of the ledger of `n` jobs that ask for one worker, and hold so many."""
    table = np.ones((n, HELD + 1), np.int64)
    table[:, HELD] = held
    return table


def test_nine_of_ten_finished_jobs_stay_below_the_limit_of_tiresias() -> None:
    """Whatever their services: the limit is above nine tenths of them, and at most an eighth above the tenth's."""
    rng, clocks, seen = np.random.default_rng(4), with_clocks(no_clocks(), 1), list[int]()
    table, known = rows_of_jobs(1, held=1), attained(None)
    clocks.first_start[0] = 0
    assert known.limit[0] == NEVER
    for service in (10 ** rng.uniform(0, 15, 400)).astype(np.int64):
        clocks.executed[0] = service
        learn(np.zeros(1, np.int64), clocks, table, known)
        seen.append(int(service))
        inside = sorted(seen)[-(-9 * len(seen) // 10) - 1]
        assert inside < known.limit[0] <= max(inside + 1, inside * 9 / 8 + 1)
        assert known.limit[0] == default_limit(seen)


def test_a_limit_that_is_given_stays() -> None:
    clocks, known = with_clocks(no_clocks(), 1), attained(5.0)
    clocks.first_start[0], clocks.executed[0] = 0, 10**9
    learn(np.zeros(1, np.int64), clocks, rows_of_jobs(1, held=1), known)
    assert known.limit[0] == 5 * SECOND


class EndlessRunError(Exception):
    """A run that should have ended."""


def first_events(s: Scenario, policy: str, most: int) -> None:
    """Drive a run for `most` events at most."""
    kernel, count = Kernel(s, make_policy(policy)), iter(range(most))

    def watch(event: Event, _: object) -> None:
        if next(count, None) is None:
            raise EndlessRunError

    drive_to_end(kernel, SimulatedWorld(kernel), watch)


def test_jobs_do_not_take_turns_for_ever_without_training() -> None:
    """Limit 1, knob 1, overhead 2: demoted after 1 s each job would be displaced before it is restored, for ever.

    Restoring is no attained service, so each turn trains for a second; two jobs of 5 s end within 2,000 events.
    """
    s = scenario([job("a", 0, 1, 5), job("b", 0, 1, 5)], physics=Physics(checkpoint_overhead=2 * SECOND))
    first_events(s, "tiresias:limit_s=1,knob=1", 2000)


def test_a_restore_counts_for_as_long_as_the_workers_were_held() -> None:
    """Restores of 30: one that is cut after 9, and one that ends; D4."""
    clocks, jobs, limit = with_clocks(no_clocks(), 1), np.zeros(1, np.int64), attained(5.0)
    table = rows_of_jobs(1, held=1)
    for hold, executed, restoring in ((3, 3, 0), (9, 12, 9), (50, 62, 39)):
        begin(jobs, clocks, 0, 0, 30)
        execute(jobs, clocks, hold)
        assert (clocks.executed[0], clocks.restoring[0]) == (executed, restoring)
    limit.limit[0] = 100.0
    assert next_demotion(jobs, clocks, table, limit) == 100 - (62 - 39)
    begin(jobs, clocks, 0, 0, 30)
    assert next_demotion(jobs, clocks, table, limit) == 100 - (62 - 39) + 30


def test_jobs_attain_the_time_in_which_they_train_however_often_a_restore_is_cut() -> None:
    """J is preempted every 10 s and restores for 30: it trains from 1 to 10 and, after the last, from 151 to 162."""
    policy = make_policy("tiresias")
    played = play(load_scenario(CASES / "tiresias-restores.yaml"), policy)
    assert held(played, "J")[0] == (1, 10)
    assert held(played, "J")[-1] == (121, 162)
    clocks = policy.clocks  # type: ignore[attr-defined]
    assert (clocks.executed - clocks.restoring)[:14].tolist() == [j * SECOND for j in (1, 20, *[1] * 12)]


def test_the_limit_of_tiresias_counts_what_a_job_attained_before_it_was_promoted() -> None:
    """A job with 100 of service that is promoted and then executes 20 finishes with 120: the step of 120 to 127."""
    clocks, jobs, known = with_clocks(no_clocks(), 1), np.zeros(1, np.int64), attained(None)
    table = rows_of_jobs(1, held=0)
    begin(jobs, clocks, 0, 0, 0)
    execute(jobs, clocks, 100)
    clocks.queue[0] = 1
    assert promote(jobs, clocks, table, 1.0, 200)
    execute(jobs, clocks, 20)
    learn(jobs, clocks, table, known)
    assert known.limit[0] == 128


def test_a_negative_service_would_lie_in_the_first_step() -> None:
    clocks, jobs, known = with_clocks(no_clocks(), 1), np.zeros(1, np.int64), attained(None)
    table = rows_of_jobs(1, held=1)
    clocks.first_start[0], clocks.executed[0] = 0, -(10**12)
    learn(jobs, clocks, table, known)
    assert (known.counts[0], known.limit[0]) == (1, 1)


# -- FIFO, strict -----------------------------------------------------------------------------------------------------

IN_LINE = [job("a", 0, 2, 5), job("b", 1, 2, 3), job("c", 2, 1, 4)]
"""On three workers: b has to wait for a, c would fit."""


def test_strict_fifo_holds_the_line() -> None:
    """c is behind b, so it waits until 5 though a worker is free at 2."""
    played = run("fifo", IN_LINE, [(3, 3)])
    assert [held(played, name) for name in "abc"] == [[(0, 5)], [(5, 8)], [(5, 9)]]


def test_backfilling_fifo_does_not_hold_the_line() -> None:
    """c starts at 2."""
    played = run("fifo:backfill=true", IN_LINE, [(3, 3)])
    assert [held(played, name) for name in "abc"] == [[(0, 5)], [(5, 8)], [(2, 6)]]


def test_fifo_never_preempts() -> None:
    """A short job waits for a long one."""
    played = run("fifo", [job("a", 0, 1, 10), job("b", 1, 1, 1)])
    assert held(played, "a") == [(0, 10)]
    assert played.metrics["preemptions"] == 0


@pytest.mark.parametrize("policy", ["fifo", "fifo:backfill=true", "srtf", "tiresias:limit_s=100"])
def test_job_that_can_never_fit_goes_to_the_cloud_and_holds_up_nobody(policy: str) -> None:
    """big wants 4 of 3 workers: it is in the cloud from 1 to 1 + 2 + 6; b behind it starts at once."""
    jobs = [job("big", 1, 4, 6, upload_s={"cloud": 2.0}), job("b", 2, 3, 1)]
    played = run(policy, jobs, [(3, 3)], cloud=True)
    assert where(played, "big") == [("cloud", 4, 1, 3, 9)]
    assert held(played, "b") == [(2, 3)]


@pytest.mark.parametrize("policy", ["fifo", "fifo:backfill=true", "srtf", "tiresias:limit_s=100"])
def test_job_that_can_never_fit_is_rejected_where_there_is_no_cloud(policy: str) -> None:
    """The reason names the demand; the job behind it is not held up."""
    played = run(policy, [job("big", 1, 4, 6), job("b", 2, 3, 1)], [(3, 3)])
    assert played.schedule.jobs["state"].to_list() == ["rejected", "finished"]
    assert played.schedule.jobs["reason"][0].startswith("never_fits")
    assert held(played, "b") == [(2, 3)]


def test_allowed_cloud_takes_a_job_that_does_not_fit_now() -> None:
    """b does not wait for a until 10, but runs in the cloud from 1: upload 2, work 3."""
    jobs = [job("a", 0, 1, 10), job("b", 1, 1, 20, upload_s={"cloud": 2.0})]
    assert where(run("srtf:allow_cloud=true", jobs, cloud=True), "b") == [("cloud", 1, 1, 3, 23)]
    assert where(run("srtf", jobs, cloud=True), "b") == [("s0", 1, 10, 10, 30)]


# -- FIFO, earliest server --------------------------------------------------------------------------------------------

ONE_SERVER = Physics(colocation="one_server")


def earliest_plans(s: Scenario) -> list[tuple[str, int, int, int]]:
    """(server, workers, from, to) of every job by trying all starts on all servers, in order of arrival.

    A job can start when its data are there, and later only when a reservation ends. Ties: shorter delay, edge before
    cloud, server.
    """
    booked: dict[int, list[tuple[int, int, int]]] = {i: [] for i in range(len(s.cluster.servers))}
    plans = []
    for j in range(len(s.jobs)):
        k, now = int(s.jobs.workers[j]), int(s.jobs.arrival[j])
        edges = [i for i in booked if i != s.cluster.cloud and s.cluster.ps[i].sum() > 0]
        if s.cluster.cloud is None:
            k = min(k, max(int(s.cluster.workers[i].sum()) for i in edges))
        offers = []
        for i in [*edges, *([] if s.cluster.cloud is None else [s.cluster.cloud])]:
            delay, cloud = _delay(s, j, i), i == s.cluster.cloud
            zeta = int(cloud or s.physics.colocation == "one_server")
            length = -(-int(s.announced_work[j, zeta]) // k)
            start = now + delay if cloud else _first_gap(s, booked[i], i, k, now + delay, length)
            if start is not None:
                offers.append((start, delay, cloud, i, length))
        start, _, cloud, i, length = min(offers)
        plans.append((s.cluster.label(i), k, start, start + length))
        booked[i].append((start, start + length, k))
    return plans


def _delay(s: Scenario, j: int, i: int) -> int:
    given = s.jobs.fixed_delays.get(s.jobs.ids[j], {})
    return ticks(given.get(s.cluster.label(i), 0.0)) if s.physics.charge_upload else 0


def _first_gap(
    s: Scenario, booked: Sequence[tuple[int, int, int]], i: int, k: int, ready: int, length: int
) -> int | None:
    workers, pss = int(s.cluster.workers[i].sum()), int(s.cluster.ps[i].sum())
    if workers < k:
        return None

    def free(t: int) -> bool:
        now = [n for start, end, n in booked if start <= t < end]
        return sum(now) + k <= workers and len(now) < pss

    for t in sorted({ready, *(end for _, end, _ in booked if end > ready)}):
        inside = [start for start, _, _ in booked if t < start < t + length]
        if all(free(x) for x in [t, *inside]):
            return t
    raise AssertionError("after the last reservation everything is free")


@pytest.mark.parametrize("seeds", thorough_after(1, [range(60), range(60, 120)]), ids=str)
def test_earliest_server_is_the_earliest_of_all_servers(seeds: range) -> None:
    """120 seeded scenarios: every plan is that of trying all starts on all servers, and is carried out as made."""
    for seed in seeds:
        pick = _pick(np.random.default_rng(seed))
        physics = Physics(colocation=one_of(pick, ("cloud", "one_server")), charge_upload=pick(0, 3) > 0)
        s = random_scenario(pick, physics, cloud=pick(0, 1) == 1)
        played = play(s, make_policy("fifo:rule=earliest_server"))
        plans = played.schedule.plans.sort("job").select("server", "workers", "from", "to").rows()
        assert plans == earliest_plans(s)
        runs = played.schedule.runs.sort("job").select("server", "workers", "start", "end").rows()
        assert runs == plans
        assert played.schedule.plans["broken_at"].null_count() == len(plans)


def a_seed_that_makes_the_first_job_longer(jobs: Sequence[Job], physics: Physics) -> int:
    """True durations are a seeded factor times the announced ones."""
    return next(seed for seed in range(100) if scenario(jobs, physics=physics, seed=seed).true_factor[0] > 1.2)


def test_plan_that_is_overrun_is_marked_broken_and_its_followers_shift() -> None:
    """a outlives its plan at 5, keeps its worker and is planned on; b, planned from 5, starts when a ends."""
    jobs, physics = [job("a", 0, 1, 5), job("b", 1, 1, 3)], Physics(estimate_error=1.0)
    seed = a_seed_that_makes_the_first_job_longer(jobs, physics)
    played = run("fifo:rule=earliest_server", jobs, physics=physics, seed=seed)
    plans = played.schedule.plans.sort("job", "made_at")
    of_a, of_b = (plans.filter(plans["job"] == i) for i in (0, 1))
    assert of_a.select("from", "to").rows() == [(0, 5 * SECOND), (5 * SECOND, 10 * SECOND)]
    assert of_a["broken_at"].to_list() == [5 * SECOND, None]
    assert of_b.select("from", "to").row(0) == (5 * SECOND, 8 * SECOND)
    ((start, end),) = held(played, "a")
    assert start == 0
    assert end == pytest.approx(5 * played.scenario.true_factor[0], abs=2e-6)
    assert held(played, "b")[0][0] == end > 5


def test_exact_plans_are_never_marked_broken() -> None:
    """Without estimate errors the same plans hold."""
    played = run("fifo:rule=earliest_server", [job("a", 0, 1, 5), job("b", 1, 1, 3)])
    assert played.schedule.plans["broken_at"].to_list() == [None, None]
    assert [held(played, name) for name in "ab"] == [[(0, 5)], [(5, 8)]]


def test_demand_shrinks_to_the_largest_server_where_there_is_no_cloud() -> None:
    """D1: four workers asked for, two to be had: 4 * 6 worker-seconds take 12 s; in the cloud they take 6."""
    jobs = [job("a", 0, 4, 6, upload_s={"cloud": 1.0})]
    assert where(run("fifo:rule=earliest_server", jobs, [(2, 1)]), "a") == [("s0", 2, 0, 0, 12)]
    played = run("fifo:rule=earliest_server", jobs, [(2, 1)], cloud=True)
    assert where(played, "a") == [("cloud", 4, 1, 1, 7)]


# -- all of them, on random scenarios ---------------------------------------------------------------------------------

POLICIES = [
    "srtf",
    "srtf:sticky=true",
    "srtf:allow_cloud=true",
    "srtf:placement=literal",
    "srtf:placement=literal,sticky=true,allow_cloud=true",
    "srtf:sticky=true,allow_cloud=true",
    "tiresias:limit_s=4",
    "tiresias:limit_s=3,knob=0.5",
    "tiresias:limit_s=6,knob=1,allow_cloud=true",
    "tiresias:limit_s=2,knob=2,sticky=true",
    "tiresias:limit_s=3,knob=1,placement=literal",
    "fifo",
    "fifo:backfill=true",
    "fifo:backfill=true,allow_cloud=true",
    "fifo:rule=earliest_server",
    "drf",
    "preemptive",
]

QUICK = ["srtf", "tiresias:limit_s=4", "fifo", "fifo:rule=earliest_server", "drf", "preemptive"]
"""Each policy once, FIFO with both of its rules."""


def ending(s: Scenario, policy: str) -> Scenario:
    """Promotions and overheads together may never end: see the test on that."""
    return replace(s, physics=replace(s.physics, checkpoint_overhead=0)) if "knob" in policy else s


@pytest.mark.parametrize("policy", thorough_except(QUICK, POLICIES))
def test_random_runs_keep_every_rule(policy: str) -> None:
    """30 seeded scenarios a policy: slots, overheads, wrong estimates, with and without a cloud; each is verified."""
    for s in random_scenarios(range(30)):
        played = play(ending(s, policy), make_policy(policy))
        assert set(played.schedule.jobs["state"].to_list()) <= {"finished", "rejected"}


@st.composite
def scenarios(draw: Callable[..., Any]) -> Scenario:
    def pick(lo: int, hi: int) -> int:
        return int(draw(st.integers(lo, hi)))

    return random_scenario(pick, random_physics(pick), cloud=pick(0, 1) == 1)


@bounded
@given(scenarios(), st.sampled_from(POLICIES))
def test_drawn_runs_keep_every_rule(s: Scenario, policy: str) -> None:
    """The same, drawn by Hypothesis, so that a failing scenario is shrunk."""
    play(ending(s, policy), make_policy(policy))


@bounded
@given(scenarios(), st.sampled_from(POLICIES))
def test_a_run_is_the_same_twice(s: Scenario, policy: str) -> None:
    """Nothing but the scenario and its seed decides."""
    first, second = (play(ending(s, policy), make_policy(policy), check=False) for _ in range(2))
    for name, table in first.schedule.tables().items():
        assert table.equals(second.schedule.tables()[name])
