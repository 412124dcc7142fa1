"""Five cases of PD-ORS worked out by hand; the derivation stands beside each. Slots from 0; completion is an END time.

V = E K samples, q = ceil(V / levels); x^(i), x^(e) are slots per sample and worker. v quanta in a slot: internal
w = ceil(v q x^(i)) on one machine, external w >= v q x^(e) anywhere, s = max(1, ceil(w / gamma)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skedge.core.model.value import Sigmoid
from skedge.policies.pdors.job import TrainingJob

Row = tuple[int, int, str, tuple[tuple[int, int, int], ...], float]
"""slot, quanta, kind, (machine, workers, PSs), cost."""


@dataclass(frozen=True)
class Outcome:
    """What is expected of an admitted job."""

    utility: float
    cost: float
    payoff: float
    completion: int
    plan: tuple[Row, ...]


@dataclass(frozen=True)
class Case:
    """An instance and what is expected of it; None for a rejected job."""

    horizon: int
    capacity: tuple[tuple[float, ...], ...]
    jobs: tuple[TrainingJob, ...]
    quanta: tuple[tuple[int, int], ...]
    high: tuple[float, ...]
    low: float
    mu: float
    outcomes: tuple[Outcome | None, ...]
    total_utility: float
    dual: float
    dual_initial: float
    completion: str = "end"
    theta: str = "exact"


def job(number: int, arrival: int, samples: int, batch: int, utility: Sigmoid, **other: Any) -> TrainingJob:
    """E = 1, tau = 0.05, g = 10, gamma = 1, b^(i) = 200, b^(e) = 100; one unit of one resource for a worker or a PS."""
    given = {"gradient_mb": 10, "ratio": 1, "worker": (1,), "ps": (1,), **other}
    return TrainingJob(
        number, arrival, samples, batch, 0.05, utility=utility, internal_mb=200, external_mb=100, **given
    )


def inside(slot: int, quanta: int, count: int, cost: float) -> Row:
    """`count` workers and as many PSs on machine 0."""
    return slot, quanta, "internal", ((0, count, count),), cost


FLAT_20 = Sigmoid(20, 0, 2)

# One machine, one resource, C = 8, T = 4. All four jobs are alike: V = 40, q = 10, V' = 4, 2 g gamma/(b F) = 10/b, so
# x^(i) = 0.05 + 10/200 = 0.1 and x^(e) = 0.15. theta2 = 0, so u = 20/2 = 10 whatever the duration. One quantum: w = s
# = 1,
# 2 units; two quanta: w = s = 2 = F, 4 units; three: w = 3 > F. On a single machine the external case is only dearer.
# (13): least duration ceil(40/2 * 0.1) = 2, U = 10/(1 + 1) = 5. mu = 4 * 8/(ceil(40 * 0.15) * 2) = 32/12.
# (14): L = 10/(2 * 8/3 * 12) = 10/64. D_0 = 4 * 8 L = 5.
# Job 0: t~ = 0 can hold 2 quanta only; t~ = 1: 2 + 2, cost 8 L = 1.25. rho = 4 in slots 0, 1: price L sqrt(U/L) =
# 0.8838835.
# Job 1: t~ = 1 costs 8 * 0.8838835 = 7.07; t~ = 2: 4 L + 4 * 0.8838835 = 4.16; t~ = 3: slots 2, 3 at L: 1.25, taken.
# Job 2 (a = 2): slots 2, 3 at 0.8838835: 7.0710678, payoff 2.9289322 > 0: taken, the slots are full. Job 3: no room.
# Dual: 8.75 + 8.75 + 2.9289322 + 8 (2 * 0.8838835 + 2 * 5) = 114.5710678.
SPREAD = Case(
    horizon=4,
    capacity=((8,),),
    jobs=tuple(job(i, a, 40, 2, FLAT_20, levels=4) for i, a in enumerate((0, 0, 2, 2))),
    quanta=((10, 4),) * 4,
    high=(5.0,),
    low=0.15625,
    mu=8 / 3,
    outcomes=(
        Outcome(10.0, 1.25, 8.75, 2, (inside(0, 2, 2, 0.625), inside(1, 2, 2, 0.625))),
        Outcome(10.0, 1.25, 8.75, 4, (inside(2, 2, 2, 0.625), inside(3, 2, 2, 0.625))),
        Outcome(
            10.0,
            7.071067811865475,
            2.9289321881345254,
            4,
            (inside(2, 2, 2, 3.5355339059327373), inside(3, 2, 2, 3.5355339059327373)),
        ),
        None,
    ),
    total_utility=30.0,
    dual=114.57106781186546,
    dual_initial=5.0,
)

# Machine 0 has 3 units of resource 0 only, machine 1 has 4 of resource 1 only; a worker takes 1 of resource 0, a PS 1
# of
# resource 1: they never share a machine. V = 40, q = 20, V' = 2, 2 g gamma/(b F) = 2 * 10 * 2/(4 b) = 10/b.
# One quantum: w = ceil(20 * 0.15) = 3, s = ceil(3/2) = 2. Two in one slot: w = 6 > F = 4. u = 24/2 = 12.
# Least duration ceil(40/4 * 0.1) = 1, U = 12 for both. mu = 2 * 7/(6 * 2) = 7/6, L = 12/(2 * 7/6 * 12) = 3/7. D_0 =
# 14 L = 6.
# Job 0: a quantum in each slot, 2 (3 + 2) 3/7 = 30/7. Then resource 0 is full (U = 12), resource 1 half: sqrt(12 *
# 3/7).
# Job 1: no worker fits. Dual: 54/7 + 2 (3 * 12 + 4 * 2.2677868) = 97.8565804.
FORCED_EXTERNAL = Case(
    horizon=2,
    capacity=((3, 0), (0, 4)),
    jobs=tuple(job(i, 0, 40, 4, Sigmoid(24, 0, 2), ratio=2, worker=(1, 0), ps=(0, 1), levels=2) for i in range(2)),
    quanta=((20, 2),) * 2,
    high=(12.0, 12.0),
    low=3 / 7,
    mu=7 / 6,
    outcomes=(
        Outcome(
            12.0,
            30 / 7,
            54 / 7,
            2,
            tuple((t, 1, "external", ((0, 3, 0), (1, 0, 2)), 15 / 7) for t in (0, 1)),
        ),
        None,
    ),
    total_utility=12.0,
    dual=97.85658041872864,
    dual_initial=6.0,
)

PATIENT_AND_CRITICAL = (
    job(0, 0, 20, 2, FLAT_20, levels=1),
    job(1, 0, 10, 1, Sigmoid(40, 0.1, 2), gradient_mb=5, levels=1),
    job(2, 0, 10, 1, Sigmoid(60, 1, 2), gradient_mb=5, levels=1),
)

# One machine, C = 6, T = 3, every job a single quantum; x^(i) = 0.1, x^(e) = 0.15. Job 0: w = s = 2; jobs 1, 2: w = s
# = 1.
# Utilities at durations 1, 2, 3: job 0: 10. Job 1: 40/(1 + e^-0.1) = 20.9992, 20, 19.0008. Job 2: 43.8635, 30, 16.1365.
# (13): least duration 1; U = 43.8635/2 = 21.9318. need = 3 * 2 = 6, ceil(1.5) * 2 = 4, 4; mu = 3 * 6/4 = 4.5;
# L = min(10/(9 * 6), 19.0008/(9 * 4), 16.1365/(9 * 4)) = 10/54. U/L = 118.4315. D_0 = 18 L = 10/3.
# Job 0: slot 0 (equal later: the earliest is kept), 4 L. Slot 0: rho = 4, price L * 118.4315^(2/3) = 4.466.
# Job 1: slot 0: 20.9992 - 8.932; slot 1: 20 - 2 L = 19.6296, taken. Slot 1: L * 118.4315^(1/3) = 0.9094.
# Job 2: slot 0: 43.8635 - 8.932 = 34.93, taken; slot 1: 28.18; slot 2: 15.77. The patient job waits, the critical
# does not.
DEADLINE = Case(
    horizon=3,
    capacity=((6,),),
    jobs=PATIENT_AND_CRITICAL,
    quanta=((20, 1), (10, 1), (10, 1)),
    high=(21.931757358900146,),
    low=10 / 54,
    mu=4.5,
    outcomes=(
        Outcome(10.0, 40 / 54, 10 - 40 / 54, 1, (inside(0, 1, 2, 40 / 54),)),
        Outcome(20.0, 20 / 54, 20 - 20 / 54, 2, (inside(1, 1, 1, 20 / 54),)),
        Outcome(43.86351471780029, 8.931979082661192, 34.9315356351391, 1, (inside(0, 1, 1, 8.931979082661192),)),
    ),
    total_utility=73.86351471780029,
    dual=201.9785680006477,
    dual_initial=10 / 3,
)

# The optimum of the relaxation is unique and integral, so rounding leaves it as it is. Workers fit only on machine 0
# (4 units), PSs only on machine 1 (6). 2 g gamma/(b F) = 60/(6 b) = 10/b. Job 0: V = 40, q = 20, V' = 2: W_1 = 20 *
# 0.15 = 3:
# w = 3 on machine 0, s = 3 on machine 1; two quanta: W_1 = 6 > 4. Job 1: V = 20, one quantum, the same.
# U: job 0: 15; job 1 at duration ceil(20/6 * 0.1) = 1: 40/(1 + e^-1) = 29.2423. need: 12 and 6; mu = 3 * 10/6 = 5;
# L = min(15/(10 * 12), 20/(10 * 6)) = 0.125. D_0 = 30 L = 3.75.
# Job 0: slots 0, 1, 12 * 0.125 = 1.5. It leaves 1 worker unit there: job 1 only fits in slot 2: u(3) = 20, cost 0.75.
INTEGRAL = Case(
    horizon=3,
    capacity=((4, 0), (0, 6)),
    jobs=(
        job(0, 0, 40, 6, Sigmoid(30, 0, 2), gradient_mb=30, worker=(1, 0), ps=(0, 1), levels=2),
        job(1, 0, 20, 6, Sigmoid(40, 0.5, 3), gradient_mb=30, worker=(1, 0), ps=(0, 1), levels=1),
    ),
    quanta=((20, 2), (20, 1)),
    high=(29.242343145200195, 29.242343145200195),
    low=0.125,
    mu=5.0,
    outcomes=(
        Outcome(15.0, 1.5, 13.5, 2, tuple((t, 1, "external", ((0, 3, 0), (1, 0, 3)), 0.75) for t in (0, 1))),
        Outcome(20.0, 0.75, 19.25, 3, ((2, 1, "external", ((0, 3, 0), (1, 0, 3)), 0.75),)),
    ),
    total_utility=35.0,
    dual=156.88978744163637,
    dual_initial=3.75,
    theta="rounded",
)

# As DEADLINE, but u is taken of the slot index t~ - a (0, 1, 2), (13) of ceil(.) - 1 = 0 and (14) of T - 1 - a = 2.
# Job 1: 40/(1 + e^-0.2) = 21.9933, 20.9992, 20. Job 2: 60/(1 + e^-2) = 52.8478, 43.8635, 30. U = 26.4239, L as before,
# U/L = 142.689. Slot 0 then costs L * 142.689^(2/3) = 5.0567. Job 1: 21.9933 - 10.1134 = 11.88; slot 1: 20.6288, taken.
# Job 2: slot 0: 52.8478 - 10.1134 = 42.734, taken; slot 1: 43.8635 - 2 L * 142.689^(1/3) = 41.928.
INDEX = Case(
    horizon=3,
    capacity=((6,),),
    jobs=PATIENT_AND_CRITICAL,
    quanta=((20, 1), (10, 1), (10, 1)),
    high=(26.42391233933647,),
    low=10 / 54,
    mu=4.5,
    outcomes=(
        Outcome(10.0, 40 / 54, 10 - 40 / 54, 1, (inside(0, 1, 2, 40 / 54),)),
        Outcome(20.9991674991576, 20 / 54, 20.9991674991576 - 20 / 54, 2, (inside(1, 1, 1, 20 / 54),)),
        Outcome(52.84782467867294, 10.113391564696007, 42.734433113976934, 1, (inside(0, 1, 1, 10.113391564696007),)),
    ),
    total_utility=83.84699217783054,
    dual=238.08321839656898,
    dual_initial=10 / 3,
    completion="index",
)

CASES = {
    "prices_spread_work": SPREAD,
    "forced_external": FORCED_EXTERNAL,
    "deadline_against_price": DEADLINE,
    "rounding_with_integral_lp": INTEGRAL,
    "slot_index_completion": INDEX,
}
