"""Kill the controller of a service again and again while jobs train, and see how soon the next one decides.

    python benchmarks/controllers.py --count 50 --seed 0

A service is brought up in a temporary folder, as in ``faults.py``, and given small jobs. At seeded random instants its
controller is ended with SIGKILL. As soon as there is another one, a job is submitted to it, so that a decision is due;
the time from the kill to the first new decision in the journal is measured, and ``GET /health`` says how many updates
of parameters were made while no controller was there. At the end every job must be COMPLETED with all epochs of every
chunk, and every decision is taken again from the journal. Exit status 1 if anything else was found.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from statistics import median

from faults import JOB, WHOLE_S, Campaign, Client, finish, judged, keep_busy, recorded, service, skedge

LOOK_S = 0.02


@dataclass(frozen=True)
class Gap:
    """The time without a controller after a kill.

    Attributes
    ----------
    decided_s
        From the kill to the first new decision [s].
    updates
        Updates of parameters that were made while no controller was there.
    """

    decided_s: float
    updates: int


def decisions(client: Client) -> int:
    """Number of decisions in the journal."""
    with closing(sqlite3.connect(f"file:{client.state / 'journal.db'}?mode=ro", uri=True)) as at:
        return int(at.execute("select count(*) from entries where kind = 'decision'").fetchone()[0])


def kill(client: Client) -> Gap:
    """Kill the controller, and wait for the first decision of the next one."""
    victim = client.controller()
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    killed, before = time.monotonic(), decisions(client)
    asked = False
    while decisions(client) == before:
        if time.monotonic() - killed > WHOLE_S:
            log = (client.state / "controller.log").read_text(encoding="utf-8", errors="replace")
            raise SystemExit(f"no decision {WHOLE_S:g} s after a kill; the log ends with\n{log[-3000:]}")
        if not asked and client.controller() not in (None, victim):
            client.ask("POST", "/jobs", json=JOB)
            asked = True
        time.sleep(LOOK_S)
    decided_s = time.monotonic() - killed
    return Gap(decided_s, client.ask("GET", "/health")["attached"]["updates"])


def main() -> None:
    """Run the campaign and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50, help="kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", default="aonline")
    given = parser.parse_args()
    rng, gaps = random.Random(given.seed), list[Gap]()  # noqa: S311 - instants, not secrets
    with service(given.policy, "controller") as client:
        while len(gaps) < given.count:
            keep_busy(client)
            time.sleep(rng.uniform(2.0, 5.0))
            gaps.append(kill(client))
            sys.stderr.write(f"\r{len(gaps)} of {given.count} killed ")
            sys.stderr.flush()
        sys.stderr.write("\n")
        jobs = finish(client)
        skedge("down", "--state", str(client.state))
        done = Campaign("controller", ["killed"] * len(gaps), [gap.decided_s for gap in gaps])
        line, wrong = judged(done, jobs, recorded(client))
    print(line)
    times, updates = [gap.decided_s for gap in gaps], [gap.updates for gap in gaps]
    print(
        f"first new decision after {median(times):.2f} s (median), {max(times):.2f} s (most); updates of parameters "
        f"while no controller was there: {sum(updates)} in all, {median(updates):g} (median), none after "
        f"{updates.count(0)} of {len(gaps)} kills"
    )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
