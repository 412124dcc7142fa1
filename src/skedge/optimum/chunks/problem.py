"""The optimum of the chunk problem, JSAC'22's MINLP (2) without migration: total JCT of schedules that dispatch chunks.

The worker types share only PSs, so each is a separate problem. If there are too few PSs the resulting plan cannot be
carried out, and the best run of a policy is the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from skedge.core.errors import InputError, SkedgeError
from skedge.core.scenario import Scenario
from skedge.core.time import SECOND
from skedge.optimum.certificates import certificate_of_chunks
from skedge.optimum.planned import PlannedChunks
from skedge.optimum.pools.pools import Pool, pools
from skedge.optimum.solvers import Found
from skedge.optimum.types import SAME, Attempt, Bound, Optimum, best_bound
from skedge.run import Run, run

from .bounds import chunk_bounds, priced
from .cp import solve_intervals
from .milp import solve_time_indexed
from .model import ChunkModel, Plan, chunk_model, lanes_of_chunks

POLICIES = ("aonline", "aonline:cloud=false", "aonline:q_mode=fractional")
"""The policies whose runs the solvers start from: those that dispatch."""

Solver = Callable[[ChunkModel, Plan, float], Found[Plan]]
SOLVERS: dict[str, Solver] = {"CP-SAT intervals": solve_intervals, "HiGHS time-indexed": solve_time_indexed}


def optimum_of_chunks(
    scenario: Scenario, seconds: float, solvers: Sequence[str] = tuple(SOLVERS), policies: Sequence[str] = POLICIES
) -> Optimum:
    """The best schedule that dispatches chunks, found within `seconds` of wall time after the policies' runs.

    Raises
    ------
    InputError
        If no policy finishes all jobs, or a solver is not installed.
    """
    runs = _runs(scenario, policies)
    bounds = chunk_bounds(scenario, "chunks")
    parts = [_Part.of(scenario, pool, runs) for pool in pools(scenario, "chunks")]
    attempts = []
    ends = perf_counter() + seconds
    for i, name in enumerate(solvers):
        if not all(part.met for part in parts):
            share = (ends - perf_counter()) / (len(solvers) - i)
            parts, attempt = _attempt(name, parts, share)
            attempts.append(attempt)
    proved = sum(part.bound for part in parts) / SECOND
    known = best_bound(bounds, "lower")
    if proved > known.value:
        known = Bound("solvers", proved, sum(a.seconds for a in attempts), "the best of every worker type, added up")
    source, best = _best(scenario, runs, parts)
    value = float(best.metrics["jct_total_s"])
    certificate = certificate_of_chunks(scenario)
    shown = (*bounds, *([] if certificate is None else [certificate]))
    return Optimum("chunks", "jct_total_s", "lower", best, source, value, known, shown, tuple(attempts))


def _runs(scenario: Scenario, policies: Iterable[str]) -> dict[str, Run]:
    found = {}
    for policy in policies:
        try:
            result = run(scenario, policy)
        except SkedgeError:
            continue  # too few PSs for it, or no cloud to leave out
        if result.metrics["finished"] == len(scenario.jobs):
            found[policy] = result
    if not found:
        raise InputError(
            f"{scenario.name}: none of {', '.join(policies)} finishes all jobs; the optimum of the total JCT is of "
            "schedules in which all do"
        )
    return found


@dataclass(frozen=True)
class _Part:
    """A pool with the best plan for it and the best bound on its total JCT [µs]."""

    model: ChunkModel
    plan: Plan
    bound: float
    source: str

    @property
    def value(self) -> int:
        return self.model.total(self.plan)

    @property
    def met(self) -> bool:
        return self.value - self.bound <= SAME * self.value

    @staticmethod
    def of(scenario: Scenario, pool: Pool, runs: dict[str, Run]) -> _Part:
        bound = priced([pool])
        model = chunk_model(scenario, pool, bound)
        plans = {policy: model.settled(_plan_of(model, result)) for policy, result in runs.items()}
        source = min(plans, key=lambda policy: model.total(plans[policy]))
        bound = max(bound, float(model.least * model.unit - model.arrivals))
        return _Part(model, plans[source], bound, source)


def _plan_of(model: ChunkModel, result: Run) -> Plan:
    """The plan of a run for the pool's jobs; a job partly in the cloud is moved there wholly, which is no later."""
    d = result.schedule.decisions
    count = np.zeros((len(model.jobs), len(model.lanes)), np.int64)
    place = {int(lane): i for i, lane in enumerate(model.lanes)}
    row = {int(job): i for i, job in enumerate(model.jobs)}
    mixed = set[int]()
    for job, lane in d.select("job", "lane").iter_rows():
        if job in row and lane is None:
            mixed.add(row[job])
        elif job in row:
            count[row[job], place[lane]] += 1
    count[list(mixed)] = 0
    return Plan(count, result.jobs["completion"].to_numpy()[model.jobs] // model.unit)


def _attempt(name: str, parts: list[_Part], seconds: float) -> tuple[list[_Part], Attempt]:
    """Let a solver improve every part that is not proved optimal, smaller ones first, to leave time for the others."""
    begun = perf_counter()
    ends, better, words = begun + seconds, list(parts), list[str]()
    open_parts = sorted((i for i, part in enumerate(parts) if not part.met), key=lambda i: parts[i].model.least)
    for k, i in enumerate(open_parts):
        part = better[i]
        share = (ends - perf_counter()) / (len(open_parts) - k)
        found = SOLVERS[name](part.model, part.plan, share)
        words.append(found.said)
        if found.bound is not None:
            proved = found.bound * part.model.unit - part.model.arrivals
            part = replace(part, bound=max(part.bound, proved))
        if found.solution is not None and part.model.total(found.solution) < part.value:
            part = replace(part, plan=found.solution, source=name)
        better[i] = part
    value, bound = float(sum(p.value for p in better)) / SECOND, sum(p.bound for p in better) / SECOND
    said = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    return better, Attempt(name, value, bound, perf_counter() - begun, f"worker types: {said}")


def _best(scenario: Scenario, runs: dict[str, Run], parts: list[_Part]) -> tuple[str, Run]:
    """The run of the plans if it is feasible and the best, else the best run of a policy."""
    name, best = min(runs.items(), key=lambda item: float(item[1].metrics["jct_total_s"]))
    planned = _carried_out(scenario, parts)
    if planned is not None and planned.metrics["jct_total_s"] < best.metrics["jct_total_s"]:
        return ", ".join(dict.fromkeys(part.source for part in parts)), planned
    return name, best


def _carried_out(scenario: Scenario, parts: list[_Part]) -> Run | None:
    """The plans as one run; None if it breaks a rule that they leave out: PSs, storage."""
    lanes_of, done = {}, {}
    for part in parts:
        for i, job in enumerate(part.model.jobs.tolist()):
            lanes_of[job] = lanes_of_chunks(part.model, part.plan, i)
            done[job] = (int(part.plan.done[i]) * part.model.unit, job)
    rank_of = {job: rank for rank, job in enumerate(sorted(done, key=lambda job: done[job]), start=1)}
    try:
        result = run(scenario, PlannedChunks(lanes_of, rank_of))
    except SkedgeError:
        return None
    return None if result.verify(limit=1) else result
