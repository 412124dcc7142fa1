"""``skedge run``: simulate a policy on a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich.table import Table

from skedge.prepare import prepare_policy
from skedge.runs.meta import folder_name
from skedge.runs.new_folder import new_folder
from skedge.runs.stopwatch import STAGES, Stopwatch
from skedge.scenario.file import scenario_of
from skedge.simulate import in_run_folder
from skedge.simulate import run as run_policy

from .console import out, print_json, source_text
from .metrics_table import metrics_table
from .options import JsonOption, ScenarioArgument, SeedOption
from .progress import JobProgress, PartProgress, progress
from .verify import exit_on_violations


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
    # from the start of the process: imports count, too
    watch = Stopwatch(since=0.0)
    with watch.counting("load"):
        loaded = scenario_of(scenario, seed)
        instance = prepare_policy(policy, loaded)
    name, seed, source, count = loaded.name, loaded.seed, loaded.source, loaded.count
    # before the run: a folder that exists is refused at once
    target = folder or Path("runs") / folder_name(f"{name}-{policy}-seed{seed}")
    with new_folder(target) as temp_folder, progress(quiet=as_json) as bar:
        with watch.counting("load"):
            loaded = in_run_folder(loaded, instance, temp_folder)
        job_progress, stopwatch = JobProgress(bar, count, instance.name), watch if profile else None
        result = run_policy(loaded, instance, progress=job_progress, profile=stopwatch, folder=temp_folder)
        result = replace(result, steps=PartProgress(bar))
        with watch.counting("verify"):
            violations = result.verify() if verify else None
        with watch.counting("write"):
            result.write(temp_folder)
        with watch.counting("metrics"):
            numbers = result.metrics
            # lazy, as the table of a large run is a file
            unfinished = result.schedule.scan("jobs").filter(pl.col("state").cast(pl.String) != "finished").collect()
    stages = watch.profile(count) if profile else None
    if as_json:
        violation_rows = None if violations is None else [asdict(violation) for violation in violations]
        fields = {"violations": violation_rows, "metrics": numbers, "decisions_s": result.decisions_s}
        fields |= {"profile": stages} if stages else {}
        print_json({"folder": str(target), "source": source, **fields})
    else:
        out.print(metrics_table(numbers, f"{policy} on {name}, seed {seed}"))
        if stages:
            out.print(profile_table(stages))
        if source:
            out.print(source_text(source), soft_wrap=True)
        if len(unfinished):
            first = f"the first, {unfinished['id'][0]}: {unfinished['reason'][0]}"
            out.print(f"{len(unfinished)} of {count} jobs did not finish; {first}", soft_wrap=True)
        parts = len(loaded.ranges)
        parts_text = "" if parts == 1 else f", written and read in {parts} parts"
        verification_text = ", not verified" if violations is None else "" if violations else ", every rule verified"
        decision_text = "" if result.decisions_s is None else f"; decisions took {result.decisions_s:.2f} s of CPU"
        out.print(f"run folder: {target}{verification_text}{parts_text}{decision_text}", soft_wrap=True)
    exit_on_violations(violations or [], quiet=as_json)


def profile_table(profile: Mapping[str, Any]) -> Table:
    """A table of a run's CPU time by stage that took any, with its jobs per CPU-second and its peak memory below."""
    total = profile["total_cpu_s"]
    rate = f"{profile['jobs_per_cpu_s']:,.0f} jobs per CPU-second, peak memory {profile['peak_gb']:.2f} GB"
    table = Table("stage", "CPU s", "share", "what it does", title="CPU time by stage", caption=rate)
    for stage, seconds in profile["cpu_s"].items():
        # stages that took no time are left out
        if seconds:
            table.add_row(stage, f"{seconds:.2f}", f"{seconds / total:.0%}", STAGES[stage])
    table.add_row("in all", f"{total:.2f}", "100%", "", end_section=True)
    return table
