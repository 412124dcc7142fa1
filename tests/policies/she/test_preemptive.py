"""Preemptive (She et al.): worker by worker, shortest completion first. Times are in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest

from builders.gang_policies import job, random_scenarios, run, scenario, where
from skedge.core.engine.ledger import no_data
from skedge.core.events import Event
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Physics
from skedge.core.model.network import upload_row
from skedge.core.model.time import NEVER, SECOND
from skedge.policies.gangs.preemptive import JobState, Preemptive, Room, take
from skedge.sim.world import SimulatedWorld


def test_a_shorter_job_takes_one_worker_and_the_other_goes_on() -> None:
    """a: 8 of 20 done at 4, one worker until 7, 9 left, then two again: 11.5. It is never suspended."""
    played = run("preemptive", [job("a", 0, 2, 10), job("b", 4, 1, 3)], [(2, 2)])
    assert where(played, "a") == [("s0", 2, 0, 0, 4), ("s0", 1, 4, 4, 7), ("s0", 2, 7, 7, 11.5)]
    assert where(played, "b") == [("s0", 1, 4, 4, 7)]
    assert played.metrics["preemptions"] == 0


def test_a_longer_job_takes_nothing_from_a_shorter_one() -> None:
    """a has 6 s left at 4, b needs 7."""
    played = run("preemptive", [job("a", 0, 2, 10), job("b", 4, 1, 7)], [(2, 2)])
    assert where(played, "a") == [("s0", 2, 0, 0, 10)]
    assert where(played, "b") == [("s0", 1, 10, 10, 17)]


@pytest.mark.parametrize(("data", "begins", "end"), [("last_place", 9.5, 13.75), ("kept", 8.5, 13.25)])
def test_a_worker_that_joins_again_pays_the_overhead_and_the_other_does_not(
    data: Literal["kept", "last_place"], begins: float, end: float
) -> None:
    """As above with 1 s of upload and 0.5 s of overhead: a has 20 - 2*3 - 4 = 10 left at 8; b computes from 5 to 8.

    The worker that comes back begins at 8.5 with 9.5 left: 8.5 + 4.75. Where its data have to come again it begins at
    9.5 with 8.5 left: 9.5 + 4.25.
    """
    near = {"s0": 1.0}
    physics = Physics(checkpoint_overhead=SECOND // 2, data=data)
    jobs = [job("a", 0, 2, 10, upload_s=near), job("b", 4, 1, 3, upload_s=near)]
    played = run("preemptive", jobs, [(2, 2)], physics=physics)
    assert where(played, "a") == [
        ("s0", 2, 0, 1, 4),
        ("s0", 1, 4, 4, 8),
        ("s0", 1, 8, 8, end),
        ("s0", 1, 8, begins, end),
    ]


def test_a_job_that_loses_all_workers_pays_the_overhead_alone_when_it_resumes() -> None:
    """One worker: a is suspended from 4 to 7, its data stay; 6 left from 7.5."""
    physics = Physics(checkpoint_overhead=SECOND // 2)
    played = run("preemptive", [job("a", 0, 1, 10), job("b", 4, 1, 3)], [(1, 1)], physics=physics)
    assert where(played, "a") == [("s0", 1, 0, 0, 4), ("s0", 1, 7, 7.5, 13.5)]
    assert played.metrics["preemptions"] == 1


@pytest.mark.parametrize(("megabytes", "servers"), [(0.5, {"s0", "s1"}), (4.0, {"s0"})])
def test_one_server_is_preferred_where_communication_costs_more_than_a_worker_saves(
    megabytes: float, servers: set[str]
) -> None:
    """Chunks of 2 s on 2 + 1 workers: beside the PS two take 3 s. Three on two servers take 2 s and 2q/b more each:
    with 0.5 s of it 2.5 s, with 4 s of it 6 s."""
    lone = job("a", 0, 3, 2, gradient_mb=megabytes, bandwidth_mbps=16.0)
    played = run("preemptive", [lone], [(2, 1), (1, 1)], physics=Physics(colocation="one_server"))
    assert {row[0] for row in where(played, "a")} == servers
    assert played.schedule.runs["colocated"].to_list() == [servers == {"s0"}] * len(servers)


def test_a_worker_whose_data_come_after_the_end_is_not_taken() -> None:
    """Two chunks of 3 s: the worker of s0 alone ends at 6, that of s1 has its data at 7."""
    far = {"s0": 0.0, "s1": 7.0}
    played = run("preemptive", [job("a", 0, 2, 3, upload_s=far)], [(1, 1), (1, 1)])
    assert where(played, "a") == [("s0", 1, 0, 0, 6)]


def test_rank_order_is_respected_after_every_event() -> None:
    """On 120 scenarios with PSs to spare: no job waits for a worker that a job ranked after it holds."""
    waited = 0
    for s in random_scenarios(range(120)):
        if s.cluster.cloud is None:
            continue
        policy = Preemptive()
        kernel = Kernel(s, policy)

        def look(event: Event, _: object, policy: Preemptive = policy, kernel: Kernel = kernel) -> None:
            nonlocal waited
            jobs = policy.active
            ranked = jobs[policy.estimates(jobs, kernel.view).argsort(kind="stable")]
            holds = kernel.engine.workers_held[ranked] > 0
            assert not (np.diff(holds.astype(int)) > 0).any()
            waited += int((~holds).sum())

        drive_to_end(kernel, SimulatedWorld(kernel), look)
    assert waited > 100


# -- the compiled scan is the plain one --------------------------------------------------------------------------------


def time_to_end(begins: Sequence[tuple[int, int]], left: int) -> int:
    """When workers, (from, how many), have done `left`: the least whole time, by trying each."""
    end = 0
    while sum(n * max(end - begin, 0) for begin, n in begins) < left:
        end += 1
    return end


def plainly_taken(n: int, j: int, left: list[int], held: JobState, room: Room, delay: list[int]) -> dict[int, int]:
    """What job `j` takes of `room`: word for word as the module says."""
    kind, own, most = held.kind[j], held.own[j], int(held.max_workers[j])
    free = room.workers[:, kind]
    later = room.restore if held.ran[j] else 0
    at_once = 0 if held.running[j] else later

    def begins(where: dict[int, int]) -> list[tuple[int, int]]:
        kept = {s: min(k, int(own[s])) for s, k in where.items()}
        return [(at_once, sum(kept.values())), *((delay[s] + later, k - kept[s]) for s, k in where.items())]

    best: tuple[int, dict[int, int]] = NEVER, {}
    for s in np.flatnonzero(free).tolist():
        ps_near = held.ps_server[j] == s if held.running[j] else room.ps_free[s, held.ps_kind[j]] > 0
        where = {s: min(most, int(free[s]))}
        best = min(
            best, (time_to_end(begins(where), left[int(room.one_server and ps_near)]), where), key=lambda x: x[0]
        )
    spread = {s: int(min(own[s], free[s])) for s in np.flatnonzero(free).tolist()}
    for s in sorted(spread, key=lambda s: (delay[s], s)):
        more = min(int(free[s]) - spread[s], most - sum(spread.values()))
        now = time_to_end(begins(spread), left[0]) if sum(spread.values()) else NEVER
        if now > delay[s] + later:
            spread[s] += more
    spread = {s: k for s, k in spread.items() if k}
    return spread if time_to_end(begins(spread), left[0]) < best[0] else best[1]


def test_the_compiled_scan_is_the_plain_one() -> None:
    """900 seeded clusters of up to four servers and jobs that hold some of them, up to all that they can use."""
    rng = np.random.default_rng(11)
    spread = beside = stay = 0
    for seed in range(900):
        servers, jobs = int(rng.integers(1, 5)), int(rng.integers(1, 6))
        listed = [job(str(j), 0, 1, 1, upload_s={f"s{s}": float(rng.integers(0, 4)) / SECOND for s in range(servers)})
                  for j in range(jobs)]  # fmt: skip
        delays = scenario(listed, [(1, 1)] * servers, seed=seed).delays
        workers = rng.integers(0, 4, (servers, 1))
        own, free = np.zeros((jobs, servers), np.int64), workers[:, 0].copy()
        most = rng.integers(1, 6, jobs)
        for j in range(jobs):
            for s in rng.permutation(servers):
                own[j, s] = rng.integers(0, min(free[s], most[j] - own[j].sum()) + 1)
                free[s] -= own[j, s]
        ran = (own.sum(axis=1) > 0).astype(np.int64)
        running = ran * rng.integers(0, 2, jobs)
        zero = np.zeros(jobs, np.int64)
        ps = np.where(running > 0, rng.integers(0, servers, jobs), -1)
        left = rng.integers(1, 60, (jobs, 1)) * np.array([2, 1])
        held = JobState(zero, zero, most, own, zero, zero + servers, running, ran, zero, ps, left, zero, zero)
        room = Room(
            workers.copy(), np.array([100]), rng.integers(0, 2, (servers, 1)), seed % 2, int(rng.integers(0, 8)), 0
        )
        plain = Room(workers.copy(), room.ps_left.copy(), room.ps_free.copy(), room.one_server, room.restore, 0)
        plan, zeta = own * running[:, None], np.zeros(jobs, np.int64)
        who, plans, besides = take(np.arange(jobs), held, no_data(), room, delays)
        assert (plans != plan[who]).any(axis=1).all(), "only what changes is returned"
        plan[who], zeta[who] = plans, besides
        for j in range(jobs):
            row = upload_row(delays, j).tolist()
            got = plainly_taken(j, j, left[j].tolist(), held, plain, row) if plain.workers.any() else {}
            assert {s: int(k) for s, k in enumerate(plan[j]) if k} == got, (seed, j)
            for s, k in got.items():
                plain.workers[s, 0] -= k
                if zeta[j] and not running[j]:
                    plain.ps_free[s, 0] -= 1
            spread, beside = spread + (len(got) > 1), beside + int(zeta[j])
            stay += int(running[j] and sum(got.values()) == most[j] and (plan[j] == own[j]).all())
    assert min(spread, beside, stay) > 50


def test_shortest_first_preempts_at_once_where_tiresias_waits_for_a_demotion() -> None:
    """E28: a (10 s) from 0, b (3 s) from 4 on one worker: b runs 4-7, or, with a limit of 8 worker-seconds, 8-11."""
    jobs = [job("a", 0, 1, 10), job("b", 4, 1, 3)]
    assert where(run("preemptive", jobs), "b") == [("s0", 1, 4, 4, 7)]
    assert where(run("tiresias:limit_s=8", jobs), "b") == [("s0", 1, 8, 8, 11)]
