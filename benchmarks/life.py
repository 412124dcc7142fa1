"""How a service grows with the jobs of its life: time to submit, to list and to restart, and memory. Needs no Ray.

    python benchmarks/life.py [--count 10000] [--step 1000] [--figure growth.svg]

The service runs in this process on servers that do nothing; uploads and trainers are not started. Jobs are submitted
one after another, and all but every twentieth of a step's are cancelled, so that former jobs accumulate while a few
stay in the system; snapshots are made meanwhile. Then the service ends, and is restarted twice: from its last snapshot,
and from its whole journal. HTTP and Ray are not part of the times.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from skedge.analysis.intervals import Estimate
from skedge.live.controller.service import JOURNAL, Service
from skedge.live.controller.settings import CLUSTER, Settings, save_settings
from skedge.live.controller.snapshot import SNAPSHOT, Snapshots
from skedge.live.controller.states import ACTIVE
from skedge.live.coordinator.trainer import Trainer
from skedge.live.journal.journal import SqlJournal
from skedge.live.service.tenant_view import TenantView
from skedge.live.world.ray_world import NoEngine
from skedge.live.world.upload_thread import UploadThread
from skedge.report.pictures import standalone
from skedge.scenario.file import load_cluster_file
from skedge.studies.figure import Figure, Line, svg

SPEC: dict[str, Any] = {
    "name": "net", "epochs": 2, "chunks": 2, "minibatches": 4, "minibatch_s": 0.1, "upload_edge_s": [900, 900],
    "train": {"factory": "skedge.live.examples:images", "args": {"model": "lenet", "chunks": 2}},
}  # fmt: skip
SERVERS = "name: life\nslot: 1s\ncluster: {servers: [{id: edge-0, workers: {gpu: 2}, ps: {cpu: 2}}]}\n"
ID, POLICY = "life", "aonline"
STAY, LOOKS = 20, 10


class Up(NoEngine):
    """An engine whose servers do nothing."""

    acts = True


class Life:
    """One life of a service on a folder, in a thread of its own."""

    def __init__(self, folder: Path, *, whole: bool = False) -> None:
        path, snapshot = folder / JOURNAL, None if whole else folder / SNAPSHOT
        about = None if path.exists() else {"began": time.time(), "id": ID, "policy": POLICY}
        self.journal = SqlJournal(f"sqlite:///{path}", about)
        empty = load_cluster_file(folder / CLUSTER)
        self.service = Service(empty, POLICY, folder, Up(1), self.journal, None, snapshot)
        self.snapshots = Snapshots(folder, self.journal)
        self.thread = threading.Thread(target=self.service.run)
        self.thread.start()

    def end(self) -> None:
        """End the service."""
        self.service.down()
        self.thread.join()
        self.snapshots.ended.set()
        self.journal.close()


def restart(folder: Path, *, whole: bool) -> None:
    """Restart the service and print how long that takes."""
    began, cpu = time.perf_counter(), time.process_time()
    life = Life(folder, whole=whole)
    life.service.health()
    first, end = life.journal.span
    what = f"whole journal, {end} entries" if whole else f"snapshot and {end - first} entries"
    print(f"restart, {what}: {time.perf_counter() - began:.1f} s, {time.process_time() - cpu:.1f} s of CPU", flush=True)
    life.end()


def took(act: Callable[[], object]) -> float:
    """How long `act` took [ms]."""
    began = time.perf_counter()
    act()
    return 1e3 * (time.perf_counter() - began)


def memory_mb() -> float:
    """Present memory of this process [MB]."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


def step(service: Service, count: int) -> dict[str, list[float]]:
    """Submit `count` jobs, cancel most of them, and list the others ten times; how long each took [ms]."""
    times: dict[str, list[float]] = {"submit": [], "queue": []}
    for n in range(count):
        times["submit"].append(took(lambda: service.submit(SPEC)))
        if n % (count // STAY):
            service.cancel(service.kernel.scenario.jobs.ids[-1])
        if n % (count // LOOKS) == 0:
            times["queue"].append(took(lambda: TenantView(service, None).queue(ACTIVE)))
    for job in TenantView(service, None).queue(ACTIVE):
        service.cancel(job["job"])
    return times


def summary(times: dict[str, list[float]]) -> dict[str, float]:
    """Median and 99th percentile of each."""
    ranks = {"median": 50, "p99": 99}
    return {
        f"{what}, {name} [ms]": float(np.percentile(each, rank))
        for what, each in times.items()
        for name, rank in ranks.items()
    }


def figure(rows: list[dict[str, float]]) -> Figure:
    """Each measure over the number of jobs so far."""
    x = tuple(float(row["jobs"]) for row in rows)
    names = ["submit, median [ms]", "submit, p99 [ms]", "queue, median [ms]", "queue, p99 [ms]", "memory [MB]"]
    lines = [Line(name, x, tuple(Estimate(row[name]) for row in rows)) for name in names]
    return Figure("Growth of a service", "jobs submitted so far", "ms, and MB above the start", tuple(lines))


def main() -> None:
    """Submit, list, restart, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--step", type=int, default=1000, help="jobs of one row; at least 20")
    parser.add_argument("--figure", type=Path, help="SVG of the growth")
    given = parser.parse_args()
    UploadThread.start = Trainer.start = lambda _: None  # type: ignore[method-assign, assignment]
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        save_settings(state, Settings(POLICY, id=ID))
        (state / CLUSTER).write_text(SERVERS, encoding="utf-8")
        life = Life(state)
        life.snapshots.start()
        step(life.service, STAY)  # compiles
        start, rows = memory_mb(), list[dict[str, float]]()
        for jobs in range(given.step, given.count + 1, given.step):
            rows.append({"jobs": jobs, **summary(step(life.service, given.step)), "memory [MB]": memory_mb() - start})
            print(", ".join(f"{name} {value:.0f}" for name, value in rows[-1].items()), flush=True)
        life.end()
        life.snapshots.join()
        restart(state, whole=False)
        restart(state, whole=True)
    if given.figure:
        given.figure.write_text(standalone(svg(figure(rows))) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
