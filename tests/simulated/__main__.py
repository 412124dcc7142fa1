"""``python -m simulated SEED``: run one seed of the live part, or ``FIRST:END`` of them, and say what is broken.

``--history`` prints all steps, ``--chrome FILE`` writes them as a trace with a row for each process; ``--without 3,7``
leaves out faults by their numbers, ``--shrink`` all those that are not needed, and the jobs. With several seeds
``--progress FILE`` notes the seeds that have been run, which are then not run again; ``--jobs 2`` uses two processes.
``--at COMMIT`` does all that with the product and the simulation as they were at a commit.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from .campaign import Outcome, run_plan
from .faults import shrink, without
from .history import History, Step
from .plans import Plan, plan_of

_LINES = 40
"""Steps that are shown of a run that has failed."""

_MESSAGE = re.compile(r"(called|gets|answers|has the answer) .*?#(\d+)")
"""A step at which a message is sent or has come, with the number of the call."""

_ARROWS = {
    "called": ("request", "s"), "gets": ("request", "f"), "answers": ("reply", "s"), "has the answer": ("reply", "f")
}  # fmt: skip
"""What each such step is: what is sent, and whether its arrow starts (``s``) or finishes (``f``)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say, by default those of the command; 1 if an invariant is broken."""
    of = argparse.ArgumentParser(prog="simulated", description=__doc__.partition("\n")[0])
    of.add_argument("seeds", help="SEED, or FIRST:END of several")
    of.add_argument("--history", action="store_true", help="print all steps")
    of.add_argument("--chrome", type=Path, help="write a trace for chrome://tracing")
    of.add_argument("--without", default="", help="numbers of faults that are left out")
    of.add_argument("--shrink", action="store_true", help="leave out faults and jobs while the run still fails")
    of.add_argument("--progress", type=Path, help="note the seeds that have been run, and do not run them again")
    of.add_argument("--jobs", type=int, default=1, help="processes that run seeds")
    of.add_argument("--at", metavar="COMMIT", help="run the source code of a commit")
    given, others = of.parse_args(arguments), sys.argv[1:] if arguments is None else list(arguments)
    if given.at:
        return _run_at(given.at, [word for word in others if word not in ("--at", given.at, f"--at={given.at}")])
    first, _, end = given.seeds.partition(":")
    if end:
        return _run_many(range(int(first), int(end)), given.progress, given.jobs)
    plan = plan_of(int(first))
    left_out = {int(number) for number in given.without.split(",") if number}
    plan = replace(plan, faults=tuple(without(plan.faults, left_out)))
    if given.shrink:
        plan = shrunk(plan)
    outcome = run_plan(plan)
    if given.history:
        sys.stdout.write(outcome.history.text() + "\n")
    if given.chrome:
        given.chrome.write_text(json.dumps(trace(outcome.history)), encoding="utf-8")
    sys.stdout.write(_told(outcome, whole=not given.history))
    return bool(outcome.broken)


def _run_at(commit: str, arguments: Sequence[str]) -> int:
    """Run the command of another commit, in a copy of its source code; its exit status."""
    top = Path(__file__).parents[2]
    with tempfile.TemporaryDirectory(prefix="skedge-at-") as folder:
        packed = subprocess.run(["git", "archive", commit, "src", "tests"], cwd=top, capture_output=True, check=False)  # noqa: S607
        if packed.returncode:
            sys.stderr.write(f"--at {commit}: {packed.stderr.decode().strip()}\n")
            return 2
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        path = os.pathsep.join(str(Path(folder, name)) for name in ("src", "tests"))
        command = [sys.executable, "-m", "simulated", *arguments]
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


def shrunk(plan: Plan, prepare: Sequence[Callable[[], Any]] = ()) -> Plan:
    """The plan with the faults and jobs without which it does not fail in the same way; `prepare` as of a run."""
    broken = run_plan(plan, prepare).broken
    if not broken:
        return plan

    def fails(candidate: Plan) -> bool:
        return run_plan(candidate, prepare).broken == broken

    faults = shrink(plan.faults, lambda faults: fails(replace(plan, faults=tuple(faults))))
    plan = replace(plan, faults=tuple(faults))
    if plan.cordons and fails(replace(plan, cordons=0)):
        plan = replace(plan, cordons=0)
    while len(plan.jobs) > 1 and fails(replace(plan, jobs=plan.jobs[:-1])):
        plan = replace(plan, jobs=plan.jobs[:-1])
    return plan


def trace(history: History) -> list[dict[str, object]]:
    """The steps as events of Chrome's trace format: a row for each process and thread, and arrows for messages."""
    return [event for step in history for event in _events(step)]


def _events(step: Step) -> Iterator[dict[str, object]]:
    """A step, and the beginning or end of the arrow of a message that is sent or has come."""
    when: dict[str, object] = {"ts": step.time_s * 1e6, "pid": step.process, "tid": step.thread}
    yield {"name": step.operation, "ph": "X", "dur": 1, **when}  # arrows are drawn between what lasts
    if message := _MESSAGE.match(step.operation):
        what, number = message.groups()
        name, phase = _ARROWS[what]
        yield {"name": name, "cat": "message", "ph": phase, "id": f"{name} {number}", "bp": "e", **when}


def _told(outcome: Outcome, *, whole: bool) -> str:
    """What has become of a run, and its last steps if it has failed."""
    plan = outcome.plan
    lines = [
        f"seed {plan.seed}: {plan.policy}, {len(plan.jobs)} jobs, {len(plan.faults)} faults; {outcome.seconds:.1f} s, "
        f"{len(outcome.history)} steps, {outcome.entries} entries, digest {outcome.history.digest}",
        *(f"  fault {number}: {fault}" for number, fault in enumerate(plan.faults)),
    ]
    if outcome.broken:
        lines += [outcome.history.text(last=_LINES)] if whole else []
        lines += [f"BROKEN {outcome.what}"]
    else:
        lines += ["all invariants hold"]
    return "\n".join(lines) + "\n"


def _one(seed: int) -> tuple[int, str]:
    """What is broken with a seed."""
    return seed, run_plan(plan_of(seed)).what


def _each(seeds: Sequence[int], jobs: int) -> Iterator[tuple[int, str]]:
    """The same of several, in order, by some processes."""
    if jobs == 1:
        yield from map(_one, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_one, seeds)


def _run_many(seeds: Iterable[int], progress: Path | None, jobs: int) -> int:
    """Run seeds that have not been run yet, and list those with which an invariant is broken."""
    done = {} if progress is None or not progress.exists() else dict(_noted(progress))
    left, began = [seed for seed in seeds if seed not in done], time.monotonic()
    for number, (seed, what) in enumerate(_each(left, jobs), 1):
        done[seed] = what
        if progress is not None:
            with progress.open("a", encoding="utf-8") as file:
                file.write(json.dumps([seed, what]) + "\n")
        if what:
            sys.stdout.write(f"seed {seed}: BROKEN {what}\n")
        if number % 100 == 0 or number == len(left):
            sys.stdout.write(f"{number} of {len(left)} seeds in {time.monotonic() - began:.0f} s\n")
        sys.stdout.flush()
    broken = sorted(seed for seed, what in done.items() if what)
    sys.stdout.write(f"{len(done)} seeds, {len(broken)} broken: {broken}\n")
    return bool(broken)


def _noted(progress: Path) -> Iterator[tuple[int, str]]:
    for line in progress.read_text(encoding="utf-8").splitlines():
        seed, what = json.loads(line)
        yield seed, what


if __name__ == "__main__":
    sys.exit(main())
