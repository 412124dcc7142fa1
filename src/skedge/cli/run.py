"""``skedge run``: simulate a policy on a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich.progress import Progress
from rich.table import Table

from skedge.core.model.scenario import Scenario
from skedge.core.policy import Policy
from skedge.core.record.stored import StoredScenario
from skedge.large import LargeRun, inputs_of, run_into, stored_in
from skedge.run import Run, new_folder
from skedge.run import run as run_policy
from skedge.runs.meta import folder_name
from skedge.runs.stopwatch import STAGES, Stopwatch

from .console import metrics_table, out, print_json, source_text
from .options import JsonOption, ScenarioArgument, SeedOption
from .progress import JobProgress, PartProgress, progress
from .verify import fail_on


def run(
    scenario: ScenarioArgument,
    policy: Annotated[str, typer.Option(help="name or name:key=value,…; see `skedge policies`.")] = "aonline",
    folder: Annotated[Path | None, typer.Option("--out", help="New run folder; default runs/….")] = None,
    seed: SeedOption = None,
    verify: Annotated[bool, typer.Option(help="Check the record against every rule of the model.")] = True,
    profile: Annotated[bool, typer.Option("--profile", help="Print the CPU time of each stage of the run.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Simulate one policy, verify the record, and write a run folder."""
    watch = Stopwatch(since=0.0)
    with watch.counting("load"):
        loaded, made = inputs_of(scenario, policy, seed)
    name, seed, source, count = loaded.name, loaded.seed, loaded.source, loaded.count
    target = folder or Path("runs") / folder_name(f"{name}-{policy}-seed{seed}")
    with new_folder(target) as inside, progress(quiet=as_json) as bar:
        with watch.counting("load"):
            loaded = stored_in(inside, loaded, made)
        result = _simulated(inside, loaded, made, bar, watch if profile else None)
        with watch.counting("verify"):
            violations = result.verify() if verify else None
        with watch.counting("write"):
            result.write(inside)
        with watch.counting("metrics"):
            numbers = result.metrics
            left = result.jobs.lazy().filter(pl.col("state").cast(pl.String) != "finished").collect()
    stages = watch.profile(count) if profile else None
    if as_json:
        found = None if violations is None else [asdict(one) for one in violations]
        also = {"violations": found, "metrics": numbers, "decisions_s": result.decisions_s}
        also |= {"profile": stages} if stages else {}
        print_json({"folder": str(target), "source": source, **also})
    else:
        out.print(metrics_table(numbers, f"{policy} on {name}, seed {seed}"))
        if stages:
            out.print(profile_table(stages))
        if source:
            out.print(source_text(source), soft_wrap=True)
        if len(left):
            first = f"the first, {left['id'][0]}: {left['reason'][0]}"
            out.print(f"{len(left)} of {count} jobs did not finish; {first}", soft_wrap=True)
        checked = ", not verified" if violations is None else "" if violations else ", every rule verified"
        took = "" if result.decisions_s is None else f"; decisions took {result.decisions_s:.2f} s of CPU"
        out.print(f"run folder: {target}{checked}{took}", soft_wrap=True)
    fail_on(violations or [], quiet=as_json)


def _simulated(
    folder: Path, scenario: Scenario | StoredScenario, policy: Policy, bar: Progress, watch: Stopwatch | None
) -> Run | LargeRun:
    """The run; the tables of a large one are in `folder`."""
    shown = JobProgress(bar, scenario.count, policy.name)
    if isinstance(scenario, StoredScenario):
        return run_into(folder, scenario, policy, progress=shown, steps=PartProgress(bar), profile=watch)
    return run_policy(scenario, policy, progress=shown, profile=watch)


def profile_table(profile: Mapping[str, Any]) -> Table:
    """A table of a run's CPU time by stage that took any, with its jobs per CPU-second and its peak memory below."""
    total = profile["total_cpu_s"]
    rate = f"{profile['jobs_per_cpu_s']:,.0f} jobs per CPU-second, peak memory {profile['peak_gb']:.2f} GB"
    table = Table("stage", "CPU s", "share", "what it does", title="CPU time by stage", caption=rate)
    for stage, seconds in profile["cpu_s"].items():
        if seconds:
            table.add_row(stage, f"{seconds:.2f}", f"{seconds / total:.0%}", STAGES[stage])
    table.add_row("in all", f"{total:.2f}", "100%", "", end_section=True)
    return table
