"""``skedge verify``: check a run's record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated

import typer

from skedge.analysis.verify.rules import Violation
from skedge.recorded_run import Run
from skedge.runs.meta import is_installed
from skedge.testing.rerun import difference

from .console import err, out, print_json
from .options import JsonOption, RunArgument
from .progress import PartProgress, progress


def verify(
    folder: RunArgument,
    replay: Annotated[bool, typer.Option("--replay", help="Also rerun the policy and compare every table.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check a run's record against every rule of the model; exit code 1 if one is broken."""
    with progress(quiet=as_json) as bar:
        run = replace(Run.load(folder), steps=PartProgress(bar))
        violations = run.verify()
    if replay and (differs := difference(run)) is not None:
        # not among the rules of the record itself, but its inputs then gave another one
        violations.append(Violation("M37", "definition", None, None, differs))
    if as_json:
        print_json([asdict(v) for v in violations])
    elif not violations:
        live = f" (a live run: times to within {run.tolerance / 1e6:g} s)" if run.live else ""
        out.print(f"{folder}: every rule holds{live}" + (", and the policy gives this record again" if replay else ""))
        # "every rule holds" alone would promise too much
        if not is_installed(run.meta):
            out.print(
                f"policy {run.meta['policy']!r} is not installed: its parameters, lanes and promises are taken as "
                "run.json has them"
            )
    exit_on_violations(violations, quiet=as_json)


def exit_on_violations(violations: Sequence[Violation], *, quiet: bool) -> None:
    """Print the violations unless `quiet`, and exit with 1; return if there are none."""
    if not violations:
        return
    if not quiet:
        for v in violations:
            time = "" if v.time is None else f" at {v.time} µs"
            err.print(f"{v.rule} {v.constraint}: job {v.job}{time}: {v.message}", soft_wrap=True)
    raise typer.Exit(1)
