"""How the time of a run grows with jobs, chunks, lanes and servers, for every policy.

    python benchmarks/scaling.py [--policies "aonline:cloud=false;pdors"] [--doublings 3] [--repeats 2]
        [--page docs/scaling.md] [--figure docs/scaling.svg] [--together]

One size is doubled at a time, from the base on. Slots: Philly-like divisible jobs, 500 of them (4,000 for gangs) of 16
chunks, on 8 servers of 8 lanes, with a cloud for `batch` and `batchsche`; the offered load stays 0.9. *jobs*: the span
grows with them. *lanes*: of each server. *servers*: the lanes are the same, on more servers. Resources (s4): 10 jobs,
25 servers and 20 slots. Sites (s3): 25 jobs and 12 servers; the chunks of a job grow with the servers.

CPU seconds of the simulation, and of its verification, in one process with kernels warm; the least of the repeats. The
compiled loop of gangs is used whatever the number of jobs. *power*: log2 of the growth, from the
first size to the last, a doubling: 1 is linear. `--page` puts the table between the marks of a page, `--figure` draws
the simulation's time over the jobs.
`--together` doubles lanes and jobs of the slots' policies together, on servers of 8 lanes with four jobs a lane, and
prints the time a job, and what 10 million jobs on 100,000 lanes would take if it went on growing, lane by lane, as in
the last doubling.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from skedge import simulate
from skedge.analysis.intervals import Estimate
from skedge.core.model.scenario import Scenario
from skedge.report.pictures import standalone
from skedge.scenario.file import scenario_from_dict, shipped
from skedge.simulate import run
from skedge.studies.figure import Figure, Line, svg

GANGS = "srtf;tiresias;fifo"
SLOTS = "aonline:cloud=false;fifo:rule=earliest_server;preemptive;drf"
BATCHES = "batch;batchsche"
RESOURCES, SITES = "pdors;oasis;dorm;optimus", "okita"
BASE = {
    "gangs": {"jobs": 4_000, "chunks": 16, "lanes": 8, "servers": 8},
    "slots": {"jobs": 500, "chunks": 16, "lanes": 8, "servers": 8},
    "cloud": {"jobs": 500, "chunks": 16, "lanes": 8, "servers": 8},
    "s4": {"jobs": 10, "servers": 25, "slots": 20},
    "s3": {"jobs": 25, "servers": 12},
}
LOAD = 0.9
MARK = "<!-- scaling: benchmarks/scaling.py -->"


def main() -> None:
    """Measure, print, and write page and figure."""
    args = arguments()
    simulate.LARGE = 0
    if args.together:
        for policy in args.policies.split(";"):
            together(policy, args.doublings)
        return
    rows, lines = [], []
    for policy in args.policies.split(";"):
        kind = kind_of(policy)
        run(made(kind, {}), policy).verify()
        for axis in BASE[kind]:
            sizes = [BASE[kind][axis] * 2**i for i in range(args.doublings + 1)]
            spent = [least(kind, {axis: size}, policy, args.repeats) for size in sizes]
            rows.append(row(policy, axis, sizes, spent))
            print(rows[-1], flush=True)
            if axis == "jobs":
                lines.append((policy, sizes, [simulated for simulated, _ in spent]))
    if args.page:
        put(args.page, "\n".join([*heads(args.doublings), *rows]))
    if args.figure:
        args.figure.write_text(drawn(lines), encoding="utf-8")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--policies", default=";".join((GANGS, SLOTS, BATCHES, RESOURCES, SITES)), help="separated by semicolons"
    )
    parser.add_argument("--doublings", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--figure", type=Path)
    return parser.parse_args()


def kind_of(policy: str) -> str:
    """The scenario of a policy."""
    kinds = {"gangs": GANGS, "slots": SLOTS, "cloud": BATCHES, "s4": RESOURCES, "s3": SITES}
    for kind, policies in kinds.items():
        if policy in policies.split(";"):
            return kind
    known = ";".join(kinds.values())
    raise SystemExit(f"--policies: {policy!r} has no scenario here; choose from {known}")


def made(kind: str, changed: dict[str, int]) -> Scenario:
    """The scenario with these sizes, the others being the base's."""
    size = BASE[kind] | changed
    if kind in ("gangs", "slots", "cloud"):
        return slots(**size, cloud=kind == "cloud")
    form: dict[str, Any] = yaml.safe_load(shipped(kind).read_text(encoding="utf-8"))
    form["cluster"]["draw"]["servers"] = size["servers"]
    form["workload"]["synthetic"]["jobs"] = size["jobs"]
    if kind == "s4":
        form["workload"]["synthetic"]["span"] = form["physics"]["horizon"] = f"{size['slots']}h"
    return scenario_from_dict(form, kind, Path())


def slots(jobs: int, chunks: int, lanes: int, servers: int, *, cloud: bool = False) -> Scenario:
    """Philly-like jobs; more servers than the base's have the same lanes in all."""
    from skedge.traces.makers.synthetic import philly_like  # noqa: PLC0415 - no other kind needs it

    each = max(lanes * BASE["slots"]["servers"] // servers, 1)
    count = BASE["slots"]["jobs"]
    frame = philly_like(count, np.random.default_rng(0))
    gpus = np.minimum(frame["gpus"].to_numpy(), each)
    work = np.tile(
        np.minimum(frame["duration_s"].to_numpy(), 86400) * gpus, jobs // count
    )  # the same jobs, again and again
    arrivals = np.concatenate([frame["submit_s"].to_numpy() + i * frame["submit_s"][-1] for i in range(jobs // count)])
    arrivals *= work.sum() / (LOAD * each * servers) / arrivals[-1]
    listed = [
        {"id": str(i), "arrival_s": float(at), "epochs": 1, "chunks": chunks, "minibatches": 100, "minibatch_s": need}
        | {"workers": min(int(k), chunks), "upload_edge_s": [1, 10], "upload_cloud_s": [10, 100]}
        for i, (at, k, need) in enumerate(
            zip(arrivals, np.tile(gpus, jobs // count), (work / chunks / 100).tolist(), strict=True)
        )
    ]
    machines: list[dict[str, Any]] = [
        {"id": f"s{i}", "workers": {"gpu": each}, "ps": {"cpu": 4 * each}} for i in range(servers)
    ]
    machines += [{"id": "far", "kind": "cloud"}] if cloud else []
    form = {"name": "slots", "slot": "1h", "cluster": {"servers": machines}, "workload": {"jobs": listed}}
    return scenario_from_dict(form, "slots", Path())


def least(kind: str, changed: dict[str, int], policy: str, repeats: int) -> tuple[float, float]:
    """CPU time of simulation and verification [s]."""
    scenario = made(kind, changed)
    found = []
    for _ in range(repeats):
        begun = time.process_time()
        done = run(scenario, policy)
        simulated = time.process_time()
        assert done.verify() == []
        found.append((simulated - begun, time.process_time() - simulated))
    return min(one for one, _ in found), min(two for _, two in found)


def together(policy: str, doublings: int) -> None:
    """Lanes and jobs double together: print the time of simulation and verification, and its extrapolation."""
    run(slots(500, 16, 8, 8), policy).verify()
    sizes, costs = [500 * 2**i for i in range(doublings + 1)], []
    for lanes in sizes:
        jobs = 4 * lanes
        scenario = slots(jobs, 16, lanes // 8, lanes // 8)
        begun = time.process_time()
        done = run(scenario, policy)
        simulated = time.process_time()
        assert done.verify() == []
        verified = time.process_time()
        costs.append(1e6 * (simulated - begun) / jobs)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"{policy:28} {lanes:6} lanes {jobs:6} jobs  {costs[-1]:8.1f} µs a job, "
            f"verify {1e6 * (verified - simulated) / jobs:6.1f} µs, {peak:.2f} GB",
            flush=True,
        )
    a_lane = max(costs[-1] - costs[-2], 0.0) / (sizes[-1] - sizes[-2])
    at = costs[-1] + a_lane * (100_000 - sizes[-1])
    print(
        f"{policy:28} {a_lane:.4f} µs a job and lane; on 100,000 lanes {at:.0f} µs a job, "
        f"10 million jobs {at * 10 / 3600:.1f} h",
        flush=True,
    )


def heads(doublings: int) -> Iterator[str]:
    """The first lines of the table."""
    titles = ["policy", "size", "from", *(["", "×2", "×4", "×8", "×16"][: doublings + 1]), "power", "verify, power"]
    titles[3] = "CPU s"
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"


def row(policy: str, axis: str, sizes: list[int], spent: list[tuple[float, float]]) -> str:
    """A line of the table."""
    simulated, verified = zip(*spent, strict=True)
    cells = [f"`{policy}`", axis, str(sizes[0]), *(f"{s:.3g}" for s in simulated)]
    return f"| {' | '.join([*cells, f'{power(simulated):.1f}', f'{power(verified):.1f}'])} |"


def power(seconds: tuple[float, ...]) -> float:
    """Growth a doubling, as a power of the size."""
    return math.log2(seconds[-1] / seconds[0]) / (len(seconds) - 1)


def put(page: Path, table: str) -> None:
    """The table, between the marks of the page."""
    before, _, after = page.read_text(encoding="utf-8").split(MARK)
    page.write_text(f"{before}{MARK}\n\n{table}\n\n{MARK}{after}", encoding="utf-8")


def drawn(lines: list[tuple[str, list[int], list[float]]]) -> str:
    """Simulation's time over jobs, both in doublings, so that a line's slope is the power."""
    doubled = [
        Line(
            policy,
            tuple(math.log2(size / sizes[0]) for size in sizes),
            tuple(Estimate(math.log2(s / spent[0])) for s in spent),
        )
        for policy, sizes, spent in lines
    ]
    title = "CPU time of the simulation over the number of jobs"
    return standalone(svg(Figure(title, "doublings of the jobs", "doublings of the CPU time", tuple(doubled)))) + "\n"


if __name__ == "__main__":
    main()
