"""The optimum of the chunk problem, JSAC'22's MINLP (2) without migration: total JCT of schedules that dispatch chunks.

The worker types share only PSs, so each is a separate problem. If there are too few PSs the resulting plan cannot be
carried out, and the best run of a policy is the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.optimum.certificates import certificate_of_chunks
from skedge.optimum.planned import PlannedChunks
from skedge.optimum.pools.pools import JobPool, pools
from skedge.optimum.search import (
    Objective,
    Runs,
    SolverAnswer,
    SolverModel,
    all_finished,
    policies_runs,
    run_plan,
    search,
)
from skedge.optimum.solvers import SolverResult
from skedge.optimum.types import OPTIMALITY_TOLERANCE, Attempt, Bound, Optimum
from skedge.recorded_run import Run

from .bounds import chunk_bounds, pool_price_bound
from .cp import solve_intervals
from .milp import solve_time_indexed
from .model import ChunkModel, ChunkPlan, chunk_model, lanes_of_chunks

POLICIES = ("aonline", "aonline:cloud=false", "aonline:q_mode=fractional")
"""The policies whose runs the solvers start from: those that dispatch."""

Solver = Callable[[ChunkModel, ChunkPlan, float], SolverResult[ChunkPlan]]
OBJECTIVE = Objective("chunks", "jct_total_s", "lower")
SOLVERS: dict[str, Solver] = {"CP-SAT intervals": solve_intervals, "HiGHS time-indexed": solve_time_indexed}


def optimum_of_chunks(
    scenario: Scenario, seconds: float, solvers: Sequence[str] = tuple(SOLVERS), policies: Sequence[str] = POLICIES
) -> Optimum:
    """The best schedule that dispatches chunks, found within `seconds` of wall time after the policies' runs.

    Parameters
    ----------
    scenario
        Its servers have worker slots.
    seconds
        Limit of wall time for all solvers together [s].
    solvers, policies
        Names of :data:`SOLVERS`, asked in this order, and the policies whose runs they start from.

    Raises
    ------
    InputError
        If no policy finishes all jobs, or a solver is not installed.
    """
    failure = "finishes all jobs; the optimum of the total JCT is of schedules in which all do"
    runs = policies_runs(scenario, policies, all_finished, failure)
    program = _Program(scenario, [_PoolPlan.from_runs(scenario, pool, runs) for pool in pools(scenario, "chunks")])
    planned = program.planned_run()
    if planned is not None:
        runs.append((program.source, planned))
    return search(
        OBJECTIVE,
        runs,
        chunk_bounds(scenario, "chunks"),
        program,
        solvers,
        seconds,
        joint_bound=program.proved_bound(),
        extra_bounds=[certificate_of_chunks(scenario)],
    )


@dataclass(frozen=True)
class _PoolPlan:
    """A pool with the best plan for it and the best bound on its total JCT [µs]."""

    model: ChunkModel
    plan: ChunkPlan
    bound: float
    source: str

    @property
    def value(self) -> int:
        return self.model.total(self.plan)

    @property
    def is_optimal(self) -> bool:
        return self.value - self.bound <= OPTIMALITY_TOLERANCE * self.value

    def improved_by(self, result: SolverResult[ChunkPlan], solver: str) -> _PoolPlan:
        """The part with what a solver has found and proved."""
        part = self
        if result.bound is not None:
            part = replace(part, bound=max(part.bound, result.bound * part.model.unit - part.model.arrival_sum))
        if result.solution is not None and part.model.total(result.solution) < part.value:
            part = replace(part, plan=result.solution, source=solver)
        return part

    @staticmethod
    def from_runs(scenario: Scenario, pool: JobPool, runs: Runs) -> _PoolPlan:
        bound = pool_price_bound([pool])
        model = chunk_model(scenario, pool, bound)
        plans = {policy: model.canonical(_plan_of(model, result)) for policy, result in runs}
        source = min(plans, key=lambda policy: model.total(plans[policy]))
        # min_sum is rounded up to whole units, which may be more than the bound
        bound = max(bound, float(model.min_sum * model.unit - model.arrival_sum))
        return _PoolPlan(model, plans[source], bound, source)


def _plan_of(model: ChunkModel, result: Run) -> ChunkPlan:
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
    return ChunkPlan(count, result.jobs["completion"].to_numpy()[model.jobs] // model.unit)


@dataclass
class _Program(SolverModel[ChunkPlan]):
    """A part for each worker type, with the best plan for it so far."""

    scenario: Scenario
    parts: list[_PoolPlan]
    seconds: float = 0.0

    @property
    def source(self) -> str:
        """Names of the policies and solvers that found the plans."""
        return ", ".join(dict.fromkeys(part.source for part in self.parts))

    def is_closed(self, bound: Bound) -> bool:  # noqa: ARG002 - each part has a bound of its own
        return all(part.is_optimal for part in self.parts)

    def proved_bound(self) -> Bound:
        value = sum(part.bound for part in self.parts) / SECOND
        return Bound("solvers", value, self.seconds, "the best of every worker type, added up")

    def improve(self, solver: str, best: Run, bound: Bound, seconds: float) -> SolverAnswer:  # noqa: ARG002
        """Improve every part that is not proved, the smaller ones first, so that time is left over."""
        start_s = perf_counter()
        deadline, messages = start_s + seconds, list[str]()
        open_parts = sorted(
            (i for i, part in enumerate(self.parts) if not part.is_optimal), key=lambda i: self.parts[i].model.min_sum
        )
        for k, i in enumerate(open_parts):
            part = self.parts[i]
            # what a part does not use is left to those after it
            result = SOLVERS[solver](part.model, part.plan, (deadline - perf_counter()) / (len(open_parts) - k))
            messages.append(result.message)
            self.parts[i] = part.improved_by(result, solver)
        value, elapsed_s = float(sum(p.value for p in self.parts)) / SECOND, perf_counter() - start_s
        self.seconds += elapsed_s
        message = ", ".join(f"{messages.count(word)} {word}" for word in dict.fromkeys(messages))
        attempt = Attempt(solver, value, self.proved_bound().value, elapsed_s, f"worker types: {message}")
        return SolverAnswer(attempt, self.planned_run(), self.proved_bound(), self.source)

    def planned_run(self) -> Run | None:
        """The plans as one run; None where it breaks a rule that they leave out: PSs, storage."""
        lanes_of, completion = {}, {}
        for part in self.parts:
            for i, job in enumerate(part.model.jobs.tolist()):
                lanes_of[job] = lanes_of_chunks(part.model, part.plan, i)
                completion[job] = (int(part.plan.completion[i]) * part.model.unit, job)
        # one rank per job is enough on all lanes (:mod:`.model`): its place in the order of completions
        rank_of = {job: rank for rank, job in enumerate(sorted(completion, key=lambda job: completion[job]), start=1)}
        return run_plan(self.scenario, PlannedChunks(lanes_of, rank_of))
