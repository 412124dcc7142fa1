"""Time Dorm in PD-ORS' setting S4, and print the gaps that its solutions prove.

    python benchmarks/dorm.py [--machines 100] [--jobs 100] [--slots 80] [--seed 0] [--beside N] [--seconds 60] [--json]

CPU seconds of one run in this process, compiled kernels warm. `gap`: bound over utilisation, less 1, of each solution.
`--beside N` takes N problems of the run, evenly spread, and sets beside the solution what HiGHS and CP-SAT (extra
`optimum`, two threads each) find for the program of single machines within `--seconds` each, from the present
partition as their start: CPU seconds, utilisation and bound.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from skedge.core.model.scenario import Scenario
from skedge.optimum.solvers import IntegerProgram, Rows, SolverResult, cp_milp, milp
from skedge.policies.dorm import policy
from skedge.policies.dorm.applications import Partition, PartitionProblem, problem
from skedge.policies.dorm.program import PartitionProgram, program, room
from skedge.scenario.file import scenario_from_dict, shipped
from skedge.simulate import run

_FINE = 1e6
"""CP-SAT's differences of shares are whole multiples of 1 / _FINE."""


def main() -> None:
    """Run and print."""
    args = arguments()
    scenario = s4(args.machines, args.jobs, args.slots, args.seed)
    run(s4(2, 4, 4, 0), "dorm:cells=1")
    solutions: list[tuple[PartitionProblem, Partition | None, float]] = []
    solve = policy.partition

    def noted(*given: Any, **how: Any) -> Partition | None:
        begun = time.process_time()
        found = solve(*given, **how)
        solutions.append((problem(*given), found, time.process_time() - begun))
        return found

    policy.partition = noted  # type: ignore[assignment]
    begun = time.process_time()
    done = run(scenario, "dorm")
    took = time.process_time() - begun
    gaps = np.array([found.bound / found.use - 1 for _, found, _ in solutions if found and found.use])
    if args.json:
        assert done.verify() == []
        found = {"cpu_s": took, "gap_mean": gaps.mean(), "gap_max": gaps.max(), "solutions": len(solutions)}
        print(json.dumps(found | {"utility_total": done.metrics["utility_total"]}))
        return
    print(f"{took:.1f} s of CPU, {sum(s for *_, s in solutions):.1f} s in {len(solutions)} solutions")
    print(f"gap {gaps.mean():.2%} in the mean, {gaps.max():.2%} at most, above 5 % in {(gaps > 0.05).sum()}")
    print(f"{len(done.verify())} rules broken, total utility {done.metrics['utility_total']:.1f}")
    for at in np.linspace(0, len(solutions) - 1, args.beside + 2).astype(int)[1:-1].tolist():
        beside(*solutions[at], args.seconds)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("machines", 100), ("jobs", 100), ("slots", 80), ("seed", 0), ("beside", 0), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def s4(machines: int, jobs: int, slots: int, seed: int) -> Scenario:
    """The setting with other sizes."""
    fields = yaml.safe_load(shipped("s4").read_text(encoding="utf-8"))
    fields["cluster"]["draw"]["servers"] = machines
    fields["workload"]["synthetic"] |= {"jobs": jobs, "span": f"{slots}h"}
    fields["physics"]["horizon"] = f"{slots}h"
    return scenario_from_dict(fields, "s4", Path(), seed)


def beside(of: PartitionProblem, ours: Partition | None, seconds: float, limit: int) -> None:
    """Print one solution beside those of the program of single machines."""
    jobs, machines = of.apps.workers.shape
    print(f"{jobs} jobs on {machines} machines, {of.apps.survivors.sum()} running, {of.bounds.changed} may change")
    if ours is not None:
        print(f"  pools    {seconds:7.2f} s  {ours.use:.4f} of {ours.bound:.4f}")
    cost, upper, whole, rows, start = shifted(program(of, room(of, np.eye(machines, dtype=np.int64))), of)
    gap = 0.05 * abs(cost @ start)
    for name, solver in (
        ("HiGHS", lambda: milp(cost, upper, whole, rows, start, limit, gap=gap)),
        ("CP-SAT", lambda: cp_milp(IntegerProgram(cost, upper, rows), start, limit)),
    ):
        begun = time.process_time()
        found: SolverResult[Any] = solver()
        use, bound = (None if found.solution is None else -cost @ found.solution), found.bound
        print(
            f"  {name:8} {time.process_time() - begun:7.2f} s  {'none' if use is None else f'{use:.4f}'} of "
            f"{'unknown' if bound is None else f'{-bound:.4f}'}"
        )


def shifted(p: PartitionProgram, of: PartitionProblem) -> tuple[Any, Any, Any, Rows, Any]:
    """The program with all variables integer and at least 0, and the present partition as its start."""
    scale = np.where(p.integrality == 1, 1.0, 1 / _FINE)
    upper = np.where(p.integrality == 1, p.high, _FINE * 10)
    rows = Rows()
    matrix = p.rows
    for i, limit in enumerate(p.limits.tolist()):
        part = slice(matrix.indptr[i], matrix.indptr[i + 1])
        columns = matrix.indices[part]
        values = matrix.data[part] * scale[columns]
        rows.add(list(zip(columns.tolist(), values.tolist(), strict=True)), -np.inf, limit)
    for column in np.flatnonzero(p.low > 0).tolist():
        rows.add([(column, 1.0)], p.low[column], np.inf)
    apps, n = of.apps, len(of.fair)
    share = apps.workers.sum(axis=1) * of.share_of_piece[0] + apps.servers.sum(axis=1) * of.share_of_piece[1]
    start = np.concatenate(
        [
            apps.workers.ravel(),
            apps.servers.ravel(),
            apps.survivors,
            np.zeros(n),
            np.ceil(np.abs(share - of.fair) * _FINE),
        ]
    )
    return p.cost * scale, upper, np.ones(len(upper), bool), rows, start.astype(float)


if __name__ == "__main__":
    main()
