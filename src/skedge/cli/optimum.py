"""``skedge optimum``: the best known schedule of a scenario, with its proved bound."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.table import Table

from skedge.core.errors import InputError
from skedge.core.model.scenario import Scenario
from skedge.optimum.problems import problem_of
from skedge.optimum.types import Bound, Optimum, best_bound
from skedge.run import new_folder
from skedge.runs.sweep import Point, Where, carry_out, key_of
from skedge.scenario.file import scenario_of
from skedge.scenario.save import digest_of

from .console import out, print_json
from .options import JsonOption, RayOption, ResumeOption, SeedOption
from .progress import keeping, working


def optimum(
    scenario: Annotated[
        str, typer.Argument(help="A scenario file (YAML), or a shipped one: demo, demo-divisible, s1 to s4.")
    ],
    problem: Annotated[
        str | None, typer.Option(help="chunks, gangs, work, utility, sites; default: the first that applies.")
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Time limit of all solvers together (s).", min=0.1)] = 60.0,
    only_bounds: Annotated[bool, typer.Option("--bounds", help="Compute only bounds, without solvers.")] = False,
    folder: Annotated[Path | None, typer.Option("--out", help="New run folder for the best schedule.")] = None,
    seed: SeedOption = None,
    ray: RayOption = None,
    resume: ResumeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the best schedule given all arrivals in advance, the best bound, and the gap between them."""
    loaded = scenario_of(scenario, seed)
    name, chosen = problem_of(loaded, problem)
    if only_bounds or chosen.optimum is None:
        if ray is not None or resume is not None:
            raise InputError("--ray and --resume are for the search; bounds alone take seconds and are computed here")
        if folder is not None:
            raise InputError(
                f"--out {str(folder)!r}: for problem {name!r} only bounds are computed, there is no schedule to write"
            )
        bounds = chosen.bounds(loaded, False)
        if not bounds:
            raise InputError(f"{loaded.name}: problem {name!r} has no bound: some job can never run")
        _show_bounds(name, chosen.title, bounds, best_bound(bounds, chosen.sense), as_json=as_json)
        return
    with ExitStack() as stack:
        kept = stack.enter_context(keeping(resume, quiet=as_json))
        inside = None if folder is None else stack.enter_context(new_folder(folder))
        with working(f"{name}: policies (compiled the first time), bounds, then solvers for {time_limit:g} s"):
            found = _found(loaded, name, time_limit, Where(1, ray, kept))
        if inside is not None:
            found.run.write(inside)
    if as_json:
        print_json(_plain(found, folder))
    else:
        _show(found, chosen.title, folder)


def _found(scenario: Scenario, problem: str, time_limit: float, where: Where) -> Optimum:
    """The optimum, found here or on a cluster; a sweep of one point."""
    key = "" if where.here else key_of("optimum", digest_of(scenario), problem, time_limit)
    (found,) = carry_out([Point(key, _search, (scenario, problem, time_limit))], where)
    return cast("Optimum", found)


def _search(scenario: Scenario, problem: str, time_limit: float) -> Optimum:
    chosen = problem_of(scenario, problem)[1]
    assert chosen.optimum is not None  # noqa: S101 - the command computes only bounds otherwise
    return chosen.optimum(scenario, time_limit)


def _plain(found: Optimum, folder: Path | None) -> dict[str, object]:
    return {
        "problem": found.problem,
        "metric": found.metric,
        "value": found.value,
        "bound": asdict(found.bound),
        "gap": found.gap,
        "proved": found.proved,
        "source": found.source,
        "bounds": [asdict(bound) for bound in found.bounds],
        "solvers": [asdict(attempt) for attempt in found.attempts],
        "folder": None if folder is None else str(folder),
    }


def _show(found: Optimum, title: str, folder: Path | None) -> None:
    _print_bounds(title, list(found.bounds))
    for attempt in found.attempts:
        value = "no schedule" if attempt.value is None else f"{attempt.value:.10g}"
        bound = "nothing proved" if attempt.bound is None else f"bound {attempt.bound:.10g}"
        out.print(f"{attempt.solver}: {value}, {bound}, {attempt.seconds:.1f} s: {attempt.message}", soft_wrap=True)
    word = "optimal" if found.proved else f"best found, gap {found.gap:.2%}"
    out.print(f"{found.metric} = {found.value:.10g}: {word} (by {found.source})", soft_wrap=True)
    out.print(f"no schedule is better than {found.bound.value:.10g} ({found.bound.name})", soft_wrap=True)
    if folder is not None:
        out.print(f"run folder: {folder}", soft_wrap=True)


def _show_bounds(name: str, title: str, bounds: list[Bound], best: Bound, *, as_json: bool) -> None:
    if as_json:
        print_json({"problem": name, "bound": asdict(best), "bounds": [asdict(bound) for bound in bounds]})
        return
    _print_bounds(title, bounds)
    out.print(f"no schedule is better than {best.value:.10g} ({best.name})", soft_wrap=True)


def _print_bounds(title: str, bounds: list[Bound]) -> None:
    table = Table("bound", "value", "CPU s", "what it is", title=title)
    for bound in bounds:
        table.add_row(bound.name, f"{bound.value:.10g}", f"{bound.seconds:.2f}", bound.note)
    out.print(table)
