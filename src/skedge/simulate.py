"""Simulation of one run of a policy on a scenario."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from .core.events import Event
from .core.kernel.drive import drive_to_end
from .core.kernel.kernel import Journal, Kernel
from .core.model.jobs_file import JobsFile
from .core.model.scenario import Scenario
from .core.policy import AnyPolicy, Policy
from .platform.malloc import trim_malloc
from .prepare import prepare_policy
from .recorded_run import Run, stored_schedule
from .runs.meta import meta_of
from .runs.stopwatch import Stopwatch, WatchedPolicy, WatchedWorld
from .scenario.file import is_large, scenario_of
from .scenario.save import JOBS, save_scenario
from .sim.compiled import use_loop
from .sim.failures import world_of

LARGE = 5_000
"""Jobs from which on a policy's compiled loop of events is used where it can be (:mod:`skedge.sim.compiled`,
:mod:`skedge.loops`): smaller runs do not earn back its compilation. The record is the same either way."""

SMALL = 500
"""Jobs from which on it is used if its compiled functions are in the cache."""


def run(
    scenario: Scenario | Path | str,
    policy: AnyPolicy = "aonline",
    *,
    progress: Callable[[Event], None] | None = None,
    journal: Journal | None = None,
    profile: Stopwatch | None = None,
    folder: Path | None = None,
) -> Run:
    """Simulate `policy` on `scenario`; :meth:`~skedge.recorded_run.Run.verify` then checks every rule.

    Parameters
    ----------
    scenario
        A scenario, its file, or the name of a shipped one.
    policy
        ``name`` or ``name:key=value,...``, a policy object, or its class.
    progress
        Called with each event after its orders were carried out. A compiled loop of events calls it only now and then,
        with the jobs that have completed since the last call.
    journal
        Where to write events and orders; not needed for the tables of the run.
    profile
        Counts the CPU time of the run by stage.
    folder
        A run folder with the scenario (:func:`in_run_folder`). If the jobs are still in their file and the policy is
        A_online, which does not need them all, the tables are written there as they grow, and stay there.

    Raises
    ------
    ScenarioError
        If there is no such file or shipped scenario, or it is wrong.
    PolicyError
        If the policy is unknown or does not fit the scenario.
    OrderError
        If the policy breaks a rule.
    """
    scenario = scenario_of(scenario)
    instance = prepare_policy(policy, scenario)
    watch = profile or Stopwatch()
    if folder is not None and scenario.unread is not None and _is_streamed(scenario, instance):
        return _streamed(scenario, instance, progress, folder, watch)
    # a compiled loop writes no journal; a test may set LARGE to 0, and has it used whatever is in the cache
    if journal is None and len(scenario.jobs) >= min(SMALL, LARGE):
        from .loops.which import loop_for  # noqa: PLC0415 - it imports the policies that it covers

        simulate = loop_for(scenario, instance, compiling=len(scenario.jobs) >= LARGE)
        if simulate is not None:
            with watch.counting("loop"):
                schedule = simulate(scenario, instance, progress)
                if len(scenario.jobs) >= LARGE:
                    trim_malloc()  # verification needs as much again
            return Run(scenario, meta_of(scenario, instance), schedule)
        run = _looped(scenario, instance, progress, watch)
        if run is not None:
            return run
    return _driven(scenario, instance, progress, journal, watch, split=profile is not None)


def _looped(
    scenario: Scenario, policy: Policy, progress: Callable[[Event], None] | None, watch: Stopwatch
) -> Run | None:  # fmt: skip
    """The run of a policy with a compiled loop of events; None if it has none, or it is not worth its compilation."""
    with watch.counting("loop"):
        kernel = Kernel(scenario, policy)
        world = world_of(kernel)
        if not use_loop(world, kernel, progress, compiling=len(scenario.jobs) >= LARGE):
            return None
        drive_to_end(kernel, world)
        kernel.validate_state()
        schedule = kernel.record.schedule(world.runs())
        del kernel.view  # it refers to the kernel, whose books would take memory until they are found to be garbage
    if len(scenario.jobs) >= LARGE:
        trim_malloc()  # verification needs as much again
    return Run(scenario, meta_of(scenario, policy), schedule)


def in_run_folder(scenario: Scenario, policy: Policy, folder: Path) -> Scenario:
    """The scenario with its jobs read from the run folder `folder`, if :func:`run` can write the record as it grows."""
    if not is_large(scenario.chunks) or not _is_streamed(scenario, policy):
        return scenario
    save_scenario(scenario, folder)
    if scenario.unread is not None:
        return scenario
    return scenario.in_file(JobsFile(folder / JOBS, scenario.jobs.fixed_delays, scenario.physics.step))


def _is_streamed(scenario: Scenario, policy: Policy) -> bool:
    """Whether a record can be written as it grows."""
    from .loops.streamed import covers  # noqa: PLC0415 - it imports the policy

    return covers(scenario, policy)


def _streamed(
    scenario: Scenario, policy: Policy, progress: Callable[[Event], None] | None, folder: Path, watch: Stopwatch
) -> Run:
    """The run of a policy whose tables are written as they grow."""
    from .loops.streamed import stream  # noqa: PLC0415 - it imports the policy

    tables = folder / "tables"
    tables.mkdir()
    with watch.counting("loop"):
        trim_malloc()  # a scenario that was in memory before
        stream(scenario, policy, tables, progress)
        trim_malloc()
    return Run(scenario, meta_of(scenario, policy), stored_schedule(tables, scenario))


def _driven(
    scenario: Scenario,
    policy: Policy,
    progress: Callable[[Event], None] | None,
    journal: Journal | None,
    watch: Stopwatch,
    *,
    split: bool,
) -> Run:
    """The run of a policy that the kernel asks event by event; `split`: count the world's CPU time apart."""
    with watch.simulating("kernel"):
        kernel = Kernel(scenario, cast("Policy", WatchedPolicy(policy, watch)), journal)
        world = world_of(kernel)
        driven = WatchedWorld(world, watch) if split else world
        drive_to_end(kernel, driven, None if progress is None else lambda event, _: progress(event))
        # after the run, so that a bug in the books is an error here and not a wrong record
        kernel.validate_state()
    with watch.counting("record"):
        schedule = kernel.record.schedule(world.runs())
    del kernel.view  # it refers to the kernel, whose books would take memory until they are found to be garbage
    return Run(scenario, meta_of(scenario, policy), schedule, watch.seconds["decide"])
