"""Base of gang policies: from an order of the jobs to those that run, and to orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from skedge.core.engine.ledger import STOPPED
from skedge.core.events import Order
from skedge.core.model.cluster import Cluster, Ints, Physics
from skedge.core.policy import Params, View
from skedge.platform.jit import compiled

from .edge import ABOVE_QUOTA, OVER_QUOTA, EdgePolicy
from .placement import Rule, make_scratch
from .selection import OWN, GangState, fill
from .sharing import make_tenants, with_tenants

if TYPE_CHECKING:
    from numpy.random import Generator

    from skedge.core.model.scenario import Scenario


class GangParams(Params):
    """Parameters of every gang baseline.

    Attributes
    ----------
    allow_cloud
        False: the cloud takes only what can never fit on the edge (k_j above all workers of its type). True: it also
        takes, at once and for good, a job that does not fit now.
    sticky
        True: a preempted job resumes only in its last place, where its data are.
    placement
        ``keep_running``: a job that is placed takes workers that no running job holds, where those are enough, also
        if it has run before on workers that another job holds now. ``literal``: all jobs are placed anew in the order
        of the scan, so that a job ranked first takes another's workers even where free ones would do; the other is
        moved and pays for its upload and its restoring, without any queue too.
    """

    allow_cloud: bool = False
    sticky: bool = False
    placement: Literal["keep_running", "literal"] = "keep_running"


class GangPolicy(EdgePolicy):
    """Base of SRTF, Tiresias-L and FIFO; a policy that ranks in Python yields the orders of :meth:`fill`."""

    name: ClassVar[str] = ""
    Parameters: ClassVar[type[Params]] = GangParams
    rows: ClassVar[int] = OWN
    stop_at_first = False

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        params = self.params
        self.rule = Rule(int(self.stop_at_first), int(params.sticky), int(params.placement == "keep_running"))
        types = len(cluster.worker_types), max(1, len(cluster.ps_types))
        self.scratch = make_scratch(len(cluster.servers), *types, cluster.lanes)
        self.tenants, self.known = make_tenants(cluster), 0

    def state(self) -> Any:
        """The arrays of the policy."""
        return GangState(self.edge, self.rule, self.scratch, self.tenants, int(self.params.allow_cloud))

    def take_in(self, n_jobs: int, source: View | Scenario) -> None:
        """As in the base, with the tenants and classes of the jobs."""
        super().take_in(n_jobs, source)
        if self.cluster.sharing is not None and n_jobs > self.known:
            jobs, new = source.jobs, slice(self.known, n_jobs)
            self.tenants = with_tenants(self.tenants, jobs, self.known, n_jobs)
            limits = self.tenants.limits[jobs.tenant[new], np.maximum(jobs.worker_type[new], 0)]
            self.edge.lists[ABOVE_QUOTA, new] = jobs.workers[new] > limits
            self.known = n_jobs

    def fill(self, order: Ints, view: View, reason: str, *, running_stay: bool = False) -> Iterator[Order]:
        """Orders that run as many jobs of `order` as fit, for policies that rank in Python.

        Parameters
        ----------
        order
            Jobs, first to be tried first: all in the system, or those that wait.
        view
            The run.
        reason
            Of the allocations.
        running_stay
            Whether `order` has only jobs that wait, while the others keep what they hold.
        """
        return self.orders(view.engine.ordered(_fill, self.state(), order, running_stay), view, reason)

    def reason(self, code: int, job: int, view: View) -> str:
        """As in the base, and that of a quota."""
        if code != OVER_QUOTA:
            return super().reason(code, job, view)
        k, kind = int(view.jobs.workers[job]), int(view.jobs.worker_type[job])
        quota = self.tenants.limits[view.jobs.tenant[job], kind]
        return f"never_fits: it asks for {k} workers; the quota of its tenant is {quota}"

    # -- explanations --------------------------------------------------------------------------------------------

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """As in the base, with the job's tenant and class."""
        base_terms = super().terms(job, view)
        return {**base_terms, **self._shared(job, view), "in_system": base_terms["in_system"]}

    def _row(self, job: int, view: View) -> dict[str, Any]:
        return {**super()._row(job, view), **self._shared(job, view)}

    def _shared(self, job: int, view: View) -> dict[str, Any]:
        """Tenant and class of `job`, if the cluster has them."""
        sharing, jobs = self.cluster.sharing, view.jobs
        if sharing is None:
            return {}
        stopped, runs = int(view.engine.ledger.jobs[job, STOPPED]), view.workers[job] > 0
        waited = 0 if runs else view.now - max(int(jobs.arrival[job]), stopped)
        return {
            "tenant": sharing.names[jobs.tenant[job]],
            "class": sharing.class_after(int(jobs.priority[job]), waited),
        }


@compiled
def _fill(handle: Any, state: GangState, order: Ints, running_stay: bool) -> None:
    fill(handle.case, handle.ledger, state, order, running_stay, handle.orders)
