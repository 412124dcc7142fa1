"""Admission: whether the job that arrived is admitted, and on which server it runs (the decisions of PD-ORS, OASiS).

An admitted job runs from its arrival to its end on one server, with as many workers as fit there, at most its batch,
and the PSs that they need. Action 0 rejects it; action 1 + i places it on server i.

Features of placing it on a server: workers that fit, of its batch; the utility that it would have, of its height; 1 if
it is possible; the largest share of a resource of the server that is held now, and that would be held. In all actions,
also that of rejecting: its height, by 100; its target time, of the horizon; the part of the horizon that is over.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from skedge.core.events import Allocate, Event, Reject, pairs
from skedge.core.model.cluster import Cluster, Floats
from skedge.core.model.speed import servers_for
from skedge.core.model.value import Sigmoid
from skedge.core.policy import Need, View

from .interactive import Decisions, InteractivePolicy, Question

_HEIGHT = 100.0
"""Utility to which heights are relative: the largest that PD-ORS draws."""

_PLACEMENT = slice(0, 5)


class JobAdmitter(InteractivePolicy):
    """Places every job that arrives on the server that `choose` names, or rejects it."""

    name: ClassVar[str] = "gym-admission"
    needs: ClassVar[frozenset[Need]] = frozenset({"resources", "a utility of every job", "a horizon"})
    features = 8

    def actions(self, cluster: Cluster) -> int:
        """Rejection, and the servers."""
        return len(cluster.servers) + 1

    def questions(self, event: Event, view: View) -> Decisions:
        """A question for each job that arrived, and its order."""
        for job in event.arrived:
            workers = np.array([self._most_workers(job, server, view) for server in range(len(self.cluster.servers))])
            mask = np.concatenate([[True], workers > 0])
            action = yield Question(self._observation(job, workers, mask, view), mask)
            if action == 0:
                yield Reject(job, "chosen")
            else:
                n = int(workers[action - 1])
                ps = servers_for(n, float(view.jobs.ratio[job]))
                is_chosen = np.arange(len(workers)) == action - 1
                yield Allocate(job, pairs(is_chosen * n), pairs(is_chosen * ps), "chosen")

    def _most_workers(self, job: int, server: int, view: View) -> int:
        """The most workers of `job`, with their PSs, that fit what is free on `server`."""
        free, batch = view.free[server], int(view.jobs.batch[job])
        # From above, one by one: PSs come in whole numbers, so that the need does not grow evenly with the workers.
        return next((n for n in range(batch, 0, -1) if (self._amounts(job, n, view) <= free).all()), 0)

    @staticmethod
    def _amounts(job: int, workers: int, view: View) -> Floats:
        """Amount of each resource that `workers` workers of `job` and their PSs take."""
        jobs = view.jobs
        return workers * jobs.worker_needs[job] + servers_for(workers, float(jobs.ratio[job])) * jobs.ps_needs[job]

    def _observation(self, job: int, workers: np.ndarray, mask: np.ndarray, view: View) -> np.ndarray:
        physics, utility = self.physics, view.utility(job)
        horizon = physics.horizon
        assert utility is not None  # noqa: S101  the policy's needs
        assert horizon is not None  # noqa: S101  the policy's needs
        # Row 0 is the rejection: features of a placement stay 0.
        columns = np.zeros((len(mask), self.features))
        for server, n in enumerate(workers.tolist()):
            columns[server + 1, _PLACEMENT] = self._placement(job, server, n, utility, view)
        # The job's own features are in every row, as each row must be enough to rate its action.
        columns[:, 5] = min(utility.height / _HEIGHT, 1.0)
        columns[:, 6] = min(max(utility.target * physics.slot / horizon, 0.0), 1.0)
        columns[:, 7] = min(view.now / horizon, 1.0)
        return columns.astype(np.float32)

    def _placement(self, job: int, server: int, n: int, utility: Sigmoid, view: View) -> tuple[float, ...]:
        """Features of placing the job on one server with `n` workers."""
        # A resource that the server lacks is held to 0, not to 0 / 0.
        capacity = np.where(view.amounts[server] > 0, view.amounts[server], np.inf)
        share_held = float(((view.amounts[server] - view.free[server]) / capacity).max())
        if n == 0:
            # It does not fit: the server's state is shown all the same.
            return 0.0, 0.0, 0.0, share_held, share_held
        colocated = int(self.physics.colocation == "one_server")
        # By the announced work, as policies know no other.
        slots = view.work[job, colocated] / n / self.physics.slot
        share_after = float(((view.amounts[server] - view.free[server] + self._amounts(job, n, view)) / capacity).max())
        is_late = view.now + slots * self.physics.slot > (self.physics.horizon or 0)
        utility_share = 0.0 if is_late else utility(slots) / utility.height
        return n / int(view.jobs.batch[job]), utility_share, 1.0, share_held, min(share_after, 1.0)
