"""The points of a comparison, as processes carry them out: runs with their verification, and bounds."""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from skedge.analysis.metrics.metrics import completion_of
from skedge.analysis.verify.verify import Violation
from skedge.core.errors import SkedgeError
from skedge.core.model.scenario import Scenario
from skedge.optimum.problems import ReferencePart, covering_problems, parts, reference, reference_part
from skedge.platform.jit import interpreted
from skedge.recorded_run import Run
from skedge.runs.meta import folder_name, registered_meta
from skedge.runs.tasks import Executor, KeyedTask, TransientResult, key_of
from skedge.scenario.file import Source
from skedge.scenario.resampled import Origin, origin_of, window_of
from skedge.scenario.save import digest_of
from skedge.simulate import run

from .comparison import Failure, Times
from .entrants import Entrant


@dataclass(frozen=True)
class Sample:
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
        """Read or draw the scenario."""
        return window_of(self.source, self.seed, self.origin)


def samples_of(sources: Sequence[tuple[Source, Origin, int | None]], executor: Executor) -> list[Sample]:
    """The samples of these sources and seeds; to another machine, or a folder, the scenarios themselves go."""
    call = time.monotonic_ns()
    samples = [Sample(i, source, origin, seed, i, call) for i, (source, origin, seed) in enumerate(sources)]
    # Another machine lacks the file or the function, and a result is kept for what the file held: hence the scenario.
    return samples if executor.is_local_uncached else [_resolved(sample) for sample in samples]


def _resolved(sample: Sample) -> Sample:
    """The sample with its scenario itself."""
    scenario = sample.scenario()
    return replace(sample, source=scenario, origin=origin_of(scenario), digest=digest_of(scenario))


@dataclass(frozen=True)
class RunResult:
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
class RunFailure(TransientResult):
    """The result that a process returns for a run that ended with an error."""

    policy: str
    number: int
    seed: int
    failure: Failure


@dataclass(frozen=True)
class BoundResult:
    """The bounds that a process returns for a part of a sample."""

    number: int
    part: int
    bounds: ReferencePart | None


def successes_among(results: Iterable[RunResult | RunFailure]) -> list[RunResult]:
    """The runs that ended well."""
    return [result for result in results if isinstance(result, RunResult)]


def run_point(sample: Sample, policy: Entrant, executor: Executor, verify: bool, folder: Path | None) -> KeyedTask:
    """The run of a policy on a sample.

    Parameters
    ----------
    sample, policy
        What to run; of the first sample the run itself comes back, for the report.
    executor
        Where it is carried out; elsewhere than here, or kept, it needs a key of all that its result depends on.
    verify
        Check every rule of the model.
    folder
        Parent of the run folder; elsewhere than here the run comes back to be written. None: it is not written.
    """
    if executor.is_local_uncached:
        return KeyedTask(
            f"{policy.label} {sample.number}", _run_sample, (sample, policy, verify, folder, sample.i == 0)
        )
    keep = sample.i == 0 or folder is not None
    # Whether the run comes back belongs to the key: a result kept without it does not serve a report.
    key = key_of("compare", sample.digest, policy.label, policy.module(), sample.i, verify, keep)
    return KeyedTask(key, _run_sample, (sample, policy, verify, None, keep))


def _run_sample(
    sample: Sample, policy: Entrant, verify: bool, folder: Path | None, keep: bool
) -> RunResult | RunFailure:
    scenario = sample.scenario()
    try:
        result, violations, times = _verified_run(scenario, policy, verify)
    except (MemoryError, OSError):  # this machine's, which say nothing about the policy
        raise
    # Any error of a policy, which may be anyone's code, is a result of the comparison and ends only this run.
    except Exception as error:
        return RunFailure(policy.label, sample.number, scenario.seed, _failure(policy.label, scenario.seed, error))
    if folder is not None:
        result.write(make_run_folder(folder, policy.label, scenario.seed))
    covered = covering_problems(result.scenario, result.schedule, completion_of(registered_meta(result.meta)))
    if sample.i == 0:
        _ = result.utilisation  # the report shows it, and it is computed here, beside other runs
    return RunResult(
        policy.label, sample.number, sample.i, scenario.seed, result.metrics, result if keep else None, covered,
        parts(scenario), violations, times, _hash(scenario.jobs.arrival, scenario.announced_work),
        _hash(result.jobs["completion"].is_not_null().to_numpy()),
    )  # fmt: skip


def run_name(policy: str, seed: int) -> str:
    """Name of a run's folder."""
    return f"{folder_name(policy)}-seed{seed}"


def make_run_folder(folder: Path, policy: str, seed: int) -> Path:
    """A new folder for a run, in `folder`."""
    path = folder / run_name(policy, seed)
    path.mkdir(parents=True)
    return path


def _verified_run(scenario: Scenario, policy: Entrant, verify: bool) -> tuple[Run, list[Violation], Times]:
    start_s = time.perf_counter()
    result = run(scenario, policy.new_policy())
    simulated_s = time.perf_counter()
    violations = result.verify() if verify else []
    return result, violations, Times(result.decisions_s, simulated_s - start_s, time.perf_counter() - simulated_s)


def _failure(policy: str, seed: int, error: Exception) -> Failure:
    """The failure, with the error in a form that goes to another process."""
    trace = "" if isinstance(error, SkedgeError) else traceback.format_exc()
    try:
        # Some exceptions pickle, but do not unpickle, as their __init__ takes other arguments: then their text is kept.
        pickle.loads(pickle.dumps(error))  # noqa: S301 - just pickled
    except Exception:
        error = SkedgeError(f"{type(error).__name__}: {error}")
    return Failure(policy, seed, error, trace)


def _hash(*arrays: np.ndarray[Any, Any]) -> str:
    return blake2b(b"".join(array.tobytes() for array in arrays), digest_size=8).hexdigest()


def bound_points(sample: Sample, results: Mapping[str, RunResult | RunFailure]) -> list[KeyedTask]:
    """The bounds on a sample that hold for all its runs that ended well, part by part."""
    successes = successes_among(results.values())
    if not successes:
        return []
    # One bound for all policies must hold for every run: of the problems that cover each of them.
    covered = tuple(sorted(set.intersection(*(set(result.covered) for result in successes))))
    return [
        KeyedTask(key_of("bound", sample.digest, covered, part), _bound, (sample, covered, part))
        for part in range(successes[0].parts)
    ]


def _bound(sample: Sample, covered: tuple[str, ...], part: int) -> BoundResult:
    """The bounds of the problems `covered` on a part of the sample."""
    key = sample.call, sample.number
    # The parts of a sample follow each other; drawing its scenario may take longer than a bound.
    if key not in last_scenario:
        last_scenario.clear()
        last_scenario[key] = sample.scenario()
    return BoundResult(sample.number, part, reference_part(last_scenario[key], covered, part))


last_scenario: dict[tuple[int, int], Scenario] = {}
"""The scenario of the last bound in this process: the next one is mostly of another part of it."""


def compile_small(sample: Sample, policy: Entrant) -> None:
    """Compile verification and bounds on the first job alone, while another process compiles the policy."""
    scenario = sample.scenario()
    small = scenario.only(slice(0, 1))
    # Compiling the loop of the run is the other process's work: one job is simulated without.
    with interpreted():
        result = run(small, policy.new_policy())
    result.verify()
    reference(small, covering_problems(small, result.schedule, completion_of(registered_meta(result.meta))))
