"""Dorm: the partition is solved again at every arrival and completion, and carried out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field

from skedge.core.errors import SolverError
from skedge.core.events import Event, Order, Postpone
from skedge.core.model.cluster import Cluster, Physics
from skedge.core.model.ties import NOISE
from skedge.core.policy import BasePolicy, Guarantees, Need, Params, View
from skedge.policies.common.resource_jobs import ResourceJobs
from skedge.policies.drf.progressive_filling import progressive_filling

from .applications import Applications, Bounds, Partition
from .partition import partition

if TYPE_CHECKING:
    from numpy.random import Generator


class DormParams(Params):
    """Parameters of Dorm.

    Attributes
    ----------
    theta1
        Bound of the fairness loss, as a part of its largest value 2 m, m being the number of resources.
    theta2
        Bound of the changed jobs, as a part of those that run.
    whole
        True: theta1 2 m is rounded up, as in the paper; with few resources that is loose.
    most_workers
        Most workers of a job, F_i aside.
    nodes
        Nodes of the solver's tree in one solution (D5); not a time, so that a run is repeatable.
    gap
        Relative distance from the optimum at which the solver may end.
    cells
        Largest number of jobs x servers for which the program is solved server by server; above it, for pools of
        equal servers.
    stop_at_horizon
        True: no program is solved after the horizon (D8), which most of a run's time would go into.
    """

    theta1: float = Field(0.2, ge=0, le=1)
    theta2: float = Field(0.1, ge=0, le=1)
    whole: bool = True
    most_workers: int = Field(30, ge=1)
    nodes: int = Field(100, ge=1)
    gap: float = Field(0.05, ge=0)
    cells: int = Field(200, ge=1)
    stop_at_horizon: bool = False


class Dorm(BasePolicy):
    """Dorm: the most utilisation within bounds of fairness loss and adjustment overhead."""

    name: ClassVar[str] = "dorm"
    needs: ClassVar[frozenset[Need]] = frozenset({"resources"})
    Parameters = DormParams

    @property
    def guarantees(self) -> Guarantees:
        """Data are brought with allocations only; PSs by the ratio."""
        return Guarantees(uploads="with_allocations", ps="ratio")

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.jobs = ResourceJobs(cluster)
        self.proved: dict[str, float] = {}

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Solve again after an arrival, a departure, an interruption or a change of servers."""
        self.proved = {}
        yield from self.jobs.admit(event, view)
        if not len(self.jobs.active) or not (event.arrived or event.left or event.interrupted or event.servers):
            return
        apps = self.applications(view)
        solution, reason = self._solution(apps, view)
        allocation = None if solution is None else (solution.workers, solution.servers)
        if solution is not None and solution.use > 0:
            self.proved = {"utilisation": solution.use, "utilisation_at_most": solution.bound}
        # D6: no job runs, so an empty or missing partition would leave the cluster idle: DRF's is carried out
        elif not apps.survivors.any():
            demands = apps.worker, apps.ps, apps.ratio, apps.max_workers
            allocation = progressive_filling(*demands, view.amounts.copy(), self.jobs.total)
        if allocation is None:
            waiting = self.jobs.active[~apps.survivors]
            yield from (Postpone(int(job), reason) for job in waiting)
            return
        yield from self.jobs.settle(*allocation, view, "partition")
        yield from (Postpone(int(job), "no_part_for_it") for job in self.jobs.active[~allocation[0].any(axis=1)])

    def applications(self, view: View) -> Applications:
        """The jobs in the system, as input of the program."""
        worker, ps, ratio, batch = self.jobs.demands(self.jobs.active, view)
        max_workers = np.minimum(batch, self.params.most_workers)
        return Applications(worker, ps, ratio, max_workers, *self.jobs.allocations(view))

    def bounds(self, apps: Applications) -> Bounds:
        """Bounds of the fairness loss and of the changed jobs."""
        return self._bounds(int(apps.survivors.sum()))

    def _bounds(self, running: int) -> Bounds:
        loss = self.params.theta1 * 2 * len(self.cluster.resources)
        # sum_i |s_i - shat_i| is at most 2 m: shares of a resource sum to at most 1 on either side
        return Bounds(_up(loss) if self.params.whole else loss, _up(self.params.theta2 * running))

    def _solution(self, apps: Applications, view: View) -> tuple[Partition | None, str]:
        """A partition, or None and the reason on record for the jobs that wait."""
        params, horizon = self.params, self.physics.horizon
        # D8: what is done from now on is worth nothing
        if params.stop_at_horizon and horizon is not None and view.now > horizon:
            return None, "after_horizon: what runs keeps its part"
        try:
            solution = partition(
                apps, view.amounts, self.bounds(apps), cells=params.cells, nodes=params.nodes, gap=params.gap
            )
        except SolverError as error:
            return None, f"solver_failed: {error}"
        return solution, "no_partition: none keeps the bounds of fairness and overhead"

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """The policy's view of `job`, the bounds, and the solution's utilisation beside its bound."""
        jobs = self.jobs.active[np.isin(self.jobs.active, view.active)]
        bounds = self._bounds(int((view.workers[jobs] > 0).sum()))
        return {
            **self.jobs.terms(job, view),
            **self.proved,
            "fairness_loss_at_most": bounds.loss,
            "changed_at_most": bounds.changed,
        }


def _up(x: float) -> int:
    """Round up; 0.1 x 30 is 3."""
    return math.ceil(x - NOISE)
