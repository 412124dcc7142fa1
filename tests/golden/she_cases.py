"""Four cases of A_online of She et al. worked out by hand; the derivation stands beside each. Times are in slots (1 h).

Worker types and PS types are "0", "1", ...; the cloud, where there is one, is the last server and has no limit. Prices
are those of ERRATA H2: (theta^(f/W) - 1) / (2TSU) with theta = 2TSU F + 1. Work is E D M mini-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import HOUR, SECOND

H = HOUR // SECOND
"""A slot [s]."""

Capacity = tuple[tuple[int, ...], tuple[int, ...]]
"""Workers by type, PSs by type."""


@dataclass(frozen=True)
class Expected:
    """How a job runs: batch i, COST_C or COST_D, workers by server, server of the PS, [h, c), price of the plan."""

    batch: int
    kind: str
    y: tuple[int, ...]
    ps_server: int
    start: int
    completion: int
    cost: float = 0.0


@dataclass(frozen=True)
class Case:
    """A scenario with the policy's parameters, and what is expected of it.

    `jobs`: by id; None: rejected. `batches`: tau, and eta of the offered jobs in order (0: put off).
    """

    about: str
    policy: str
    scenario: Scenario
    jobs: dict[str, Expected | None]
    batches: tuple[tuple[int, dict[str, float]], ...]
    total_jct: int


def scenario(servers: Sequence[Capacity], jobs: Sequence[Job], *, cloud: bool = False) -> Scenario:
    listed = [
        Server(
            str(s),
            capacity={f"worker:{k}": n for k, n in enumerate(workers)} | {f"ps:{k}": n for k, n in enumerate(ps)},
        )
        for s, (workers, ps) in enumerate(servers)
    ]
    cluster = Cluster([*listed, Server("cloud", "cloud")] if cloud else listed)
    frame, given = job_table(jobs)
    return Scenario(cluster, Jobs(frame, cluster, given), Physics(slotted=True, colocation="one_server"))


def job(
    name: str, a: int, E: int, D: int, M: int, delta: Sequence[int], *, n: float = 0.25, H_ms: float = 0.0,
    k: float = 5625, types: tuple[str, str] = ("0", "0"), cloud: int | None = None,
) -> Job:  # fmt: skip
    """A job; `n` is in hours, 2k/B is 2 * 8 * k / 100 s, `delta` by edge server."""
    upload = {str(s): float(d * H) for s, d in enumerate(delta)}
    upload |= {} if cloud is None else {"cloud": float(cloud * H)}
    return Job(
        id=name, arrival_s=a * H, epochs=E, chunks=D, minibatches=M, minibatch_s=n * H, ps_update_s=H_ms / 1000,
        gradient_mb=k, bandwidth_mbps=100, worker_type=types[0], ps_type=types[1], upload_s=upload,
    )  # fmt: skip


TIES_AND_CAPACITY = Case(
    about="""
Two edge servers with 2 workers and one PS (type 0) each. n = 0.25 h, H = 0, 2k/B = 900 s = 0.25 h: p = 4 mini-batches
per worker and slot on one server, 2 otherwise.
Job 4 needs a PS of type 1, which no server has: never.
Job 1 (arrival 1, upload 1): 1 + 1 < tau is false at tau = 2 (strict), true at tau = 4. Work 24. One server: D_u = 1
takes 6 > 4 slots, D_u = 2 takes 3. Spread: 12, 6, 4, 3 slots for D_u = 1..4. All cost 0, so the earliest completion, 7:
D_u = 2 on one server or D_u = 4 spread; one server wins, the lower number: [4,7) on server 0.
Job 2 (arrival 2, upload 1, 3 < 4): work 8; server 0 is full from slot 4 on. Server 1: D_u = 2 takes 1 slot: [4,5).
Job 3 (arrival 3, upload 0): no free worker in slot 4, put off. tau = 8, empty again; work 24: D_u = 2 takes 3 slots on
one server (11), D_u = 3 spread 4 (12): [8,11) on server 0. Sum of c - a: 6 + 3 + 8 = 17.
    """,
    policy="batch:T=20",
    scenario=scenario(
        [((2,), (1, 0)), ((2,), (1, 0))],
        [
            job("1", 1, 1, 4, 6, (1, 1)),
            job("2", 2, 1, 2, 4, (1, 1)),
            job("3", 3, 1, 3, 8, (0, 0)),
            job("4", 1, 1, 1, 4, (0, 0), types=("0", "1")),
        ],
    ),
    jobs={
        "1": Expected(3, "C", (2, 0), 0, 4, 7),
        "2": Expected(3, "C", (0, 2), 1, 4, 5),
        "3": Expected(4, "C", (2, 0), 0, 8, 11),
        "4": None,
    },
    batches=((2, {"1": 0.0}), (4, {"1": 1.0, "2": 1.0, "3": 0.0}), (8, {"3": 1.0})),
    total_jct=17,
)

PRICES = Case(
    about="""
One edge server with 4 workers and 4 PSs, T = 20, F1 = F2 = 2: 2TSU = 40, theta = 81 = 3^4: a worker, and a PS, costs
(3^f - 1)/40 = 0, 0.05, 0.2, 0.65, 2 with f = 0..4 taken. p = 4 on one server; a spread plan can only sit on the same
server at p = 2 and never wins.
tau = 2: job 1 (work 16, D = 1) needs 4 > 2 slots. tau = 4, order 1, 2, 3, 4:
Job 1: 4 slots, cost 0: [4,8); f = g = 1 in slots 4-7.
Job 2 (work 8): D_u = 1: 2 slots, 2 (0.05 + 0.05) = 0.2. D_u = 2: 1 slot, 2 * 0.05 + 0.05 = 0.15. D_u = 3: 0.2. Only 3
are free. Spread: 0.4, 0.3, 0.4. So D_u = 2, eta = 0.85, [4,5); f = 3, g = 2 in slot 4.
Job 3 (work 16, D = 1): 0.65 + 0.2 + 3 * 0.1 = 1.15 >= 1: put off, although a worker is free.
Job 4 (work 8, D = 1): 0.85 + 0.1 = 0.95, eta = 0.05, [4,6).
tau = 8: job 3 on an empty system: [8,12). Sum of c - a: 7 + 3 + 9 + 3 = 22.
    """,
    policy="batch:T=20,F1=2,F2=2",
    scenario=scenario(
        [((4,), (4,))],
        [
            job("1", 1, 1, 1, 16, (0,)),
            job("2", 2, 1, 4, 2, (0,)),
            job("3", 3, 1, 1, 16, (0,)),
            job("4", 3, 1, 1, 8, (0,)),
        ],
    ),
    jobs={
        "1": Expected(3, "C", (1,), 0, 4, 8),
        "2": Expected(3, "C", (2,), 0, 4, 5, 0.15),
        "3": Expected(4, "C", (1,), 0, 8, 12),
        "4": Expected(3, "C", (1,), 0, 4, 6, 0.95),
    },
    batches=((2, {"1": 0.0}), (4, {"1": 1.0, "2": 0.85, "3": 0.0, "4": 0.05}), (8, {"3": 1.0})),
    total_jct=22,
)

CLOUD_AND_SPREAD = Case(
    about="""
Two edge servers with 2 workers and a PS each, and the cloud. 2k/B = 225 s = 0.0625 h: a mini-batch takes 0.25 slots on
one server (p = 4), 0.3125 spread (p = 3.2).
Job 1: 1 + 1 < 2 is false. tau = 4: work 48 in at most 4 slots; one edge server 6 (D_u = 2), spread D_u = 3: 5, D_u = 4:
3.75, so 4, the only plan; the cloud is out (1 + 10 >= 4). 2 + 2 workers, PS on server 0: [4,8).
Job 2 (work 160): tau = 4: no worker is free; tau = 8: 20 and 13 slots, more than 8, cloud 2 + 10 >= 8. tau = 16: cloud,
D_u = 5: 160 * 0.25 / 5 = 8 slots at no cost: [16,24).
Job 3 (arrival 9, uploads 2, 3, 12): work 16 on server 0, D_u = 2: [16,18). Job 4 (arrival 10, uploads 5, 5, 12): work
24; server 0 is full in slots 16 and 17; server 1, D_u = 2: [16,19). Sum of c - a: 7 + 22 + 9 + 9 = 47.
    """,
    policy="batch:T=104",
    scenario=scenario(
        [((2,), (1,)), ((2,), (1,))],
        [
            job("1", 1, 1, 4, 12, (1, 1), cloud=10, k=1406.25),
            job("2", 2, 2, 5, 16, (1, 1), cloud=10, k=1406.25),
            job("3", 9, 1, 2, 8, (2, 3), cloud=12, k=1406.25),
            job("4", 10, 1, 3, 8, (5, 5), cloud=12, k=1406.25),
        ],
        cloud=True,
    ),
    jobs={
        "1": Expected(3, "D", (2, 2, 0), 0, 4, 8),
        "2": Expected(5, "C", (0, 0, 5), 2, 16, 24),
        "3": Expected(5, "C", (2, 0, 0), 0, 16, 18),
        "4": Expected(5, "C", (0, 2, 0), 1, 16, 19),
    },
    batches=(
        (2, {"1": 0.0}),
        (4, {"1": 1.0, "2": 0.0}),
        (8, {"2": 0.0}),
        (16, {"2": 1.0, "3": 1.0, "4": 1.0}),
    ),
    total_jct=47,
)

TYPES = Case(
    about="""
T = 36, S = U = V = 2: 2TSU = 288, theta = 289 = 17^2: with 1 of 2 taken a unit costs 16/288 = 1/18. Server 0: 2 workers
of type 0, a PS of type 1. Server 1: 2 workers of type 0, one of type 1, 2 PSs of type 0. A mini-batch takes 0.03 h and
50 ms = 0.0300139 slots on one server, 48 s = 0.0133333 more spread.
Job 1 (types 0, 1), work 150: tau = 2: 3 slots at best. tau = 4: D_u = 2 on server 0 and D_u = 3 spread both end at 7,
at no cost; one server: [4,7). Job 2 (types 0, 0; D = 1), work 50: server 1, 1.5007, so 2 slots: [4,6).
Job 3 (types 1, 1): its worker is on server 1, its PS on server 0, where job 1 has it: put off.
Job 4 (types 0, 0), work 30: server 1, 1 slot; one of 2 workers and one of 2 PSs are taken: 1/18 + 1/18 = 1/9: [4,5).
tau = 8: job 3 spread, 100 * 0.0433472 = 4.33, 5 slots: [8,13). Sum of c - a: 6 + 4 + 10 + 2 = 22.
    """,
    policy="batch:T=36",
    scenario=scenario(
        [((2, 0), (0, 1)), ((2, 1), (2, 0))],
        [
            job("1", 1, 10, 3, 5, (0, 0), n=0.03, H_ms=50, k=300, types=("0", "1")),
            job("2", 2, 10, 1, 5, (1, 1), n=0.03, H_ms=50, k=300),
            job("3", 3, 10, 2, 5, (0, 0), n=0.03, H_ms=50, k=300, types=("1", "1")),
            job("4", 3, 6, 1, 5, (0, 0), n=0.03, H_ms=50, k=300),
        ],
    ),
    jobs={
        "1": Expected(3, "C", (2, 0), 0, 4, 7),
        "2": Expected(3, "C", (0, 1), 1, 4, 6),
        "3": Expected(4, "D", (0, 1), 0, 8, 13),
        "4": Expected(3, "C", (0, 1), 1, 4, 5, 1 / 9),
    },
    batches=((2, {"1": 0.0}), (4, {"1": 1.0, "2": 1.0, "3": 0.0, "4": 8 / 9}), (8, {"3": 1.0})),
    total_jct=22,
)

CASES = {
    "ties_and_capacity": TIES_AND_CAPACITY,
    "prices": PRICES,
    "cloud_and_spread": CLOUD_AND_SPREAD,
    "types": TYPES,
}
