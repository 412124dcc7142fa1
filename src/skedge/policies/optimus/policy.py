"""Optimus: in every slot, counts from scratch by marginal gain, then placement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from skedge.core.events import Event, Order, WakeAt
from skedge.core.model.cluster import Cluster, Floats, Physics
from skedge.core.model.speed import MBIT_PER_MB
from skedge.core.model.time import SECOND
from skedge.core.policy import BasePolicy, Guarantees, Need, Params, View
from skedge.policies.common.resource_jobs import ResourceJobs

from .marginal_gain import Demands, allocate, place
from .speed_model import fit, measure, true_coefficients

if TYPE_CHECKING:
    from numpy.random import Generator


class OptimusParams(Params):
    """Parameters of Optimus.

    Attributes
    ----------
    speed
        ``known``: the model's own; ``fitted``: from test runs on arrival.
    samples, noise
        With ``fitted``: number of test runs, and the sigma of the logarithm of their times.
    servers
        ``ratio``: ceil(w / gamma) PSs; ``free``: more of them where they gain most.
    skip
        False: the first task that does not fit ends the allocation, as in the authors' code. True: its job drops out
        and the others continue.
    """

    speed: Literal["known", "fitted"] = "known"
    samples: int = Field(8, ge=5)
    noise: float = Field(0.1, ge=0)
    servers: Literal["ratio", "free"] = "ratio"
    skip: bool = False


class Optimus(BasePolicy):
    """Marginal gains, slot by slot."""

    name: ClassVar[str] = "optimus"
    needs: ClassVar[frozenset[Need]] = frozenset({"resources"})
    Parameters = OptimusParams

    @property
    def guarantees(self) -> Guarantees:
        """Data are brought with allocations only; PSs by the ratio, unless they are free."""
        ratio = self.params.servers == "ratio"
        return Guarantees(uploads="with_allocations", ps="ratio" if ratio else None)

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.jobs = ResourceJobs(cluster)
        self.speeds: dict[int, Floats] = {}
        self.wake_at = -1

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """At the beginning of a slot, recompute counts and placement; in between only track arrivals and departures."""
        yield from self.jobs.admit(event, view)
        # in order, as test runs draw random numbers
        for job in sorted(set(event.arrived) & set(self.jobs.active.tolist())):
            self.speeds[job] = self._speed(job, view)
        slot = self.physics.slot
        missed_boundary = event.woke and self.wake_at <= view.now  # in a live run the boundary has just passed
        if (view.now % slot == 0 or missed_boundary) and len(self.jobs.active):
            # from scratch, whatever the jobs hold: the counts of the last slot play no part
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
        samples = view.jobs.chunks[jobs] * view.jobs.minibatches[jobs]
        # Q in iterations: a global batch trains `batch` samples at once
        left = view.share_left(jobs) * samples / batch
        return Demands(worker, ps, ratio, batch, left, np.array([self.speeds[job] for job in jobs.tolist()]))

    def _speed(self, job: int, view: View) -> Floats:
        """Coefficients of the iteration time [slots]."""
        slot_s = self.physics.slot / SECOND
        sample_s = float(view.jobs.minibatch_s[job] + view.jobs.ps_update_s[job])
        mb_per_slot = float(view.jobs.bandwidth_mbps[job]) / MBIT_PER_MB * slot_s
        # D7: the rate of external communication, wherever the tasks will stand
        truth = true_coefficients(sample_s / slot_s, float(view.jobs.gradient_mb[job]), mb_per_slot)
        if self.params.speed == "known":
            return truth
        batch = float(view.jobs.batch[job])
        return fit(batch, *measure(truth, batch, self.params.samples, self.params.noise, self.rng))

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """The policy's view of `job`, with the coefficients of its speed."""
        speed = self.speeds.get(job)
        coefficients = {} if speed is None else dict(zip("abcdef", speed.tolist(), strict=True))
        return {**self.jobs.terms(job, view), "slots_per_iteration": coefficients}
