"""`make bench`: all measures of speed, side by side in one process list, kept in docs/bench.json and docs/bench.md.

    python benchmarks/bench.py [TRACE.csv.gz MACHINE_LIST] [--repeats 3] [--only window,gangs,decisions,sweep,dorm]
        [--peer FOLDER] [--peer-python python2.7] [--out docs/bench.json] [--page docs/bench.md] [--small]

Each repeat carries out every measure once, so that all see the same machine. Before each measure the yardstick, a fixed
loop of pure Python, is timed; *ratio* is the measure's CPU time over that of its yardstick. Kernels are compiled before
the first repeat. The decisions `live` need the extra live.

window: each policy on 49,875 jobs, the whole process of `skedge run` to a verified run folder (window.py); the real
Philly window if TRACE and MACHINE_LIST are given, else as many jobs of the seeded generator. gangs: 992 jobs on 64 GPUs
(gangs.py), beside Tiresias's simulator with `--peer`. decisions: milliseconds a decision (decisions.py). sweep: 20 runs
of s1, with its 300 jobs and until 12,000 have arrived, in one and in two processes, by wall-clock time.
dorm: S4 with T = 80 and I = 100 (dorm.py).

`--only`: some measures; the file then keeps the others as they were. `--small`: sizes that only try the command.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import decisions
import gangs
import window
import yaml

HERE = Path(__file__).parent
S1 = HERE.parent / "src" / "skedge" / "scenarios" / "s1.yaml"
SKEDGE = (sys.executable, "-m", "skedge")
YARDSTICK = """n, x = 0, 12345
while n < 9_000_000:
    x = (x * 1103515245 + 12345) & 0x7FFFFFFF
    n += 1
"""
QUIET_S = 1.2
"""CPU time of the yardstick on the machine of the goals [s]."""

WINDOW = {
    "i": window.POLICIES["i"],
    "ii": "aonline;batch;batchsche;drf;preemptive",
}
SWEEP = "srtf,tiresias"

Values = dict[str, Any]
"""What a measure found, by name; numbers are summed up over repeats, all else is kept as the last repeat has it."""

GOALS: dict[tuple[str, str], float] = {
    **dict.fromkeys([("window i aonline:cloud=false", "cpu_s"), ("window ii aonline", "cpu_s")], 12.0),
    **{(f"window i {policy}", "cpu_s"): 5.0 for policy in WINDOW["i"].split(";") if "aonline" not in policy},
    **{(f"window ii {policy}", "cpu_s"): 10.0 for policy in ("batch", "batchsche", "drf")},
    ("window ii preemptive", "cpu_s"): 20.0,
    **{(f"decisions live {policy}", "arrival_p99_ms"): 5.0 for policy in decisions.POLICIES["live"].split(";")},
    ("decisions pending aonline:cloud=false", "arrival_p99_ms"): 2.0,
    ("decisions pdors pdors", "arrival_p99_ms"): 100.0,
    ("decisions okita okita", "arrival_p99_ms"): 10.0,
    ("dorm s4", "cpu_s"): 30.0,
}
"""Largest values aimed at, on a machine whose yardstick takes `QUIET_S`."""


@dataclass(frozen=True)
class Measure:
    """A measure: what it does once, and the part of the command to which it belongs."""

    part: str
    name: str
    once: Callable[[], Values]


def main() -> None:
    """Measure, and write the file and the page."""
    args = arguments()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # byte code is kept, as where skedge is installed
    with tempfile.TemporaryDirectory(prefix="skedge-bench-") as folder:
        measures = [m for m in listed(args, Path(folder)) if m.part in args.only.split(",")]
        found = repeated(measures, args.repeats)
    before = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else {"measures": {}}
    kept = {name: values for name, values in before["measures"].items() if values["part"] not in args.only.split(",")}
    made = {part: measured(args, part) for part in args.only.split(",")}
    result = {**machine(args), "parts": before.get("parts", {}) | made, "measures": kept | found}
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    args.page.write_text(page(result) + by_hand(args.page), encoding="utf-8")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, nargs="?")
    parser.add_argument("machines", type=Path, nargs="?")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="window,gangs,decisions,sweep,dorm")
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--peer-python", default="python2.7")
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs" / "bench.json")
    parser.add_argument("--page", type=Path, default=HERE.parent / "docs" / "bench.md")
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    if unknown := set(args.only.split(",")) - {"window", "gangs", "decisions", "sweep", "dorm"}:
        parser.error(f"--only: no measures {', '.join(sorted(unknown))}")
    return args


def listed(args: argparse.Namespace, base: Path) -> list[Measure]:
    """All measures."""
    measures = [
        Measure("window", f"window {form} {policy}", partial(window_once, args, base, form, policy))
        for form, policies in WINDOW.items()
        for policy in policies.split(";")
    ]
    jobs = gangs.drawn(40 if args.small else 992)
    for policy in gangs.SCHEDULES:
        measures.append(Measure("gangs", f"gangs {policy}", partial(gangs_once, jobs, policy, base)))
        if args.peer:
            name, do = f"gangs {policy} peer", partial(gangs.peer, args.peer, args.peer_python, jobs, policy, base)
            measures.append(Measure("gangs", name, do))
    for case, policies in decisions.POLICIES.items():
        for policy in policies.split(";"):
            do = partial(decided, case, policy, small=args.small)
            measures.append(Measure("decisions", f"decisions {case} {policy}", do))
    for jobs_of_run in (300, 12_000):
        for processes in (1, 2):
            do = partial(swept, processes, base, jobs_of_run, small=args.small)
            name = f"sweep of {jobs_of_run:,} jobs a run, {processes} {'processes' if processes > 1 else 'process'}"
            measures.append(Measure("sweep", name, do))
    return [*measures, Measure("dorm", "dorm s4", partial(dorm, small=args.small))]


def repeated(measures: list[Measure], repeats: int) -> dict[str, Values]:
    """Every measure `repeats` times, in alternation."""
    rows: dict[str, list[Values]] = {measure.name: [] for measure in measures}
    for repeat in range(repeats):
        for measure in measures:
            yard = yardstick()
            values = measure.once()
            values |= {"yardstick_s": yard, "load": os.getloadavg()[0]}
            if "cpu_s" in values:
                values["ratio"] = values["cpu_s"] / yard
            rows[measure.name].append(values)
            print(f"{repeat + 1}/{repeats} {measure.name}: {shown(values)}", flush=True)
    return {measure.name: {"part": measure.part} | summed(rows[measure.name]) for measure in measures}


def shown(values: Values) -> str:
    """The numbers of a repeat in a line."""
    return ", ".join(f"{key} {value:.3g}" for key, value in values.items() if isinstance(value, float))


def summed(rows: list[Values]) -> Values:
    """Median, least and most of each number."""
    last = rows[-1]
    return {
        key: spread([row[key] for row in rows]) if isinstance(value, float | int) else value
        for key, value in last.items()
    }


def spread(values: list[float]) -> list[float]:
    """Median, least and most, to four digits."""
    return [float(f"{value:.4g}") for value in (median(values), min(values), max(values))]


def yardstick() -> float:
    """CPU time of the yardstick [s]."""
    return gangs.cpu_of([sys.executable, "-c", YARDSTICK], HERE)[1]


def window_once(args: argparse.Namespace, base: Path, form: str, policy: str) -> Values:
    """A policy on the window; the scenario is made, and its kernels compiled, at the first call."""
    of = window.Form(form, "divisible", args.trace, args.machines)
    made = base / f"window-{form}"
    if not made.exists():
        of.scenario(made, 300 if args.small else None)
    warmed = base / f"warm-{form}-{policy.replace(':', '-')}"
    if not warmed.exists():
        window.run(of.scenario(warmed, 100 if args.small else window.WARM), policy, base)
    found, cpu, memory, _ = window.run(made / "scenario.yaml", policy, base)
    profile, metrics = found["profile"], found["metrics"]
    return {
        "cpu_s": cpu,
        "peak_gb": memory,
        "jobs_per_cpu_s": metrics["finished"] / cpu,
        "jct_mean_h": metrics["jct_mean_s"] / 3600,
        "stages_cpu_s": {stage: round(s, 2) for stage, s in profile["cpu_s"].items()},
    }


def gangs_once(jobs: list[gangs.Job], policy: str, base: Path) -> Values:
    """A policy on the jobs of gangs.py."""
    scenario = base / "gangs" / "scenario.yaml"
    if not scenario.exists():
        gangs.written(jobs, scenario.parent)
        for name in gangs.SCHEDULES:
            gangs.ours(scenario, name)
    return gangs.ours(scenario, policy)


def decided(case: str, policy: str, *, small: bool) -> Values:
    """Milliseconds a decision."""
    command = [sys.executable, str(HERE / "decisions.py"), "--cases", case, "--policies", policy, "--json"]
    command += ["--lanes", "40"] if small else []
    text, _ = gangs.cpu_of(command, HERE)
    found: Values = json.loads(text)[f"{case} {policy}"]
    return found


def swept(processes: int, base: Path, jobs: int, *, small: bool) -> Values:
    """Wall-clock and CPU time of a comparison of 20 runs of s1 with this number of jobs, at its rate of arrivals."""
    form = yaml.safe_load(S1.read_text(encoding="utf-8"))
    form["workload"]["synthetic"] = {"jobs": jobs, "span": f"{jobs // 3}h"}
    scenario = base / f"sweep-{jobs}.yaml"
    scenario.write_text(json.dumps(form), encoding="utf-8")
    command = [*SKEDGE, "compare", "demo" if small else str(scenario), "--policies", SWEEP]
    command += ["--seeds", "2" if small else "10"]
    command += ["--processes", str(processes), "--report", str(base / "sweep.html")]
    begun = time.perf_counter()
    _, cpu = gangs.cpu_of(command, base)
    return {"cpu_s": cpu, "wall_s": time.perf_counter() - begun}


def dorm(*, small: bool) -> Values:
    """CPU time of Dorm, and the gap that its solutions prove."""
    command = [sys.executable, str(HERE / "dorm.py"), "--json"]
    command += ["--machines", "4", "--jobs", "6", "--slots", "6"] if small else []
    found: Values = json.loads(gangs.cpu_of(command, HERE)[0])
    return found


def measured(args: argparse.Namespace, part: str) -> str:
    """When and how a part was measured."""
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, cwd=HERE, capture_output=True, text=True, check=False)  # none in an archive
    jobs = ("; the real Philly window" if args.trace else "; the seeded generator") if part == "window" else ""
    return f"{args.repeats} repeats at {commit.stdout.strip()}, {datetime.now(UTC).date().isoformat()}{jobs}"


def machine(args: argparse.Namespace) -> Values:
    """What was measured, on what."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "skedge": version("skedge"),
        "cpu": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sizes": "small, only to try the command" if args.small else "full",
    }


ABOUT = """# Benchmarks

`make bench` writes this page, but for its last two sections, and [bench.json](bench.json); `benchmarks/bench.py`
explains every measure. A number is the median of the repeats, with their range. *yardstick*: CPU time of a fixed loop
of pure Python, timed before each measure. *ratio*: CPU time over the yardstick's. *goal*: on a machine whose
yardstick takes {quiet} s; *scaled*: the median times {quiet} s over the yardstick's.

skedge {skedge}, {cpu}, {cores} cores, Python {python}; sizes: {sizes}.
"""

GANGS = """
## 992 jobs on 64 GPUs

skedge loads, simulates, verifies and writes, kernels warm; *start*: start-up and loading of kernels, not counted.
*peer*: Tiresias's own simulator on the same jobs, which does not verify.

"""


BY_HAND = "\n\n## What single changes were worth\n"
"""First heading of the part of the page that is written by hand; it is kept."""


def by_hand(path: Path) -> str:
    """The part of the present page that is written by hand; empty if there is none."""
    _, heading, text = (path.read_text(encoding="utf-8") if path.exists() else "").partition(BY_HAND)
    return heading + text


def page(result: Values) -> str:
    """The page."""
    measures = result["measures"]
    about = ABOUT.format(quiet=QUIET_S, **result) + "".join(
        f"\n- {part}: {how}" for part, how in sorted(result["parts"].items())
    )
    parts = [part(measures) for part in (window_part, gangs_part, decisions_part, sweep_part)]
    return "\n".join((about, *filter(None, parts)))


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A table, if there are rows."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) if rows else ""


def cell(values: list[float], digits: int = 3) -> str:
    """Median (least to most)."""
    middle, low, high = (f"{value:.{digits}g}" if value < 10**digits else f"{value:,.0f}" for value in values)
    return middle if low == high else f"{middle} ({low} to {high})"


def goal(name: str, key: str, values: Values) -> list[str]:
    """The median at the goal's machine, and the goal with whether it is met."""
    scaled = values[key][0] * QUIET_S / values["yardstick_s"][0]
    if (name, key) not in GOALS:
        return [f"{scaled:.3g}", ""]
    most = GOALS[name, key]
    return [f"{scaled:.3g}", f"{most:g}: {'met' if scaled <= most else 'missed'}"]


def window_part(measures: Values) -> str:
    """CPU time and memory of the window, then the stages."""
    chosen = {name: v for name, v in measures.items() if v["part"] in ("window", "dorm")}
    heads = ["", "CPU s", "yardstick s", "ratio", "scaled s", "goal s", "peak GB", "jobs per CPU-second", "mean JCT h"]
    rows = [
        [name, cell(v["cpu_s"]), cell(v["yardstick_s"]), cell(v["ratio"]), *goal(name, "cpu_s", v)]
        + [cell(v[key]) if key in v else "" for key in ("peak_gb", "jobs_per_cpu_s", "jct_mean_h")]
        for name, v in chosen.items()
    ]
    text = "\n## Whole runs\n\n" + table(heads, rows) if rows else ""
    staged = {name: v["stages_cpu_s"] for name, v in chosen.items() if "stages_cpu_s" in v}
    stages = list(next(iter(staged.values()))) if staged else []
    stage_rows = [[name, *(f"{v[stage]:.1f}" for stage in stages)] for name, v in staged.items()]
    note = "\nCPU seconds by stage, last repeat (`skedge run --profile`):\n\n" if staged else ""
    proved = "".join(
        f"\n{name}: the solutions prove gaps of {v['gap_mean'][0]:.1%} in the mean and {v['gap_max'][0]:.1%} at most.\n"
        for name, v in chosen.items()
        if v["part"] == "dorm"
    )
    return text + note + table(["", *stages], stage_rows) + proved


def gangs_part(measures: Values) -> str:
    """Jobs per CPU-second of both simulators."""
    rows = []
    for name, v in measures.items():
        if v["part"] == "gangs":
            rows.append(
                [name, *(cell(v[key]) for key in ("cpu_s", "ratio", "start_s")), f"{v['jct_mean_s'][0] / 3600:.3g}"]
            )
            theirs = measures.get(f"{name} peer")
            rows[-1].append("" if theirs is None else f"{theirs['cpu_s'][0] / v['cpu_s'][0]:.1f}")
            rows[-1].append("" if theirs is None else f"{theirs['cpu_s'][0] / v['simulate_s'][0]:.1f}")
    heads = ["", "CPU s", "ratio", "start s", "mean JCT h", "peer's CPU over skedge's", "over its simulation alone"]
    return GANGS + table(heads, rows) if rows else ""


def decisions_part(measures: Values) -> str:
    """Milliseconds."""
    keys = "arrival_median_ms", "arrival_p99_ms", "arrival_cpu_median_ms", "arrival_cpu_p99_ms", "event_p99_ms"
    rows = [
        [
            name.removeprefix("decisions "),
            *(cell(v[key]) for key in (*keys, "yardstick_s")),
            *goal(name, "arrival_p99_ms", v),
        ]
        for name, v in measures.items()
        if v["part"] == "decisions"
    ]
    heads = ["a job arrives; ms", "median", "p99", "CPU median", "CPU p99", "any event, p99"]
    heads += ["yardstick s", "p99 scaled", "goal"]
    return "\n## Decisions\n\n" + table(heads, rows) if rows else ""


def sweep_part(measures: Values) -> str:
    """One and two processes."""
    chosen = {name: v for name, v in measures.items() if v["part"] == "sweep"}
    if not chosen:
        return ""
    rows = [[name, cell(v["wall_s"]), cell(v["cpu_s"]), cell(v["load"])] for name, v in chosen.items()]
    times = [v["wall_s"][0] for v in chosen.values()]
    ratios = " and ".join(f"{one / two:.2f}" for one, two in zip(times[::2], times[1::2], strict=True))
    about = f"Two processes are {ratios} times as fast as one (goal, for the longer runs: 1.8 on two idle cores).\n\n"
    return "\n## Sweeps of 20 runs\n\n" + about + table(["", "wall s", "CPU s", "load average"], rows)


if __name__ == "__main__":
    main()
