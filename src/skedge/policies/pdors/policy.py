"""PD-ORS and OASiS as policies: offers on arrival, plans carried out slot by slot, prices on record.

A job is offered when it arrives (:mod:`.admission`). If it is admitted its whole plan is reserved at once, and its
workers and PSs are changed at the slot boundaries of the plan; else it is rejected for good. What a policy adds is how
it prices and how it places.

**Deviations.**

- D11 A job that is seen within a slot is offered the next one, from which its training time is counted.
- D12 Work that outlives its plan (announced times were wrong, a server went out of service) goes on slot by slot: where
  it was if that is free, else on the first machines with room, with fewer workers if need be. Planned jobs go first.
- D13 A job whose work is done before its plan ends leaves its reservation in the books, and so in the prices: what a
  run learns does not change them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from skedge.core.errors import PolicyError, ScenarioError
from skedge.core.events import Allocate, Event, Order, Price, Reject, Reserve, Suspend
from skedge.core.model import Cluster, Floats, Physics
from skedge.core.policy import Basis, Params, View

from .admission import Admission, Answer, Completion, Plan
from .explain import told
from .job import TrainingJob, announced
from .plans import Held, anywhere, fits, held_of, pieces, reservations
from .prices import Prices

if TYPE_CHECKING:
    from numpy.random import Generator

    from skedge.core.scenario import Scenario


def _listed(value: object) -> object:
    try:
        return [float(part) for part in value.split(";")] if isinstance(value, str) else value
    except ValueError:
        raise ValueError("it must be numbers with semicolons between") from None


def _joined(value: tuple[float, ...] | None) -> str | None:
    return None if value is None else ";".join(repr(x) for x in value)


def _source(value: str) -> str:
    if value != "trace" and not (value.startswith("file:") and value != "file:"):
        raise ValueError("it must be trace, or file:<a scenario file or jobs table>")
    return value


Numbers = Annotated[
    tuple[float, ...], BeforeValidator(_listed), PlainSerializer(_joined, return_type=str, when_used="json")
]
"""Numbers, in text joined by semicolons."""


class PrimalDualParams(Params):
    """Parameters of both.

    Attributes
    ----------
    levels
        N_q, work levels of the dynamic program; ``auto``: they follow the job (:mod:`.levels`).
    completion
        What u is taken of: ``end`` or ``index`` of the last slot.
    price_source
        The jobs that L, U and mu are calibrated from before the run: ``trace``, the scenario's own, or
        ``file:<path>``, those of another scenario file or jobs table: a window of history.
    low, high, mu
        The constants, frozen: L and mu of each group of machines (OASiS has two), U by group and resource, 0 for one
        that has no price; None: calibrated from `price_source`.
    """

    levels: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    completion: Completion = "end"
    price_source: Annotated[str, AfterValidator(_source)] = "trace"
    low: Numbers | None = None
    high: Numbers | None = None
    mu: Numbers | None = None

    @property
    def job_levels(self) -> int | None:
        """N_q of a :class:`.training_job.TrainingJob`."""
        return None if self.levels == "auto" else self.levels

    @model_validator(mode="after")
    def _complete(self) -> PrimalDualParams:
        given = [name for name in ("low", "high", "mu") if getattr(self, name) is not None]
        if len(given) in (1, 2):
            raise ValueError(f"low, high and mu go together; given is {' and '.join(given)}")
        if self.low is None or self.high is None:
            return self
        if not np.isfinite([*self.low, *self.high, *(self.mu or ())]).all():
            raise ValueError("low, high and mu must be finite numbers")
        if not self.low or len(self.high) % len(self.low) or not min(self.low) > 0:
            raise ValueError("low must be above 0, and high have as many resources for each low")
        by_group = np.array(self.high).reshape(len(self.low), -1)
        wrong = (by_group != 0) & ~(by_group > np.array(self.low)[:, None])
        if wrong.any():
            raise ValueError(f"U = {by_group[wrong][0]:g} is not above L; a price could not grow")
        return self


@dataclass
class Job:
    """An admitted job.

    Attributes
    ----------
    plan
        What it is to hold by slot; empty once it has outlived it.
    held
        What it holds now; None while it is suspended.
    last
        What it held last, to go on with should it outlive its plan.
    late, until
        Whether it has, and the end of its reservation since [µs].
    """

    ratio: float
    needs: tuple[Floats, Floats]
    plan: dict[int, Held] = field(default_factory=dict)
    held: Held | None = None
    last: Held | None = None
    late: bool = False
    until: int = 0


class PrimalDual(Basis):
    """Base of both policies."""

    needs: ClassVar[frozenset[str]] = frozenset({"resources", "a utility of every job", "a horizon"})
    Parameters: ClassVar[type[Params]] = PrimalDualParams
    groups: ClassVar[int] = 1

    @property
    def promises(self) -> dict[str, Any]:
        """Data are brought with allocations only; on servers with resources every job that runs has a plan."""
        return {"uploads": "with_allocations", "plans": True}

    def calibrate(self, jobs: Sequence[TrainingJob], capacity: Floats, horizon: int) -> Prices:
        """The constants of the price functions."""
        raise NotImplementedError

    def admission(self, capacity: Floats, horizon: int, prices: Prices) -> Admission:
        """What decides on offers."""
        raise NotImplementedError

    # -- constants -----------------------------------------------------------------------------------------------

    def calibrated(self, scenario: Scenario) -> PrimalDual:
        """The same policy with its constants set, if they were not: from the jobs of `scenario`.

        Raises
        ------
        PolicyError
            If no job arrives within the horizon.
        ScenarioError
            As :func:`.pricing.calibrate`.
        """
        if self.params.low is not None:
            return self
        horizon, physics = scenario.physics.slots or 0, scenario.physics
        jobs, columns = [], scenario.jobs.columns
        for job, utility in enumerate(scenario.jobs.utility):
            arrival = -(-int(columns["arrival"][job]) // physics.slot)
            if arrival < horizon and utility is not None:
                jobs.append(announced(job, arrival, columns.__getitem__, utility, physics, self.params.job_levels))
        if not jobs:
            raise PolicyError(
                f"{self.name}: no job with a utility arrives before the horizon, to take prices from; give "
                f"{self.name}:price_source=file:<a scenario file or jobs table>"
            )
        try:
            prices = self.calibrate(jobs, scenario.cluster.amounts, horizon)
        except ScenarioError as error:
            numbered = ", ".join(f"{i}: {name}" for i, name in enumerate(scenario.cluster.resources))
            raise ScenarioError(f"{self.name}: {error} (resources are {numbered})") from error
        constants = {
            "low": tuple(prices.low[: self.groups].tolist()),
            "high": tuple(prices.high[: self.groups].ravel().tolist()),
            "mu": prices.mu,
        }
        return type(self)(**{**self.params.model_dump(), **constants})

    def _prices(self, cluster: Cluster, groups: int) -> Prices:
        """The frozen constants by machine: groups take turns, as :func:`.machines.split` has it."""
        p, resources = self.params, len(cluster.resources)
        if p.low is None:
            raise ValueError(f"{self.name}: its constants are not set; give them, or take calibrated(scenario)")
        if len(p.low) != groups:
            raise PolicyError(f"{self.name}: low has {len(p.low)} numbers; it must have {groups}")
        high = np.array(p.high).reshape(groups, -1)
        if high.shape[1] != resources:
            have = ", ".join(cluster.resources)
            raise PolicyError(f"{self.name}: high is of {high.shape[1]} resources; the servers have {have}")
        group = np.arange(len(cluster.servers)) % groups
        return Prices(np.array(p.low)[group], high[group], tuple(p.mu))

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.horizon = physics.slots or 0
        self.scheduler = self.admission(cluster.amounts, self.horizon, self._prices(cluster, self.groups))
        self.jobs: dict[int, Job] = {}
        self.offered: tuple[int, TrainingJob, Answer] | None = None
        self.draws = rng.bit_generator.state

    # -- events --------------------------------------------------------------------------------------------------

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Offer what arrives, then bring what every job holds to what its plan says of this slot."""
        for job in event.left:
            self.jobs.pop(job, None)
        for job in event.interrupted:
            self.jobs[job].held = None
        for job in (*event.broken, *event.interrupted):
            self.jobs[job].late, self.jobs[job].plan = True, {}
        for job in event.arrived:
            yield from self._offer(job, view)
        yield from self._carry_out(view)

    def _offer(self, job: int, view: View) -> Iterator[Order]:
        """Alg. 1."""
        slot, utility = self.physics.slot, view.utility(job)
        arrival = -(-view.now // slot)
        if utility is None:
            yield Reject(job, "no_utility: it does not say what it is worth")
            return
        if arrival >= self.horizon:
            yield Reject(
                job, f"too_late: it arrives in slot {arrival}; the last before the horizon is {self.horizon - 1}"
            )
            return
        made = announced(job, arrival, view.column, utility, self.physics, self.params.job_levels)
        before = self.scheduler.ledger.price[arrival:].copy()
        self.draws = self.rng.bit_generator.state
        answer = self.scheduler.offer(made)
        self.offered, plan = (job, made, answer), answer.plan
        value = None if plan is None else plan.payoff
        if plan is None or not answer.admitted:
            yield Reject(job, answer.reason, value)
            return
        self.jobs[job] = Job(made.ratio, made.demands, {part.slot: held_of(part) for part in plan.slots})
        for server, workers, ps, start, end in reservations(self.jobs[job].plan):
            yield Reserve(job, server, workers, start * slot, end * slot, answer.reason, ps, value)
        yield Price(job, tuple(self._changes(plan, before, arrival)))

    def _changes(self, plan: Plan, before: Floats, first: int) -> Iterator[Any]:
        """The prices that the plan has changed; `before` begins with slot `first`."""
        for part in plan.slots:
            rows = np.array(part.machines)
            now = self.scheduler.ledger.price[part.slot, rows]
            yield from pieces(self.cluster, part.slot, self.physics.slot, rows, before[part.slot - first, rows], now)

    # -- plans carried out ---------------------------------------------------------------------------------------

    def _carry_out(self, view: View) -> Iterator[Order]:
        """First all that is given up, then what is planned for this slot, then what has outlived its plan."""
        now = view.now // self.physics.slot
        planned = {job: one.plan.get(now) for job, one in self.jobs.items() if not one.late}
        changed = [job for job, wanted in planned.items() if wanted != self.jobs[job].held]
        for job in changed:
            yield from self._stop(job)
        for job in changed:
            wanted = planned[job]
            if wanted is not None:
                yield from self._begin(job, wanted, view)
        for job in [job for job, one in self.jobs.items() if one.late]:
            yield from self._go_on(job, view)

    def _stop(self, job: int) -> Iterator[Order]:
        one = self.jobs[job]
        if one.held is not None:
            one.held = None
            yield Suspend(job, "as planned" if not one.late else "a planned job needs its room")

    def _begin(self, job: int, wanted: Held, view: View) -> Iterator[Order]:
        """Give a job what its plan says; late ones make room, the last admitted first."""
        one = self.jobs[job]
        late = [other for other, its in self.jobs.items() if its.late and its.held is not None]
        while late and not fits(view.free, one.needs, wanted):
            yield from self._stop(late.pop())
        if fits(view.free, one.needs, wanted):
            yield from self._allocate(job, wanted, "as planned")
        else:  # a server of its plan is out of service
            one.late, one.last, one.plan = True, wanted, {}

    def _go_on(self, job: int, view: View) -> Iterator[Order]:
        """Let a job that has outlived its plan go on to the end of this slot, somewhere (D12)."""
        one, slot = self.jobs[job], self.physics.slot
        end = (view.now // slot + 1) * slot
        if one.held is None and one.last is not None:
            same = fits(view.free, one.needs, one.last)
            wanted = one.last if same else anywhere(view.free, one.needs, one.last, one.ratio)
            if wanted is None:
                return  # room comes with an event: a job is complete, a plan goes on, a server is back
            yield from self._allocate(job, wanted, "extended")
            one.until = view.now
        if one.held is not None and one.until <= view.now:
            one.until = end
            for server, (workers, ps) in one.held.by_server().items():
                yield Reserve(job, server, workers, view.now, end, "extended", ps)

    def _allocate(self, job: int, wanted: Held, reason: str) -> Iterator[Order]:
        one = self.jobs[job]
        one.held = one.last = wanted
        yield Allocate(job, wanted.workers, wanted.ps, reason)

    # -- why -----------------------------------------------------------------------------------------------------

    def terms(self, job: int, view: View) -> Mapping[str, Any] | None:  # noqa: ARG002 - the books are the policy's own
        """Utility against cost by completion, the best schedule, its dearest charges, what would have admitted it."""
        if self.offered is None or self.offered[0] != job:
            return {"compares": "its arrival with the horizon"}
        _, made, answer = self.offered
        return told(made, answer, self.cluster, self._would_admit)

    def _would_admit(self, changed: TrainingJob) -> bool:
        """Whether the job that was offered last, and rejected, had been admitted so `changed`, with the same draws."""
        now = self.rng.bit_generator.state
        self.rng.bit_generator.state = self.draws
        try:
            return self.scheduler.answer(changed).admitted
        finally:
            self.rng.bit_generator.state = now
