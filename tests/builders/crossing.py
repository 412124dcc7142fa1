"""Random small scenarios whose servers fail, by feature and seed, and what is wrong with a policy's run on one.

A cell is a policy and a feature. Its instances take the policy's variants in turn. Most servers fail several times in
a run, often all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
from numpy.random import Generator

from skedge.core.errors import SkedgeError
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.sharing import Sharing, Tenant
from skedge.core.model.time import SECOND
from skedge.core.model.time_limits import PREFIX
from skedge.prepare import prepare_policy
from skedge.recorded_run import Run
from skedge.scenario.file import load_scenario
from skedge.scenario.save import save_scenario
from skedge.simulate import in_run_folder, run

POLICIES: dict[str, tuple[str, ...]] = {
    "aonline": (
        "aonline", "aonline:cloud=false", "aonline:preempt_running=false", "aonline:q_mode=eq5",
        "aonline:q_mode=fractional,ps_choice=random",
    ),
    "srtf": (
        "srtf", "srtf:placement=literal", "srtf:placement=keep_running", "srtf:allow_cloud=true", "srtf:sticky=true",
    ),
    "tiresias": (
        "tiresias", "tiresias:knob=1", "tiresias:limit_s=60", "tiresias:limit_s=20,knob=2",
        "tiresias:allow_cloud=true,limit_s=30",
    ),
    "fifo": ("fifo", "fifo:backfill=true", "fifo:allow_cloud=true"),
    "fifo:rule=earliest_server": ("fifo:rule=earliest_server",),
    "drf": ("drf", "drf:counts=fixed"),
    "preemptive": ("preemptive",),
    "batch": (
        "batch", "batch:price_norm=none,T=20", "batch:literal_cost_d=true,order=shortest,T=5",
        "batch:cloud_capacity=2,strict_upload=false", "batch:tie=printed,cloud_capacity=3",
    ),
    "batchsche": (
        "batchsche", "batchsche:tie=earliest,cloud_capacity=0", "batchsche:tie=printed,upload=where_placed",
    ),
}  # fmt: skip
"""Policies on servers with slots, each with its variants; elsewhere no server fails in a simulation."""

NO_SLOTS = ("pdors", "oasis", "dorm", "optimus", "okita")
"""Policies that need servers with resources, or sites."""

SHARES = ("srtf", "tiresias", "fifo")
"""Policies that keep to tenants and priority classes."""

REFUSED = {("lag", policy): "physics.mtbf: does not go with jobs that have max_lag" for policy in POLICIES} | {
    ("sharing", policy): "does not keep to tenants and priority classes" for policy in POLICIES if policy not in SHARES
}
"""The cells that are refused, with a part of the sentence that says so."""


class Draw:
    """What is drawn for an instance; a feature changes it before the scenario is made."""

    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, np.random.default_rng(seed)
        rng = self.rng
        self.cloud = self.scarce = False
        self.storage: list[float | None] = [None] * int(rng.integers(1, 4))
        slotted = bool(rng.integers(2))
        # some instances last seconds, so that a µs is much of their work
        self.scale = float(rng.choice([1.0, 1.0, 0.01]))
        time = round(self.scale * SECOND)
        self.physics: dict[str, Any] = {
            "slotted": slotted,
            "slot": int(rng.choice([1, 5])) * time,
            "data": str(rng.choice(["kept", "last_place"])),
            "colocation": str(rng.choice(["cloud", "one_server"])),
            "checkpoint_overhead": int(rng.choice([0, 1.5]) * time),
            "mtbf": int(rng.integers(15, 120)) * time,
            "mttr": int(rng.integers(1, 60)) * time,
        }
        self.sharing: Sharing | None = None
        self.jobs = [self._job(i) for i in range(int(rng.integers(2, 8)))]

    def _job(self, number: int) -> dict[str, Any]:
        rng, scale, chunks = self.rng, self.scale, int(self.rng.integers(1, 6))
        return {
            "id": f"j{number}", "arrival_s": scale * float(rng.integers(0, 120)), "epochs": int(rng.integers(1, 4)),
            "chunks": chunks, "minibatches": int(rng.integers(1, 12)),
            "minibatch_s": scale * float(rng.uniform(0.5, 2)),
            "ps_update_s": scale * 0.05, "gradient_mb": scale * float(rng.uniform(1, 30)), "bandwidth_mbps": 400.0,
            "worker_type": str(rng.choice(["a", "a", "b"])), "ps_type": str(rng.choice(["p", "p", "q"])),
            "workers": int(rng.integers(1, chunks + 1)), "chunk_mb": float(rng.choice([0, 10])),
            "upload_edge_s": (0.0, scale * 8), "upload_cloud_s": (scale * 10, scale * 40),
        }  # fmt: skip

    def scenario(self) -> Scenario:
        """The scenario of the instance."""
        rng = np.random.default_rng([self.seed, 1])
        scarce = self.scarce or self.cloud
        servers = [_server(f"e{i}", storage, rng, scarce=scarce) for i, storage in enumerate(self.storage)]
        servers += [Server("cloud", "cloud")] * self.cloud
        cluster = Cluster(servers, sharing=self.sharing)
        table, given = job_table([Job(**job) for job in self.jobs])
        return Scenario(cluster, Jobs(table, cluster, given), Physics(**self.physics), self.seed, "crossing")


def _server(name: str, storage: float | None, rng: Generator, *, scarce: bool) -> Server:
    """A server; unless PSs may be scarce each worker finds one, without which A_ps would need a cloud."""
    a, b, p, q = (int(n) for n in rng.integers((1, 0, 1, 0), (4, 3, 5, 3)))
    slots = {"ps:p": p, "ps:q": q} if scarce else {"ps:p": a + b, "ps:q": a + b}
    return Server(name, capacity={"worker:a": a, "worker:b": b, **slots}, storage_mb=storage)


def _cloud(draw: Draw) -> None:
    draw.cloud = True


def _storage(draw: Draw) -> None:
    draw.storage = [float(draw.rng.integers(2, 8)) * 10 for _ in draw.storage]
    for job in draw.jobs:
        job["chunk_mb"] = float(draw.rng.choice([0, 4, 10, 25]))
    draw.cloud = bool(draw.rng.integers(2))


def _sharing(draw: Draw) -> None:
    rng, draw.scarce = draw.rng, True
    tenants = {"red": Tenant(2.0), "blue": Tenant(1.0, float(rng.choice([0.5, 1.0])))}
    bound = [None, 0, 1, 2][int(rng.integers(4))]
    ageing = [None, 30.0 * draw.scale][int(rng.integers(2))]
    draw.sharing = Sharing(tenants, draw.scale * float(rng.choice([0, 10])), bound, ageing)
    for job in draw.jobs:
        job["tenant"], job["priority"] = str(rng.choice(["red", "blue", "default"])), int(rng.integers(0, 3))


def _lag(draw: Draw) -> None:
    draw.physics |= {"checkpoint_overhead": 0, "slotted": False}
    for job in draw.jobs:
        job["max_lag"] = int(draw.rng.integers(1, 3))


def _estimates(draw: Draw) -> None:
    draw.physics["estimate_error"] = float(draw.rng.choice([0.3, 1.0]))
    draw.cloud = bool(draw.rng.integers(2))


def _batches(draw: Draw) -> None:
    """Jobs that arrive together, in slotted time with a cloud or without."""
    draw.physics["slotted"], draw.cloud = True, bool(draw.rng.integers(2))
    for job in draw.jobs:
        job["arrival_s"] = draw.scale * float(draw.rng.choice([0, 20, 60]))


def _limits(draw: Draw) -> None:
    """Jobs that may wait and run for a while only, beside others, with or without a cloud, storage and estimates."""
    for feature in (_cloud, _storage, _estimates, _batches):
        if draw.rng.integers(2):
            feature(draw)
    for job in draw.jobs:
        for name, longest in (("max_wait_s", 60), ("max_run_time_s", 25)):
            if draw.rng.integers(3):
                job[name] = draw.scale * float(draw.rng.uniform(1, longest))
    if draw.rng.integers(2):
        draw.physics["mtbf"] = None


def _any(draw: Draw) -> None:
    """Any of those that go with all policies, together."""
    for feature in (_cloud, _storage, _estimates, _batches):
        if draw.rng.integers(2):
            feature(draw)


Feature = Callable[[Draw], None]
FEATURES: dict[str, Feature] = {
    "alone": lambda _: None, "sharing": _sharing, "cloud": _cloud, "storage": _storage, "lag": _lag,
    "limits": _limits, "estimates": _estimates, "batches": _batches, "streamed": _any, "quick": _any,
}  # fmt: skip
"""What is drawn for each feature; of `streamed` and `quick` it is the way in which the run is asked for."""

CELLS = [(feature, policy) for feature in FEATURES for policy in POLICIES]


def instance(feature: str, seed: int) -> Scenario:
    """The scenario of a feature by seed."""
    draw = Draw(seed)
    FEATURES[feature](draw)
    return draw.scenario()


def instances(policy: str, first: int, count: int) -> Iterator[tuple[int, str]]:
    """Seeds and variants of a policy, in turn."""
    yield from zip(range(first, first + count), islice(cycle(POLICIES[policy]), count), strict=True)


def fault(feature: str, policy: str, seed: int) -> str:
    """What is wrong with the run of a policy on an instance; empty if it is right."""
    try:
        done = run(instance(feature, seed), policy)
        other = _WAYS[feature](done, policy) if feature in _WAYS else ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    broken = "; ".join(sorted({f"{one.rule} {one.message}" for one in done.verify(limit=3)}))
    limited = pl.col("reason").str.starts_with(PREFIX).fill_null(value=False)
    answered = pl.col("state").is_in(["finished", "rejected"]) | ((pl.col("state") == "failed") & limited)
    unanswered = done.jobs.filter(~answered)["id"].to_list()
    return broken or other or ("unanswered: " + ", ".join(unanswered) if unanswered else "")


def refusal(feature: str, policy: str, seed: int) -> str:
    """The sentence that refuses the policy on an instance; empty if it is not refused."""
    try:
        run(instance(feature, seed), policy)
    except SkedgeError as error:
        return str(error)
    return ""


def _through_files(done: Run, policy: str) -> str:
    """As the commands run a scenario in a file, as if it were larger than memory: the same record and metrics.

    As servers fail it is simulated in memory all the same, and only its jobs and tables pass through files.
    """
    with (
        TemporaryDirectory() as name,
        patch("skedge.scenario.file.CHUNKS_IN_PARTS", 1),
        patch("skedge.core.model.jobs_file.PART_CHUNKS", 1),
    ):
        folder = Path(name)
        (folder / "out").mkdir()
        given = load_scenario(save_scenario(done.scenario, folder / "in"))
        made = prepare_policy(policy, given)
        scenario = in_run_folder(given, made, folder / "out")
        run(scenario, made, folder=folder / "out").write(folder / "out")
        again = Run.load(folder / "out")
        broken = [f"{one.rule} {one.message}" for one in again.verify(limit=3)]
        same = _difference(done, Run.load(folder / "out")) or ("" if again.metrics == done.metrics else "other metrics")
    return "; ".join(broken) or same


def _compiled(done: Run, policy: str) -> str:
    """As a run that is large enough for a compiled loop, which takes gangs and elastic policies: the same record."""
    with patch("skedge.simulate.LARGE", 1):
        return _difference(done, run(done.scenario, policy))


def _difference(done: Run, other: Run) -> str:
    """The tables in which two runs differ."""
    tables = other.schedule.tables()
    differ = [name for name, table in done.schedule.tables().items() if table.rows() != tables[name].rows()]
    return "differ: " + ", ".join(differ) if differ else ""


_WAYS: dict[str, Callable[[Run, str], str]] = {"streamed": _through_files, "quick": _compiled}
