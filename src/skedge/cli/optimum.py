"""``skedge optimum``: the best known schedule of a scenario, with its proved bound."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, cast

import typer

from skedge.core.errors import InputError
from skedge.core.model.scenario import Scenario
from skedge.optimum.problems import problem_of
from skedge.optimum.types import Bound, Optimum, best_bound
from skedge.runs.new_folder import new_folder
from skedge.runs.tasks import Executor, KeyedTask, key_of, run_tasks
from skedge.scenario.file import scenario_of
from skedge.scenario.save import digest_of

from .console import out, print_json, print_table
from .options import JsonOption, RayOption, ResumeOption, ScenarioArgument, SeedOption
from .progress import open_cache, spinner


def optimum(
    scenario: ScenarioArgument,
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
    name, entry = problem_of(loaded, problem)
    if only_bounds or entry.optimum is None:
        # refused, as the options would silently do nothing
        if ray is not None or resume is not None:
            raise InputError("--ray and --resume are for the search; bounds alone take seconds and are computed here")
        if folder is not None:
            raise InputError(
                f"--out {str(folder)!r}: for problem {name!r} only bounds are computed, there is no schedule to write"
            )
        bounds = entry.bounds(loaded, False)
        if not bounds:
            raise InputError(f"{loaded.name}: problem {name!r} has no bound: some job can never run")
        _show_bounds(name, entry.title, bounds, best_bound(bounds, entry.sense), as_json=as_json)
        return
    with ExitStack() as stack:
        cache = stack.enter_context(open_cache(resume, quiet=as_json))
        temp_folder = None if folder is None else stack.enter_context(new_folder(folder))
        # no bar: solvers do not say how far they are
        with spinner(f"{name}: policies (compiled the first time), bounds, then solvers for {time_limit:g} s"):
            result = _solve(loaded, name, time_limit, Executor(1, ray, cache))
        if temp_folder is not None:
            result.run.write(temp_folder)
    if as_json:
        print_json(_fields(result, folder))
    else:
        _show(result, entry.title, folder)


def _solve(scenario: Scenario, problem: str, time_limit: float, executor: Executor) -> Optimum:
    """The optimum, found here or on a cluster; a sweep of one point."""
    # the digest costs a pass over all jobs
    key = "" if executor.is_local_uncached else key_of("optimum", digest_of(scenario), problem, time_limit)
    (result,) = run_tasks([KeyedTask(key, _search, (scenario, problem, time_limit))], executor)
    return cast("Optimum", result)


def _search(scenario: Scenario, problem: str, time_limit: float) -> Optimum:
    entry = problem_of(scenario, problem)[1]
    assert entry.optimum is not None  # noqa: S101 - the command computes only bounds otherwise
    return entry.optimum(scenario, time_limit)


def _fields(result: Optimum, folder: Path | None) -> dict[str, object]:
    return {
        "problem": result.problem,
        "metric": result.metric,
        "value": result.value,
        "bound": asdict(result.bound),
        "gap": result.gap,
        "proved": result.proved,
        "source": result.source,
        "bounds": [asdict(bound) for bound in result.bounds],
        "solvers": [asdict(attempt) for attempt in result.attempts],
        "folder": None if folder is None else str(folder),
    }


def _show(result: Optimum, title: str, folder: Path | None) -> None:
    _print_bounds(title, list(result.bounds))
    for attempt in result.attempts:
        value = "no schedule" if attempt.value is None else f"{attempt.value:.10g}"
        bound = "nothing proved" if attempt.bound is None else f"bound {attempt.bound:.10g}"
        out.print(f"{attempt.solver}: {value}, {bound}, {attempt.seconds:.1f} s: {attempt.message}", soft_wrap=True)
    word = "optimal" if result.proved else f"best found, gap {result.gap:.2%}"
    out.print(f"{result.metric} = {result.value:.10g}: {word} (by {result.source})", soft_wrap=True)
    out.print(f"no schedule is better than {result.bound.value:.10g} ({result.bound.name})", soft_wrap=True)
    if folder is not None:
        out.print(f"run folder: {folder}", soft_wrap=True)


def _show_bounds(name: str, title: str, bounds: list[Bound], best: Bound, *, as_json: bool) -> None:
    if as_json:
        print_json({"problem": name, "bound": asdict(best), "bounds": [asdict(bound) for bound in bounds]})
        return
    _print_bounds(title, bounds)
    out.print(f"no schedule is better than {best.value:.10g} ({best.name})", soft_wrap=True)


def _print_bounds(title: str, bounds: list[Bound]) -> None:
    rows = ((bound.name, f"{bound.value:.10g}", f"{bound.seconds:.2f}", bound.note) for bound in bounds)
    print_table(("bound", "value", "CPU s", "what it is"), rows, title=title)
