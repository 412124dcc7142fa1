"""What ``skedge compare`` carries out, writes and shows."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import typer

from skedge.compare import compare
from skedge.comparison.comparison import Comparison, Failure, estimate_fields
from skedge.comparison.points import run_name
from skedge.core.errors import InputError, PolicyError
from skedge.report.build import write_report
from skedge.run import new_folder

from .compare import Keep, Output, split_policies
from .console import err, finite, out, print_json
from .demo_cases import DEMO_POLICIES
from .progress import keeping, progress
from .tables import comparison_tables


def carry_out_comparison(
    scenario: str,
    policies: str,
    seeds: int,
    output: Output,
    page: Path,
    where: Mapping[str, Any],
    resume: Path | None,
    *,
    as_json: bool,
) -> None:
    """Compare the policies; write `output`, with the report at `page`, and print a table, or JSON.

    `where` are the arguments of :func:`~skedge.compare.compare` that say where runs are made and whether verified.
    """
    folder, names = output.folder, split_policies(policies)
    replaced = " (an earlier report was replaced)" if os.path.isfile(page) else ""
    title, command = f"skedge: {scenario}", f"skedge compare {scenario} --policies {policies} --seeds {seeds}"
    with keeping(resume, quiet=as_json) as kept, nullcontext() if folder is None else new_folder(folder) as inside:
        runs = None if inside is None or output.keep is Keep.none else inside / "runs"
        with counted((len(names) + 1) * seeds, "comparing", quiet=as_json) as done:
            given = {"progress": done, "folder": runs, "resume": kept, **where}
            comparison = _compared(policies, partial(compare, scenario, names, seeds, **given))
        if inside is not None:
            _write(inside, comparison, output.keep)
        made = page if output.report or inside is None else inside / page.name
        write_page(made, page, comparison.report(title, command))
    _show(comparison, as_json=as_json)
    if not as_json:
        out.print(f"the picture (first seed):  {page}{replaced}", soft_wrap=True)
    fail_on_broken(comparison)


def _compared(policies: str, run: Callable[[], Comparison]) -> Comparison:
    """The comparison; if policies by default do not fit the scenario, an error that says how to name others."""
    by_default = policies == ",".join(DEMO_POLICIES)
    try:
        comparison = run()
        wrong = [failure.error for failure in comparison.failures if isinstance(failure.error, PolicyError)]
        if by_default and wrong:
            raise wrong[0]
    except PolicyError as error:
        if not by_default:
            raise
        raise PolicyError(f"{error}; name them with --policies") from error
    return comparison


def write_page(path: Path, shown: Path, page: str) -> None:
    """Write a report; the error of one that cannot be written names the file `shown`."""
    try:
        write_report(path, page)
    except OSError as error:
        raise InputError(f"{shown}: the report cannot be written: {error.strerror}") from error


def _write(inside: Path, comparison: Comparison, keep: Keep) -> None:
    """Write a comparison's files other than the report; times have their own file."""
    if keep is Keep.best:
        best = {run_name(comparison.best_mean_policy, seed) for seed in comparison.seeds}
        for folder in (inside / "runs").iterdir():
            if folder.name not in best:
                shutil.rmtree(folder)
    times = {policy: [asdict(one) for one in ones] for policy, ones in comparison.times.items()}
    bounds = [None if r is None else r.bound.seconds for r in comparison.references]
    _write_json(inside / "comparison.json", numbers(comparison))
    _write_json(inside / "times.json", {"seeds": comparison.seeds, "runs_s": times, "bounds_s": bounds})


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(finite(value), indent=2) + "\n", encoding="utf-8")


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
    for table in comparison_tables(comparison, out.width):
        out.print(table)
    for text in comparison.texts:
        out.print(text, soft_wrap=True)


def numbers(comparison: Comparison) -> dict[str, Any]:
    """A comparison as JSON; without times, so that the same runs give the same bytes."""
    c = comparison
    bounds = [None if r is None else asdict(r) for r in c.references]
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
        "failed": [_failure(one) for one in c.failures],
        "notes": c.texts,
    }


def _difference(comparison: Comparison, policy: str) -> dict[str, Any] | None:
    """The difference to the reference; ``decided`` is its sign where it is significant, else 0."""
    less = estimate_fields(comparison.difference(policy, comparison.leading_metric))
    return less and less | {"decided": comparison.sign(policy, comparison.leading_metric)}


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
        for seed, found in zip(comparison.seeds, by_seed, strict=True)
        for violation in found
    ]


def fail_on_broken(*comparisons: Comparison) -> None:
    """Print the violations found and the policies that failed; end the command with exit status 1 if there are any."""
    broken = [found for comparison in comparisons for found in _violations(comparison)]
    for found in broken[:20]:
        where = f"{found['policy']}, seed {found['seed']}"
        err.print(f"{where}: {found['rule']} {found['constraint']}: {found['message']}", soft_wrap=True)
    failures = [failure for comparison in comparisons for failure in comparison.failures]
    for failure in failures[:20]:
        err.print(f"{failure.policy}, seed {failure.seed}: {failure.text}", soft_wrap=True)
    err.print(next((failure.trace for failure in failures if failure.trace), ""), end="", soft_wrap=True)
    if broken or failures:
        raise typer.Exit(1)
