"""Preemptive (She et al.): worker by worker, shortest completion first. Times are in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pytest

from builders.gang_policies import job, random_scenarios, run, scenario, where
from skedge.core.engine.data import new_entry
from skedge.core.engine.ledger import (
    CHUNKS,
    ELASTIC,
    FIRST,
    HELD,
    NO_PS,
    PS,
    SIZE,
    STYLE,
    Case,
    Ledger,
    make_case,
    make_ledger,
    with_blocks,
)
from skedge.core.events import Event
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Ints, Physics
from skedge.core.model.network import upload_row
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import NEVER, SECOND
from skedge.policies.gangs.elastic import ElasticState
from skedge.policies.gangs.preemptive import (
    BESIDE,
    CHANGES,
    ESTIMATE,
    N_SERVERS,
    PLACES,
    RANKED,
    WORK,
    WORK_COLOCATED,
    Preemptive,
    take,
)
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
            ranked = jobs[policy.edge.lists[ESTIMATE, jobs].argsort(kind="stable")]
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


class Held(NamedTuple):
    """Of each job: workers of its last placement by server, the most that it can use, and its PS's server or -1."""

    own: Ints
    most: Ints
    running: Ints
    ran: Ints
    ps_server: Ints


class Left(NamedTuple):
    """What is left to take: workers and PSs by server; whether one server is enough for co-location; the overhead."""

    workers: Ints
    ps_free: Ints
    one_server: int
    restore: int


def plainly_taken(j: int, left: list[int], held: Held, room: Left, delay: list[int]) -> dict[int, int]:
    """What job `j` takes of `room`: word for word as the module says."""
    own, most, free = held.own[j], int(held.most[j]), room.workers
    later = room.restore if held.ran[j] else 0
    at_once = 0 if held.running[j] else later

    def begins(where: dict[int, int]) -> list[tuple[int, int]]:
        kept = {s: min(k, int(own[s])) for s, k in where.items()}
        return [(at_once, sum(kept.values())), *((delay[s] + later, k - kept[s]) for s, k in where.items())]

    best: tuple[int, dict[int, int]] = NEVER, {}
    for s in np.flatnonzero(free).tolist():
        ps_near = held.ps_server[j] == s if held.running[j] else room.ps_free[s] > 0
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


def ledger_of(s: Scenario, held: Held) -> Ledger:
    """The ledger in which each job holds or has held these workers, on the servers that still have their data."""
    ledger, servers = make_ledger(s), held.own.shape[1]
    rows = np.argwhere(held.own > 0)
    ledger = ledger._replace(workers=np.zeros((len(rows), 3), np.int64), data=with_blocks(ledger.data, len(rows)))
    for row, (j, server) in enumerate(rows.tolist()):
        ledger.workers[row, :2] = server, held.own[j, server]
        ledger.data.workers[new_entry(ledger.data, j, server)] = held.own[j, server]
    sizes = (held.own > 0).sum(axis=1)
    jobs = ledger.jobs
    jobs[:, SIZE], jobs[:, FIRST], jobs[:, CHUNKS] = sizes, sizes.cumsum() - sizes, held.most
    jobs[:, HELD], jobs[:, STYLE] = held.own.sum(axis=1) * held.running, np.where(held.ran, ELASTIC, -1)
    # each server has one PS
    jobs[:, PS] = np.where(held.ps_server < 0, NO_PS, held.ps_server)
    assert s.cluster.ps_server.tolist() == list(range(servers))
    return ledger


def changes(case: Case, ledger: Ledger, state: ElasticState) -> dict[int, list[tuple[int, int]]]:
    """The jobs whose workers change, each with its (server, workers) rows."""
    take(case, ledger, state)
    lists, room = state.edge.lists, state.room
    jobs = lists[CHANGES, : state.edge.lengths[CHANGES]].tolist()
    parts = [slice(lists[PLACES, j], lists[PLACES, j] + lists[N_SERVERS, j]) for j in jobs]
    rows = [list(zip(room.servers[part].tolist(), room.counts[part].tolist(), strict=True)) for part in parts]
    return dict(zip(jobs, rows, strict=True))


@pytest.mark.thorough
def test_the_compiled_scan_is_the_plain_one() -> None:
    """900 seeded clusters of up to four servers and jobs that hold some of them, up to all that they can use."""
    rng = np.random.default_rng(11)
    spread = beside = stay = 0
    for seed in range(900):
        servers, jobs = int(rng.integers(1, 5)), int(rng.integers(1, 6))
        listed = [job(str(j), 0, 1, 1, upload_s={f"s{s}": float(rng.integers(0, 4)) / SECOND for s in range(servers)})
                  for j in range(jobs)]  # fmt: skip
        s = scenario(listed, [(3, 1)] * servers, seed=seed)
        workers = rng.integers(0, 4, servers)
        own, free = np.zeros((jobs, servers), np.int64), workers.copy()
        most = rng.integers(1, 6, jobs)
        for j in range(jobs):
            for k in rng.permutation(servers):
                own[j, k] = rng.integers(0, min(free[k], most[j] - own[j].sum()) + 1)
                free[k] -= own[j, k]
        ran = (own.sum(axis=1) > 0).astype(np.int64)
        running = ran * rng.integers(0, 2, jobs)
        held = Held(own, most, running, ran, np.where(running > 0, rng.integers(0, servers, jobs), -1))
        left = rng.integers(1, 60, (jobs, 1)) * np.array([2, 1])
        plain = Left(workers.copy(), rng.integers(0, 2, servers), seed % 2, int(rng.integers(0, 8)))
        policy = Preemptive()
        policy.start(s.cluster, s.physics, rng)
        policy.make_room(jobs, Kernel(s, policy).view)
        state = policy.state()
        state.room.workers[:, 0], state.room.total[:], state.room.ps_left[:] = workers, workers.sum(), 100
        state.room.ps_free[:, 0] = plain.ps_free
        state.edge.lists[RANKED, :jobs], state.edge.lengths[RANKED] = np.arange(jobs), jobs
        state.edge.lists[WORK : WORK_COLOCATED + 1, :jobs] = left.T
        case = make_case(s)._replace(one_server=plain.one_server, overhead=plain.restore, kept=0)
        plan = own * running[:, None]
        for j, rows in changes(case, ledger_of(s, held), state).items():
            before = plan[j].copy()
            plan[j] = 0
            for server, k in rows:
                plan[j, server] = k
            assert (plan[j] != before).any(), "only what changes is noted"
        for j in range(jobs):
            row = upload_row(s.delays, j).tolist()
            got = plainly_taken(j, left[j].tolist(), held, plain, row) if plain.workers.any() else {}
            assert {s: int(k) for s, k in enumerate(plan[j]) if k} == got, (seed, j)
            zeta = bool(state.edge.lists[BESIDE, j]) and (plan[j] != own[j] * running[j]).any()
            for k, n in got.items():
                plain.workers[k] -= n
                if zeta and not running[j]:
                    plain.ps_free[k] -= 1
            spread, beside = spread + (len(got) > 1), beside + int(zeta)
            stay += int(running[j] and sum(got.values()) == most[j] and (plan[j] == own[j]).all())
    assert min(spread, beside, stay) > 50


def test_shortest_first_preempts_at_once_where_tiresias_waits_for_a_demotion() -> None:
    """E28: a (10 s) from 0, b (3 s) from 4 on one worker: b runs 4-7, or, with a limit of 8 worker-seconds, 8-11."""
    jobs = [job("a", 0, 1, 10), job("b", 4, 1, 3)]
    assert where(run("preemptive", jobs), "b") == [("s0", 1, 4, 4, 7)]
    assert where(run("tiresias:limit_s=8", jobs), "b") == [("s0", 1, 8, 8, 11)]
