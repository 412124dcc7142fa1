"""Comparison of policies over seeds: parallel runs, verification, confidence intervals."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from .analysis.intervals import FEWEST, Estimate, bounded, estimate, import_statistics
from .analysis.metrics.metrics import completion_of
from .analysis.verify.verify import Violation
from .core.errors import InputError, PolicyError, SkedgeError
from .core.jit import interpreted
from .core.policy import AnyPolicy
from .core.registry import policy_of, spec_of
from .core.scenario import Jobs, Scenario
from .core.time import SECOND
from .core.wording import ELASTIC
from .optimum.problems import Reference, ReferencePart, covering, parts, reference, reference_of, reference_part
from .report.build import ReportTable, build_report
from .report.notebook import displayed
from .report.plots import Plots
from .run import Run, run
from .runs.kept import Kept
from .runs.meta import folder_name, registered_meta
from .runs.sweep import Point, Where, carry_out, key_of
from .scenario.file import Source, scenario_of
from .scenario.save import digest_of

COLUMNS = (
    "jct_mean_s", "jct_rate", "bound_ratio", "jct_p50_s", "jct_p99_s", "slowdown_mean", "makespan_s", "preemptions",
    "postponed_chunks", "utilisation_mean", "uploaded_mb", "cloud_share", "rejected",
)  # fmt: skip
"""Metrics shown by a comparison, in order."""

VALUE_COLUMNS = ("utility_total", "bound_ratio", "acceptance_share", "training_time_p50_s")
"""Metrics shown first if all jobs have a utility."""

COST_COLUMNS = (
    "cost_total", "bound_ratio", "cost_latency", "cost_bandwidth", "cost_exchange", "cost_transfers", "moved_mb",
)  # fmt: skip
"""Metrics shown first at sites."""

HORIZON_COLUMN = "finished_after_horizon"
"""Metric shown last if there is a horizon."""

UNITS = {"jct_total_s": " s of total JCT", "utility_total": " of total utility", "cost_total": " of total cost"}
"""Units of the metrics that have bounds."""

REFERENCE = "srtf"
"""Policy to which JCT rate and differences are relative (JSAC'22 Sec. V); the first policy if it is not compared."""

HIGHER_IS_BETTER = ("utility_total", "acceptance_share", "utilisation_mean")
NEITHER_IS_BETTER = ("cloud_share",)
"""Metrics for which higher is better; for the others lower is better."""


@dataclass(frozen=True)
class Times:
    """Times of a run [s]: CPU time of the policy's decisions, wall-clock times of simulation and verification.

    The decisions of a run in a compiled loop (:mod:`skedge.quick`) are not timed: None.
    """

    decisions: float | None
    run: float
    verify: float


@dataclass(frozen=True)
class Comparison:
    """Metrics of each policy and seed.

    Attributes
    ----------
    policies, seeds
        The policies and seeds compared.
    metrics
        ``metrics[policy][i]`` are the metrics for ``seeds[i]``, with ``jct_rate`` and ``bound_ratio`` added.
    first
        The runs of the first seed, for the report.
    references
        By seed: the bound that ``bound_ratio`` is relative to; None if no bound holds for all the runs.
    violations
        By policy and seed: the violations found by the verifier; None if it was not run.
    times
        By policy and seed. They differ from run to run, so no result shows them.
    """

    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    metrics: dict[str, list[dict[str, Any]]]
    first: tuple[Run, ...]
    references: tuple[Reference | None, ...] = ()
    violations: dict[str, list[list[Violation]]] | None = None
    times: dict[str, list[Times]] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """The policy that rates and differences are relative to."""
        return REFERENCE if REFERENCE in self.policies else self.policies[0]

    @property
    def leading(self) -> str:
        """The metric of the differences: mean JCT, total utility or total cost."""
        return self.columns[0]

    @property
    def best_in_the_mean(self) -> str:
        """The policy with the best mean of the leading metric, significant or not; the first of equals."""
        sign = -1 if self.leading in HIGHER_IS_BETTER else 1
        means = {policy: self.estimate(policy, self.leading) for policy in self.policies}
        return min(self.policies, key=lambda p: np.inf if (found := means[p]) is None else sign * found.mean)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the metrics to show."""
        rows = [row for rows in self.metrics.values() for row in rows]
        first = [columns for columns in (VALUE_COLUMNS, COST_COLUMNS) if all(columns[0] in row for row in rows)]
        last = (HORIZON_COLUMN,) if all(row.get(HORIZON_COLUMN) is not None for row in rows) else ()
        return tuple(dict.fromkeys((*(first[0] if first else ()), *COLUMNS, *last)))

    @property
    def bound_text(self) -> str:
        """A sentence on the bound that ``bound_ratio`` is relative to; empty without a bound."""
        found = [r for r in self.references if r is not None]
        if not found:
            return ""
        names = ", ".join(dict.fromkeys(f"{r.bound.name!r} of {r.problem!r}" for r in found))
        value = np.mean([r.bound.value for r in found])
        unit = UNITS[found[0].metric]
        mean = " (mean over seeds)" if len(self.seeds) > 1 else ""
        return f"bound: relative to the best bound that holds for all runs here, {names}: {value:.6g}{unit}{mean}"

    @property
    def verified_text(self) -> str:
        """A sentence on the result of the verification."""
        if self.violations is None:
            return "not verified"
        broken = [
            f"{policy} with seed {seed}: {', '.join(dict.fromkeys(v.rule for v in found))}"
            for policy, by_seed in self.violations.items()
            for seed, found in zip(self.seeds, by_seed, strict=True)
            if found
        ]
        if broken:
            return f"rules broken by {'; '.join(broken)}"
        runs = len(self.policies) * len(self.seeds)
        return f"{runs} {'run' if runs == 1 else 'runs'}, every rule verified"

    @property
    def interval_text(self) -> str:
        """A sentence on the kind of the intervals; empty for one seed."""
        if len(self.seeds) < 2:
            return ""
        if len(self.seeds) < FEWEST:
            return f"means over seeds; no intervals with fewer than {FEWEST} seeds"
        return (
            f"means over seeds with 95 % bootstrap intervals; differences to {self.reference} on equal seeds with 95 % "
            "intervals of Student's t, * where those do not contain 0"
        )

    @property
    def unfinished_text(self) -> str:
        """A sentence on unfinished jobs, by policy; empty if all jobs finish, or if utilities are compared."""
        if VALUE_COLUMNS[0] in self.columns:
            return ""
        share = {
            policy: float(np.mean([1 - row["finished"] / max(row["jobs"], 1) for row in rows]))
            for policy, rows in self.metrics.items()
        }
        short = ", ".join(f"{policy} {left:.1%}" for policy, left in share.items() if left > 0)
        return f"jobs not finished, which count in no time and no cost: {short}" if short else ""

    @property
    def texts(self) -> list[str]:
        """The sentences on intervals, bound, unfinished and elastic jobs, and verification that apply."""
        elastic = ELASTIC if self.first[0].scenario.source.get("elastic") else ""
        parts = (self.interval_text, self.bound_text, self.unfinished_text, elastic, self.verified_text)
        return [text for text in parts if text]

    def report(self, title: str = "Comparison", command: str = "skedge.compare") -> str:
        """The report as one HTML page: table, lanes and charts of the first seed; `command` is how it was made."""
        scenario, versions = self.first[0].scenario, self.first[0].meta["versions"]
        settings = {
            "compared seeds": ", ".join(map(str, self.seeds)),
            "chunks": str(int(scenario.jobs.chunks.sum())),
            "versions": ", ".join(f"{k} {v}" for k, v in versions.items()),
            "command": command,
        }
        return build_report(self.plot.runs, self._table(), title, settings)

    @property
    def plot(self) -> Plots:
        """The charts of the first seed: ``comparison.plot.jct()``, ``.utilisation()`` and ``.lanes("srtf")``."""
        return Plots([run.shown(policy) for policy, run in zip(self.policies, self.first, strict=True)])

    def _repr_html_(self) -> str:
        """The table and the completion times of the first seed, as Jupyter shows them."""
        seeds = f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''}"
        title = f"{len(self.policies)} policies on {self.first[0].scenario.name}, {seeds}"
        return displayed(title, self._table(), [self.plot.jct()], "; ".join(self.texts))

    def _table(self) -> ReportTable:
        """The table in the report: the leading metric, its difference to the reference, all others."""
        rows = []
        for policy in self.policies:
            leading, *others = (_plain(self.estimate(policy, column)) for column in self.columns)
            rows.append([policy, leading, _plain(self.difference(policy, self.leading)), *others])
        columns = ["policy", self.leading, f"difference_{self.leading}", *self.columns[1:]]
        decided = {
            column: self.policies.index(best) for column in self.columns if (best := self.best(column)) is not None
        }
        return ReportTable(columns, rows, decided, note="; ".join(self.texts))

    def to_frame(self) -> pl.DataFrame:
        """A row for each policy and seed: columns ``policy``, ``seed`` and the metrics.

        Metrics in seconds are durations, named without ``_s``; the other names end in their unit.
        """
        rows = [
            {"policy": policy, "seed": seed, **row}
            for policy, by_seed in self.metrics.items()
            for seed, row in zip(self.seeds, by_seed, strict=True)
        ]
        frame = pl.DataFrame(rows, infer_schema_length=None)
        times = [name for name in frame.columns if name.endswith("_s")]
        lasting = [(pl.col(name) * SECOND).round().cast(pl.Duration("us")) for name in times]
        return frame.with_columns(lasting).rename({name: name.removesuffix("_s") for name in times})

    def estimate(self, policy: str, column: str) -> Estimate | None:
        """Mean and bootstrap interval of a metric; None if it does not apply."""
        values = self._values(policy, column)
        return None if values is None else bounded(values)

    def difference(self, policy: str, column: str, to: str | None = None) -> Estimate | None:
        """Mean and interval of a metric less that of policy `to` (default: the reference), seed by seed.

        None if it does not apply, or for the reference itself.
        """
        mine, theirs = self._values(policy, column), self._values(to or self.reference, column)
        if mine is None or theirs is None or policy == (to or self.reference):
            return None
        return estimate(mine - theirs) if len(mine) >= FEWEST else Estimate(float((mine - theirs).mean()))

    def best(self, column: str) -> str | None:
        """The policy better in a metric than each other one, by the intervals of the differences; else None."""
        if column in NEITHER_IS_BETTER:
            return None
        wanted = 1 if column in HIGHER_IS_BETTER else -1
        for policy in self.policies:
            others = [self.difference(policy, column, to=other) for other in self.policies if other != policy]
            if others and all(d is not None and d.sign == wanted for d in others):
                return policy
        return None

    def _values(self, policy: str, column: str) -> np.ndarray | None:
        values = [row[column] for row in self.metrics[policy]]
        return None if any(value is None for value in values) else np.array(values, float)


def _plain(found: Estimate | None) -> dict[str, float | None] | None:
    return None if found is None else asdict(found)


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
        The seeds, None being the scenario's own; or their number: 0, 1, ...
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
        Folder in which finished runs and bounds are kept: those already there are not made again.

    Raises
    ------
    InputError
        If the scenario or a policy is wrong. Errors that can be detected in advance are raised before any run.
    SkedgeError
        If the operating system ended a run.
    """
    entrants = _entrants([policies] if isinstance(policies, str) else policies)
    if isinstance(seeds, int):
        seeds = range(seeds)
    if not seeds:
        raise InputError("seeds: the list is empty; compare at least one")
    if processes == 0 or processes < -1:
        raise InputError(f"processes: {processes}; it must be at least 1, or -1 for one per core")
    kept = Kept(resume) if isinstance(resume, Path) else resume
    where = Where(processes, ray, kept, joining=True)
    samples = _samples([(source, seed) for seed in seeds], where)
    return _comparison(*_results(samples, entrants, where, verify, folder, progress or _silent), verify=verify)


def compare_small(
    sources: Sequence[Source],
    policies: Sequence[str],
    seed: int | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> list[Comparison]:
    """Run each policy on each scenario, all of which take a second or less a run, and verify it.

    One process compiles what runs do not use while another one compiles the policy.
    """
    entrants = _entrants(policies)
    where = Where(joining=True)
    samples = [replace(sample, i=0) for sample in _samples([(source, seed) for source in sources], where)]
    compiling = Point("kernels", _compile, (samples[0], entrants[0]))
    made, references = _results(samples, entrants, where, True, None, progress or _silent, compiling)
    return [
        _comparison({policy: [ones[k]] for policy, ones in made.items()}, references[k : k + 1], verify=True)
        for k in range(len(sources))
    ]


def _silent(_what: str, _seed: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class _Entrant:
    """A policy that is compared, and its name there; an object of a policy serves one run, so each run has a copy."""

    label: str
    given: AnyPolicy

    @property
    def family(self) -> str:
        """The policy's name without parameters."""
        return self.label.partition(":")[0]

    def fresh(self) -> AnyPolicy:
        return self.given if isinstance(self.given, str) else deepcopy(self.given)

    def module(self) -> str:
        """The source of the policy's module, as a kept point holds for the same policy only."""
        return Path(inspect.getfile(type(policy_of(self.given)))).read_text(encoding="utf-8")


def _entrants(policies: Sequence[AnyPolicy]) -> list[_Entrant]:
    """Reject policies that are wrong before any run begins."""
    if not policies:
        raise PolicyError("policies: the list is empty; name at least one")
    seen: dict[tuple[str, str], str] = {}
    entrants = []
    for given in policies:
        made = policy_of(given)
        label, same = given if isinstance(given, str) else spec_of(made), (made.name, repr(made.params))
        if same in seen:
            other = "is named twice" if label == seen[same] else f"is the same as {seen[same]!r}"
            raise PolicyError(f"policies: {label!r} {other}; name each once")
        seen[same] = label
        entrants.append(_Entrant(label, given))
    return entrants


@dataclass(frozen=True)
class _Sample:
    """The scenario at the seed of number `i`: where it is from and, for points that are sent or kept, its digest.

    `number` identifies a sample within a sweep, and `call` the sweep: a file may have changed since another one.
    """

    i: int
    source: Source
    seed: int | None
    number: int
    call: int
    digest: str = ""

    def scenario(self) -> Scenario:
        return scenario_of(self.source, self.seed)


def _samples(sources: Sequence[tuple[Source, int | None]], where: Where) -> list[_Sample]:
    """The samples of these sources and seeds. Elsewhere than here the scenarios themselves are sent."""
    call = time.monotonic_ns()
    if where.here:
        return [_Sample(i, source, seed, i, call) for i, (source, seed) in enumerate(sources)]
    made = [scenario_of(source, seed) for source, seed in sources]
    return [
        _Sample(i, scenario, seed, i, call, digest_of(scenario))
        for i, (scenario, (_, seed)) in enumerate(zip(made, sources, strict=True))
    ]


def _results(
    samples: Sequence[_Sample],
    policies: Sequence[_Entrant],
    where: Where,
    verify: bool,
    folder: Path | None,
    progress: Callable[[str, int], None],
    compiling: Point | None = None,
) -> tuple[dict[str, list[_Made]], tuple[Reference | None, ...]]:
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
    made: dict[int, dict[str, _Made]] = {sample.number: {} for sample in samples}
    bounds: dict[int, dict[int, ReferencePart | None]] = {sample.number: {} for sample in samples}
    by_number = {sample.number: sample for sample in samples}

    def then(one: _Made | _Bounded | None) -> list[Point]:
        """The bounds of a sample when all its runs are made."""
        if not isinstance(one, _Made):
            return []
        made[one.number][one.policy] = one if one.i == 0 else replace(one, run=None)
        return _bound_points(by_number[one.number], made[one.number]) if len(made[one.number]) == len(policies) else []

    for one in _carried_out(points, where, "runs", then):
        if isinstance(one, _Made):
            if folder is not None and one.run is not None and not where.here:
                one.run.write(_new(folder, one.policy, one.seed))
            progress(one.policy, one.seed)
        elif one is not None:
            if len(samples) >= FEWEST:
                import_statistics()  # here, as other processes, where there are any, compute bounds meanwhile
            bounds[one.number][one.part] = one.bounds
            first = made[one.number][policies[0].label]
            if len(bounds[one.number]) == first.parts:
                progress("bound", first.seed)
    _last.clear()
    runs = {policy.label: [made[sample.number][policy.label] for sample in samples] for policy in policies}
    return runs, tuple(reference_of([of[part] for part in sorted(of)]) for of in bounds.values())


def _carried_out(
    points: Sequence[Point], where: Where, what: str, then: Callable[[Any], Sequence[Point]]
) -> Iterator[_Made | _Bounded | None]:
    try:
        with closing(carry_out(points, where, what, then)) as done:
            yield from done
    except BrokenProcessPool as error:
        raise SkedgeError("a run was ended from outside, perhaps for want of memory; try --processes 1") from error


def _run_point(sample: _Sample, policy: _Entrant, where: Where, verify: bool, folder: Path | None) -> Point:
    if where.here:
        return Point(f"{policy.label} {sample.number}", _one, (sample, policy, verify, folder, sample.i == 0))
    keep = sample.i == 0 or folder is not None
    key = key_of("compare", sample.digest, policy.label, policy.module(), sample.i, verify, keep)
    return Point(key, _one, (sample, policy, verify, None, keep))


def _bound_points(sample: _Sample, made: dict[str, _Made]) -> list[Point]:
    """The bounds on a sample that hold for all its runs, part by part."""
    covered = tuple(sorted(set.intersection(*(set(one.covered) for one in made.values()))))
    return [
        Point(key_of("bound", sample.digest, covered, part), _bound, (sample, covered, part))
        for part in range(next(iter(made.values())).parts)
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


def _compile(sample: _Sample, policy: _Entrant) -> None:
    """Compile what verification and bounds use while another process compiles the policy: on the first job alone."""
    full = sample.scenario()
    small = replace(full, jobs=Jobs(full.jobs.frame.head(1), full.cluster, full.jobs.given))
    with interpreted():
        result = run(small, policy.fresh())
    result.verify()
    reference(small, covering(small, result.schedule, completion_of(registered_meta(result.meta))))


def _comparison(made: dict[str, list[_Made]], references: tuple[Reference | None, ...], *, verify: bool) -> Comparison:
    metrics = {policy: [one.metrics for one in ones] for policy, ones in made.items()}
    _add_rates(metrics)
    for rows in metrics.values():
        for row, to in zip(rows, references, strict=True):
            row["bound_ratio"] = None if to is None else to.ratio(row[to.metric])
    return Comparison(
        tuple(made),
        tuple(one.seed for one in next(iter(made.values()))),
        metrics,
        tuple(first for ones in made.values() if (first := ones[0].run) is not None),
        references,
        {policy: [one.violations for one in ones] for policy, ones in made.items()} if verify else None,
        {policy: [one.times for one in ones] for policy, ones in made.items()},
    )


@dataclass(frozen=True)
class _Made:
    """The result that a process returns for a run: data for the comparison and, where it is wanted, the run itself."""

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


def _one(sample: _Sample, policy: _Entrant, verify: bool, folder: Path | None, keep: bool) -> _Made:
    scenario = sample.scenario()
    begun = time.perf_counter()
    result = run(scenario, policy.fresh())
    simulated = time.perf_counter()
    violations = result.verify() if verify else []
    times = Times(result.decisions_s, simulated - begun, time.perf_counter() - simulated)
    if folder is not None:
        result.write(_new(folder, policy.label, scenario.seed))
    covered = covering(result.scenario, result.schedule, completion_of(registered_meta(result.meta)))
    kept = result if keep else None
    if sample.i == 0:
        _ = result.utilisation  # the report shows it, and it is computed here, beside other runs
    return _Made(
        policy.label, sample.number, sample.i, scenario.seed, result.metrics, kept, covered, parts(scenario),
        violations, times,
    )  # fmt: skip


def _add_rates(by_policy: dict[str, list[dict[str, Any]]]) -> None:
    """Add the JCT rate: total JCT over the reference's for the same seed; None if not the same jobs finished."""
    reference = REFERENCE if REFERENCE in by_policy else next(iter(by_policy))
    base = [dict(row) for row in by_policy[reference]]
    for rows in by_policy.values():
        for row, to in zip(rows, base, strict=True):
            same = row["finished"] == to["finished"] and to["jct_total_s"]
            row["jct_rate"] = row["jct_total_s"] / to["jct_total_s"] if same else None
