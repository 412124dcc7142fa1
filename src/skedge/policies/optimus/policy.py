"""Optimus: workers and PSs by marginal gain, from a model of each job's speed (Peng et al., EuroSys'18).

**Problem.** Minimise the sum of the jobs' remaining times, again in every slot, by choosing each job's numbers of
workers and PSs and their servers.

**Rule.** At the beginning of every slot all counts are made from scratch (:func:`.marginal.allocate`): 1 worker and 1
PS for each job by (arrival, id), then again and again the task of the largest marginal gain: the remaining time that it
takes away, Q_j (t_j(p, w) - t_j(p', w')), over the dominant share that it takes. Then jobs are placed, small ones
first, each on the fewest servers over which it spreads evenly (:func:`.marginal.place`). Jobs whose place changes are
moved.

**Speed.** t_j is known, that of the model (``speed=known``), or fitted by non-negative least squares from ``samples``
test runs whose times are off by a log-normal factor of sigma ``noise`` (``speed=fitted``); :mod:`.speed_model`.

**Guarantee.** None is claimed. For one resource, equal tasks and convex times the counts are optimal for their slot.

===================== ================================ =======================
paper                 here                             unit
===================== ================================ =======================
w_j, p_j              workers and PSs of a job
Q_j                   ``left``                         iterations of F samples
f(p_j, w_j)           1 / :func:`.marginal.iteration`  iterations per slot
theta_0 .. theta_4    ``speed``                        slots
===================== ================================ =======================

**Deviations.** D1: Q_j is known from what the job announces, so no loss curve is fitted. D2: at most F_j workers, and
never more than gamma_j of them to a PS: a worker that would be one too many comes with a PS. With ``servers=ratio`` PSs
are added in no other way, as in PD-ORS' model more of them bring nothing; ``servers=free`` also weighs a PS alone. D3:
the dominant resource's amount is taken as a share, so that units do not matter; servers are ordered by what is free of
it, where the paper takes CPU. D4: "evenly" allows counts that differ by one. D5: test runs draw w and p independently
of each other, with w = p their terms cannot be told apart. D6: where not even one task of a job can be placed evenly or
alternately, one worker and its PSs are put wherever they fit. D7: the rate is that of external communication.

**Complexity.** O(W log J) for W tasks, and O(J H^2 R) to place them, each slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.random import Generator
from pydantic import Field

from skedge.core.events import Event, Order, WakeAt
from skedge.core.model import Cluster, Floats, Physics
from skedge.core.policy import Basis, Params, View
from skedge.core.speed import MBIT_PER_MB
from skedge.core.time import SECOND
from skedge.policies.common.resource_jobs import ResourceJobs

from .marginal_gain import Demands, allocate, place
from .speed_model import fit, known, measure


class OptimusParams(Params):
    """Parameters of Optimus.

    Attributes
    ----------
    speed
        ``known``: the model's own; ``fitted``: from test runs on arrival.
    samples, noise
        With ``fitted``: how many test runs, and the sigma of the logarithm of their times.
    servers
        ``ratio``: ceil(w / gamma) PSs; ``free``: more of them where they gain most.
    skip
        False: the first task that does not fit ends the allocation, as in the authors' code. True: its job drops out
        and the others go on.
    """

    speed: Literal["known", "fitted"] = "known"
    samples: int = Field(8, ge=5)
    noise: float = Field(0.1, ge=0)
    servers: Literal["ratio", "free"] = "ratio"
    skip: bool = False


class Optimus(Basis):
    """Marginal gains, slot by slot."""

    name: ClassVar[str] = "optimus"
    needs: ClassVar[frozenset[str]] = frozenset({"resources"})
    Parameters = OptimusParams

    @property
    def promises(self) -> dict[str, Any]:
        """Data are brought with allocations only; PSs by the ratio, unless they are free."""
        ps = {"ps": "ratio"} if self.params.servers == "ratio" else {}
        return {"uploads": "with_allocations", **ps}

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.jobs = ResourceJobs(cluster)
        self.speeds: dict[int, Floats] = {}
        self.wake_at = -1

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """At the beginning of a slot count and place anew; in between only learn who is there."""
        yield from self.jobs.admit(event, view)
        for job in sorted(set(event.arrived) & set(self.jobs.active.tolist())):
            self.speeds[job] = self._speed(job, view)
        slot = self.physics.slot
        late = event.woke and self.wake_at <= view.now  # in a live run the boundary has just passed
        if (view.now % slot == 0 or late) and len(self.jobs.active):
            demands = self._demands(view)
            counts = allocate(
                demands, view.amounts.sum(axis=0), self.jobs.total, self.params.servers == "free", self.params.skip
            )
            placed = place(demands, *counts, view.amounts.copy(), self.jobs.total)
            yield from self.jobs.settle(*placed, view, "marginal_gain")
        if len(self.jobs.active) and self.wake_at <= view.now:
            self.wake_at = (view.now // slot + 1) * slot
            yield WakeAt(self.wake_at)

    def _demands(self, view: View) -> Demands:
        jobs = self.jobs.active
        worker, ps, ratio, batch = self.jobs.demands(jobs, view)
        samples = view.column("chunks")[jobs] * view.column("minibatches")[jobs]
        left = view.share_left(jobs) * samples / batch
        return Demands(worker, ps, ratio, batch, left, np.array([self.speeds[job] for job in jobs.tolist()]))

    def _speed(self, job: int, view: View) -> Floats:
        """Coefficients of the iteration time [slots]."""
        slot_s = self.physics.slot / SECOND
        sample_s = float(view.column("minibatch_s")[job] + view.column("ps_update_s")[job])
        mb_per_slot = float(view.column("bandwidth_mbps")[job]) / MBIT_PER_MB * slot_s
        truth = known(sample_s / slot_s, float(view.column("gradient_mb")[job]), mb_per_slot)
        if self.params.speed == "known":
            return truth
        batch = float(view.column("batch")[job])
        return fit(batch, *measure(truth, batch, self.params.samples, self.params.noise, self.rng))

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """What the policy saw of `job`, and how fast it takes it to be."""
        speed = self.speeds.get(job)
        coefficients = {} if speed is None else dict(zip("abcdef", speed.tolist(), strict=True))
        return {**self.jobs.terms(job, view), "slots_per_iteration": coefficients}
