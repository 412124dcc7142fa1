"""Send hostile requests to a service, and see that it refuses them, stays small, and answers others meanwhile.

    python benchmarks/hostile.py [--count 1000]

A service is brought up in a temporary folder. The requests are a list of ours, and as many more of schemathesis, made
from the API's own schema, right and wrong by it. All the while another client asks for ``/health``. Printed: answers by
status, how long ``/health`` took, and the memory of the service's process before and after each fifth of them. Exit
status 1 if a request was answered 500, or the service does not answer any more.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "live"))

from faults import service
from hostile import Hostile, of_our_list, of_schemathesis

SERVER_ERROR = 500
BUSY = 503
PAUSE_S = 0.05


class Health(threading.Thread):
    """Asks for ``/health`` again and again, and keeps how long each answer took [s]."""

    def __init__(self, client: httpx.Client) -> None:
        super().__init__(daemon=True)
        self.client, self.took, self.over = client, list[float](), threading.Event()

    def run(self) -> None:
        """Ask until it is over."""
        while not self.over.wait(PAUSE_S):
            began = time.monotonic()
            self.client.get("/health").raise_for_status()
            self.took.append(time.monotonic() - began)


def sent(at: httpx.Client, one: Hostile) -> str:
    """Status of the answer, or why none came."""
    try:
        answer = at.request(one.method, one.path, content=one.content, headers=one.headers, params=one.params)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return f"not sent: {type(error).__name__}"
    if answer.status_code >= SERVER_ERROR and answer.status_code != BUSY:
        print(f"{answer.status_code}: {one.method} {one.path[:100]} {str(one.content)[:300]}", flush=True)
    return str(answer.status_code)


def main() -> None:
    """Send them all and print what came."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    count = parser.parse_args().count
    with service("aonline", "hostile") as client, client.connected() as at, client.connected() as other:
        requests = [*of_our_list(), *of_schemathesis(at.get("/openapi.json").json(), count // 10)][:count]
        health, memory = Health(other), [client.memory_mb()]
        health.start()
        found = Counter[str]()
        for number, one in enumerate(requests):
            found[sent(at, one)] += 1
            if number % (len(requests) // 5 or 1) == 0:
                memory.append(client.memory_mb())
        memory.append(client.memory_mb())
        health.over.set()
        health.join()
        answers = at.get("/health").status_code
    took = 1e3 * np.array(health.took)
    print(f"{len(requests)} requests: {', '.join(f'{n} x {status}' for status, n in sorted(found.items()))}")
    median, p99 = np.percentile(took, [50, 99])
    print(
        f"/health meanwhile, {len(took)} times: median {median:.0f} ms, p99 {p99:.0f} ms, longest {took.max():.0f} ms"
    )
    print("memory of the service: " + ", ".join(f"{mb:.0f} MB" for mb in memory))
    failed = sum(n for status, n in found.items() if status.isdigit() and int(status) >= SERVER_ERROR)
    sys.exit(int(failed > found[str(BUSY)] or answers >= SERVER_ERROR))


if __name__ == "__main__":
    main()
