"""Time PD-ORS and OASiS on synthetic instances of PD-ORS's evaluation (setting S4), and how time grows.

    python benchmarks/pdors.py [--machines 100] [--jobs 50] [--slots 20] [--levels 50] [--policies pdors,oasis]
                               [--seed 1] [--relaxation parametric|highs] [--grow]

E in [50, 200], K in [20000, 500000], g in [30, 575] MB, tau in [1e-5, 1e-4] slots, gamma in [1, 10], F in [1, 200]; a
worker takes 0-4 GPUs, 1-10 vCPUs, 2-32 GB memory, 5-10 GB storage, a PS the same without GPUs; machines hold 18 times
the mean of a worker. Odd slots get 1/3 of the arrivals, even slots 2/3. Left open by the paper: external links of
100 to 5120 Mbit/s, internal 20 times that, slots of 1 h. Sigmoid utilities: 10 % insensitive, 55 % sensitive, 35 % critical.

Times are CPU seconds of one run in this process, compiled kernels warm, calibration and drawing of the instance apart.
`fit`: jobs that F workers on one machine could complete before the horizon; the others every policy must reject.
`found`: external placements by how they came about: missed, rounded, repaired, short.
`--grow` doubles machines, jobs, slots and levels, one at a time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np

from skedge.core.model import Floats
from skedge.policies.admission import Admission
from skedge.policies.oasis import Oasis, oasis_prices
from skedge.policies.pdors import Pdors, PdorsParams, pdors_prices
from skedge.policies.training import TrainingJob
from skedge.policies.utility import Sigmoid

SLOT_S = 3600
WORKER = np.array([(0, 4), (1, 10), (2, 32), (5, 10)])
PS = np.array([(0, 0), (1, 10), (2, 32), (5, 10)])
"""Least and most of GPUs, vCPUs, GB memory, GB storage."""


def main() -> None:
    """Run and print."""
    args = arguments()
    print(f"{'policy':8} {'H':>5} {'I':>4} {'T':>4} {'levels':>6} {'CPU s':>8} {'utility':>9} {'admitted':>8} {'fit':>4}  found")
    for size in sizes(args):
        for policy in args.policies.split(","):
            print(row(policy, *size, args), flush=True)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("machines", 100), ("jobs", 50), ("slots", 20), ("levels", 50), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--policies", default="pdors,oasis")
    parser.add_argument("--relaxation", choices=("parametric", "highs"), default="parametric")
    parser.add_argument("--grow", action="store_true")
    return parser.parse_args()


def sizes(args: argparse.Namespace) -> Iterator[tuple[int, int, int, int]]:
    """(H, I, T, levels) of the runs."""
    base = (args.machines, args.jobs, args.slots, args.levels)
    yield base
    if args.grow:
        for which in range(4):
            for factor in (2, 4):
                yield tuple(n * factor if i == which else n for i, n in enumerate(base))  # type: ignore[misc]


def row(policy: str, machines: int, jobs: int, slots: int, levels: int, args: argparse.Namespace) -> str:
    """One line of the table."""
    make: Callable[..., Admission] = {"pdors": pdors, "oasis": oasis}[policy]
    warm = draw(4, 4, 3, 8, 0)
    offer_all(make(*warm, 3, args), warm[0])
    listed, capacity = draw(machines, jobs, slots, levels, args.seed)
    scheduler = make(listed, capacity, slots, args)
    start = time.process_time()
    utility, admitted = offer_all(scheduler, listed)
    spent = time.process_time() - start
    fit = sum(job.shortest(job.internal) <= slots - job.arrival for job in listed)
    found = scheduler.found.tolist() if isinstance(scheduler, Pdors) else ""
    return (
        f"{policy:8} {machines:5} {jobs:4} {slots:4} {levels:6} {spent:8.2f} {utility:9.2f} {admitted:8} {fit:4}  {found}"
    )


def offer_all(scheduler: Admission, jobs: list[TrainingJob]) -> tuple[float, int]:
    """Offer all jobs; total utility and number admitted."""
    plans = [answer.plan for answer in map(scheduler.offer, jobs) if answer.admitted]
    return sum(plan.utility for plan in plans if plan), len(plans)


def pdors(jobs: list[TrainingJob], capacity: Floats, slots: int, args: argparse.Namespace) -> Admission:
    """PD-ORS with constants of the trace."""
    params = PdorsParams(relaxation=args.relaxation)
    return Pdors(capacity, slots, pdors_prices(jobs, capacity, slots), np.random.default_rng(args.seed), params)


def oasis(jobs: list[TrainingJob], capacity: Floats, slots: int, _: argparse.Namespace) -> Admission:
    """OASiS with constants of the trace."""
    return Oasis(capacity, slots, oasis_prices(jobs, capacity, slots))


def draw(machines: int, jobs: int, slots: int, levels: int, seed: int) -> tuple[list[TrainingJob], Floats]:
    """Jobs by (arrival, id), and the capacity of the machines."""
    rng = np.random.default_rng(seed)
    weights = np.where(np.arange(slots) % 2 == 0, 2 / 3, 1 / 3)
    arrivals = np.sort(rng.choice(slots, jobs, p=weights / weights.sum()))
    capacity = np.tile(18 * WORKER.mean(axis=1), (machines, 1))
    return [job(i, int(arrival), levels, rng) for i, arrival in enumerate(arrivals)], capacity


def job(number: int, arrival: int, levels: int, rng: np.random.Generator) -> TrainingJob:
    """A job of S4."""
    external = rng.uniform(100, 5120) / 8 * SLOT_S
    steepness = (0.0, rng.uniform(0.01, 1), rng.uniform(4, 6))[rng.choice(3, p=(0.1, 0.55, 0.35))]
    return TrainingJob(
        id=number,
        arrival=arrival,
        epochs=int(rng.integers(50, 201)),
        samples=int(rng.integers(20_000, 500_001)),
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
