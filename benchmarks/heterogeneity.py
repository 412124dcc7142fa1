"""Accuracy over how unlike a job's chunks are: undisturbed, preempted, with a bounded lag, and on one lane.

    python benchmarks/heterogeneity.py [--seeds 10] [--sorted 0,0.25,0.5,0.75,1] [--epochs 10] [--figure FILE.svg]
    python benchmarks/heterogeneity.py --local-steps 1,2,3,6 [--seeds 10] [--sorted 0,0.5,1]
    python benchmarks/heterogeneity.py --live [--seeds 10]

Without --live no Ray is needed: the situations and their rounds are those of ``tests/live/test_heterogeneity.py``. A
row for each situation and share of samples that are sorted by label (the others are anywhere), samples not shuffled,
and one with the samples shuffled over the chunks where all are sorted: mean accuracy, its 95 % interval over the
seeds, and the mean difference to *undisturbed*, seed by seed. `--figure` draws them.

With --local-steps all chunks train together, undisturbed, and each worker trains so many mini-batches a round by
itself; differences are to the first number.

With --live the same jobs train on an embedded Ray cluster, all samples sorted by label: undisturbed, preempted, and
preempted with ``max_lag: 1``, each with the order kept, and the first two with the samples shuffled (the default).
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "live"))

import test_heterogeneity as by

from skedge.analysis.intervals import Estimate, bounded, estimate
from skedge.core.model.cluster import Cluster, Floats, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.live.cluster.engine import Engine
from skedge.live.controller.session import train
from skedge.live.worker.checkpoint import Checkpoints
from skedge.live.worker.program import Program
from skedge.report.pictures import standalone
from skedge.simulate import run
from skedge.studies.figure import Figure, Line, svg

TESTS = Path(__file__).resolve().parents[1] / "tests" / "live"
MINIBATCH_S = 0.15
"""Of all live jobs [s]."""
SHORT = {"model": "lenet", "chunks": 1, "samples": 60, "size": 8}
LIVE = (("undisturbed", False), ("preempted", False), ("max_lag 1", False), ("undisturbed", True), ("preempted", True))
"""Situations that are trained live, and whether samples are shuffled."""


def shown(found: Estimate) -> str:
    """A mean with its interval."""
    return f"{found.mean:.3f}" + ("" if found.low is None else f" [{found.low:.3f}, {found.high:.3f}]")


def row(name: str, what: str, found: Floats, alone: Floats) -> Estimate:
    """Print one situation; returns its mean accuracy."""
    of = bounded(found)
    print(f"{name:12}  {what:15}  {shown(of):22}  {shown(estimate(found - alone)):>24}", flush=True)
    return of


def scenario_of(name: str, cluster: Cluster) -> Scenario:
    """The jobs of a situation, a chunk for each server: the others come to the first server, and finish sooner."""
    _, others, max_lag, _ = by.SITUATIONS[name]
    far = {server.id: 9999.0 for server in cluster.servers[1:]}
    jobs = [Job("sorted", 0.0, by.EPOCHS, by.CHUNKS, by.MINIBATCHES, MINIBATCH_S, max_lag=max_lag)]
    jobs += [
        Job(f"short{i}", MINIBATCH_S * (4 + 8 * i), 1, 1, by.MINIBATCHES, MINIBATCH_S, upload_s=far)
        for i in range(others)
    ]
    return Scenario(cluster, Jobs(job_table(jobs)[0], cluster, job_table(jobs)[1]), Physics(slot=SECOND), 0, name)


def trained_live(name: str, engine: Engine, seed: int, *, shuffle: bool) -> tuple[float, int]:
    """Accuracy of the job with sorted samples, and how often it was preempted."""
    scenario = scenario_of(name, engine.cluster)
    works = {job: Program("skedge.live.examples:images", SHORT, 1, 1, by.MINIBATCHES) for job in scenario.jobs.ids[1:]}
    works["sorted"] = by.program(seed, shuffle=shuffle)
    done = train(scenario, works, run(scenario, "aonline"), engine)
    for job in works:
        Checkpoints(engine.url).forget(job)
    broken = [violation.message for violation in done.run.verify()]
    if broken or set(done.run.jobs["state"]) != {"finished"}:
        sys.exit(f"{name}, seed {seed}: {broken or done.run.jobs}")
    return float(done.results["sorted"]["accuracy"]), int(done.run.metrics["preemptions"])


def live(seeds: int) -> None:
    """Train live, one seed after another, and print the situations."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    cluster = Cluster([Server(f"e{i}", capacity={"worker:gpu": 1, "ps:cpu": 9}) for i in range(by.CHUNKS)])
    found = {case: list[float]() for case in LIVE}
    with tempfile.TemporaryDirectory(prefix="skedge-heterogeneity-") as folder:
        engine = Engine(cluster, Path(folder), str(Path(folder) / "checkpoints"))
        try:
            for seed in range(seeds):
                for name, shuffle in LIVE:
                    accuracy, preempted = trained_live(name, engine, seed, shuffle=shuffle)
                    found[name, shuffle].append(accuracy)
                    what = "shuffled" if shuffle else "sorted"
                    print(f"seed {seed}: {name}, {what}: {accuracy:.3f}, {preempted} preemptions", flush=True)
        finally:
            engine.stop()
    for name, shuffle in LIVE:
        alone = np.array(found["undisturbed", shuffle])
        row(name, "shuffled" if shuffle else "100 % sorted", np.array(found[name, shuffle]), alone)


def local(numbers: list[int], shares: list[float], seeds: int) -> None:
    """Train with so many mini-batches a round by each worker, and print the accuracies."""
    for shuffle, share in [*((False, share) for share in shares), (True, 1.0)]:
        alone: Floats | None = None
        for h in numbers:
            programs = [
                replace(by.program(seed, shuffle=shuffle, mixed=1 - share), local_steps=h) for seed in range(seeds)
            ]
            n_rounds = by.EPOCHS * math.ceil(by.MINIBATCHES / h)
            found = np.array([by.accuracy(of, [range(by.CHUNKS)] * n_rounds) for of in programs])
            alone = found if alone is None else alone
            row(f"H = {h}", "shuffled" if shuffle else f"{100 * share:g} % sorted", found, alone)


def main() -> None:
    """Train, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sorted", default="0,0.25,0.5,0.75,1")
    parser.add_argument("--epochs", type=int, default=by.EPOCHS)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--local-steps", metavar="H,H,...")
    parser.add_argument("--live", action="store_true")
    given = parser.parse_args()
    if given.live:
        live(given.seeds)
        return
    by.EPOCHS, shares = given.epochs, [float(share) for share in given.sorted.split(",")]
    if given.local_steps:
        local([int(h) for h in given.local_steps.split(",")], shares, given.seeds)
        return
    lines = {name: list[Estimate]() for name in by.SITUATIONS}
    print(f"{'':12}  {'':15}  {'accuracy':22}  {'less undisturbed':>24}")
    for shuffle, share in [*((False, share) for share in shares), (True, 1.0)]:
        alone: Floats | None = None
        for name in by.SITUATIONS:
            accuracies = by.trained(by.in_situation(name), shuffle=shuffle, mixed=1 - share, seeds=given.seeds)
            found = np.array(accuracies)
            alone = found if alone is None else alone
            mean = row(name, "shuffled" if shuffle else f"{100 * share:g} % sorted", found, alone)
            if not shuffle:
                lines[name].append(mean)
    if given.figure:
        drawn = tuple(Line(name, tuple(100 * s for s in shares), tuple(of)) for name, of in lines.items())
        title = "Accuracy by how unlike the chunks are, samples not shuffled over them"
        figure = Figure(title, "samples sorted by label [%]", "accuracy", drawn, limits=(0.0, 1.0))
        given.figure.write_text(standalone(svg(figure)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
