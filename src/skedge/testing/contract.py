"""The contract of all policies, built-in or third-party: :func:`check_policy`.

Also :class:`MemoryJournal` and :func:`replay`, which rebuild a state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace

import numpy as np
import polars as pl

from skedge.core.errors import OrderError, SkedgeError
from skedge.core.events import Event, Order
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import whole_slots
from skedge.core.policy import Policy
from skedge.prepare import prepare_policy
from skedge.recorded_run import Run
from skedge.sim.world import SimulatedWorld
from skedge.simulate import run

from .scenarios import scenarios_for


class ContractError(SkedgeError):
    """A policy breaks a clause of the contract; `clause` names it."""

    def __init__(self, clause: str, message: str) -> None:
        super().__init__(f"{clause}: {message}")
        self.clause, self.message = clause, message

    def __reduce__(self) -> tuple[type[ContractError], tuple[str, str]]:
        return ContractError, (self.clause, self.message)


class MemoryJournal:
    """A journal in memory: events and their orders."""

    def __init__(self) -> None:
        self.entries: list[tuple[Event, list[Order]]] = []

    def append(self, event: Event, orders: list[Order]) -> None:
        """Write one entry."""
        self.entries.append((event, orders))


def replay(journal: MemoryJournal, scenario: Scenario, policy: Policy) -> Iterator[tuple[list[Order], list[Order]]]:
    """Feed the journal's events to a fresh kernel; yields (orders written, orders given now) for each event."""
    kernel = Kernel(scenario, policy)
    for event, recorded in journal.entries:
        yield recorded, kernel.handle(event)


def check_policy(make: Callable[[], Policy], scenarios: Sequence[Scenario] | None = None) -> None:
    """Check that a policy keeps the contract on each of `scenarios`.

    Parameters
    ----------
    make
        Makes a fresh policy; called for each run.
    scenarios
        Those that it runs on; None: :func:`scenarios_for` the policy.

    Raises
    ------
    ContractError
        Names the violated clause:

        ``valid orders``
            every order satisfies the kernel's checks (capacity, types, no migration, a PS for each running job);
        ``every arrival is answered``
            each job is completed or rejected;
        ``the record keeps the rules``
            the verifier finds no violation;
        ``deterministic``
            two runs with the same seed give equal tables;
        ``never anticipating``
            without the arrivals from some time on, all decisions before that time are the same;
        ``never reads true durations``
            if the true durations of the jobs from some job on differ but the announced ones do not, all orders are the
            same until the first fact that differs;
        ``state is rebuilt by replay``
            a fresh policy, made from the parameters alone, gives the same orders for the same events.
    """
    for scenario in scenarios_for(make()) if scenarios is None else scenarios:
        journal = MemoryJournal()
        first = _run(make, scenario, journal)
        _check_rules(first)
        _check_deterministic(first, _run(make, scenario))
        _check_not_anticipating(first, make)
        _check_not_clairvoyant(first, journal, make)
        _check_replay(journal, scenario, make)


def _run(make: Callable[[], Policy], scenario: Scenario, journal: MemoryJournal | None = None) -> Run:
    try:
        return run(scenario, make(), journal=journal)
    except OrderError as error:
        raise ContractError("valid orders", f"on {scenario.name}: {error}") from error
    except SkedgeError as error:
        raise ContractError("every arrival is answered", f"on {scenario.name}: {error}") from error


def _check_rules(result: Run) -> None:
    violations = result.verify(limit=1)
    if violations:
        v = violations[0]
        raise ContractError("the record keeps the rules", f"{v.rule} {v.constraint}: job {v.job}: {v.message}")


def _check_deterministic(first: Run, second: Run) -> None:
    for name, table in first.schedule.tables().items():
        if not table.equals(second.schedule.tables()[name]):
            raise ContractError("deterministic", f"two runs with one seed differ in the table {name!r}")


def _check_not_anticipating(full_run: Run, make: Callable[[], Policy]) -> None:
    """Check ``never anticipating``; constants calibrated before the run stay when arrivals are dropped."""
    scenario = full_run.scenario
    count = len(scenario.jobs)
    for n_jobs in sorted({count - 1, 3 * count // 4, count // 2, count // 4} - {0, count}):
        # Constants come from the whole scenario: dropping arrivals must not calibrate another policy.
        policy = prepare_policy(make(), scenario)
        shortened = _first_jobs(scenario, n_jobs)
        kernel = Kernel(shortened, policy)
        try:
            drive_to_end(kernel, SimulatedWorld(kernel))
        except SkedgeError as error:
            raise ContractError("never anticipating", f"with the first {n_jobs} jobs alone: {error}") from error
        # In slots an arrival is seen when the next slot begins: no decision before that can know of it.
        end = int(whole_slots(scenario.jobs.arrival[n_jobs], scenario.physics.step))
        if not _decisions_before(full_run.schedule.decisions, end).equals(
            _decisions_before(kernel.record.decisions_table(), end)
        ):
            raise ContractError(
                "never anticipating",
                f"on {scenario.name}: decisions before {end} µs change when job {scenario.jobs.ids[n_jobs]!r} and "
                "those after it, all later, are dropped",
            )


def _check_not_clairvoyant(full_run: Run, recorded: MemoryJournal, make: Callable[[], Policy]) -> None:
    """Check ``never reads true durations``: until a fact differs, both runs give the policy the same input."""
    scenario, count = full_run.scenario, len(full_run.scenario.jobs)
    for first in sorted({0, count // 3, 2 * count // 3}):
        altered = _with_other_durations(scenario, first)
        # Not strict: the runs may part, and one of them end earlier; what follows is not compared.
        for (event, orders), (event_now, orders_now) in zip(recorded.entries, _play(altered, make, scenario)):  # noqa: B905
            if _comparable(event) != _comparable(event_now):
                break
            if list(map(_comparable, orders)) != list(map(_comparable, orders_now)):
                raise ContractError(
                    "never reads true durations",
                    f"on {scenario.name}: orders at {event.time} µs change with the true durations of job "
                    f"{scenario.jobs.ids[first]!r} and those after it, of which nothing is known then",
                )


def _with_other_durations(scenario: Scenario, first: int) -> Scenario:
    """`scenario` with other true durations of the jobs from `first` on, up to three times as long or as short."""
    altered = replace(scenario)
    factor = 3.0 ** scenario.rng("other truth").uniform(-1, 1, len(scenario.jobs))
    factor[:first] = 1
    # The place of a cached property, set before it is computed: announced durations stay as they are.
    altered.__dict__["true_factor"] = scenario.true_factor * factor
    return altered


def _play(scenario: Scenario, make: Callable[[], Policy], history: Scenario) -> Iterator[tuple[Event, list[Order]]]:
    """Run a policy; yields each event with its orders. The policy's constants are calibrated on `history`."""
    # Calibrated on the original: with other true durations the constants would differ rightly.
    policy, journal = prepare_policy(make(), history), MemoryJournal()
    kernel = Kernel(scenario, policy, journal)
    world = SimulatedWorld(kernel)
    while (event := world.next_event()) is not None:
        for order in kernel.handle(event):
            world.perform(order)
        yield journal.entries[-1]


def _decisions_before(decisions: pl.DataFrame, end: int) -> pl.DataFrame:
    columns = ["time", "job", "verb", "chunk", "lane", "server", "rank", "reason"]
    return decisions.filter(pl.col("time") < end).select(columns).cast({"reason": pl.String})


def _first_jobs(scenario: Scenario, count: int) -> Scenario:
    ids = set(scenario.jobs.ids[:count])
    delays_by_job = {job: delays for job, delays in scenario.jobs.fixed_delays.items() if job in ids}
    jobs = Jobs(scenario.jobs.frame[:count], scenario.cluster, delays_by_job)
    return Scenario(scenario.cluster, jobs, scenario.physics, scenario.seed, scenario.name)


def _check_replay(journal: MemoryJournal, scenario: Scenario, make: Callable[[], Policy]) -> None:
    for i, (recorded, replayed) in enumerate(replay(journal, scenario, _new_policy(prepare_policy(make(), scenario)))):
        if [_comparable(order) for order in recorded] != [_comparable(order) for order in replayed]:
            raise ContractError(
                "state is rebuilt by replay", f"orders on event {i} differ when the journal is replayed"
            )


def _new_policy(policy: Policy) -> Policy:
    """A new policy with the same parameters: a run folder keeps nothing else of a calibration."""
    return type(policy)(**policy.params.model_dump())


def _comparable(value: object) -> object:
    """An order or an event in a comparable form: arrays as lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return tuple(map(_comparable, value))
    if not is_dataclass(value):
        return value
    return (type(value).__name__, *(_comparable(getattr(value, field.name)) for field in fields(value)))
