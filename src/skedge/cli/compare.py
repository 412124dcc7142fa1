"""``skedge compare``: compare policies over seeds.

The processes of the runs start before anything large is imported here: that takes as long there, at the same time.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skedge.comparison import MOST_SEEDS
from skedge.core.errors import InputError, PolicyError
from skedge.platform.signals import deferred_signals
from skedge.report.write import write_report
from skedge.runs.parallel import prestarted_workers

from .console import err, finite, out, print_json
from .options import JsonOption, RayOption, ResumeOption, ScenarioArgument, with_groups

if TYPE_CHECKING:
    from skedge.comparison.comparison import Comparison, Failure

DEMO_POLICIES = ("aonline", "srtf", "preemptive", "tiresias", "fifo:backfill=true", "fifo")
"""Policies of the demo, and the default of ``skedge compare``."""


class Keep(StrEnum):
    """The run folders that a comparison keeps."""

    none = "none"
    best = "best"
    all = "all"


@dataclass(frozen=True)
class Output:
    """Files that a comparison writes."""

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
        """The report's file; if it is outside of :attr:`folder`, it is checked that it can be written.

        Raises
        ------
        InputError
            If it cannot be written, or :attr:`keep` has no folder.
        """
        # otherwise the option would silently do nothing
        if self.keep is Keep.best and self.folder is None:
            raise InputError("--keep best: goes with --out, the folder in which runs are kept, which is missing")
        path = self.report or (self.folder / "report.html" if self.folder else Path("comparison.html"))
        # a report within the new folder is checked with it
        if self.report is not None or self.folder is None:
            check_report(path, "--report")
        return path


@with_groups
def compare(
    scenario: ScenarioArgument,
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
    as_json: JsonOption = False,
) -> None:
    """Compare policies over several seeds, in parallel, every run verified, with 95 % confidence intervals."""
    page, execution = output.page(), {"processes": processes, "verify": verify, "ray": ray}
    # one process is this one, and a cluster has its own
    is_local = ray is None and (processes == -1 or processes > 1)
    runs = len(split_policies(policies)) * seeds
    workers = prestarted_workers("skedge.comparison.compare", runs, processes, use_this_process=True)
    with workers if is_local else nullcontext():
        run_comparison(scenario, policies, seeds, output, page, execution, resume, as_json=as_json)


def run_comparison(
    scenario: str,
    policies: str,
    seeds: int,
    output: Output,
    page: Path,
    execution: Mapping[str, Any],
    resume: Path | None,
    *,
    as_json: bool,
) -> None:
    """Compare the policies; write `output`, with the report at `page`, and print a table, or JSON.

    Parameters
    ----------
    scenario
        A scenario file, or the name of a shipped one.
    policies
        Policies, separated by commas.
    seeds
        Number of seeds, starting with the scenario's.
    output
        What is written.
    page
        The report's file as the user knows it, in the new folder if there is one.
    execution
        Arguments of :func:`~skedge.comparison.compare.compare`: where runs are made, and whether they are verified.
    resume
        Folder of the cache of results; None: no cache.
    as_json
        Print JSON.
    """
    with deferred_signals():  # 0.4 s, in this process and in those that have been started, side by side
        from skedge.comparison.compare import compare as compare_policies  # noqa: PLC0415
        from skedge.runs.new_folder import new_folder  # noqa: PLC0415

        from .progress import open_cache, run_progress  # noqa: PLC0415

    folder, names = output.folder, split_policies(policies)
    # looked up before it is written
    replaced = " (an earlier report was replaced)" if os.path.isfile(page) else ""
    title, command = f"skedge: {scenario}", f"skedge compare {scenario} --policies {policies} --seeds {seeds}"
    with (
        open_cache(resume, quiet=as_json) as cache,
        nullcontext() if folder is None else new_folder(folder) as temp_folder,
    ):
        runs = None if temp_folder is None or output.keep is Keep.none else temp_folder / "runs"
        with run_progress((len(names) + 1) * seeds, "comparing", quiet=as_json) as on_run:
            arguments = {"progress": on_run, "folder": runs, "resume": cache, **execution}
            comparison = _compare_with_hint(policies, partial(compare_policies, scenario, names, seeds, **arguments))
        if temp_folder is not None:
            _write(temp_folder, comparison, output.keep)
        page_path = page if output.report or temp_folder is None else temp_folder / page.name
        write_page(page_path, page, comparison.report(title, command))
    _show(comparison, as_json=as_json)
    if not as_json:
        out.print(f"the picture (first seed):  {page}{replaced}", soft_wrap=True)
    exit_on_failures(comparison)


def _compare_with_hint(policies: str, run: Callable[[], Comparison]) -> Comparison:
    """The comparison; if policies by default do not fit the scenario, an error that says how to name others."""
    # the user has named no policy: an error about one of ours must say how to
    by_default = policies == ",".join(DEMO_POLICIES)
    try:
        comparison = run()
        errors = [failure.error for failure in comparison.failures if isinstance(failure.error, PolicyError)]
        if by_default and errors:
            raise errors[0]
    except PolicyError as error:
        if not by_default:
            raise
        raise PolicyError(f"{error}; name them with --policies") from error
    return comparison


def _write(temp_folder: Path, comparison: Comparison, keep: Keep) -> None:
    """Write a comparison's files other than the report; times have their own file."""
    from skedge.comparison.points import run_name  # noqa: PLC0415 - imported before

    # runs are written as they end, before the best policy is known: the others are removed at the end
    if keep is Keep.best:
        best = {run_name(comparison.best_mean_policy, seed) for seed in comparison.seeds}
        for folder in (temp_folder / "runs").iterdir():
            if folder.name not in best:
                shutil.rmtree(folder)
    # times are never the same again: in a file of their own, so that comparison.json is
    times = {policy: [asdict(run_times) for run_times in all_times] for policy, all_times in comparison.times.items()}
    bounds = [None if r is None else r.bound.seconds for r in comparison.references]
    _write_json(temp_folder / "comparison.json", comparison_fields(comparison))
    _write_json(temp_folder / "times.json", {"seeds": comparison.seeds, "runs_s": times, "bounds_s": bounds})


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(finite(value), indent=2) + "\n", encoding="utf-8")


def _show(comparison: Comparison, *, as_json: bool) -> None:
    if as_json:
        print_json(comparison_fields(comparison))
        return
    from .tables import comparison_tables  # noqa: PLC0415 - imports statistics

    for table in comparison_tables(comparison, out.width):
        out.print(table)
    for text in comparison.texts:
        out.print(text, soft_wrap=True)


def comparison_fields(comparison: Comparison) -> dict[str, Any]:
    """A comparison as JSON; without times, so that the same runs give the same bytes."""
    c = comparison
    bounds = [None if r is None else asdict(r) for r in c.references]
    # the solvers' times are no result
    for bound in filter(None, bounds):
        del bound["bound"]["seconds"]
    differences = {policy: _difference(c, policy) for policy in c.policies if policy != c.reference}
    return {
        "seeds": c.seeds,
        "seeding": c.seeding,
        "metrics": c.metrics,
        "bounds": bounds,
        "estimates": {p: {column: c.cell(p, column) for column in c.columns} for p in c.policies},
        "differences": {"of": c.leading_metric, "to": c.reference, "policies": differences},
        "decided_among": c.groups,
        "verified": None if c.violations is None else not any(map(any, c.violations.values())),
        "violations": _violations(c),
        "failed": [_failure(failure) for failure in c.failures],
        "notes": c.texts,
    }


def _difference(comparison: Comparison, policy: str) -> dict[str, Any] | None:
    """The difference to the reference; ``decided`` is its sign where it is significant, else 0."""
    from skedge.comparison.comparison import estimate_fields  # noqa: PLC0415 - imported before

    difference = estimate_fields(comparison.difference(policy, comparison.leading_metric))
    return difference and difference | {"decided": comparison.sign(policy, comparison.leading_metric)}


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "policy": failure.policy,
        "seed": failure.seed,
        "error": type(failure.error).__name__,
        "message": failure.text,
    }


def _violations(comparison: Comparison) -> list[Mapping[str, Any]]:
    return [
        {"policy": policy, "seed": seed, **asdict(violation)}
        for policy, by_seed in (comparison.violations or {}).items()
        for seed, violations in zip(comparison.seeds, by_seed, strict=True)
        for violation in violations
    ]


def exit_on_failures(*comparisons: Comparison) -> None:
    """Print the violations found and the policies that failed; end the command with exit status 1 if there are any."""
    broken = [violation for comparison in comparisons for violation in _violations(comparison)]
    for violation in broken[:20]:
        label = f"{violation['policy']}, seed {violation['seed']}"
        err.print(f"{label}: {violation['rule']} {violation['constraint']}: {violation['message']}", soft_wrap=True)
    failures = [failure for comparison in comparisons for failure in comparison.failures]
    for failure in failures[:20]:
        err.print(f"{failure.policy}, seed {failure.seed}: {failure.text}", soft_wrap=True)
    err.print(next((failure.trace for failure in failures if failure.trace), ""), end="", soft_wrap=True)
    if broken or failures:
        raise typer.Exit(1)


def split_policies(text: str) -> list[str]:
    """Policies of a comma-separated list; ``key=value`` after a comma belongs to the policy before it."""
    specs: list[str] = []
    for part in text.split(","):
        # `fifo:backfill=true,x=1` is one policy with two parameters
        if specs and "=" in part and ":" not in part.split("=")[0]:
            specs[-1] += "," + part
        else:
            specs.append(part.strip())
    return specs


def write_page(path: Path, display_path: Path, page: str) -> None:
    """Write a report.

    Raises
    ------
    InputError
        If it cannot be written; names the file `display_path`.
    """
    try:
        write_report(path, page)
    except OSError as error:
        raise InputError(f"{display_path}: the report cannot be written: {error.strerror}") from error


def check_report(path: Path, option: str) -> None:
    """Fail before a long comparison if its report cannot be written.

    Raises
    ------
    InputError
        If `path` is in no writable folder, or is a file that is no report; names `option`.
    """
    fault = None if os.path.isdir(path.parent) else f"{path.parent} is not a folder"
    if os.path.isdir(path):
        fault = "it is a folder"
    if fault is None and not os.access(path.parent, os.W_OK):
        fault = f"{path.parent} is not writable"
    if fault is not None:
        raise InputError(f"{path}: the report cannot be written: {fault}; name a file in an existing folder")
    # an earlier report may be replaced, any other file of the user may not
    if os.path.isfile(path) and not _is_report(path):
        raise InputError(f"{path}: exists and is not a report of skedge; name another file with {option}")


def _is_report(path: Path) -> bool:
    """Whether a file is a report of an earlier comparison, so that it may be replaced."""
    with path.open("rb") as file:
        return b"<title>skedge" in file.read(_HEAD)


_HEAD = 4096
"""Bytes of a report in which its title is."""
