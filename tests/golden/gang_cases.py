"""Cases of the gang baselines worked out by hand; the derivation stands beside each. Times are in slots.

Every job has E = 1, m = 0.5, G = 0.25 and 2q/b = 0.25: a mini-batch takes 1 slot at zeta = 0 and 3/4 at zeta = 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario

HOUR = 3600
"""A slot [s]."""

Interval = tuple[float, float, float, Mapping[str, int], tuple[str, int | None]]
"""from, its first worker computing from, to, workers by server, (server of the PS, its number or None)."""


@dataclass(frozen=True)
class Case:
    """A policy, its scenario, and the expected intervals and completion of every job."""

    about: str
    policy: str
    scenario: Scenario
    intervals: tuple[tuple[Interval, ...], ...]
    completions: tuple[float, ...]
    total_jct: float
    preemptions: int = 0
    migrations: int = 0


def scenario(
    servers: tuple[tuple[int, int], ...], jobs: tuple[Job, ...], *, cloud: bool = False, physics: Physics | None = None
) -> Scenario:
    """Servers "0", "1", ... with (workers, PSs), and perhaps the cloud."""
    listed = [Server(str(s), capacity={"worker:0": w, "ps:0": p}) for s, (w, p) in enumerate(servers)]
    cluster = Cluster([*listed, Server("cloud", "cloud")] if cloud else listed)
    frame, given = job_table(jobs)
    return Scenario(cluster, Jobs(frame, cluster, given), physics or Physics())


def job(name: str, r: float, k: int, B: int, delta: Mapping[str, float]) -> Job:
    """D = k: every worker trains one chunk; W = k B."""
    return Job(
        id=name, arrival_s=r * HOUR, epochs=1, chunks=k, minibatches=B, minibatch_s=0.5 * HOUR,
        ps_update_s=0.25 * HOUR, gradient_mb=0.5, bandwidth_mbps=4 * 8 / HOUR, worker_type="0", ps_type="0", workers=k,
        upload_s={server: d * HOUR for server, d in delta.items()},
    )  # fmt: skip


SRTF = Case(
    about="""
Server 0 has two workers, server 1 one; n(0)=1, no cloud.
t=0: job 0 (k=2, W=12, 6 slots) goes to server 0 (one server suffices), uploads 1 slot, computes from 1.
t=3: job 0 has 12-2*2=8 left, remaining 4. Job 1 (k=1, W=2) has 2 and is ranked first; of the two servers the one with
the lower delay is server 1 (0.5): computes 3.5-5.5. Job 0 keeps its place.
t=4: remaining: job 2 (k=2, W=2) 1, job 1 1.5, job 0 (6 left) 3. Job 2 takes server 0, job 1 keeps server 1, job 0 is
preempted. Job 2 uploads 1 slot and computes 5-6.
t=5.5: job 1 ends; job 0 needs two workers, one is free. t=6: job 2 ends, job 0 resumes on server 0, where its data
still is (no upload), 6 left at rate 2: 6-9.
JCT 9 + 2.5 + 2 = 13.5; one preemption, no migration.
    """,
    policy="srtf",
    scenario=scenario(
        ((2, 2), (1, 1)),
        (
            job("0", 0, 2, 6, {"0": 1, "1": 2}),
            job("1", 3, 1, 2, {"0": 1, "1": 0.5}),
            job("2", 4, 2, 1, {"0": 1, "1": 1}),
        ),
    ),
    intervals=(
        ((0, 1, 4, {"0": 2}, ("0", 0)), (6, 6, 9, {"0": 2}, ("0", 0))),
        ((3, 3.5, 5.5, {"1": 1}, ("1", 0)),),
        ((4, 5, 6, {"0": 2}, ("0", 0)),),
    ),
    completions=(9, 5.5, 6),
    total_jct=13.5,
    preemptions=1,
)

TIRESIAS = Case(
    about="""
One server with two workers, no delays, two queues, limit 4 worker-slots, knob 1, n(0)=1.
t=0: job 0 (k=2, W=12) runs. t=1: job 1 (k=1, W=3) arrives, same queue but never started, and does not fit.
t=2: job 0 has attained 2*2=4: demoted. Job 1 runs; job 0 needs two workers and only one is left: preempted.
t=4: job 0 has waited 2 >= 1*2 (its executed time): promoted, both counters to 0. In queue 0 it started first (0 against
2): it takes both workers, job 1 (2 of 3 done, attained 2) is preempted.
t=6: job 0 has attained 4 again: demoted, preempted; job 1 finishes 6-7 (1 left). t=7: job 0 has 12-4-4=4 left at rate
2: 7-9.
JCT 9 + 6 = 15; preemptions: job 0 twice, job 1 once.
    """,
    policy=f"tiresias:limit_s={4 * HOUR},knob=1",
    scenario=scenario(((2, 2),), (job("0", 0, 2, 6, {"0": 0}), job("1", 1, 1, 3, {"0": 0}))),
    intervals=(
        ((0, 0, 2, {"0": 2}, ("0", 0)), (4, 4, 6, {"0": 2}, ("0", 0)), (7, 7, 9, {"0": 2}, ("0", 0))),
        ((2, 2, 4, {"0": 1}, ("0", 0)), (6, 6, 7, {"0": 1}, ("0", 0))),
    ),
    completions=(9, 7),
    total_jct=15,
    preemptions=3,
)

FIFO_STRICT = Case(
    about="""
Server 0 two workers, server 1 one, and the cloud, n(0)=1, n(1)=4/3. Strict head of line.
Job 0 (k=2, W=8): server 0, upload 0-1, computes 1-5. Job 1 (r=1, k=2): one worker is free, it waits. Job 2 (r=2, k=1)
would fit on server 1 but is behind job 1.
Job 3 (r=2, k=4) can never fit on three workers: cloud at once, 2+10 + 12/(4*4/3)=2.25, so it ends at 14.25; it does not
block the line.
t=5: job 1 takes server 0 (upload 1, W=4: computes 6-8), job 2 server 1 (upload 2, computes 7-8).
JCT 5 + 7 + 6 + 12.25 = 30.25.
    """,
    policy="fifo",
    scenario=scenario(
        ((2, 2), (1, 1)),
        (
            job("0", 0, 2, 4, {"0": 1, "1": 2, "cloud": 10}),
            job("1", 1, 2, 2, {"0": 1, "1": 2, "cloud": 10}),
            job("2", 2, 1, 1, {"0": 1, "1": 2, "cloud": 10}),
            job("3", 2, 4, 3, {"0": 1, "1": 2, "cloud": 10}),
        ),
        cloud=True,
    ),
    intervals=(
        ((0, 1, 5, {"0": 2}, ("0", 0)),),
        ((5, 6, 8, {"0": 2}, ("0", 0)),),
        ((5, 7, 8, {"1": 1}, ("1", 0)),),
        ((2, 12, 14.25, {"cloud": 4}, ("cloud", None)),),
    ),
    completions=(5, 8, 8, 14.25),
    total_jct=30.25,
)

FIFO_EARLIEST_SERVER = Case(
    about="""
Each job sits on one server and runs with zeta=1, n(1)=4/3; it starts where it can start earliest, at t >= r + delta;
everything is reserved on arrival. Server 0: two workers, one PS. Server 1: one worker, one PS.
Job 0 (k=2, W=16, 16/(8/3)=6 slots): server 0 at 1 (server 1 is too small, cloud at 4): 1-7.
Job 1 (r=1, k=1, W=4, 3 slots): server 0 at 7, server 1 at 2, cloud at 11: server 1, 2-5.
Job 2 (r=2, 3 slots): server 0 at 7, server 1 at 5, cloud at 12: server 1, 5-8.
Job 3 (r=2, k=2, W=8, 3 slots): server 0 at 7, cloud at 2+4=6: cloud, 6-9.
JCT 7 + 4 + 6 + 7 = 24. The PS of each server is its only one.
    """,
    policy="fifo:rule=earliest_server",
    scenario=scenario(
        ((2, 1), (1, 1)),
        (
            job("0", 0, 2, 8, {"0": 1, "1": 1, "cloud": 4}),
            job("1", 1, 1, 4, {"0": 1, "1": 1, "cloud": 10}),
            job("2", 2, 1, 4, {"0": 1, "1": 1, "cloud": 10}),
            job("3", 2, 2, 4, {"0": 1, "1": 1, "cloud": 4}),
        ),
        cloud=True,
        physics=Physics(colocation="one_server"),
    ),
    intervals=(
        ((1, 1, 7, {"0": 2}, ("0", 0)),),
        ((2, 2, 5, {"1": 1}, ("1", 0)),),
        ((5, 5, 8, {"1": 1}, ("1", 0)),),
        ((6, 6, 9, {"cloud": 2}, ("cloud", None)),),
    ),
    completions=(7, 5, 8, 9),
    total_jct=24,
)

DRF = Case(
    about="""
Two servers with two workers each, one type, n(0)=1, no cloud; workers are granted one at a time to the smallest share
w/4, at most D each; a new worker trains after delta, the others go on.
t=0: job 0 (D=4, W=20) is alone: 4 workers. The two of server 0 train from 1, the two of server 1 from 2.
t=3: it has trained 2*1 + 4*1 = 6. Job 1 (D=2, W=4) arrives: grants 0,1,0,1: two each. Job 0 keeps server 0 (lower
delay), job 1 gets server 1, trains from 4, 2 per slot: 4-6. Data count in the last place only.
t=6: job 0 has 20-6-2*3=8 left, grows to 4 again; the new two train from 8: 2*2 done by 8, 4 left at rate 4: ends at 9.
JCT 9 + 3 = 12; one re-placement of job 0.
    """,
    policy="drf",
    scenario=scenario(
        ((2, 2), (2, 2)),
        (job("0", 0, 4, 5, {"0": 1, "1": 2}), job("1", 3, 2, 2, {"0": 1, "1": 1})),
        physics=Physics(data="last_place"),
    ),
    intervals=(
        (
            (0, 1, 3, {"0": 2, "1": 2}, ("0", 0)),
            (3, 3, 6, {"0": 2}, ("0", 0)),
            (6, 6, 9, {"0": 2, "1": 2}, ("0", 0)),
        ),
        ((3, 4, 6, {"1": 2}, ("1", 0)),),
    ),
    completions=(9, 6),
    total_jct=12,
    migrations=1,
)

DRF_KEPT = Case(
    about="""
The same jobs where data are kept. Up to 6 nothing changes: job 0 has 8 left on server 0. Server 1 still has the data of
its two workers, so at 6 all four compute at once: 8 left at rate 4: ends at 8. JCT 8 + 3 = 11; no data move again.
    """,
    policy="drf",
    scenario=replace(DRF.scenario, physics=Physics()),
    intervals=(
        (
            (0, 1, 3, {"0": 2, "1": 2}, ("0", 0)),
            (3, 3, 6, {"0": 2}, ("0", 0)),
            (6, 6, 8, {"0": 2, "1": 2}, ("0", 0)),
        ),
        ((3, 4, 6, {"1": 2}, ("1", 0)),),
    ),
    completions=(8, 6),
    total_jct=11,
)

_AWAY_AND_BACK = (
    job("0", 0, 1, 10, {"0": 1, "1": 2}),
    job("1", 3, 1, 2, {"0": 0, "1": 1}),
    job("2", 5, 1, 2, {"0": 1, "1": 0}),
)
"""Job 0 is displaced from server 0, then from server 1, and each time goes to the other."""

SRTF_AWAY_AND_BACK = Case(
    about="""
Two servers with one worker each; job 0 (W=10) has k=1 as all have, delays 1 and 2.
t=0: job 0 on server 0, computes from 1. t=3: it has 8 left; job 1 (W=2, 0 to server 0, 1 to server 1) ranks first and
takes server 0, 3-5. Job 0 is moved to server 1: its upload ends at 5.
t=5: job 1 has ended, job 2 (W=2, 1 to server 0, 0 to server 1) arrives: first in rank, server 1 is nearer: 5-7. Job 0
has computed nothing on server 1. It is moved back to server 0, where its data are: it computes 8 at once, from 5 to 13.
t=7: job 2 ends; job 0 keeps its place. JCT 13 + 2 + 2 = 17. One migration (to server 1); the way back moves no data.
    """,
    policy="srtf:placement=literal",
    scenario=scenario(((1, 1), (1, 1)), _AWAY_AND_BACK),
    intervals=(
        ((0, 1, 3, {"0": 1}, ("0", 0)), (3, 5, 5, {"1": 1}, ("0", 0)), (5, 5, 13, {"0": 1}, ("0", 0))),
        ((3, 3, 5, {"0": 1}, ("1", 0)),),
        ((5, 5, 7, {"1": 1}, ("1", 0)),),
    ),
    completions=(13, 5, 7),
    total_jct=17,
    migrations=1,
)

SRTF_AWAY_AND_BACK_LAST_PLACE = Case(
    about="""
The same jobs where only the last place counts: at 5 job 0 uploads to server 0 again, for 1, and computes 8 from 6 to
14. Two migrations.
    """,
    policy="srtf:placement=literal",
    scenario=scenario(((1, 1), (1, 1)), _AWAY_AND_BACK, physics=Physics(data="last_place")),
    intervals=(
        ((0, 1, 3, {"0": 1}, ("0", 0)), (3, 5, 5, {"1": 1}, ("0", 0)), (5, 6, 14, {"0": 1}, ("0", 0))),
        ((3, 3, 5, {"0": 1}, ("1", 0)),),
        ((5, 5, 7, {"1": 1}, ("1", 0)),),
    ),
    completions=(14, 5, 7),
    total_jct=18,
    migrations=2,
)

SRTF_KEEPS_RUNNING = Case(
    about="""
The same jobs by default: what runs keeps its workers while others are free. t=0: job 0 on server 0, computes from 1.
t=3: job 1 (W=2) ranks first. Server 0 is nearer, but job 0 runs there and server 1 is free: it goes to server 1, its
upload ends at 4, it computes 4-6. Job 0 stays.
t=5: job 1 has 1 left, job 2 (W=2) 2, job 0 10-4 = 6. No worker is free: job 2, ranked before job 0, takes server 0, to
which its upload takes 1: 6-8. Job 0 is preempted.
t=6: job 1 ends; job 0 goes to server 1, its upload takes 2: 8-14. t=8: job 2 ends, job 0 keeps its place.
JCT 14 + 3 + 3 = 20; one preemption, one migration.
    """,
    policy="srtf",
    scenario=scenario(((1, 1), (1, 1)), _AWAY_AND_BACK),
    intervals=(
        ((0, 1, 5, {"0": 1}, ("0", 0)), (6, 8, 14, {"1": 1}, ("1", 0))),
        ((3, 4, 6, {"1": 1}, ("1", 0)),),
        ((5, 6, 8, {"0": 1}, ("0", 0)),),
    ),
    completions=(14, 6, 8),
    total_jct=20,
    preemptions=1,
    migrations=1,
)

SRTF_PREFERS_ITS_DATA = Case(
    about="""
Three servers with one worker each. Job 2 (W=12, delays 1, 2, 0.5 to servers 0, 1, 2) begins on server 1, is sent to
server 2, and then finds servers 0 and 1 free.
t=0: jobs 0 and 1 (W=2 and 3, delays 0 to server 0 and to server 2, 9 elsewhere) are there until 2 and 3; job 2, behind
them in rank, gets server 1 and computes from 2. It keeps its place at 2 and 3.
t=4: job 2 has 10 left. Job 3 (W=6, delay 0 to server 1) takes server 1 until 10; job 2 goes to server 2, which is
nearer than server 0, and computes from 4.5.
t=10: job 2 has 4.5 left. Job 3 ends; job 4 (W=2, delay 0 to server 2) takes server 2, 10-12. Servers 0 and 1 are free:
the delay to 0 is 1, that to 1 counts as 0, since the data are there: job 2 computes on server 1 from 10 to 14.5.
JCT 2 + 3 + 14.5 + 6 + 2 = 27.5. One migration, at 4.
    """,
    policy="srtf:placement=literal",
    scenario=scenario(
        ((1, 1), (1, 1), (1, 1)),
        (
            job("0", 0, 1, 2, {"0": 0, "1": 9, "2": 9}),
            job("1", 0, 1, 3, {"0": 9, "1": 9, "2": 0}),
            job("2", 0, 1, 12, {"0": 1, "1": 2, "2": 0.5}),
            job("3", 4, 1, 6, {"0": 9, "1": 0, "2": 9}),
            job("4", 10, 1, 2, {"0": 9, "1": 9, "2": 0}),
        ),
    ),
    intervals=(
        ((0, 0, 2, {"0": 1}, ("0", 0)),),
        ((0, 0, 3, {"2": 1}, ("2", 0)),),
        (
            (0, 2, 4, {"1": 1}, ("1", 0)),
            (4, 4.5, 10, {"2": 1}, ("1", 0)),
            (10, 10, 14.5, {"1": 1}, ("1", 0)),
        ),
        ((4, 4, 10, {"1": 1}, ("0", 0)),),
        ((10, 10, 12, {"2": 1}, ("2", 0)),),
    ),
    completions=(2, 3, 14.5, 10, 12),
    total_jct=27.5,
    migrations=1,
)

CASES = {
    "SRTF preempts and resumes": SRTF,
    "Tiresias demotes and promotes": TIRESIAS,
    "FIFO holds the line": FIFO_STRICT,
    "FIFO reserves the earliest server": FIFO_EARLIEST_SERVER,
    "DRF shrinks and grows, data in the last place": DRF,
    "DRF shrinks and grows": DRF_KEPT,
    "SRTF sends a gang away and back": SRTF_AWAY_AND_BACK,
    "SRTF sends a gang away and back, data in the last place": SRTF_AWAY_AND_BACK_LAST_PLACE,
    "SRTF leaves what runs where it is": SRTF_KEEPS_RUNNING,
    "SRTF prefers the server that has the data": SRTF_PREFERS_ITS_DATA,
}
