"""Six cases of Okita worked out by hand; the derivation stands beside each. Slots from 0; completion is END time.

The first four take the tentative plan's bandwidth cost in cost2, ``conflict=cheaper`` (O2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from skedge.core.model.latency import Exponential, LatencyCost, Linear
from skedge.policies.okita.sites import SiteJob


@dataclass(frozen=True)
class Row:
    """What is expected of a job in a slot.

    plan is (N, l, y, PS site, bandwidth cost) of the tentative plan; conflict is (i', l of i', bandwidth cost of the
    migrated plan, cost1, cost2), the middle two None where nothing is left to migrate to. Of a delayed job ps is None.
    moves are (from, to, chunks) between different sites.
    """

    job: int
    priority: float
    left: tuple[int, ...]
    plan: tuple[int, int, tuple[int, ...], int, float]
    verb: str
    workers: tuple[int, ...]
    ps: int | None
    trained: tuple[int, ...]
    moves: tuple[tuple[int, int, int], ...] = ()
    parameter_cost: float = 0.0
    data_cost: float = 0.0
    conflict: tuple[int, int, float | None, float | None, float | None] | None = None


@dataclass(frozen=True)
class Case:
    """An instance, the parameters of Okita, the rows of every slot in the order of the priorities, the outcomes.

    An outcome is (id, t_i, latency, B).
    """

    capacity: tuple[tuple[float, ...], ...]
    cost: tuple[tuple[float, ...], ...]
    jobs: tuple[SiteJob, ...]
    slots: tuple[tuple[int, tuple[Row, ...]], ...]
    outcomes: tuple[tuple[int, int, float, float], ...]
    latency: float
    bandwidth: float
    params: Mapping[str, str]


def job(
    number: int,
    arrival: int,
    rho: float,
    chunk_mb: float,
    exchange_mb: float,
    data: tuple[int, ...],
    latency: LatencyCost,
    worker: tuple[float, ...] = (1,),
    ps: tuple[float, ...] = (1,),
    epochs: int = 1,
) -> SiteJob:
    """A worker and a PS take one unit of one resource."""
    return SiteJob(number, arrival, rho / epochs, chunk_mb, exchange_mb, data, worker, ps, latency)


# Delaying beats migrating. Two sites with 3 units each, q = 1 per MB between them. A worker and a PS need one unit
# each; rho/E = 2 chunks per worker and slot. Both jobs arrive at 1 with 4 chunks in site 0; f is 10x for job 1 and x
# for job 2. Tentative plans at t = 1 (each job alone): ceil(4/2) = 2, so N = 1 (l = 2) or N = 2 (l = 1). Job 1: Q_0
# = 1 - 1 + 1 = 1, Q_1 = 1 - 1 + 0 = 0, site 0 first; with the PS in site 0 there is room for 2 workers, bandwidth
# cost 0. N = 1: 0 + f(2) = 20; N = 2: 0 + f(1) = 10: N = 2. Job 2 likewise: N = 1 gives 2, N = 2 gives 1: N = 2, y =
# (2, 0), PS in 0. Priorities: nobody has waited (0/0 = 0), all data are left: O = -1 for both; tie, lower id first.
# Job 1 keeps its plan, fills site 0 (2 workers + PS = 3 units), trains 4 chunks where they are and completes at 2:
# latency 10, bandwidth 0. Job 2 needs 3 units in site 0, none is left: conflict. Migration with what is left (0, 3):
# the PS fits only in site 1, 2 workers next to it, parameters cost 0; all 4 chunks must go from 0 to 1: 4 chunks * 5
# MB * 1 = 20. cost1 = 0 + 20 + f(1 + 1 - 1) = 21. Delay: the occupant is job 1 with l = 1, cost2 = 0 + 0 + f(1 + 1 +
# 1 - 1) = f(2) = 2. 21 > 2: delayed. t = 2: job 2 is alone, O = 1 - 1 = 0, keeps y = (2, 0), trains all 4 chunks,
# completes at 3: latency f(2) = 2, bandwidth 0. Total 10 + 2 = 12.
DELAY = Case(
    capacity=((3,), (3,)),
    cost=((0, 1), (1, 0)),
    jobs=(
        job(1, 1, 2, 1, 1, (4, 0), Linear(10, 0)),
        job(2, 1, 2, 5, 10, (4, 0), Linear(1, 0)),
    ),
    slots=(
        (
            1,
            (
                Row(1, -1.0, (4, 0), (2, 1, (2, 0), 0, 0.0), "keep", (2, 0), 0, (4, 0)),
                Row(
                    2,
                    -1.0,
                    (4, 0),
                    (2, 1, (2, 0), 0, 0.0),
                    "delay",
                    (0, 0),
                    None,
                    (0, 0),
                    conflict=(1, 1, 20.0, 21.0, 2.0),
                ),
            ),
        ),
        (2, (Row(2, 0.0, (4, 0), (2, 1, (2, 0), 0, 0.0), "keep", (2, 0), 0, (4, 0)),)),
    ),
    outcomes=((1, 1, 10.0, 0.0), (2, 2, 2.0, 0.0)),
    latency=12.0,
    bandwidth=0.0,
    params={"conflict": "cheaper"},
)

# Migrating beats delaying; equal PS sites. Three sites with 3 units, q_01 = q_12 = 1, q_02 = 2 per MB. Jobs 1 and 2
# arrive at 1 with 4 chunks in site 0, rho/E = 2, one unit per worker or PS. Average q: 1.5, 1, 1.5 for sites 0, 1,
# 2, so Q = (1 - 1.5 + 1, 1 - 1, 1 - 1.5) = (0.5, 0, -0.5). Both jobs: N = 2 next to the PS in site 0 costs no
# bandwidth and takes one slot: f(1) = 10 (job 1), 50 (job 2); N = 1 would give f(2). O = -1 for both, job 1 first:
# it fills site 0 and completes at 2. Job 2: conflict in site 0, left are (0, 3, 3): Q = (0 - 1.5 + 1, 1 - 1, 1 -
# 1.5) = (-0.5, 0, -0.5), site 1 first. PS in 0: no room. PS in 1: both workers there, parameters 0. PS in 2: both
# workers in site 1, 2 * q_12 * 1 = 2 > 0. So y = (0, 2, 0), PS in 1. All 4 chunks move 0 -> 1: 4 * 5 * 1 = 20. cost1
# = 20 + f(1) = 70; cost2 = 0 + f(1 + 1) = 100 (occupant job 1, l = 1). 70 <= 100: migrate; job 2 completes at 2 with
# latency 50 and bandwidth 20. Job 3 arrives at 2 and is alone: 2 chunks in site 1, rho/E = 1, pi = 3, its PS needs a
# whole site (3 units). Q = (1 - 4.5, 1 - 3 + 1, 1 - 4.5) = (-3.5, -1, -3.5). N = 2, l = 1: PS in 0: workers (0, 2,
# 0), 2 * q_10 * 3 = 6. PS in 1: no worker fits in site 1; sites 0 and 2 are equal, lower index first: (2, 0, 0), 6
# <= 6, replaces. PS in 2: (0, 2, 0), 2 * q_12 * 3 = 6 <= 6, replaces (the later site wins). Data stay where they
# are. 6 + f(1) = 6 + 6 = 12, with f(x) = 4x + 2. N = 1, l = 2: 2 slots * 3 = 6 and f(2) = 10: 16. So N = 2, PS in 2,
# completes at 3: latency 6, bandwidth 6. Total 10 + 70 + 12 = 92.
MIGRATE = Case(
    capacity=((3,), (3,), (3,)),
    cost=((0, 1, 2), (1, 0, 1), (2, 1, 0)),
    jobs=(
        job(1, 1, 2, 1, 1, (4, 0, 0), Linear(10, 0)),
        job(2, 1, 2, 5, 1, (4, 0, 0), Linear(50, 0)),
        job(3, 2, 1, 1, 3, (0, 2, 0), Linear(4, 2), ps=(3,)),
    ),
    slots=(
        (
            1,
            (
                Row(1, -1.0, (4, 0, 0), (2, 1, (2, 0, 0), 0, 0.0), "keep", (2, 0, 0), 0, (4, 0, 0)),
                Row(
                    2,
                    -1.0,
                    (4, 0, 0),
                    (2, 1, (2, 0, 0), 0, 0.0),
                    "migrate",
                    (0, 2, 0),
                    1,
                    (0, 4, 0),
                    moves=((0, 1, 4),),
                    data_cost=20.0,
                    conflict=(1, 1, 20.0, 70.0, 100.0),
                ),
            ),
        ),
        (2, (Row(3, -1.0, (0, 2, 0), (2, 1, (0, 2, 0), 2, 6.0), "keep", (0, 2, 0), 2, (0, 2, 0), parameter_cost=6.0),)),
    ),
    outcomes=((1, 1, 10.0, 0.0), (2, 1, 50.0, 20.0), (3, 2, 6.0, 6.0)),
    latency=66.0,
    bandwidth=26.0,
    params={"conflict": "cheaper"},
)

# Several slots, floors, two receivers. Two resource types; sites 0, 1, 2 hold (1,2), (2,3), (2,3); a worker needs
# (1,1), a PS (0,1). q_01 = 2, q_02 = 1, q_12 = 3 per MB, chunks and parameters are 1 MB. rho/E = 5/2, so y workers
# in a site train floor(2.5 y) chunks. Both jobs arrive at 1 with (7, 1, 0) chunks; f is x for job 1 and 30x for job
# 2. Average q: 1.5, 2.5, 2, so Q = (0.5, -0.5, -1): order 0, 1, 2. Room for workers, with the PS anywhere: (1, 2,
# 2). Work: 8 chunks * 2/5 = 3.2 worker-slots, N = 1..4. N = 1, l = 4: y = (1,0,0), PS in 0, parameters 0; over 4
# slots site 0 trains 8 chunks, one comes from site 1: b = 2. N = 2, l = 2: y = (1,1,0); PS in 0 or 1 costs 2*2 = 4
# (site 1, the later, wins), in 2 it costs 8; the sites train (4, 4), local (4, 1), 3 chunks go 0 -> 1: 6; b = 10. N
# = 3, l = 2: y = (1,2,0), PS in 1: 4; the sites could train (4, 10), again 3 chunks move: b = 10. N = 4, l = 1: y =
# (1,2,1); PS in 0: 2*2 + 1 = 5, in 1: 2 + 3 = 5 (later wins), in 2: 1 + 6 = 7; the sites train (2, 5, 2) at most:
# local (2, 1, 0), of the other 5 site 1 takes 4 and site 2 takes 1, all from site 0: 4*2 + 1*1 = 9; b = 14. Job 1 (f
# = x): 2+4 = 6, 10+2, 10+2, 14+1: N = 1. Job 2 (f = 30x): 122, 70, 70, 44: N = 4, l = 1. t = 1: O = -1 twice, job 1
# first: one worker and the PS in site 0, floor(2.5) = 2 chunks. Job 2 conflicts in site 0. Left: (0,0), (2,3),
# (2,3): y = (0,2,2); PS in 1: 2*q_21 = 6, in 2: 2*q_12 = 6, the later wins. The sites can train (0,5,5): local 1 in
# site 1, of the other 7 site 1 takes 4, site 2 takes 3: 4*2 + 3*1 = 11; b = 17. cost1 = 17 + f(1) = 47; cost2 = 14 +
# f(4 + 1) = 164 (occupant job 1, l = 4): migrate. Job 2 completes at 2: 30 + 17 = 47. Job 1 alone at t = 2, 3, 4
# with (5,1,0), (3,1,0), (1,1,0) left: N = 1 stays best (6 against 9, 10 at t = 2; 6 against 7 at t = 3). In slot 4
# its worker trains the last local chunk and the one of site 1 (1 MB * 2). It completes at 5: latency f(4) = 4,
# bandwidth 2. Total 6 + 47 = 53.
DATA_TRANSFER = Case(
    capacity=((1, 2), (2, 3), (2, 3)),
    cost=((0, 2, 1), (2, 0, 3), (1, 3, 0)),
    jobs=(
        job(1, 1, 5, 1, 1, (7, 1, 0), Linear(1, 0), worker=(1, 1), ps=(0, 1), epochs=2),
        job(2, 1, 5, 1, 1, (7, 1, 0), Linear(30, 0), worker=(1, 1), ps=(0, 1), epochs=2),
    ),
    slots=(
        (
            1,
            (
                Row(1, -1.0, (7, 1, 0), (1, 4, (1, 0, 0), 0, 2.0), "keep", (1, 0, 0), 0, (2, 0, 0)),
                Row(
                    2,
                    -1.0,
                    (7, 1, 0),
                    (4, 1, (1, 2, 1), 1, 14.0),
                    "migrate",
                    (0, 2, 2),
                    2,
                    (0, 5, 3),
                    moves=((0, 1, 4), (0, 2, 3)),
                    parameter_cost=6.0,
                    data_cost=11.0,
                    conflict=(1, 4, 17.0, 47.0, 164.0),
                ),
            ),
        ),
        (2, (Row(1, 0.25, (5, 1, 0), (1, 3, (1, 0, 0), 0, 2.0), "keep", (1, 0, 0), 0, (2, 0, 0)),)),
        (3, (Row(1, 0.5, (3, 1, 0), (1, 2, (1, 0, 0), 0, 2.0), "keep", (1, 0, 0), 0, (2, 0, 0)),)),
        (
            4,
            (
                Row(
                    1,
                    0.75,
                    (1, 1, 0),
                    (1, 1, (1, 0, 0), 0, 2.0),
                    "keep",
                    (1, 0, 0),
                    0,
                    (2, 0, 0),
                    moves=((1, 0, 1),),
                    data_cost=2.0,
                ),
            ),
        ),
    ),
    outcomes=((1, 4, 4.0, 2.0), (2, 1, 30.0, 17.0)),
    latency=34.0,
    bandwidth=19.0,
    params={"conflict": "cheaper"},
)

# Exponential latency cost, waiting time, no room to migrate. Two sites with 2 units, one unit per worker or PS,
# rho/E = 1. q = 0.04 per MB: a worker away from the PS costs 0.04*100 = 4 per slot, a moved chunk 0.04*50 = 2. f(x)
# = tau e^(x/4) with tau = 20, 30, 90. t = 1, job 1 (3 chunks in site 0): Q = (1 - 4 + 1, 1 - 4) = (-2, -3). N = 1, l
# = 3: worker and PS in site 0, 0 + 20 e^0.75 = 42.34. N = 2, l = 2: PS in 0: y = (1,1), 2*4 = 8 (PS in 1: y = (2,0),
# 16); over 2 slots the sites train (2, 1), one chunk moves: 2; 10 + 20 e^0.5 = 42.97. N = 3, l = 1: PS in 0: y =
# (1,2), 8; PS in 1: y = (2,1), 8, the later wins; d = (2,1), one chunk moves: 2; 10 + 20 e^0.25 = 35.68. So N = 3:
# all 4 units are taken. Job 2 (2 chunks in site 1): Q = (-3, -2). N = 1, l = 2: worker and PS in site 1: 30 e^0.5 =
# 49.46. N = 2, l = 1: PS in 0: y = (0,2), 8; PS in 1: y = (1,1), 4; one chunk moves 1 -> 0: 2; 6 + 30 e^0.25 =
# 44.52. So N = 2. O = -1 for both, job 1 first; nothing is left for job 2: no migration possible, delayed (cost2 = 6
# + 30 e^0.5). Job 1 completes at 2: 20 e^0.25 + 10. t = 2: job 2 has waited: O_2 = 30*1/30 - 1 = 0. Job 3 has just
# come (tau = 90, but waited 0): O_3 = -1. Job 2 first: N = 1: 0 + 30 e^0.75 = 63.51, N = 2: 6 + 30 e^0.5 = 55.46: N
# = 2 as before, y = (1,1), PS in 1, completes at 3: 30 e^0.5 + 6. Job 3 (one chunk in each site): Q = (-2, -2),
# equal, lower index first. N = 1, l = 2: worker and PS in 0, one chunk moves: 2 + 90 e^0.5 = 150.38. N = 2, l = 1:
# PS in 0: y = (1,1), 4; PS in 1: y = (2,0), 8; so (1,1) with PS in 0, no chunk moves: 4 + 90 e^0.25 = 119.56. N = 2.
# Left are (1, 0): conflict in both sites; with the PS in 0 no worker fits anywhere: delayed. t = 3: job 3 alone,
# same plan, completes at 4: 90 e^0.5 + 4. Total (25.68 + 10) + (49.46 + 6) + (148.38 + 4) = 243.53.
PRIORITY = Case(
    capacity=((2,), (2,)),
    cost=((0, 0.04), (0.04, 0)),
    jobs=(
        job(1, 1, 1, 50, 100, (3, 0), Exponential(20)),
        job(2, 1, 1, 50, 100, (0, 2), Exponential(30)),
        job(3, 2, 1, 50, 100, (1, 1), Exponential(90)),
    ),
    slots=(
        (
            1,
            (
                Row(
                    1,
                    -1.0,
                    (3, 0),
                    (3, 1, (2, 1), 1, 10.0),
                    "keep",
                    (2, 1),
                    1,
                    (2, 1),
                    moves=((0, 1, 1),),
                    parameter_cost=8.0,
                    data_cost=2.0,
                ),
                Row(
                    2,
                    -1.0,
                    (0, 2),
                    (2, 1, (1, 1), 1, 6.0),
                    "delay",
                    (0, 0),
                    None,
                    (0, 0),
                    conflict=(1, 1, None, None, 55.461638121003844),
                ),
            ),
        ),
        (
            2,
            (
                Row(
                    2,
                    0.0,
                    (0, 2),
                    (2, 1, (1, 1), 1, 6.0),
                    "keep",
                    (1, 1),
                    1,
                    (1, 1),
                    moves=((1, 0, 1),),
                    parameter_cost=4.0,
                    data_cost=2.0,
                ),
                Row(
                    3,
                    -1.0,
                    (1, 1),
                    (2, 1, (1, 1), 0, 4.0),
                    "delay",
                    (0, 0),
                    None,
                    (0, 0),
                    conflict=(2, 1, None, None, 152.38491436301155),
                ),
            ),
        ),
        (3, (Row(3, 0.0, (1, 1), (2, 1, (1, 1), 0, 4.0), "keep", (1, 1), 0, (1, 1), parameter_cost=4.0),)),
    ),
    outcomes=((1, 1, 25.68050833375483, 10.0), (2, 2, 49.461638121003844, 6.0), (3, 3, 148.38491436301155, 4.0)),
    latency=223.52706081777023,
    bandwidth=20.0,
    params={"conflict": "cheaper"},
)

# The first case as printed: cost2 takes the bandwidth cost of the migrated plan. Job 2 at t = 1 as there: cost1 = 0 +
# 20 + f(1) = 21, and cost2 = 21 - f(1) + f(1 + 1) = 22. 21 <= 22: it migrates, the PS and 2 workers at site 1, where it
# trains the 4 chunks of site 0: 4 * 5 * 1 = 20. It completes at 2: latency f(1) = 1. Total 10 + 21 = 31.
PRINTED = Case(
    capacity=DELAY.capacity,
    cost=DELAY.cost,
    jobs=DELAY.jobs,
    slots=(
        (
            1,
            (
                Row(1, -1.0, (4, 0), (2, 1, (2, 0), 0, 0.0), "keep", (2, 0), 0, (4, 0)),
                Row(
                    2,
                    -1.0,
                    (4, 0),
                    (2, 1, (2, 0), 0, 0.0),
                    "migrate",
                    (0, 2),
                    1,
                    (0, 4),
                    moves=((0, 1, 4),),
                    data_cost=20.0,
                    conflict=(1, 1, 20.0, 21.0, 22.0),
                ),
            ),
        ),
    ),
    outcomes=((1, 1, 10.0, 0.0), (2, 1, 1.0, 20.0)),
    latency=11.0,
    bandwidth=20.0,
    params={},
)

# As many workers as fit. Sites 0 and 1 hold 3 and 2 units, q = 1 per MB; a worker and a PS need one unit each, rho/E =
# 2, chunks and parameters are 1 MB. Both jobs arrive at 1: job 1 with 4 chunks in site 0 and f = 10x, job 2 with 6 in
# site 1 and f = 5x. Job 1: Q = (1 - 1 + 1, 1 - 1) = (1, 0). N = 1, l = 2: worker and PS in site 0, 0 + 20; N = 2, l =
# 1: y = (2, 0), PS in 0, 0 + 10 (PS in 1: 2 * 1): N = 2. Job 2: Q = (0, 1). N = 1, l = 3: worker and PS in site 1, 0
# + 15. N = 2, l = 2: PS in 0: y = (0, 2), 2; PS in 1: y = (1, 1), 1; over 2 slots 2 * 1, and the sites train (2, 4), 2
# chunks go 1 -> 0: 2; 4 + 10 = 14. N = 3, l = 1: PS in 0: y = (1, 2), 2; PS in 1: y = (2, 1), 2, the later wins; the
# sites train (4, 2), 4 chunks go 1 -> 0: 4; 6 + 5 = 11. N = 3. O = -1 for both, job 1 first: it fills site 0. Job 2:
# conflict in site 0; left are (0, 2), which hold the PS and one worker in site 1. 3 do not fit; N = 1, l = ceil(3 / 1)
# = 3: y = (0, 1), PS in 1, all data there: b = 0. cost1 = 0 + f(1 + 3 - 1) = 15, cost2 = 15 - f(3) + f(3 + 1) = 20
# (occupant job 1, l = 1): it migrates and trains 2 chunks. Job 1 completes at 2: latency 10. t = 2, job 2 alone with 4
# chunks: O = 1 - 4/6. Q = (0, 1 - 1 + 4/6). N = 1, l = 2: 0 + f(3) = 15. N = 2, l = 1: PS in 1: y = (1, 1), 1 (PS in 0:
# y = (0, 2), 2); the sites train (2, 2), 2 chunks go 1 -> 0: 2; 3 + f(2) = 13. N = 2. It completes at 3: latency 10,
# bandwidth 3. Total 10 + 13 = 23. (Without `fit` job 2 waits, and pays 6 + f(2) = 16 from t = 2 on.)
FIT = Case(
    capacity=((3,), (2,)),
    cost=((0, 1), (1, 0)),
    jobs=(
        job(1, 1, 2, 1, 1, (4, 0), Linear(10, 0)),
        job(2, 1, 2, 1, 1, (0, 6), Linear(5, 0)),
    ),
    slots=(
        (
            1,
            (
                Row(1, -1.0, (4, 0), (2, 1, (2, 0), 0, 0.0), "keep", (2, 0), 0, (4, 0)),
                Row(
                    2,
                    -1.0,
                    (0, 6),
                    (3, 1, (2, 1), 1, 6.0),
                    "migrate",
                    (0, 1),
                    1,
                    (0, 2),
                    conflict=(1, 1, 0.0, 15.0, 20.0),
                ),
            ),
        ),
        (
            2,
            (
                Row(
                    2,
                    1 / 3,
                    (0, 4),
                    (2, 1, (1, 1), 1, 3.0),
                    "keep",
                    (1, 1),
                    1,
                    (2, 2),
                    moves=((1, 0, 2),),
                    parameter_cost=1.0,
                    data_cost=2.0,
                ),
            ),
        ),
    ),
    outcomes=((1, 1, 10.0, 0.0), (2, 2, 10.0, 3.0)),
    latency=20.0,
    bandwidth=3.0,
    params={"fit": "true"},
)

CASES = {
    "delay": DELAY, "migrate": MIGRATE, "data_transfer": DATA_TRANSFER, "priority": PRIORITY, "printed": PRINTED,
    "fit": FIT,
}  # fmt: skip
