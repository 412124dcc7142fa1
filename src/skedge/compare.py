"""Comparison of policies over seeds: parallel runs, verification, confidence intervals."""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from .analysis.intervals import FEWEST, import_statistics
from .analysis.metrics.metrics import completion_of
from .analysis.verify.verify import Violation
from .comparison import MOST_SEEDS
from .comparison.comparison import Comparison, Failure, Times
from .comparison.entrants import Entrant, entrants_of
from .comparison.rates import add_rates
from .core.errors import InputError, SkedgeError
from .core.model.scenario import Jobs, Scenario
from .core.policy import AnyPolicy
from .optimum.problems import (
    Reference,
    ReferencePart,
    covering_problems,
    parts,
    reference,
    reference_of,
    reference_part,
)
from .platform.jit import interpreted
from .run import Run, run
from .runs.kept import Kept
from .runs.meta import folder_name, registered_meta
from .runs.sweep import Passing, Point, Where, carry_out, key_of
from .scenario.file import Source
from .scenario.resampled import Origin, is_resampled, origin_of, window_of
from .scenario.save import digest_of


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
    resume: Path | Kept | None = None,
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
        from a trace or a table, other seeds than its own make a moving-block bootstrap (:mod:`.scenario.resampled`).
    processes
        Number of parallel runs; -1: one per core. The results do not depend on it.
    progress
        Called with policy and seed after each run, and with ``bound`` and seed after each bound.
    verify
        Check every rule of the model on each record, in the process of the run.
    folder
        Folder for the run folders, named by :func:`run_name`; None: runs are not written.
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
    kept = Kept(resume) if isinstance(resume, Path) else resume
    where = Where(processes, ray, kept, joining=True)
    samples = _samples([(source, origin, seed) for seed in seeds], where)
    made, references = _results(samples, entrants, where, verify, folder, progress or _silent)
    resampled = any(is_resampled(origin, seed) for seed in seeds)
    return _comparison(made, references, entrants, verify=verify, resampled=resampled)


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
    """
    _check_seeds(len(seeds))
    entrants, each = entrants_of(policies), len(seeds)
    where = Where(joining=True)
    wanted = [(source, origin_of(source), seed) for source in sources for seed in seeds]
    samples = [replace(sample, i=sample.i % each) for sample in _samples(wanted, where)]
    compiling = Point("kernels", _compile, (samples[0], entrants[0]))
    made, references = _results(samples, entrants, where, True, None, progress or _silent, compiling)
    parts = [slice(k * each, (k + 1) * each) for k in range(len(sources))]
    return [
        _comparison({policy: ones[part] for policy, ones in made.items()}, references[part], entrants) for part in parts
    ]


def _silent(_what: str, _seed: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class _Sample:
    """The scenario at the seed of number `i`: where it is from and, for points that are sent or kept, its digest.

    `number` identifies a sample within a sweep, and `call` the sweep: a file may have changed since another one.
    """

    i: int
    source: Source
    origin: Origin
    seed: int | None
    number: int
    call: int
    digest: str = ""

    def scenario(self) -> Scenario:
        return window_of(self.source, self.seed, self.origin)


def _samples(sources: Sequence[tuple[Source, Origin, int | None]], where: Where) -> list[_Sample]:
    """The samples of these sources and seeds. Elsewhere than here the scenarios themselves are sent."""
    call = time.monotonic_ns()
    samples = [_Sample(i, source, origin, seed, i, call) for i, (source, origin, seed) in enumerate(sources)]
    return samples if where.here else [_resolved(sample) for sample in samples]


def _resolved(sample: _Sample) -> _Sample:
    """The sample with its scenario itself."""
    scenario = sample.scenario()
    return replace(sample, source=scenario, origin=origin_of(scenario), digest=digest_of(scenario))


def _results(
    samples: Sequence[_Sample],
    policies: Sequence[Entrant],
    where: Where,
    verify: bool,
    folder: Path | None,
    progress: Callable[[str, int], None],
    compiling: Point | None = None,
) -> tuple[dict[str, list[_Made | _Failed]], tuple[Reference | None, ...]]:
    """The results of the runs by policy, and the bound of each sample that holds for all its runs.

    Runs that are carried out elsewhere come back to be written.
    """
    alike = [policy for policy in policies if policy.family == policies[0].family]
    points = [
        _run_point(sample, policy, where, verify, folder)
        for policy in (*alike, *(policy for policy in policies if policy not in alike))
        for sample in samples
    ]
    if compiling is not None:
        points.insert(len(alike) * len(samples), compiling)
    made: dict[int, dict[str, _Made | _Failed]] = {sample.number: {} for sample in samples}
    bounds: dict[int, dict[int, ReferencePart | None]] = {sample.number: {} for sample in samples}
    by_number = {sample.number: sample for sample in samples}

    def then(one: _Made | _Failed | _Bounded | None) -> list[Point]:
        """The bounds of a sample when all its runs are made."""
        if not isinstance(one, _Made | _Failed):
            return []
        made[one.number][one.policy] = one if isinstance(one, _Failed) or one.i == 0 else replace(one, run=None)
        return _bound_points(by_number[one.number], made[one.number]) if len(made[one.number]) == len(policies) else []

    for one in _carried_out(points, where, "runs", then):
        if isinstance(one, _Made | _Failed):
            if isinstance(one, _Made) and folder is not None and one.run is not None and not where.here:
                one.run.write(_new(folder, one.policy, one.seed))
            progress(one.policy, one.seed)
        elif one is not None:
            if len(samples) >= FEWEST:
                import_statistics()  # here, as other processes, where there are any, compute bounds meanwhile
            bounds[one.number][one.part] = one.bounds
            first = _well(made[one.number].values())[0]
            if len(bounds[one.number]) == first.parts:
                progress("bound", first.seed)
    _last.clear()
    runs = {policy.label: [made[sample.number][policy.label] for sample in samples] for policy in policies}
    return runs, tuple(reference_of([of[part] for part in sorted(of)]) if of else None for of in bounds.values())


def _well(made: Iterable[_Made | _Failed]) -> list[_Made]:
    """The runs that ended well."""
    return [one for one in made if isinstance(one, _Made)]


def _carried_out(
    points: Sequence[Point], where: Where, what: str, then: Callable[[Any], Sequence[Point]]
) -> Iterator[_Made | _Failed | _Bounded | None]:
    try:
        with closing(carry_out(points, where, what, then)) as done:
            yield from done
    except BrokenProcessPool as error:
        raise SkedgeError("a run was ended from outside, perhaps for want of memory; try --processes 1") from error


def _run_point(sample: _Sample, policy: Entrant, where: Where, verify: bool, folder: Path | None) -> Point:
    if where.here:
        return Point(f"{policy.label} {sample.number}", _one, (sample, policy, verify, folder, sample.i == 0))
    keep = sample.i == 0 or folder is not None
    key = key_of("compare", sample.digest, policy.label, policy.module(), sample.i, verify, keep)
    return Point(key, _one, (sample, policy, verify, None, keep))


def _bound_points(sample: _Sample, made: Mapping[str, _Made | _Failed]) -> list[Point]:
    """The bounds on a sample that hold for all its runs that ended well, part by part."""
    well = _well(made.values())
    if not well:
        return []
    covered = tuple(sorted(set.intersection(*(set(one.covered) for one in well))))
    return [
        Point(key_of("bound", sample.digest, covered, part), _bound, (sample, covered, part))
        for part in range(well[0].parts)
    ]


def _bound(sample: _Sample, covered: tuple[str, ...], part: int) -> _Bounded:
    """The bounds of the problems `covered` on a part of the sample."""
    key = sample.call, sample.number
    if key not in _last:
        _last.clear()
        _last[key] = sample.scenario()
    return _Bounded(sample.number, part, reference_part(_last[key], covered, part))


_last: dict[tuple[int, int], Scenario] = {}
"""The scenario of the last bound in this process: the next one is mostly of another part of it."""


def _compile(sample: _Sample, policy: Entrant) -> None:
    """Compile what verification and bounds use while another process compiles the policy: on the first job alone."""
    full = sample.scenario()
    small = replace(full, jobs=Jobs(full.jobs.frame.head(1), full.cluster, full.jobs.given))
    with interpreted():
        result = run(small, policy.fresh())
    result.verify()
    reference(small, covering_problems(small, result.schedule, completion_of(registered_meta(result.meta))))


def _comparison(
    made: dict[str, list[_Made | _Failed]],
    references: tuple[Reference | None, ...],
    entrants: Sequence[Entrant],
    *,
    verify: bool = True,
    resampled: bool = False,
) -> Comparison:
    """The comparison of the policies that never failed."""
    well = {policy: _well(ones) for policy, ones in made.items()}
    failures = tuple(one.failure for ones in made.values() for one in ones if isinstance(one, _Failed))
    by_policy = {policy: ones for policy, ones in well.items() if len(ones) == len(made[policy])}
    if not by_policy:
        if failures[0].trace:
            failures[0].error.add_note(failures[0].trace)
        raise failures[0].error
    metrics = {policy: [one.metrics for one in ones] for policy, ones in by_policy.items()}
    finished = {policy: [one.finished for one in ones] for policy, ones in by_policy.items()}
    add_rates(metrics, finished)
    for rows in metrics.values():
        for row, to in zip(rows, references, strict=True):
            row["bound_ratio"] = None if to is None else to.ratio(row[to.metric])
    first = next(iter(by_policy.values()))
    same = len(first) > 1 and len({one.jobs for one in first}) == 1
    return Comparison(
        tuple(by_policy),
        tuple(one.seed for one in first),
        metrics,
        tuple(run for ones in by_policy.values() if (run := ones[0].run) is not None),
        references,
        {policy: [one.violations for one in ones] for policy, ones in by_policy.items()} if verify else None,
        {policy: [one.times for one in ones] for policy, ones in by_policy.items()},
        "resampled" if resampled else "same" if same else "drawn",
        finished,
        failures,
        {one.label: may for one in entrants if (may := one.may_use_cloud()) is not None},
    )


@dataclass(frozen=True)
class _Made:
    """The result that a process returns for a run: data for the comparison and, where it is wanted, the run itself.

    `jobs` and `finished` are hashes: of what arrives when, and of which jobs finished.
    """

    policy: str
    number: int
    i: int
    seed: int
    metrics: dict[str, Any]
    run: Run | None
    covered: tuple[str, ...]
    parts: int
    violations: list[Violation]
    times: Times
    jobs: str
    finished: str


@dataclass(frozen=True)
class _Failed(Passing):
    """What a process returns for a run that ended with an error."""

    policy: str
    number: int
    seed: int
    failure: Failure


@dataclass(frozen=True)
class _Bounded:
    """The bounds that a process returns for a part of a sample."""

    number: int
    part: int
    bounds: ReferencePart | None


def run_name(policy: str, seed: int) -> str:
    """Name of a run's folder."""
    return f"{folder_name(policy)}-seed{seed}"


def _new(folder: Path, policy: str, seed: int) -> Path:
    made = folder / run_name(policy, seed)
    made.mkdir(parents=True)
    return made


def _one(sample: _Sample, policy: Entrant, verify: bool, folder: Path | None, keep: bool) -> _Made | _Failed:
    scenario = sample.scenario()
    try:
        result, violations, times = _verified_run(scenario, policy, verify)
    except (MemoryError, OSError):  # this machine's, which say nothing about the policy
        raise
    except Exception as error:
        return _Failed(policy.label, sample.number, scenario.seed, _failure(policy.label, scenario.seed, error))
    if folder is not None:
        result.write(_new(folder, policy.label, scenario.seed))
    covered = covering_problems(result.scenario, result.schedule, completion_of(registered_meta(result.meta)))
    if sample.i == 0:
        _ = result.utilisation  # the report shows it, and it is computed here, beside other runs
    return _Made(
        policy.label, sample.number, sample.i, scenario.seed, result.metrics, result if keep else None, covered,
        parts(scenario), violations, times, _hash(scenario.jobs.arrival, scenario.announced_work),
        _hash(result.jobs["completion"].is_not_null().to_numpy()),
    )  # fmt: skip


def _verified_run(scenario: Scenario, policy: Entrant, verify: bool) -> tuple[Run, list[Violation], Times]:
    begun = time.perf_counter()
    result = run(scenario, policy.fresh())
    simulated = time.perf_counter()
    violations = result.verify() if verify else []
    return result, violations, Times(result.decisions_s, simulated - begun, time.perf_counter() - simulated)


def _failure(policy: str, seed: int, error: Exception) -> Failure:
    """The failure, with the error in a form that goes to another process."""
    trace = "" if isinstance(error, SkedgeError) else traceback.format_exc()
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - just pickled
    except Exception:
        error = SkedgeError(f"{type(error).__name__}: {error}")
    return Failure(policy, seed, error, trace)


def _hash(*arrays: np.ndarray[Any, Any]) -> str:
    return blake2b(b"".join(array.tobytes() for array in arrays), digest_size=8).hexdigest()
