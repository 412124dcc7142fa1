"""Comparison of policies over seeds: parallel runs, verification, confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from skedge.analysis.intervals import FEWEST, import_statistics
from skedge.core.errors import InputError, SkedgeError
from skedge.core.policy import AnyPolicy
from skedge.optimum.problems import Reference, ReferencePart, reference_of
from skedge.runs.result_cache import ResultCache
from skedge.runs.tasks import Executor, KeyedTask, run_tasks
from skedge.scenario.file import Source
from skedge.scenario.resampled import is_resampled, origin_of

from . import MOST_SEEDS
from .comparison import Comparison
from .entrants import Entrant, entrants_of
from .points import (
    BoundResult,
    RunFailure,
    RunResult,
    Sample,
    bound_points,
    compile_small,
    last_scenario,
    make_run_folder,
    run_point,
    samples_of,
    successes_among,
)
from .rates import add_rates


def compare(
    source: Source,
    policies: Sequence[AnyPolicy] | str,
    seeds: int | Sequence[int | None] = (None,),
    *,
    processes: int = -1,
    progress: Callable[[str, int], None] | None = None,
    verify: bool = True,
    folder: Path | None = None,
    ray: str | None = None,
    resume: Path | ResultCache | None = None,
) -> Comparison:
    """Run each policy on the scenario at each seed.

    Parameters
    ----------
    source
        A file, the name of a shipped scenario, a function of the seed, or a scenario, which has its one seed.
    policies
        Each as ``name`` or ``name:key=value,...``, as a policy object, of which every run gets a copy, or as its class.
    seeds
        The seeds, None being the scenario's own; or their number: the scenario's own and those that follow it. Of jobs
        from a trace or a table, other seeds than its own make a moving-block bootstrap
        (:mod:`skedge.scenario.resampled`).
    processes
        Number of parallel runs; -1: one per core. The results do not depend on it.
    progress
        Called with policy and seed after each run, and with ``bound`` and seed after each bound.
    verify
        Check every rule of the model on each record, in the process of the run.
    folder
        Folder for the run folders, named by :func:`~skedge.comparison.points.run_name`; None: runs are not written.
    ray
        Address of an existing Ray cluster that carries out the runs instead; the same skedge must be installed there.
    resume
        Folder in which finished runs and bounds are kept: those already there are not made again, but for failures.

    Returns
    -------
    Comparison
        Of the policies all of whose runs ended well; the failures of the others are with it.

    Raises
    ------
    InputError
        If the scenario or a policy is wrong. Errors that can be detected in advance are raised before any run.
    SkedgeError
        If the operating system ended a run, or every policy failed: then the first error.
    """
    entrants = entrants_of([policies] if isinstance(policies, str) else policies)
    _check_seeds(seeds if isinstance(seeds, int) else len(seeds))
    origin = origin_of(source)
    if isinstance(seeds, int):
        seeds = range(origin.seed, origin.seed + seeds)
    if processes == 0 or processes < -1:
        raise InputError(f"processes: {processes}; it must be at least 1, or -1 for one per core")
    cache = ResultCache(resume) if isinstance(resume, Path) else resume
    executor = Executor(processes, ray, cache, use_this_process=True)
    samples = samples_of([(source, origin, seed) for seed in seeds], executor)
    results, references = _results(samples, entrants, executor, verify, folder, progress or _silent)
    resampled = any(is_resampled(origin, seed) for seed in seeds)
    return _comparison(results, references, entrants, verify=verify, resampled=resampled)


def _check_seeds(number: int) -> None:
    """Refuse a number of seeds that no machine carries out, before any memory is taken for them."""
    if not number:
        raise InputError("seeds: the list is empty; compare at least one")
    if not 0 < number <= MOST_SEEDS:
        raise InputError(f"seeds: {number}; there must be from 1 to {MOST_SEEDS:,}")


def compare_small(
    sources: Sequence[Source],
    policies: Sequence[str],
    seeds: Sequence[int],
    progress: Callable[[str, int], None] | None = None,
) -> list[Comparison]:
    """Run each policy on each scenario at each seed, all of which take a second or less a run, and verify it.

    One process compiles what runs do not use while another one compiles the policy.

    Parameters
    ----------
    sources, policies, seeds
        As for :func:`compare`; each policy is a name with parameters.
    progress
        Called with policy and seed after each run, and with ``bound`` and seed after each bound.

    Returns
    -------
    list of Comparison
        One for each source, in their order.
    """
    _check_seeds(len(seeds))
    entrants, n_seeds = entrants_of(policies), len(seeds)
    executor = Executor(use_this_process=True)
    sources_and_seeds = [(source, origin_of(source), seed) for source in sources for seed in seeds]
    samples = [replace(sample, i=sample.i % n_seeds) for sample in samples_of(sources_and_seeds, executor)]
    compiling = KeyedTask("kernels", compile_small, (samples[0], entrants[0]))
    results, references = _results(samples, entrants, executor, True, None, progress or _silent, compiling)
    parts = [slice(k * n_seeds, (k + 1) * n_seeds) for k in range(len(sources))]
    return [
        _comparison({policy: runs[part] for policy, runs in results.items()}, references[part], entrants)
        for part in parts
    ]


def _silent(_policy: str, _seed: int) -> None:
    """Report no progress."""


def _results(
    samples: Sequence[Sample],
    policies: Sequence[Entrant],
    executor: Executor,
    verify: bool,
    folder: Path | None,
    progress: Callable[[str, int], None],
    compiling: KeyedTask | None = None,
) -> tuple[dict[str, list[RunResult | RunFailure]], tuple[Reference | None, ...]]:
    """The results of the runs by policy, and the bound of each sample that holds for all its runs.

    Runs that are carried out elsewhere come back to be written.
    """
    same_family = [policy for policy in policies if policy.family == policies[0].family]
    # Runs of one name follow each other, so that a process reuses the code that it has compiled for the run before.
    points = [
        run_point(sample, policy, executor, verify, folder)
        for policy in (*same_family, *(policy for policy in policies if policy not in same_family))
        for sample in samples
    ]
    if compiling is not None:
        points.insert(len(same_family) * len(samples), compiling)
    results: dict[int, dict[str, RunResult | RunFailure]] = {sample.number: {} for sample in samples}
    # Results come in any order; they are found again by sample, policy and part.
    bounds: dict[int, dict[int, ReferencePart | None]] = {sample.number: {} for sample in samples}
    by_number = {sample.number: sample for sample in samples}

    def next_points(result: RunResult | RunFailure | BoundResult | None) -> list[KeyedTask]:
        """The bounds of a sample when all its runs are made."""
        if not isinstance(result, RunResult | RunFailure):
            return []
        if isinstance(result, RunResult) and result.i > 0:
            result = replace(result, run=None)  # the report shows the runs of the first sample alone
        of_sample = results[result.number]
        of_sample[result.policy] = result
        return bound_points(by_number[result.number], of_sample) if len(of_sample) == len(policies) else []

    for result in _execute(points, executor, "runs", next_points):
        if isinstance(result, RunResult | RunFailure):
            # Runs elsewhere cannot write into this machine's folder.
            if (
                isinstance(result, RunResult)
                and folder is not None
                and result.run is not None
                and not executor.is_local_uncached
            ):
                result.run.write(make_run_folder(folder, result.policy, result.seed))
            progress(result.policy, result.seed)
        elif result is not None:
            if len(samples) >= FEWEST:
                import_statistics()  # here, as other processes, where there are any, compute bounds meanwhile
            bounds[result.number][result.part] = result.bounds
            # A bound follows only from runs that ended well, so that there is one.
            first = successes_among(results[result.number].values())[0]
            if len(bounds[result.number]) == first.parts:
                progress("bound", first.seed)
    # With joining, this process has computed bounds too; its scenario would stay in memory.
    last_scenario.clear()
    runs = {policy.label: [results[sample.number][policy.label] for sample in samples] for policy in policies}
    return runs, tuple(
        reference_of([bound_parts[part] for part in sorted(bound_parts)]) if bound_parts else None
        for bound_parts in bounds.values()
    )


def _execute(
    points: Sequence[KeyedTask], executor: Executor, label: str, next_points: Callable[[Any], Sequence[KeyedTask]]
) -> Iterator[RunResult | RunFailure | BoundResult | None]:
    try:
        # Closed when an error or Ctrl-C ends the loop, so that no process goes on by itself.
        with closing(run_tasks(points, executor, label, next_points)) as results:
            yield from results
    except BrokenProcessPool as error:
        raise SkedgeError("a run was ended from outside, perhaps for want of memory; try --processes 1") from error


def _comparison(
    results: dict[str, list[RunResult | RunFailure]],
    references: tuple[Reference | None, ...],
    entrants: Sequence[Entrant],
    *,
    verify: bool = True,
    resampled: bool = False,
) -> Comparison:
    """The comparison of the policies that never failed."""
    successes = {policy: successes_among(runs) for policy, runs in results.items()}
    failures = tuple(result.failure for runs in results.values() for result in runs if isinstance(result, RunFailure))
    # A mean over other seeds than the others' would not compare: one failure leaves a policy out.
    by_policy = {policy: runs for policy, runs in successes.items() if len(runs) == len(results[policy])}
    # Nothing is left to compare: the first error says why, with the trace of the process in which it arose.
    if not by_policy:
        if failures[0].trace:
            failures[0].error.add_note(failures[0].trace)
        raise failures[0].error
    metrics = {policy: [result.metrics for result in runs] for policy, runs in by_policy.items()}
    finished = {policy: [result.finished for result in runs] for policy, runs in by_policy.items()}
    add_rates(metrics, finished)
    for rows in metrics.values():
        for row, bound in zip(rows, references, strict=True):
            row["bound_ratio"] = None if bound is None else bound.ratio(row[bound.metric])
    first = next(iter(by_policy.values()))
    # By hashes of arrivals and work: a function of the seed, or a file, may give the same jobs with every seed.
    same = len(first) > 1 and len({result.jobs for result in first}) == 1
    return Comparison(
        tuple(by_policy),
        tuple(result.seed for result in first),
        metrics,
        tuple(run for runs in by_policy.values() if (run := runs[0].run) is not None),
        references,
        {policy: [result.violations for result in runs] for policy, runs in by_policy.items()} if verify else None,
        {policy: [result.times for result in runs] for policy, runs in by_policy.items()},
        "resampled" if resampled else "same" if same else "drawn",
        finished,
        failures,
        {entrant.label: may for entrant in entrants if (may := entrant.may_use_cloud()) is not None},
    )
