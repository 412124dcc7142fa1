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
from skedge.optimum.search import Objective, Runs, Solved, SolverModel, all_finished, carried_out, policies_runs, search
from skedge.optimum.solvers import Found
from skedge.optimum.types import MET, Attempt, Bound, Optimum
from skedge.recorded_run import Run

from .bounds import chunk_bounds, priced
from .cp import solve_intervals
from .milp import solve_time_indexed
from .model import ChunkModel, ChunkPlan, chunk_model, lanes_of_chunks

POLICIES = ("aonline", "aonline:cloud=false", "aonline:q_mode=fractional")
"""The policies whose runs the solvers start from: those that dispatch."""

Solver = Callable[[ChunkModel, ChunkPlan, float], Found[ChunkPlan]]
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
    lack = "finishes all jobs; the optimum of the total JCT is of schedules in which all do"
    runs = policies_runs(scenario, policies, all_finished, lack)
    program = _Program(scenario, [_Part.of(scenario, pool, runs) for pool in pools(scenario, "chunks")])
    planned = program.carried_out()
    if planned is not None:
        runs.append((program.source, planned))
    return search(
        Objective("chunks", "jct_total_s", "lower", lambda found: float(found.metrics["jct_total_s"])),
        runs,
        chunk_bounds(scenario, "chunks"),
        program,
        solvers,
        seconds,
        joint=program.proved(),
        beside=[certificate_of_chunks(scenario)],
    )


@dataclass(frozen=True)
class _Part:
    """A pool with the best plan for it and the best bound on its total JCT [µs]."""

    model: ChunkModel
    plan: ChunkPlan
    bound: float
    source: str

    @property
    def value(self) -> int:
        return self.model.total(self.plan)

    @property
    def met(self) -> bool:
        return self.value - self.bound <= MET * self.value

    def better(self, found: Found[ChunkPlan], solver: str) -> _Part:
        """The part with what a solver has found and proved."""
        part = self
        if found.bound is not None:
            part = replace(part, bound=max(part.bound, found.bound * part.model.unit - part.model.arrivals))
        if found.solution is not None and part.model.total(found.solution) < part.value:
            part = replace(part, plan=found.solution, source=solver)
        return part

    @staticmethod
    def of(scenario: Scenario, pool: JobPool, runs: Runs) -> _Part:
        bound = priced([pool])
        model = chunk_model(scenario, pool, bound)
        plans = {policy: model.settled(_plan_of(model, result)) for policy, result in runs}
        source = min(plans, key=lambda policy: model.total(plans[policy]))
        bound = max(bound, float(model.least * model.unit - model.arrivals))
        return _Part(model, plans[source], bound, source)


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
class _Program(SolverModel):
    """A part for each worker type, with the best plan for it so far."""

    scenario: Scenario
    parts: list[_Part]
    seconds: float = 0.0

    @property
    def source(self) -> str:
        """Who found the plans."""
        return ", ".join(dict.fromkeys(part.source for part in self.parts))

    def is_closed(self, known: Bound) -> bool:  # noqa: ARG002 - each part has a bound of its own
        return all(part.met for part in self.parts)

    def proved(self) -> Bound:
        value = sum(part.bound for part in self.parts) / SECOND
        return Bound("solvers", value, self.seconds, "the best of every worker type, added up")

    def improve(self, solver: str, best: Run, known: Bound, seconds: float) -> Solved:  # noqa: ARG002
        """Improve every part that is not proved, the smaller ones first, so that time is left over."""
        begun = perf_counter()
        ends, words = begun + seconds, list[str]()
        still = sorted(
            (i for i, part in enumerate(self.parts) if not part.met), key=lambda i: self.parts[i].model.least
        )
        for k, i in enumerate(still):
            part = self.parts[i]
            # what a part does not use is left to those after it
            found = SOLVERS[solver](part.model, part.plan, (ends - perf_counter()) / (len(still) - k))
            words.append(found.message)
            self.parts[i] = part.better(found, solver)
        value, took = float(sum(p.value for p in self.parts)) / SECOND, perf_counter() - begun
        self.seconds += took
        message = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        attempt = Attempt(solver, value, self.proved().value, took, f"worker types: {message}")
        return Solved(attempt, self.carried_out(), self.proved(), self.source)

    def carried_out(self) -> Run | None:
        """The plans as one run; None where it breaks a rule that they leave out: PSs, storage."""
        lanes_of, done = {}, {}
        for part in self.parts:
            for i, job in enumerate(part.model.jobs.tolist()):
                lanes_of[job] = lanes_of_chunks(part.model, part.plan, i)
                done[job] = (int(part.plan.done[i]) * part.model.unit, job)
        rank_of = {job: rank for rank, job in enumerate(sorted(done, key=lambda job: done[job]), start=1)}
        return carried_out(self.scenario, PlannedChunks(lanes_of, rank_of))
