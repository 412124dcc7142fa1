"""Time Okita, FIFO, DRF and OASiS on synthetic instances of Okita's evaluation (setting S3), and how time grows.

    python benchmarks/okita.py [--sites 50] [--jobs 100] [--slots 150] [--seed 1] [--policies okita,fifo,drf,oasis]
                               [--latency exponential|linear|piecewise] [--search bounded|every]
                               [--grow] [--gap] [--whole] [--cost [--seeds 10]]

Instances are those of the scenario ``s3``, in the sizes asked for.

Times are CPU seconds of all decisions in this process, compiled kernels warm, drawing of the instance apart. `slots`:
job-slots decided, with the time of one; `wait`: of these, delays. `makespan`: from the first arrival to the last end.
The latency cost of a late job is exponential: `log10 f` is the logarithm of the sum.
`--grow` doubles and quadruples sites, jobs and slots, one at a time, with the exponent of growth in each. The paper's
stated complexity is O(T I (D/E R^2 log(R + K) + log I)); D, all chunks of a job, grows with R.
`--gap` prints how far the greedy transfers are above the optimal transport, over small instances and over the
transfers that Okita makes in the run.
`--whole` prints what `skedge run` takes in all, imports, verification and the run folder included.
`--cost` prints log10 of the total cost of whole runs, mean and 95 % over seeds from 0 on; policies may have parameters.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.optimize import linprog
from scipy.special import logsumexp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.sites_alone import Alone, run
from skedge.analysis.intervals import estimate
from skedge.cli.compare import split_policies
from skedge.policies.oasis.at_sites import SiteOasis, SiteOasisParams, site_prices
from skedge.policies.okita.alg1 import Okita, OkitaParams
from skedge.policies.okita.baselines import SiteDrf, SiteFifo
from skedge.policies.okita.dta import send
from skedge.policies.okita.sites import SiteJob, Sites
from skedge.policies.okita.slots import SiteScheduler, site_jobs, sites_of
from skedge.scenario.file import scenario_from_dict, shipped
from skedge.simulate import run as simulate

_SKEDGE_RUN = [sys.executable, "-m", "skedge", "run"]


def main() -> None:
    """Run and print."""
    args = arguments()
    if args.gap or args.whole or args.cost:
        (gap if args.gap else whole if args.whole else cost)(args)
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
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--seeds", type=int, default=10)
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
    scheduler = Alone(make(where, listed, slots, args))
    decided = delayed = 0
    start = time.process_time()
    for _, decisions in scheduler.run(listed):
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


def scenario_file(sites: int, jobs: int, slots: int, latency: str, seed: int) -> dict[str, Any]:
    """S3 in another size."""
    data: dict[str, Any] = yaml.safe_load(shipped("s3").read_text(encoding="utf-8"))
    data["seed"], data["physics"]["horizon"] = seed, f"{slots}h"
    data["cluster"]["draw"]["servers"] = sites
    data["workload"] |= {"synthetic": {"jobs": jobs, "span": f"{slots}h", "arrivals": "uniform"}, "latency": latency}
    return data


def draw(sites: int, jobs: int, slots: int, latency: str, seed: int) -> tuple[Sites, list[SiteJob]]:
    """Sites, and jobs by (arrival, id)."""
    scenario = scenario_from_dict(scenario_file(sites, jobs, slots, latency, seed), "s3", Path())
    return sites_of(scenario.cluster), site_jobs(scenario)


def whole(args: argparse.Namespace) -> None:
    """`skedge run` in a process of its own: CPU seconds with imports, verification and the run folder."""
    for policy in args.policies.split(","):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "s3.yaml"
            file.write_text(yaml.safe_dump(scenario_file(args.sites, args.jobs, args.slots, args.latency, args.seed)))
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [*_SKEDGE_RUN, str(file), "--policy", policy, "--out", f"{folder}/run", "--json"],
                check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"{policy:6} {args.sites} sites, {args.jobs} jobs, {args.slots} slots: {spent:.1f} s of CPU in all, "
              f"{after.ru_maxrss / 1e6:.2f} GB")  # fmt: skip


def cost(args: argparse.Namespace) -> None:
    """Log10 of the total cost, by policy."""
    files = [scenario_file(args.sites, args.jobs, args.slots, args.latency, seed) for seed in range(args.seeds)]
    scenarios = [scenario_from_dict(file, "s3", Path()) for file in files]
    for policy in split_policies(args.policies):
        found = estimate(np.log10([simulate(scenario, policy).metrics["cost_total"] for scenario in scenarios]))
        print(f"{policy:32} {found.mean:6.2f} ± {found.mean - (found.low or found.mean):.2f}", flush=True)


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
