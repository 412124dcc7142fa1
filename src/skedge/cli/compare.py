"""``skedge compare``: its options; the processes of the runs start before anything large is imported."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from skedge.comparison import MOST_SEEDS
from skedge.core.errors import InputError
from skedge.platform.signals import deferred_signals
from skedge.runs.parallel import started_ahead

from .demo_cases import DEMO_POLICIES
from .options import RayOption, ResumeOption, with_groups


class Keep(StrEnum):
    """The run folders that a comparison keeps."""

    none = "none"
    best = "best"
    all = "all"


@dataclass(frozen=True)
class Output:
    """What a comparison writes."""

    report: Annotated[
        Path | None,
        typer.Option(help="Report file, replacing an earlier one; default comparison.html, or report.html in --out."),
    ] = None
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="New folder for runs, report.html, comparison.json, times.json."),
    ] = None
    keep: Annotated[
        Keep, typer.Option(help="Run folders kept in --out: all, those of the policy with the best mean, or none.")
    ] = Keep.all

    def page(self) -> Path:
        """The report's file; if it is outside of :attr:`folder`, it is checked that it can be written."""
        if self.keep is Keep.best and self.folder is None:
            raise InputError("--keep best: goes with --out, the folder in which runs are kept, which is missing")
        path = self.report or (self.folder / "report.html" if self.folder else Path("comparison.html"))
        if self.report is not None or self.folder is None:
            check_report(path, "--report")
        return path


@with_groups
def compare_command(
    scenario: Annotated[
        str, typer.Argument(help="A scenario file (YAML), or a shipped one: demo, demo-divisible, s1 to s4.")
    ],
    *,
    policies: Annotated[str, typer.Option(help="Policies, separated by commas.")] = ",".join(DEMO_POLICIES),
    seeds: Annotated[
        int, typer.Option(help="Number of seeds, starting with the scenario's.", min=1, max=MOST_SEEDS)
    ] = 5,
    processes: Annotated[int, typer.Option(help="Parallel runs; -1: one per core.")] = -1,
    output: Output,
    verify: Annotated[bool, typer.Option(help="Check every rule of the model on each record.")] = True,
    ray: RayOption = None,
    resume: ResumeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare policies over several seeds, in parallel, every run verified, with 95 % confidence intervals."""
    page, where = output.page(), {"processes": processes, "verify": verify, "ray": ray}
    here = ray is None and (processes == -1 or processes > 1)
    runs = len(split_policies(policies)) * seeds
    with started_ahead("skedge.compare", runs, processes, joining=True) if here else nullcontext():
        with deferred_signals():
            from .compared import carry_out_comparison  # noqa: PLC0415 - takes 0.4 s, here and there side by side

        carry_out_comparison(scenario, policies, seeds, output, page, where, resume, as_json=as_json)


def split_policies(text: str) -> list[str]:
    """Policies of a comma-separated list; ``key=value`` after a comma belongs to the policy before it."""
    specs: list[str] = []
    for part in text.split(","):
        if specs and "=" in part and ":" not in part.split("=")[0]:
            specs[-1] += "," + part
        else:
            specs.append(part.strip())
    return specs


def check_report(path: Path, option: str) -> None:
    """Fail before a long comparison if its report cannot be written."""
    wrong = None if os.path.isdir(path.parent) else f"{path.parent} is not a folder"
    if os.path.isdir(path):
        wrong = "it is a folder"
    if wrong is None and not os.access(path.parent, os.W_OK):
        wrong = f"{path.parent} is not writable"
    if wrong is not None:
        raise InputError(f"{path}: the report cannot be written: {wrong}; name a file in an existing folder")
    if os.path.isfile(path) and not _is_report(path):
        raise InputError(f"{path}: exists and is not a report of skedge; name another file with {option}")


def _is_report(path: Path) -> bool:
    """Whether a file is a report of an earlier comparison, so that it may be replaced."""
    with path.open("rb") as file:
        return b"<title>skedge" in file.read(_HEAD)


_HEAD = 4096
"""Bytes of a report in which its title is."""
