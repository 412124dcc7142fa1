"""Time Okita, FIFO, DRF and OASiS on synthetic instances of Okita's evaluation (setting S3), and how time grows.

    python benchmarks/okita.py [--sites 50] [--jobs 100] [--slots 150] [--seed 1] [--policies okita,fifo,drf,oasis]
                               [--latency exponential|linear|piecewise] [--search bounded|every] [--grow] [--gap]

Jobs arrive uniformly in the T slots. A site is one of Amazon's P3, P2 and G3 instances (:data:`EC2`). A worker takes
0-4 GPUs, 1-10 vCPUs, 2-32 GB memory, 5-10 GB storage, a PS the same without GPUs. D_i^r in [10, 20], delta in [20, 60]
MB, rho/E in [5, 15], pi in [30, 575] MB, q in [2, 8] per 100 MB. Latency cost: tau e^(0.25 x) with tau in [20, 100];
tau x + b with b in [50, 200]; or tau_1 in [20, 100] before c in [3, 5], then tau_2 in [300, 400]. Left open by the
paper: storage of a site (5 to 10 GB a worker: 1,000 GB, which never binds first), E (1: only rho/E matters).

Times are CPU seconds of all decisions in this process, compiled kernels warm, drawing of the instance apart. `slots`:
job-slots decided, with the time of one; `wait`: of these, delays. `makespan`: from the first arrival to the last end.
The latency cost of a late job is exponential: `log10 f` is the logarithm of the sum.
`--grow` doubles and quadruples sites, jobs and slots, one at a time, with the exponent of growth in each. The paper's
stated complexity is O(T I (D/E R^2 log(R + K) + log I)); D, all chunks of a job, grows with R.
`--gap` prints how far the greedy transfers are above the optimal transport, over small instances and over the
transfers that Okita makes in the run.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from scipy.optimize import linprog
from scipy.special import logsumexp

from skedge.core.latency import Exponential, LatencyCost, Linear, Piecewise
from skedge.policies.okita import Okita, OkitaParams
from skedge.policies.site_fixed import SiteDrf, SiteFifo
from skedge.policies.site_oasis import SiteOasis, SiteOasisParams, site_prices
from skedge.policies.site_slots import SiteScheduler, run
from skedge.policies.sites import SiteJob, Sites
from skedge.policies.transfer import send

STORAGE_GB = 1000
EC2 = np.array([
    (1, 8, 61, STORAGE_GB), (4, 32, 244, STORAGE_GB), (8, 64, 488, STORAGE_GB), (8, 96, 768, STORAGE_GB),
    (1, 4, 61, STORAGE_GB), (8, 32, 488, STORAGE_GB), (16, 64, 732, STORAGE_GB),
    (1, 4, 30.5, STORAGE_GB), (1, 16, 122, STORAGE_GB), (2, 32, 244, STORAGE_GB), (4, 64, 488, STORAGE_GB),
])  # fmt: skip
"""GPUs, vCPUs, GiB memory, GB storage of p3.2xlarge, 8xlarge, 16xlarge, p3dn.24xlarge; p2.xlarge, 8xlarge, 16xlarge;
g3s.xlarge, g3.4xlarge, 8xlarge, 16xlarge."""

WORKER = np.array([(0, 4), (1, 10), (2, 32), (5, 10)])
PS = np.array([(0, 0), (1, 10), (2, 32), (5, 10)])
"""Least and most of GPUs, vCPUs, GB memory, GB storage."""


def main() -> None:
    """Run and print."""
    args = arguments()
    if args.gap:
        gap(args)
        return
    print(
        f"{'policy':6} {'R':>4} {'I':>5} {'T':>4} {'CPU s':>8} {'µs/slot':>8} {'slots':>7} {'wait':>7} "
        f"{'makespan':>8} {'log10 f':>8} {'latency':>12} {'bandwidth':>11} {'total':>12}"
    )
    for policy in args.policies.split(","):
        grown: dict[int, list[float]] = {}
        for which, size in sizes(args):
            grown.setdefault(which, []).append(row(policy, *size, args))
        for which, name in enumerate(("R", "I", "T")):
            if which in grown:
                times = [grown[-1][0], *grown[which]]
                powers = ", ".join(f"{math.log2(b / a):.2f}" for a, b in pairwise(times))
                print(f"{policy:6} {name} doubled, and again: time grows with its power {powers}")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("sites", 50), ("jobs", 100), ("slots", 150), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--latency", choices=("exponential", "linear", "piecewise"), default="exponential")
    parser.add_argument("--policies", default="okita,fifo,drf,oasis")
    parser.add_argument("--search", choices=("bounded", "every"), default="bounded")
    parser.add_argument("--grow", action="store_true")
    parser.add_argument("--gap", action="store_true")
    return parser.parse_args()


def sizes(args: argparse.Namespace) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """(R, I, T) of the runs, each with the number of the one that was grown, -1 for none."""
    base = (args.sites, args.jobs, args.slots)
    yield -1, base
    if args.grow:
        for which in range(3):
            for factor in (2, 4):
                yield which, tuple(n * factor if i == which else n for i, n in enumerate(base))  # type: ignore[misc]


def row(policy: str, sites: int, jobs: int, slots: int, args: argparse.Namespace) -> float:
    """Print one line of the table; CPU seconds."""
    make: Callable[..., SiteScheduler] = {"okita": okita, "fifo": fifo, "drf": drf, "oasis": oasis}[policy]
    warm = draw(4, 4, 3, args.latency, 0)
    for _ in run(make(*warm, 3, args), warm[1]):
        pass
    where, listed = draw(sites, jobs, slots, args.latency, args.seed)
    scheduler = make(where, listed, slots, args)
    decided = delayed = 0
    start = time.process_time()
    for _, decisions in run(scheduler, listed):
        decided += len(decisions)
        delayed += sum(decision.placement is None for decision in decisions)
    spent = time.process_time() - start
    done = [one for one in scheduler.outcomes.values() if one.last is not None]
    makespan = max((one.last + 1 for one in done if one.last is not None), default=0) - listed[0].arrival
    latency, bandwidth = sum(one.latency for one in done), sum(one.bandwidth for one in done)
    log10 = float(logsumexp([one.log_latency for one in done])) / math.log(10) if done else -math.inf
    never = "" if len(done) == jobs else f"  {jobs - len(done)} never"
    print(
        f"{policy:6} {sites:4} {jobs:5} {slots:4} {spent:8.2f} {1e6 * spent / max(1, decided):8.0f} {decided:7} "
        f"{delayed:7} {makespan:8} {log10:8.2f} {latency:12.6g} {bandwidth:11.6g} {latency + bandwidth:12.6g}{never}",
        flush=True,
    )
    return spent


def okita(sites: Sites, _jobs: list[SiteJob], _slots: int, args: argparse.Namespace) -> SiteScheduler:
    """Okita."""
    return Okita(sites, OkitaParams(search=args.search))


def fifo(sites: Sites, _jobs: list[SiteJob], _slots: int, args: argparse.Namespace) -> SiteScheduler:
    """FIFO."""
    return SiteFifo(sites, np.random.default_rng(args.seed))


def drf(sites: Sites, _jobs: list[SiteJob], _slots: int, _args: argparse.Namespace) -> SiteScheduler:
    """DRF."""
    return SiteDrf(sites)


def oasis(sites: Sites, jobs: list[SiteJob], slots: int, _args: argparse.Namespace) -> SiteScheduler:
    """OASiS with constants of the trace; the books begin with twice the slots of the arrivals."""
    return SiteOasis(sites, 2 * slots, site_prices(jobs, sites, 2 * slots), SiteOasisParams())


def draw(sites: int, jobs: int, slots: int, latency: str, seed: int) -> tuple[Sites, list[SiteJob]]:
    """Sites, and jobs by (arrival, id)."""
    rng = np.random.default_rng(seed)
    capacity = EC2[rng.integers(len(EC2), size=sites)]
    one_way = np.triu(rng.uniform(2, 8, (sites, sites)) / 100, 1)
    arrivals = np.sort(rng.integers(slots, size=jobs)).tolist()
    listed = [job(i, arrival, sites, latency, rng) for i, arrival in enumerate(arrivals)]
    return Sites(capacity, one_way + one_way.T), listed


def job(number: int, arrival: int, sites: int, latency: str, rng: np.random.Generator) -> SiteJob:
    """A job of S3."""
    return SiteJob(
        id=number,
        arrival=arrival,
        epochs=1,
        rho=rng.uniform(5, 15),
        chunk_mb=rng.uniform(20, 60),
        exchange_mb=rng.uniform(30, 575),
        data=tuple(rng.integers(10, 21, sites).tolist()),
        worker=tuple(rng.integers(WORKER[:, 0], WORKER[:, 1] + 1).tolist()),
        ps=tuple(rng.integers(PS[:, 0], PS[:, 1] + 1).tolist()),
        latency=cost_function(latency, rng),
    )


def cost_function(latency: str, rng: np.random.Generator) -> LatencyCost:
    """One of Sec. V-B's."""
    tau = rng.uniform(20, 100)
    if latency == "exponential":
        return Exponential(tau)
    if latency == "linear":
        return Linear(tau, rng.uniform(50, 200))
    return Piecewise(tau, rng.uniform(300, 400), rng.uniform(3, 5))


def gap(args: argparse.Namespace, count: int = 1000) -> None:
    """How far Alg. 3 is above the optimal transport."""
    rng = np.random.default_rng(args.seed)
    print(f"{'transfers':34} {'number':>6} {'optimal':>8} {'mean':>8} {'p95':>8} {'largest':>8}   of greedy / LP - 1")
    for size in (3, 5, 8):
        said = f"random, {size} sites"
        show(said, [excess(*small(size, rng)) for _ in range(count)])
    sites, listed = draw(args.sites, args.jobs, args.slots, args.latency, args.seed)
    made = [
        (sites, decision.left, decision.transfer.trained)
        for _, decisions in run(Okita(sites), listed)
        for decision in decisions
        if decision.transfer is not None and len(decision.transfer.moves) > 0
    ]
    show(f"Okita's, {args.sites} sites, {args.jobs} jobs", [excess(*one) for one in made])


def show(said: str, gaps: list[float]) -> None:
    """One line of `--gap`."""
    at = np.array(gaps)
    print(
        f"{said:34} {len(at):6} {np.mean(at < 1e-9):8.1%} {at.mean():8.2%} {np.quantile(at, 0.95):8.2%} {at.max():8.2%}"
    )


def small(size: int, rng: np.random.Generator) -> tuple[Sites, np.ndarray, np.ndarray]:
    """Sites at S3's prices, the chunks at each, and what each is to train: at least one chunk moves."""
    one_way = np.triu(rng.uniform(2, 8, (size, size)) / 100, 1)
    sites = Sites(np.ones((size, 1)), one_way + one_way.T)
    while True:
        left = rng.integers(0, 21, size)
        wanted = rng.multinomial(rng.integers(left.sum() + 1), rng.dirichlet(np.ones(size)))
        if (wanted > left).any():
            return sites, left, wanted


def excess(sites: Sites, left: np.ndarray, wanted: np.ndarray) -> float:
    """Greedy cost over the optimum, less 1."""
    best = transport(sites, left, wanted)
    return send(sites, left, wanted).cost_per_mb / best - 1


def transport(sites: Sites, left: np.ndarray, wanted: np.ndarray) -> float:
    """Problem (7) with what a site may give (O10): an optimal transport, whose linear program has whole solutions."""
    surplus, short = np.maximum(left - wanted, 0), np.maximum(wanted - left, 0)
    givers, takers = np.flatnonzero(surplus), np.flatnonzero(short)
    done = linprog(
        sites.cost[np.ix_(givers, takers)].ravel(),
        A_ub=np.kron(np.eye(len(givers)), np.ones(len(takers))),
        b_ub=surplus[givers],
        A_eq=np.kron(np.ones(len(givers)), np.eye(len(takers))),
        b_eq=short[takers],
    )
    assert done.status == 0, done.message
    return float(done.fun)


if __name__ == "__main__":
    main()
