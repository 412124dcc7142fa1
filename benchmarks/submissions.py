"""Submit many jobs to a service at once, and see that none is lost or doubled and that it stays quick and small.

    python benchmarks/submissions.py [--count 1000] [--clients 32]

A service is brought up in a temporary folder. Each client submits its share one after another, each job with an
idempotency key and every tenth twice, as after a lost answer, and asks for the queue after every fiftieth. The jobs are
small and train meanwhile. Printed: submissions a second, how long an answer took, and the memory of the controller
before and after. Exit status 1 if a job is lost or doubled.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
from faults import JOB, service

AGAIN, LOOKS = 10, 50


class Clock:
    """How long answers took [s], by what was asked."""

    def __init__(self) -> None:
        self.took: dict[str, list[float]] = {"submit": [], "queue": []}

    def timed(self, what: str, at: httpx.Client, method: str, path: str, **given: Any) -> Any:
        """The answer to a request; a service that is busy is asked again."""
        began = time.monotonic()
        while (answer := at.request(method, path, **given)).status_code == httpx.codes.SERVICE_UNAVAILABLE:
            time.sleep(0.2)
        self.took[what].append(time.monotonic() - began)
        return answer.raise_for_status().json()


def submits(at: httpx.Client, clock: Clock, numbers: list[int]) -> list[str]:
    """Names of the jobs that one client has submitted."""
    names = []
    for n, number in enumerate(numbers):
        spec = {**JOB, "name": f"job-{number}", "epochs": 1, "chunks": 1, "minibatches": 1, "minibatch_s": 0.05}
        given = {"json": spec, "headers": {"Idempotency-Key": f"key-{number}"}}
        names += [clock.timed("submit", at, "POST", "/jobs", **given) for _ in range(1 + (n % AGAIN == 0))]
        if n % LOOKS == 0:
            clock.timed("queue", at, "GET", "/jobs")
    return names


def shown(took: list[float]) -> str:
    """Median, 99th percentile and maximum."""
    median, p99 = np.percentile(1e3 * np.array(took), [50, 99])
    return f"{len(took)} times, median {median:.0f} ms, p99 {p99:.0f} ms, longest {1e3 * max(took):.0f} ms"


def main() -> None:
    """Submit, look, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=32)
    given, clock = parser.parse_args(), Clock()
    shares = [list(range(first, given.count, given.clients)) for first in range(given.clients)]
    with service("aonline", "submissions") as client:
        clients = [client.connected() for _ in shares]
        memory, began = [client.memory_mb()], time.monotonic()
        with ThreadPoolExecutor(given.clients) as pool:
            names = list(pool.map(submits, clients, [clock] * len(shares), shares))
        seconds = time.monotonic() - began
        memory.append(client.memory_mb())
        there = [row["job"] for row in clients[0].get("/jobs").json()]
        for at in clients:
            at.close()
    wanted = {f"job-{number}" for number in range(given.count)}
    rate = given.count / seconds
    print(f"{given.count} jobs by {given.clients} clients in {seconds:.1f} s: {rate:.1f} a second")
    for what, took in clock.took.items():
        print(f"{what}: {shown(took)}")
    print("memory of the controller: " + ", ".join(f"{mb:.0f} MB" for mb in memory))
    lost, doubled = len(wanted - set(there)), len(there) - len(set(there) & wanted)
    print(f"{lost} lost, {doubled} doubled")
    sys.exit(int(lost + doubled > 0 or {name for share in names for name in share} != wanted))


if __name__ == "__main__":
    main()
