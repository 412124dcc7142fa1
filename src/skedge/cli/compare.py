"""``skedge compare``: policies compared on the screen, in a report and in a folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from skedge.analysis.intervals import Estimate
from skedge.compare import Comparison, compare, run_name
from skedge.core.errors import InputError
from skedge.report.build import write_report
from skedge.run import new_folder
from skedge.scenario.file import scenario_of

from .console import err, finite, out, print_json
from .demo_cases import DEMO_POLICIES
from .options import RayOption, ResumeOption, with_groups
from .progress import keeping, progress
from .tables import comparison_table


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
    seeds: Annotated[int, typer.Option(help="Number of seeds, starting with the scenario's.", min=1)] = 5,
    processes: Annotated[int, typer.Option(help="Parallel runs; -1: one per core.")] = -1,
    output: Output,
    verify: Annotated[bool, typer.Option(help="Check every rule of the model on each record.")] = True,
    ray: RayOption = None,
    resume: ResumeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare policies over several seeds, in parallel, every run verified, with 95 % confidence intervals."""
    page, folder = output.page(), output.folder
    replaced = " (an earlier report was replaced)" if os.path.isfile(page) else ""
    first = scenario_of(scenario).seed
    names = split_policies(policies)
    title, command = f"skedge: {scenario}", f"skedge compare {scenario} --policies {policies} --seeds {seeds}"
    with keeping(resume, quiet=as_json) as kept, nullcontext() if folder is None else new_folder(folder) as inside:
        runs = None if inside is None or output.keep is Keep.none else inside / "runs"
        settings: dict[str, Any] = {
            "processes": processes,
            "verify": verify,
            "folder": runs,
            "ray": ray,
            "resume": kept,
        }
        with counted((len(names) + 1) * seeds, "comparing", quiet=as_json) as done:
            comparison = compare(scenario, names, [first + i for i in range(seeds)], progress=done, **settings)
        if inside is not None:
            _write(inside, comparison, output.keep)
        made = page if output.report or inside is None else inside / page.name
        write_page(made, page, comparison.report(title, command))
    _show(comparison, as_json=as_json)
    if not as_json:
        out.print(f"the picture (first seed):  {page}{replaced}", soft_wrap=True)
    fail_on_broken(comparison)


def write_page(path: Path, shown: Path, page: str) -> None:
    """Write a report; the error of one that cannot be written names the file `shown`."""
    try:
        write_report(path, page)
    except OSError as error:
        raise InputError(f"{shown}: the report cannot be written: {error.strerror}") from error


def _write(inside: Path, comparison: Comparison, keep: Keep) -> None:
    """Write a comparison's files other than the report; times have their own file."""
    if keep is Keep.best:
        for policy in set(comparison.policies) - {comparison.best_in_the_mean}:
            for seed in comparison.seeds:
                shutil.rmtree(inside / "runs" / run_name(policy, seed))
    times = {policy: [asdict(one) for one in ones] for policy, ones in comparison.times.items()}
    bounds = [None if r is None else r.bound.seconds for r in comparison.references]
    _write_json(inside / "comparison.json", numbers(comparison))
    _write_json(inside / "times.json", {"seeds": comparison.seeds, "runs_s": times, "bounds_s": bounds})


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(finite(value), indent=2) + "\n", encoding="utf-8")


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


@contextmanager
def counted(total: int, label: str, *, quiet: bool) -> Iterator[Callable[[str, int], None]]:
    """Show progress: yields what is called with a policy and a seed after each of the `total` runs and bounds."""
    with progress(quiet=quiet) as bar:
        task = bar.add_task(label, total=total, at="")

        def done(policy: str, seed: int) -> None:
            bar.update(task, advance=1, at=f"{policy}, seed {seed}")

        yield done


def _show(comparison: Comparison, *, as_json: bool) -> None:
    if as_json:
        print_json(numbers(comparison))
        return
    out.print(comparison_table(comparison))
    for text in comparison.texts:
        out.print(text, soft_wrap=True)


def numbers(comparison: Comparison) -> dict[str, Any]:
    """A comparison as JSON; without times, so that the same runs give the same bytes."""
    c = comparison
    bounds = [None if r is None else asdict(r) for r in c.references]
    for bound in filter(None, bounds):
        del bound["bound"]["seconds"]
    differences = {policy: _plain(c.difference(policy, c.leading)) for policy in c.policies if policy != c.reference}
    return {
        "seeds": c.seeds,
        "metrics": c.metrics,
        "bounds": bounds,
        "estimates": {p: {column: _plain(c.estimate(p, column)) for column in c.columns} for p in c.policies},
        "differences": {"of": c.leading, "to": c.reference, "policies": differences},
        "verified": None if c.violations is None else not any(map(any, c.violations.values())),
        "violations": _violations(c),
    }


def _plain(found: Estimate | None) -> dict[str, float | None] | None:
    return None if found is None else asdict(found)


def _violations(comparison: Comparison) -> list[Mapping[str, Any]]:
    return [
        {"policy": policy, "seed": seed, **asdict(violation)}
        for policy, by_seed in (comparison.violations or {}).items()
        for seed, found in zip(comparison.seeds, by_seed, strict=True)
        for violation in found
    ]


def fail_on_broken(*comparisons: Comparison) -> None:
    """Print the violations found and end the command with exit status 1 if there are any."""
    broken = [found for comparison in comparisons for found in _violations(comparison)]
    for found in broken[:20]:
        where = f"{found['policy']}, seed {found['seed']}"
        err.print(f"{where}: {found['rule']} {found['constraint']}: {found['message']}", soft_wrap=True)
    if broken:
        raise typer.Exit(1)
