"""How often the interval of a forecast holds the completion of a live job whose speed was guessed.

    python benchmarks/forecasts_live.py [--count 500] [--policy srtf] [--seed 0]

A service is brought up in a temporary folder. Its jobs sleep in each mini-batch; they announce a third of that in the
median, wrong by a factor of e either way (lognormal), and most by too little. They arrive so that several wait. The
queue is asked for every second. Printed: the share of all intervals that held, of the last 500, and of each job's
first; how often a running job was said to complete now; and how far forecasts at half time were off. A job that is
overtaken again and again is seen in many looks, whose forecasts know no later jobs: the share of all intervals is low
under `srtf`. Exit status 1 if not 70 to 90 % of the jobs' first intervals held, and of those that the service counts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from faults import service

from skedge.live.worker.code_archive import digest, pack

CODE = """
import time
from functools import partial
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from skedge.live.training import Training

def points(d):
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(d))
    return x, (x[:, 0] > 0).long()

def step(seconds, model, batch):
    time.sleep(seconds)
    loss = cross_entropy(model(batch[0]), batch[1])
    loss.backward()
    return float(loss.detach())

def job(seconds):
    sgd = partial(torch.optim.SGD, lr=0.1)
    return Training(partial(nn.Linear, 4, 2), sgd, chunk=points, step=partial(step, seconds), test=partial(points, 9))
"""
IN_SYSTEM, LOOK_S = 12, 1.0


class Intervals:
    """The intervals that were given, and those that held.

    Attributes
    ----------
    given
        (time, foreseen completion, from, to) of each job's forecasts [s].
    """

    def __init__(self) -> None:
        self.given: dict[str, list[tuple[float, float, float, float]]] = {}
        self.ended: dict[str, float] = {}
        self.now_ones = self.running = 0

    def look(self, rows: list[dict[str, Any]]) -> None:
        """Take in the rows of a queue."""
        for row in rows:
            if row["state"] == "COMPLETED" and row["ended_s"] is not None:
                self.ended[row["job"]] = row["ended_s"]
            if row["forecast_s"] is not None and row["forecast_from_s"] is not None:
                times = row["now_s"], row["forecast_s"], row["forecast_from_s"], row["forecast_to_s"]
                self.given.setdefault(row["job"], []).append(times)
            if row["state"] == "RUNNING" and row["progress"] < 0.96 and row["forecast_s"] is not None:
                self.running += 1
                self.now_ones += row["forecast_s"] - row["now_s"] < 0.05

    def share(self, which: slice) -> float:
        """The share of some of each job's intervals that held."""
        held = [
            low <= self.ended[job] <= high
            for job, looks in self.given.items()
            if job in self.ended
            for _, _, low, high in looks[which]
        ]
        return float(np.mean(held))

    def off(self) -> list[float]:
        """Time taken over time foreseen of the forecast in the middle of each job's."""
        looks = [(self.ended[job], of[len(of) // 2]) for job, of in self.given.items() if job in self.ended]
        return [float((end - at + 0.1) / (foreseen - at + 0.1)) for end, (at, foreseen, _, _) in looks]


def spec(rng: np.random.Generator, number: int, code: str) -> dict[str, Any]:
    """A job of one or two chunks that is announced wrongly."""
    seconds, chunks = float(rng.uniform(0.02, 0.3)), int(rng.integers(1, 3))
    return {
        "name": f"job-{number}", "epochs": int(rng.integers(1, 4)), "chunks": chunks,
        "minibatches": int(rng.integers(2, 9)), "minibatch_s": seconds / 3 * float(rng.lognormal(0, 1)),
        "ps_update_s": 0.001, "gradient_mb": 0.001, "bandwidth_mbps": 1000.0, "upload_edge_s": [0, 0.2],
        "upload_cloud_s": [90, 90], "resources": {"workers": chunks},
        "train": {"code": code, "factory": "sleeps:job", "args": {"seconds": seconds}},
    }  # fmt: skip


def main() -> None:
    """Submit, look, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--policy", default="srtf")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng, seen = np.random.default_rng(given.seed), Intervals()
    with tempfile.TemporaryDirectory() as folder, service(given.policy, "forecasts") as client:
        path = Path(folder) / "sleeps.py"
        path.write_text(CODE, encoding="utf-8")
        code, at = pack(path), client.connected()
        at.put(f"/code/{digest(code)}", content=code).raise_for_status()
        submitted, began = 0, time.monotonic()
        while len(seen.ended) < given.count:
            rows = at.get("/jobs", params={"most": 10_000}).raise_for_status().json()
            seen.look(rows)
            waiting = sum(row["ended_s"] is None for row in rows)
            for _ in range(min(IN_SYSTEM - waiting, given.count - submitted)):
                at.post("/jobs", json=spec(rng, submitted, digest(code))).raise_for_status()
                submitted += 1
            if failed := [row["message"] for row in rows if row["state"] == "FAILED"]:
                raise SystemExit(f"a job failed: {failed[0]}")
            time.sleep(LOOK_S)
        health = at.get("/health").json()["forecasts"]
        at.close()
    every, off = seen.share(slice(None)), seen.off()
    print(f"{given.count} jobs under {given.policy} in {time.monotonic() - began:.0f} s")
    count, first = sum(map(len, seen.given.values())), seen.share(slice(1))
    print(f"of all {count} intervals {every:.3f} held, of jobs' first {first:.3f}")
    print(f"by the service itself: {health['held']:.3f} of the last {health['checked']}")
    print(f"running jobs said to complete now: {seen.now_ones} of {seen.running} looks")
    print(f"time taken / time foreseen, middle forecast: {np.quantile(off, [0.1, 0.5, 0.9]).round(2).tolist()}")
    sys.exit(not 0.7 <= first <= 0.9 or not 0.7 <= health["held"] <= 0.9)


if __name__ == "__main__":
    main()
