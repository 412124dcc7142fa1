"""The table of problems with an optimum or bounds; one row per problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl

from skedge.core.errors import InputError
from skedge.core.model.job_fields import Kind
from skedge.core.model.scenario import Scenario
from skedge.core.model.wording import did_you_mean
from skedge.core.record.schedule import Schedule
from skedge.optimum.chunks.bounds import chunk_bounds, number_of_pools
from skedge.optimum.chunks.fractional import fractional_bounds
from skedge.optimum.chunks.problem import optimum_of_chunks
from skedge.optimum.gangs.bounds import gang_bounds
from skedge.optimum.gangs.problem import one_gang_each, optimum_of_gangs
from skedge.optimum.sites.bounds import site_bounds
from skedge.optimum.sites.problem import optimum_of_sites
from skedge.optimum.utility.bounds import utility_bounds
from skedge.optimum.utility.problem import optimum_of_utility

from .types import Bound, Optimum, Sense, best_bound, sum_bounds


@dataclass(frozen=True)
class Problem:
    """A problem.

    Attributes
    ----------
    title
        The objective, and its paper.
    metric, sense
        The metric of a run that is the objective, and which direction is better.
    kinds
        The kinds of cluster that have it.
    covers
        Returns whether its bounds hold for a run, given the scenario and the run's record.
    bounds
        Returns the bounds of a scenario; with `fast` only those that take seconds.
    optimum
        Returns the optimum of a scenario within a time limit [s]; None if there is no exact model.
    part_bounds
        Returns the fast bounds on one of the :func:`parts` of a scenario; None if it has no parts.
    fits
        Returns whether a scenario on such a cluster has it.
    """

    title: str
    metric: str
    sense: Sense
    kinds: tuple[Kind, ...]
    covers: Callable[[Scenario, Schedule], bool]
    bounds: Callable[[Scenario, bool], list[Bound]]
    optimum: Callable[[Scenario, float], Optimum] | None
    part_bounds: Callable[[Scenario, int], list[Bound]] | None = None
    fits: Callable[[Scenario], bool] = lambda _scenario: True

    def applies(self, scenario: Scenario) -> bool:
        """Whether a scenario has this problem."""
        return scenario.cluster.kind in self.kinds and self.fits(scenario)


def _in_slots(scenario: Scenario) -> bool:
    return scenario.physics.slotted


def _with_utilities(scenario: Scenario) -> bool:
    return scenario.physics.horizon is not None and None not in scenario.jobs.utility


def _with_latencies(scenario: Scenario) -> bool:
    return None not in scenario.jobs.latency


def _all_finished(scenario: Scenario, schedule: Schedule) -> bool:
    return int((schedule.jobs["state"].cast(pl.String) == "finished").sum()) == len(scenario.jobs)


def _all_dispatched(scenario: Scenario, schedule: Schedule) -> bool:
    allocated = schedule.decisions["verb"].cast(pl.String).is_in(["allocate", "allocate_each"]).any()
    return _all_finished(scenario, schedule) and not allocated


def _total_jct(
    title: str,
    covers: Callable[[Scenario, Schedule], bool],
    bounds: Callable[..., list[Bound]],
    optimum: Callable[[Scenario, float], Optimum] | None,
) -> Problem:
    """A problem on servers with slots, of which each worker type is a part.

    Parameters
    ----------
    title, covers, optimum
        As of :class:`Problem`.
    bounds
        Returns the bounds of a scenario, with ``fast`` those that take seconds; ``pool_index``: on one part of it.
    """
    return Problem(
        title=f"total JCT of {title}",
        metric="jct_total_s",
        sense="lower",
        kinds=("slots",),
        covers=covers,
        bounds=lambda scenario, fast: bounds(scenario, fast=fast),
        optimum=optimum,
        part_bounds=lambda scenario, part: bounds(scenario, fast=True, pool_index=part),
    )


PROBLEMS: dict[str, Problem] = {
    "chunks": _total_jct(
        "schedules that dispatch chunks (JSAC'22, MINLP (2) chunk by chunk, without migration)",
        _all_dispatched,
        partial(chunk_bounds, family="chunks"),
        optimum_of_chunks,
    ),
    "gangs": _total_jct(
        "schedules that give each job one gang, once and for good (She et al., MINLP (2))",
        one_gang_each,
        gang_bounds,
        optimum_of_gangs,
    ),
    # after the narrower families: their bounds are at least as good, and hold for fewer runs
    "work": _total_jct(
        "any schedule: chunks, gangs, workers that come and go (JSAC'22 (2))",
        _all_finished,
        partial(chunk_bounds, family="work"),
        None,
    ),
    # after the others: it is below their bounds, and what a paper divides by
    "fractional": Problem(
        title="fractional flow time of ILP (4) at zeta = 1 (JSAC'22), below the total JCT of dispatched chunks",
        metric="jct_total_s",
        sense="lower",
        kinds=("slots",),
        fits=_in_slots,
        covers=_all_dispatched,
        bounds=lambda scenario, _fast: fractional_bounds(scenario),
        optimum=None,
        part_bounds=fractional_bounds,
    ),
    "utility": Problem(
        title="total utility of the jobs done by the horizon (PD-ORS, DMLRS)",
        metric="utility_total",
        sense="higher",
        kinds=("resources", "sites"),
        fits=_with_utilities,
        covers=lambda _scenario, _schedule: True,
        bounds=lambda scenario, _fast: utility_bounds(scenario),
        optimum=optimum_of_utility,
    ),
    "sites": Problem(
        title="total latency and bandwidth cost of schedules that finish every job (Okita, (2))",
        metric="cost_total",
        sense="lower",
        kinds=("sites",),
        fits=_with_latencies,
        covers=_all_finished,
        bounds=lambda scenario, fast: site_bounds(scenario, fast=fast),
        optimum=optimum_of_sites,
    ),
}
"""The problems by name; of those that apply to a scenario, the first is the narrowest."""


def problem_of(scenario: Scenario, name: str | None = None) -> tuple[str, Problem]:
    """The problem of this name, or the first that applies.

    Raises
    ------
    InputError
        If it is unknown, or none applies.
    """
    if name is not None:
        if name not in PROBLEMS:
            raise InputError(
                f"problem {name!r} is unknown{did_you_mean(name, PROBLEMS)}; known are {', '.join(PROBLEMS)}"
            )
        if not PROBLEMS[name].applies(scenario):
            alternatives = (
                ", ".join(other_name for other_name, problem in PROBLEMS.items() if problem.applies(scenario)) or "none"
            )
            raise InputError(f"{scenario.name} has no problem {name!r} ({PROBLEMS[name].title}); it has {alternatives}")
        return name, PROBLEMS[name]
    for first_name, problem in PROBLEMS.items():
        if problem.applies(scenario):
            return first_name, problem
    raise InputError(
        f"{scenario.name}: on servers with resources the optimum is of the total utility, which needs physics.horizon "
        "and jobs' utilities, or at sites of the total cost, which needs cluster.transfer_cost and jobs' latency"
    )


@dataclass(frozen=True)
class Reference:
    """The best bound of a problem, with which runs are compared."""

    problem: str
    metric: str
    sense: Sense
    bound: Bound

    def ratio(self, value: float | None) -> float | None:
        """Value over bound, or bound over value if higher values are better: at least 1; None without a value."""
        if not value:
            return None
        return value / self.bound.value if self.sense == "lower" else self.bound.value / value


def reference(scenario: Scenario, problems: Iterable[str]) -> Reference | None:
    """The best fast bound of the first of the problems `problems`; None if there is none."""
    names = tuple(problems)
    return reference_of([reference_part(scenario, names, part) for part in range(parts(scenario))])


def parts(scenario: Scenario) -> int:
    """Number of parts that do not depend on each other, so that a :func:`reference` can be computed part by part."""
    separable = all(problem.part_bounds is not None for problem in PROBLEMS.values() if problem.applies(scenario))
    return max(1, number_of_pools(scenario)) if separable else 1


ReferencePart = tuple[str, list[Bound]]
"""A problem, and bounds on a part of its scenario."""


def reference_part(scenario: Scenario, problems: Iterable[str], part: int) -> ReferencePart | None:
    """The fast bounds of the first of the problems `problems` on a part of the scenario."""
    names = set(problems)
    for name, problem in PROBLEMS.items():
        if name in names:
            part_bounds = problem.part_bounds
            bounds = problem.bounds(scenario, True) if part_bounds is None else part_bounds(scenario, part)
            if bounds:
                return name, bounds
    return None


def reference_of(parts: Sequence[ReferencePart | None]) -> Reference | None:
    """The best bound, given all parts; None if one of them has no bound, or they are not of the same problem."""
    # a sum over some of the parts is no bound on the whole
    bounded_parts = [part for part in parts if part is not None]
    if len(bounded_parts) < len(parts) or len({name for name, _ in bounded_parts}) != 1:
        return None
    name, problem = bounded_parts[0][0], PROBLEMS[bounded_parts[0][0]]
    bound = best_bound(sum_bounds([bounds for _, bounds in bounded_parts]), problem.sense)
    return Reference(name, problem.metric, problem.sense, bound)


def covering_problems(scenario: Scenario, schedule: Schedule, completion: str = "end") -> tuple[str, ...]:
    """The problems whose bounds hold for a run; bounds on utility refer to completions as END times (`completion`)."""
    return tuple(
        n
        for n, p in PROBLEMS.items()
        if p.applies(scenario) and p.covers(scenario, schedule) and (p.metric != "utility_total" or completion == "end")
    )
