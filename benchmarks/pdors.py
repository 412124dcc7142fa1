"""Time PD-ORS and OASiS on synthetic instances of PD-ORS's evaluation (setting S4), and how time grows.

    python benchmarks/pdors.py [--machines 100] [--jobs 50] [--slots 20] [--levels auto] [--policies pdors,oasis]
                               [--seed 1] [--relaxation parametric|highs] [--fitting] [--grow] [--bounds]

E in [50, 200], K in [20000, 500000], g in [30, 575] MB, tau in [1e-5, 1e-4] slots, gamma in [1, 10], F in [1, 200]; a
worker takes 0-4 GPUs, 1-10 vCPUs, 2-32 GB memory, 5-10 GB storage, a PS the same without GPUs; machines hold 18 times
the mean of a worker. Odd slots get 1/3 of the arrivals, even slots 2/3. Left open by the paper: external links of
100 to 5120 Mbit/s, internal 20 times that, slots of 1 h. Utilities: 10 % insensitive, 55 % sensitive, 35 % critical.

Times are CPU seconds of one run in this process, compiled kernels warm, calibration and drawing of the instance apart.
`in`: jobs admitted. `fit`: jobs that F workers on one machine could complete before the horizon; every policy must
reject the others. `found`: external placements by how they came about: missed, rounded, repaired, short.
`--fitting` draws only jobs that external links let be complete in half of the slots left; of the paper's few can be.
`--grow` doubles and quadruples machines, jobs, slots and levels (unless they follow the job), one at a time.
`--bounds` prints how often single roundings satisfy the rows on an empty slot, beside what Lemmas 1 and 2 promise.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np

from skedge.core.model.cluster import Floats
from skedge.core.model.value import Sigmoid
from skedge.policies.oasis.on_resources import Oasis, oasis_prices
from skedge.policies.pdors.admission import Admission
from skedge.policies.pdors.alg4 import (
    PdorsAdmission,
    PdorsParams,
    cover_bound,
    cover_gain,
    packing_bound,
    packing_gain,
)
from skedge.policies.pdors.job import TrainingJob, levels_of
from skedge.policies.pdors.parametric_lp import sweep
from skedge.policies.pdors.prices import PricedLoads, pdors_prices
from skedge.policies.pdors.rounding import (
    Relaxation,
    Subproblem,
    room_for,
    round_each,
    split_parts,
    subproblem,
)

SLOT_S = 3600
WORKER = np.array([(0, 4), (1, 10), (2, 32), (5, 10)])
PS = np.array([(0, 0), (1, 10), (2, 32), (5, 10)])
"""Least and most of GPUs, vCPUs, GB memory, GB storage."""


def main() -> None:
    """Run and print."""
    args = arguments()
    if args.bounds:
        bounds(args)
        return
    print(
        f"{'policy':8} {'H':>5} {'I':>4} {'T':>4} {'levels':>6} {'CPU s':>8} {'utility':>9} {'in':>4} {'fit':>4}  found"
    )
    for size in sizes(args):
        for policy in args.policies.split(","):
            print(row(policy, *size, args), flush=True)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("machines", 100), ("jobs", 50), ("slots", 20), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--levels", type=lambda text: None if text == "auto" else int(text))
    parser.add_argument("--policies", default="pdors,oasis")
    parser.add_argument("--relaxation", choices=("parametric", "highs"), default="parametric")
    parser.add_argument("--fitting", action="store_true")
    parser.add_argument("--grow", action="store_true")
    parser.add_argument("--bounds", action="store_true")
    return parser.parse_args()


def sizes(args: argparse.Namespace) -> Iterator[tuple[int, int, int, int | None]]:
    """(H, I, T, levels) of the runs."""
    base = (args.machines, args.jobs, args.slots, args.levels)
    yield base
    if args.grow:
        for which in range(4 if args.levels else 3):
            for factor in (2, 4):
                yield tuple(n * factor if i == which else n for i, n in enumerate(base))  # type: ignore[misc,operator]


def row(policy: str, machines: int, jobs: int, slots: int, levels: int | None, args: argparse.Namespace) -> str:
    """One line of the table."""
    make: Callable[..., Admission] = {"pdors": pdors, "oasis": oasis}[policy]
    warm = draw(4, 4, 3, 8, 0, fitting=args.fitting)
    offer_all(make(*warm, 3, args), warm[0])
    listed, capacity = draw(machines, jobs, slots, levels, args.seed, fitting=args.fitting)
    scheduler = make(listed, capacity, slots, args)
    start = time.process_time()
    utility, admitted = offer_all(scheduler, listed)
    spent = time.process_time() - start
    fit = sum(job.shortest(job.internal) <= slots - job.arrival for job in listed)
    found = scheduler.outcomes.tolist() if isinstance(scheduler, PdorsAdmission) else ""
    size = f"{policy:8} {machines:5} {jobs:4} {slots:4} {levels or 'auto':>6}"
    return f"{size} {spent:8.2f} {utility:9.2f} {admitted:4} {fit:4}  {found}"


def bounds(args: argparse.Namespace, delta: float = 0.1, draws: int = 10) -> None:
    """Frequencies of single roundings over the jobs and levels of an instance, in an empty slot, by G."""
    listed, capacity = draw(args.machines, args.jobs, args.slots, args.levels, args.seed, fitting=True)
    prices = PricedLoads(capacity, args.slots, pdors_prices(listed, capacity, args.slots)).price[0]
    rng, rows = np.random.default_rng(args.seed), capacity.size + 1
    print(f"delta = {delta}; shares of roundings that satisfy the packing rows, the cover rows, all")
    print(f"{'G':>5} {'mean G':>7} {'problems':>8} {'pack':>6} {'cover':>6} {'all':>6}  cover bound, packing bound")
    for name in ("0.5", "1.0", "1.2", "eq29", "eq30"):
        held, gains, low, high = [], [], [], []
        for one in listed:
            m = subproblem(capacity, prices, *one.demands, one.ratio, one.batch)
            room = np.concatenate([room_for(capacity, demand) for demand in one.demands])
            packing = min(one.batch, float(room[room > 0].min()))
            for need, w, s in relaxations(m, one):
                cover = min(need, need / one.ratio)
                if name == "eq29":
                    gain = packing_gain(delta, rows, packing)
                else:
                    gain = cover_gain(delta, 2, cover) if name == "eq30" else float(name)
                gains.append(gain)
                held += [holds(m, one, need, w * gain, s * gain, rng) for _ in range(draws)]
                low.append(cover_bound(gain, delta, 2, cover))
                high.append(packing_bound(gain, delta, rows, packing))
        pack, cover, both = np.mean(held, axis=0)
        empty = np.mean(np.array(low) <= 0)
        print(
            f"{name:>5} {np.mean(gains):7.3f} {len(gains):8} {pack:6.3f} {cover:6.3f} {both:6.3f}"
            f"  empty for {empty:.0%} of them, median {np.median(high):.2f} b"
        )


def relaxations(m: Subproblem, job: TrainingJob) -> Iterator[tuple[float, Floats, Floats]]:
    """W_1 and the solution (w, s) of the relaxation, for each level that has one."""
    needs = levels_of(job, (job.internal, job.external)).workers(job.external)[1:]
    needs = needs[needs <= job.batch]
    most, machines = len(needs), len(m.free)
    relaxation = Relaxation(np.zeros(most), *np.zeros((2, most, machines)))
    sweep(m, needs, relaxation)
    for i in np.flatnonzero(np.isfinite(relaxation.cost)):
        yield float(needs[i]), relaxation.w[i], relaxation.s[i]


def holds(m: Subproblem, job: TrainingJob, need: float, w: Floats, s: Floats, rng: np.random.Generator) -> list[bool]:
    """Whether one rounding of (w, s) satisfies (24) and (25); (26) and the PS row; all."""
    drawn = np.zeros((2, len(w)), np.int64)
    for x, out in zip((w, s), drawn, strict=True):
        out[:], part, fractional = split_parts(x)
        round_each(out.copy(), part, fractional, rng, out)
    load = np.outer(drawn[0], m.worker) + np.outer(drawn[1], m.ps)
    packs = bool((load <= m.free * (1 + 1e-9)).all() and drawn[0].sum() <= job.batch)
    covers = bool(drawn[0].sum() >= need * (1 - 1e-9) and drawn[1].sum() >= need / job.ratio * (1 - 1e-9))
    return [packs, covers, packs and covers]


def offer_all(scheduler: Admission, jobs: list[TrainingJob]) -> tuple[float, int]:
    """Offer all jobs; total utility and number admitted."""
    plans = [answer.plan for answer in map(scheduler.offer, jobs) if answer.admitted]
    return sum(plan.utility for plan in plans if plan), len(plans)


def pdors(jobs: list[TrainingJob], capacity: Floats, slots: int, args: argparse.Namespace) -> Admission:
    """PD-ORS with constants of the trace."""
    params = PdorsParams(relaxation=args.relaxation)
    prices, rng = pdors_prices(jobs, capacity, slots), np.random.default_rng(args.seed)
    return PdorsAdmission(capacity, slots, prices, rng, params)


def oasis(jobs: list[TrainingJob], capacity: Floats, slots: int, _: argparse.Namespace) -> Admission:
    """OASiS with constants of the trace."""
    return Oasis(capacity, slots, oasis_prices(jobs, capacity, slots))


def draw(
    machines: int, jobs: int, slots: int, levels: int | None, seed: int, *, fitting: bool
) -> tuple[list[TrainingJob], Floats]:  # fmt: skip
    """Jobs by (arrival, id), and the capacity of the machines."""
    rng = np.random.default_rng(seed)
    weights = np.where(np.arange(slots) % 2 == 0, 2 / 3, 1 / 3)
    arrivals = np.sort(rng.choice(slots, jobs, p=weights / weights.sum()))
    capacity = np.tile(18 * WORKER.mean(axis=1), (machines, 1))
    drawn = []
    for i, arrival in enumerate(arrivals.tolist()):
        one = job(i, arrival, levels, rng)
        while fitting and one.shortest(one.external) > max(1, (slots - arrival) // 2):
            one = job(i, arrival, levels, rng)
        drawn.append(one)
    return drawn, capacity


def job(number: int, arrival: int, levels: int | None, rng: np.random.Generator) -> TrainingJob:
    """A job of S4."""
    external = rng.uniform(100, 5120) / 8 * SLOT_S
    steepness = (0.0, rng.uniform(0.01, 1), rng.uniform(4, 6))[rng.choice(3, p=(0.1, 0.55, 0.35))]
    return TrainingJob(
        id=number,
        arrival=arrival,
        work=int(rng.integers(50, 201)) * int(rng.integers(20_000, 500_001)),
        batch=int(rng.integers(1, 201)),
        sample_time=rng.uniform(1e-5, 1e-4),
        gradient_mb=rng.uniform(30, 575),
        ratio=float(rng.integers(1, 11)),
        internal_mb=20 * external,
        external_mb=external,
        worker=tuple(rng.integers(WORKER[:, 0], WORKER[:, 1] + 1).tolist()),
        ps=tuple(rng.integers(PS[:, 0], PS[:, 1] + 1).tolist()),
        utility=Sigmoid(rng.uniform(1, 100), steepness, rng.uniform(1, 15)),
        levels=levels,
    )


if __name__ == "__main__":
    main()
