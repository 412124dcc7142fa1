"""Kill processes of a service at random instants, and see that nothing is lost.

    python benchmarks/faults.py --kills 50 --seed 0 --victims agent,ps,raylet,controller

A service is brought up in a temporary folder and given small jobs, so that some are always in the system. At seeded
random instants one process is ended with SIGKILL; the next kill comes when the service is whole again. `agent`, `ps`
and `raylet` are a server's, `head` is Ray's own (its GCS), `controller` is the service's process. At the end every job
must be complete, each chunk with exactly its epochs in the parameters, and every decision is taken again from the
journal and compared (``skedge record``). One line per victim; exit status 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx

CLUSTER = """
name: faults
slot: 1s
cluster:
  servers:
    - {id: edge-0, workers: {gpu: 2}, ps: {cpu: 1}}
    - {id: edge-1, workers: {gpu: 2}, ps: {cpu: 1}}
    - {id: far, kind: cloud}
"""
EPOCHS, CHUNKS, MINIBATCHES = 5, 2, 6
JOB = {
    "name": "job", "epochs": EPOCHS, "chunks": CHUNKS, "minibatches": MINIBATCHES, "minibatch_s": 0.1,
    "ps_update_s": 0.01, "gradient_mb": 0.05, "bandwidth_mbps": 100.0, "upload_edge_s": [0.2, 0.4],
    "upload_cloud_s": [60, 60], "resources": {"workers": 2},
    "train": {
        "factory": "skedge.live.examples:images",
        "args": {"model": "lenet", "chunks": CHUNKS, "samples": 120, "size": 8},
    },
}  # fmt: skip
IN_SYSTEM = 3
"""Jobs that are kept in the system."""

TITLES = {"agent": "ray::Agent", "ps": "ray::PSActor", "raylet": "raylet/raylet", "head": "gcs_server"}
WHOLE_S = 180.0


@dataclass
class Campaign:
    """What was done to one kind of process."""

    victim: str
    kills: int = 0
    recovery_s: list[float] = field(default_factory=list)


class Client:
    """The service, asked over its API; its address is read anew each time: a controller that died has another one."""

    def __init__(self, state: Path) -> None:
        self.state = state

    def ask(self, method: str, path: str, **given: Any) -> Any:
        """The answer to a request."""
        at = json.loads((self.state / "service.json").read_text(encoding="utf-8"))
        headers = {"Authorization": f"Bearer {at['token']}"}
        answer = httpx.request(method, at["url"] + path, headers=headers, timeout=60, **given)
        answer.raise_for_status()
        return answer.json()

    def controller(self) -> int | None:
        """Its process number; None while there is none."""
        with suppress(OSError, ValueError):
            return int(json.loads((self.state / "service.json").read_text(encoding="utf-8"))["pid"])
        return None

    def is_whole(self) -> bool:
        """Whether it answers, and every server is up."""
        with suppress(OSError, ValueError, httpx.HTTPError):
            return all(row["state"] == "up" for row in self.ask("GET", "/servers"))
        return False


def skedge(*arguments: str) -> str:
    """Run a command; what it printed."""
    done = subprocess.run([sys.executable, "-m", "skedge", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"skedge {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


@contextmanager
def service(policy: str) -> Iterator[Client]:
    """A service in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="skedge-faults-") as folder:
        state, cluster = Path(folder) / "state", Path(folder) / "cluster.yaml"
        cluster.write_text(CLUSTER, encoding="utf-8")
        skedge("up", str(cluster), "--state", str(state), "--policy", policy)
        try:
            yield Client(state)
        finally:
            if (state / "supervisor.pid").exists():
                skedge("down", "--state", str(state))


def keep_busy(client: Client) -> None:
    """Submit until as many jobs as wanted are in the system."""
    waiting = [row for row in client.ask("GET", "/jobs") if row["ended_s"] is None]
    for _ in range(IN_SYSTEM - len(waiting)):
        client.ask("POST", "/jobs", json=JOB)


def processes(client: Client, victim: str) -> list[int]:
    """Processes of this kind that belong to the service, ascending; a raylet is a server's, not the head's."""
    if victim == "controller":
        return [pid] if (pid := client.controller()) is not None else []
    known = set(json.loads((client.state / "ray-pids.json").read_text(encoding="utf-8")))
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
                parent = int((entry / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])
                ours = (int(entry.name) if victim in {"raylet", "head"} else parent) in known
                is_head = victim == "raylet" and '"server"' not in line
                if TITLES[victim] in line and ours and not is_head:
                    found.append(int(entry.name))
    return sorted(found)


def wait_whole(client: Client, gone: int | None = None) -> float:
    """Wait until the service is whole, with another controller than `gone`; how long it took [s]."""
    began = time.monotonic()
    while (gone is not None and client.controller() == gone) or not client.is_whole():
        if time.monotonic() - began > WHOLE_S:
            log = (client.state / "controller.log").read_text(encoding="utf-8", errors="replace")
            raise SystemExit(f"the service is not whole {WHOLE_S:g} s after a kill; its log ends with\n{log[-3000:]}")
        time.sleep(0.2)
    return time.monotonic() - began


def campaign(client: Client, victim: str, kills: int, rng: random.Random) -> Campaign:
    """Kill processes of one kind."""
    done = Campaign(victim)
    while done.kills < kills:
        keep_busy(client)
        time.sleep(rng.uniform(0.0, 3.0))
        candidates = processes(client, victim)
        if not candidates:
            continue
        controller = client.controller()
        with suppress(ProcessLookupError):
            os.kill(rng.choice(candidates), signal.SIGKILL)
            done.kills += 1
        time.sleep(1.0)
        done.recovery_s.append(1.0 + wait_whole(client, controller if victim in {"head", "controller"} else None))
        sys.stderr.write(f"\r{victim}: {done.kills} of {kills} killed ")
        sys.stderr.flush()
    sys.stderr.write("\n")
    return done


def finish(client: Client) -> list[dict[str, Any]]:
    """Wait for every job; returns all of them, described."""
    began = time.monotonic()
    while any(row["ended_s"] is None for row in client.ask("GET", "/jobs")):
        if time.monotonic() - began > WHOLE_S:
            raise SystemExit("a job does not complete")
        time.sleep(0.5)
    return [client.ask("GET", f"/jobs/{row['job']}") for row in client.ask("GET", "/jobs")]


def main() -> None:
    """Run the campaign and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", default="aonline")
    parser.add_argument("--victims", default="agent,ps,raylet,controller")
    given = parser.parse_args()
    rng = random.Random(given.seed)  # noqa: S311 - instants, not secrets
    wrong = 0
    for victim in given.victims.split(","):
        with service(given.policy) as client:
            done = campaign(client, victim, given.kills, rng)
            jobs = finish(client)
            skedge("down", "--state", str(client.state))
            out = client.state.parent / "record"
            record = subprocess.run(
                [sys.executable, "-m", "skedge", "record", "--state", str(client.state), "--out", str(out), "--json"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        lost = [job["job"] for job in jobs if job["state"] != "COMPLETED"]
        whole = [EPOCHS * MINIBATCHES] * CHUNKS
        uneven = [job["job"] for job in jobs if job["progress_by_chunk"] != whole]
        said = json.loads(record.stdout) if record.stdout.startswith("{") else {"violations": [record.stderr]}
        rules = sorted({v["rule"] if isinstance(v, dict) else v for v in said["violations"]})
        wrong += len(lost) + len(uneven) + (not record.stdout.startswith("{"))
        print(
            f"{victim}: {done.kills} killed, {len(jobs)} jobs, {len(lost)} lost, {len(uneven)} with other than their "
            f"epochs; whole again after {median(done.recovery_s):.1f} s (median), {max(done.recovery_s):.1f} s (most); "
            f"every decision taken again from the journal: {'yes' if record.stdout.startswith('{') else 'NO'}; "
            f"rules broken: {', '.join(rules) or 'none'}",
            flush=True,
        )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
