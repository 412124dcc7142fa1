"""Six cases of A_online worked out by hand; the derivation stands beside each. Times are in slots.

Every job has m = 0.5, G = 0.25 and 2q/b = 0.25 unless it says otherwise: a mini-batch takes 1 slot at zeta = 0 and 3/4
at zeta = 1. In continuous time slots are only a unit. Case 6 reads Q as the increase of the fractional flow.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from reference.aonline_model import CLOUD, Instance, Job, Mode, Server, Time

F = Fraction
ChunkRow = tuple[int, int, int, int, int, Time, Time, tuple[Time, Time, Time, Time], int, Time]
"""job, d, server, worker, zeta, p, alpha, its four terms, chunks postponed, completion."""
PsRow = tuple[Time, Time, int, int]
"""from, to, server, PS."""


@dataclass(frozen=True)
class Case:
    """An instance and all that is expected of it; `workers` are runs (job, chunk, from, to) of each edge worker.

    `dual_sum` is both sum alpha and sum beta (Lemma 4).
    """

    about: str
    servers: tuple[Server, ...]
    jobs: tuple[Job, ...]
    mode: Mode
    chunks: tuple[ChunkRow, ...]
    completions: tuple[Time, ...]
    ps: tuple[tuple[PsRow, ...], ...]
    workers: dict[tuple[int, int], tuple[tuple[Time, ...], ...]]
    preemptions: int
    total_jct: Time
    dual_sum: Time
    slotted: bool = False

    @property
    def instance(self) -> Instance:
        return Instance(self.servers, self.jobs, int(self.slotted))


HALF = F("1/2")


def server(workers: int, ps: int) -> Server:
    return Server(("0",) * workers, ("0",) * ps)


def job(r: Time, D: int, B: int, delta: dict[int, Time], *, E: int = 1, m: F = HALF) -> Job:
    return Job(r=r, E=E, D=D, B=B, m=m, G=F("1/4"), q=F("1/2"), b=4, delta=delta)


IDLE_EDGE_VS_CLOUD = Case(
    about="""
One edge worker, the cloud, three jobs that never meet. m+G=0.75, 2q/b=0.25: n(0)=1, n(1)=4/3 mini-batches per
slot.
Job 0 (E B=4, D=1): edge Q = 1 + 4/1 = 5; cloud with zeta=1 Q = 3 + 4*0.75 = 6. Edge: trains 1-5, JCT 5, PS
(0,0).
Job 1 (r=10, E B=24): edge 1+24=25; cloud 5+18=23. Cloud, zeta=1: trains 15-33, JCT 23 = delta_c + p(1), PS in
the cloud.
Job 2 (r=40, E B=4): edge 2+4=6; cloud 3+3=6: a tie, the edge comes before the cloud. Trains 42-46, JCT 6.
sum alpha = 5+23+6 = 34 = sum beta (each chunk counts 1/D=1 from its release to its completion, the private
cloud worker too).
    """,
    servers=(server(1, 1),),
    jobs=(
        job(0, 1, 4, {0: 1, CLOUD: 3}),
        job(10, 1, 12, {0: 1, CLOUD: 5}, E=2),
        job(40, 1, 4, {0: 2, CLOUD: 3}),
    ),
    mode=Mode("marginal", cloud=True),
    chunks=(
        (0, 0, 0, 0, 0, 4, 5, (1, 0, 4, 0), 0, 5),
        (1, 0, CLOUD, CLOUD, 1, 18, 23, (5, 0, 18, 0), 0, 33),
        (2, 0, 0, 0, 0, 4, 6, (2, 0, 4, 0), 0, 46),
    ),
    completions=(
        5,
        33,
        46,
    ),
    ps=(
        ((1, 5, 0, 0),),
        ((15, 33, CLOUD, CLOUD),),
        ((42, 46, 0, 0),),
    ),
    workers={
        (0, 0): (
            (0, 0, 1, 5),
            (2, 0, 42, 46),
        ),
    },
    preemptions=0,
    total_jct=34,
    dual_sum=34,
)

PREEMPT_RUNNING_CHUNK = Case(
    about="""
One worker, no delays, no cloud, speed 1. gamma = 1/(D p).
Job 0 (r=0, p=8, gamma 1/8) starts at once: alpha = 8.
Job 1 (r=6, p=3, gamma 1/3): job 0 has 2 left and gives way: Q = 0+0+3 + 3*1 = 6. New plan 6-9 job 1, 9-11 job
0.
Job 2 (r=7, D=2, p=1, gamma 1/2): chunk 0 goes before job 1 (2 left) and job 0 (2 left): Q = 0 + 0 + 1/2 +
1*(1+1) = 2.5. Chunk 1 has the gamma of chunk 0 and waits for it: Q = 0 + 1/2 + 1/2 + 2 = 3.
Result: job 0 0-6, job 1 6-7, job 2 7-8 and 8-9, job 1 9-11, job 0 11-13. JCT 13, 5, 2.
sum alpha = 8+6+2.5+3 = 19.5; sum beta = 13 + 5 + (1+2)/2 = 19.5. Preemptions: at 6 and at 7, so 2. Postponed:
1 (job 1) + 2 + 2 (job 2) = 5. One job runs at a time, so each takes PS (0,0).
    """,
    servers=(server(1, 3),),
    jobs=(
        job(0, 1, 8, {0: 0}),
        job(6, 1, 3, {0: 0}),
        job(7, 2, 1, {0: 0}),
    ),
    mode=Mode("marginal", cloud=False),
    chunks=(
        (0, 0, 0, 0, 0, 8, 8, (0, 0, 8, 0), 0, 13),
        (1, 0, 0, 0, 0, 3, 6, (0, 0, 3, 3), 1, 11),
        (2, 0, 0, 0, 0, 1, F("5/2"), (0, 0, F("1/2"), 2), 2, 8),
        (2, 1, 0, 0, 0, 1, 3, (0, F("1/2"), F("1/2"), 2), 2, 9),
    ),
    completions=(
        13,
        11,
        9,
    ),
    ps=(
        (
            (0, 6, 0, 0),
            (11, 13, 0, 0),
        ),
        (
            (6, 7, 0, 0),
            (9, 11, 0, 0),
        ),
        ((7, 9, 0, 0),),
    ),
    workers={
        (0, 0): (
            (0, 0, 0, 6),
            (1, 0, 6, 7),
            (2, 0, 7, 8),
            (2, 1, 8, 9),
            (1, 0, 9, 11),
            (0, 0, 11, 13),
        ),
    },
    preemptions=2,
    total_jct=20,
    dual_sum=F("39/2"),
)

CHUNKS_IN_TRANSIT = Case(
    about="""
Two servers with one worker each, no cloud; server 1 is far (delay 9) for jobs 0 and 1.
Job 0 (r=0, delta 4, p=2): reaches the worker of server 0 at 4, alpha = 4+2 = 6 (server 1: 11).
Job 1 (r=1, delta 1, p=4, gamma 1/4): may run 2-4, then job 0 (gamma 1/2), still in transit now, takes 4-6,
then 6-8: Q = 7 = 1 + 2 + 4 (server 1: 13).
Job 2 (r=1, dispatched after job 1, delta 1 to server 0, p=1, gamma 1): it would run 2-3. Job 1 then runs 3-4
and 6-9, completing at 9 instead of 8; job 0 keeps 4-6. Marginal Q on server 0 = 1 + 0 + 1 + 1 = 3; server 1
(delta 2.5, idle): 3.5. Server 0 is taken. Counting the chunk in transit of job 0 as if it were postponed
would give 1 + 1 + 1*(1+1) = 4 and the other, wrong, server.
sum alpha = 6+7+3 = 16 = JCT 6 + 8 + 2. One preemption (job 1 at 4), one postponed chunk.
    """,
    servers=(
        server(1, 3),
        server(1, 0),
    ),
    jobs=(
        job(0, 1, 2, {0: 4, 1: 9}),
        job(1, 1, 4, {0: 1, 1: 9}),
        job(1, 1, 1, {0: 1, 1: F("5/2")}),
    ),
    mode=Mode("marginal", cloud=False),
    chunks=(
        (0, 0, 0, 0, 0, 2, 6, (4, 0, 2, 0), 0, 6),
        (1, 0, 0, 0, 0, 4, 7, (1, 2, 4, 0), 0, 9),
        (2, 0, 0, 0, 0, 1, 3, (1, 0, 1, 1), 1, 3),
    ),
    completions=(
        6,
        9,
        3,
    ),
    ps=(
        ((4, 6, 0, 0),),
        (
            (3, 4, 0, 0),
            (6, 9, 0, 0),
        ),
        ((2, 3, 0, 0),),
    ),
    workers={
        (0, 0): (
            (2, 0, 2, 3),
            (1, 0, 3, 4),
            (0, 0, 4, 6),
            (1, 0, 6, 9),
        ),
        (1, 0): (),
    },
    preemptions=1,
    total_jct=16,
    dual_sum=16,
)

SPILL_TO_CLOUD_ZETA0 = Case(
    about="""
One edge worker, the cloud. E B=4, so p(0)=4, p(1)=3.
Job 0 (r=0, D=3). Chunk 0: edge (1+4)/3 = 5/3; cloud with zeta=1 (4+3)/3 = 7/3: edge, trains 1-5. Now the
cloud entry is recomputed with zeta=0: (4+4)/3 = 8/3. Chunk 1: edge (1+4+4)/3 = 3 against 8/3: cloud, and with
it all the remaining chunks, zeta=0, alpha 8/3 each, done at 0+4+4 = 8. JCT 8. The job keeps an edge PS
(zeta=0) during 1-8.
Job 1 (r=1, D=2, gamma 1/8 against 1/12 of job 0). Edge: reaches the worker at 2, chunk 0 of job 0 has 3 left
and is postponed: (1+4)/2 + 4*(1/3) = 3.8333. Cloud zeta=1: (4+3)/2 = 3.5: the whole job goes to the cloud,
alpha 3.5 twice, completion 1+4+3 = 8, JCT 7, PS in the cloud.
sum alpha = 5/3 + 2*8/3 + 2*3.5 = 14 = sum beta = 5/3 + 8/3 + 8/3 + 7/2 + 7/2.
    """,
    servers=(server(1, 1),),
    jobs=(
        job(0, 3, 4, {0: 1, CLOUD: 4}),
        job(1, 2, 4, {0: 1, CLOUD: 4}),
    ),
    mode=Mode("marginal", cloud=True),
    chunks=(
        (0, 0, 0, 0, 0, 4, F("5/3"), (F("1/3"), 0, F("4/3"), 0), 0, 5),
        (0, 1, CLOUD, CLOUD, 0, 4, F("8/3"), (F("4/3"), 0, F("4/3"), 0), 0, 8),
        (0, 2, CLOUD, CLOUD, 0, 4, F("8/3"), (F("4/3"), 0, F("4/3"), 0), 0, 8),
        (1, 0, CLOUD, CLOUD, 1, 3, F("7/2"), (2, 0, F("3/2"), 0), 0, 8),
        (1, 1, CLOUD, CLOUD, 1, 3, F("7/2"), (2, 0, F("3/2"), 0), 0, 8),
    ),
    completions=(
        8,
        8,
    ),
    ps=(
        ((1, 8, 0, 0),),
        ((5, 8, CLOUD, CLOUD),),
    ),
    workers={
        (0, 0): ((0, 0, 1, 5),),
    },
    preemptions=0,
    total_jct=15,
    dual_sum=14,
)

SCARCE_PS_SLOTTED = Case(
    about="""
Whole slots. n(0) = 1/(0.4+0.25+0.25) = 1/0.9, so E B=4 takes ceil(3.6)=4 slots and E B=2 ceil(1.8)=2. Three
workers, ONE PS on the edge; the cloud is far (50).
Job 0 (r=0): worker 0, 1-5, Q=1+4=5, PS (0,0).
Job 1 (r=1, p=2): worker 0 would cost 1+2+2*1=5 (it would postpone job 0 by 2), worker 1 costs 3: worker 1,
2-4. No free PS: cloud PS.
Job 2 (r=3, arrives at 4, p=4): worker 0: job 0 has 1 left and the same gamma, so wait 1: 6. Worker 1: job 1
ends at 4: 5. Worker 2: 5, a tie, worker 1 has the lower index: 4-8. At 4 the PS is still with job 0: cloud
PS, and it is kept to the end although the edge PS is free from 5 on.
Job 3 (r=4, arrives at 5, p=2): worker 0 is free again: 3, worker 2 also 3: worker 0, 5-7. PS (0,0) is free
from 5: taken.
JCT 5+3+5+3 = 16 = sum alpha = sum beta; no preemption.
    """,
    servers=(server(3, 1),),
    jobs=(
        job(0, 1, 4, {0: 1, CLOUD: 50}, m=F("2/5")),
        job(1, 1, 2, {0: 1, CLOUD: 50}, m=F("2/5")),
        job(3, 1, 4, {0: 1, CLOUD: 50}, m=F("2/5")),
        job(4, 1, 2, {0: 1, CLOUD: 50}, m=F("2/5")),
    ),
    mode=Mode("marginal", cloud=True),
    slotted=True,
    chunks=(
        (0, 0, 0, 0, 0, 4, 5, (1, 0, 4, 0), 0, 5),
        (1, 0, 0, 1, 0, 2, 3, (1, 0, 2, 0), 0, 4),
        (2, 0, 0, 1, 0, 4, 5, (1, 0, 4, 0), 0, 8),
        (3, 0, 0, 0, 0, 2, 3, (1, 0, 2, 0), 0, 7),
    ),
    completions=(
        5,
        4,
        8,
        7,
    ),
    ps=(
        ((1, 5, 0, 0),),
        ((2, 4, CLOUD, CLOUD),),
        ((4, 8, CLOUD, CLOUD),),
        ((5, 7, 0, 0),),
    ),
    workers={
        (0, 0): (
            (0, 0, 1, 5),
            (3, 0, 5, 7),
        ),
        (0, 1): (
            (1, 0, 2, 4),
            (2, 0, 4, 8),
        ),
        (0, 2): (),
    },
    preemptions=0,
    total_jct=16,
    dual_sum=16,
)

FRACTIONAL_MODE = Case(
    about="""
q_mode fractional: Q is the marginal increase of sum (1/D) * integral of (remaining/p). Two servers, one
worker each, no cloud.
Job 0 (r=0, p=8, no delay): 8/2 = 4 on both servers, server 0 by index. Job 1 (r=0, p=8): server 0 has delay
2: it would wait for job 0; server 1: 4. Server 1.
Job 2 (r=4, p=2, gamma 1/2). Server 0 (no delay): job 0 has half its work left and stands still for 2 slots:
2*1/2 = 1; own integral 2/2 = 1; Q=2. Server 1 (delay 1): own 1 + 1, job 1 has 3/8 left at 5: 2*3/8; Q=2.75.
Server 0: job 0 runs 0-4 and 6-10, job 2 4-6.
sum alpha = 4+4+2 = 10. Fractional flow: job 0: (1+1/2)/2*4 + 1/2*2 + (1/2)/2*4 = 3+1+1 = 5; job 1: 4; job 2:
1; together 10.
(6a'), job 2 on server 1 at its arrival t=5: alpha=2 <= (5-4)/1 + 2*(1 + 3/8) = 3.75.
    """,
    servers=(
        server(1, 1),
        server(1, 1),
    ),
    jobs=(
        job(0, 1, 8, {0: 0, 1: 0}),
        job(0, 1, 8, {0: 2, 1: 0}),
        job(4, 1, 2, {0: 0, 1: 1}),
    ),
    mode=Mode("fractional", cloud=False),
    chunks=(
        (0, 0, 0, 0, 0, 8, 4, (0, 0, 4, 0), 0, 10),
        (1, 0, 1, 0, 0, 8, 4, (0, 0, 4, 0), 0, 8),
        (2, 0, 0, 0, 0, 2, 2, (0, 0, 1, 1), 1, 6),
    ),
    completions=(
        10,
        8,
        6,
    ),
    ps=(
        (
            (0, 4, 0, 0),
            (6, 10, 0, 0),
        ),
        ((0, 8, 1, 0),),
        ((4, 6, 0, 0),),
    ),
    workers={
        (0, 0): (
            (0, 0, 0, 4),
            (2, 0, 4, 6),
            (0, 0, 6, 10),
        ),
        (1, 0): ((1, 0, 0, 8),),
    },
    preemptions=1,
    total_jct=20,
    dual_sum=10,
)
CASES = {
    "idle edge against cloud": IDLE_EDGE_VS_CLOUD,
    "a running chunk is preempted": PREEMPT_RUNNING_CHUNK,
    "chunks in transit": CHUNKS_IN_TRANSIT,
    "spill to the cloud at zeta 0": SPILL_TO_CLOUD_ZETA0,
    "scarce PSs, whole slots": SCARCE_PS_SLOTTED,
    "fractional Q": FRACTIONAL_MODE,
}
