"""``skedge run``: simulate a policy on a scenario."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from skedge.run import new_folder, prepared
from skedge.run import run as run_policy
from skedge.runs.meta import folder_name
from skedge.scenario.file import scenario_of

from .console import metrics_table, out, print_json, source_text
from .options import JsonOption, ScenarioArgument, SeedOption
from .progress import JobProgress, progress
from .verify import fail_on


def run(
    scenario: ScenarioArgument,
    policy: Annotated[str, typer.Option(help="name or name:key=value,…; see `skedge policies`.")] = "aonline",
    folder: Annotated[Path | None, typer.Option("--out", help="New run folder; default runs/….")] = None,
    seed: SeedOption = None,
    verify: Annotated[bool, typer.Option(help="Check the record against every rule of the model.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Simulate one policy, verify the record, and write a run folder."""
    loaded = scenario_of(scenario, seed)
    made = prepared(policy, loaded)
    target = folder or Path("runs") / folder_name(f"{loaded.name}-{policy}-seed{loaded.seed}")
    with new_folder(target) as inside:
        with progress(quiet=as_json) as bar:
            result = run_policy(loaded, made, progress=JobProgress(bar, len(loaded.jobs), made.name))
        violations = result.verify() if verify else []
        result.write(inside)
    if as_json:
        found = [asdict(one) for one in violations]
        numbers = {"violations": found, "metrics": result.metrics, "decisions_s": result.decisions_s}
        print_json({"folder": str(target), "source": loaded.source, **numbers})
    else:
        out.print(metrics_table(result.metrics, f"{policy} on {loaded.name}, seed {loaded.seed}"))
        if loaded.source:
            out.print(source_text(loaded.source), soft_wrap=True)
        left = result.jobs.filter(pl.col("state").cast(pl.String) != "finished")
        if len(left):
            first = f"the first, {left['id'][0]}: {left['reason'][0]}"
            out.print(f"{len(left)} of {len(loaded.jobs)} jobs did not finish; {first}", soft_wrap=True)
        verified = ", every rule verified" if verify and not violations else ""
        took = "" if result.decisions_s is None else f"; decisions took {result.decisions_s:.2f} s of CPU"
        out.print(f"run folder: {target}{verified}{took}", soft_wrap=True)
    fail_on(violations, quiet=as_json)
