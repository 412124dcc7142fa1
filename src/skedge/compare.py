"""Policies side by side, over seeds, in parallel, with confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from .analysis.metrics import completion_of
from .core.errors import InputError, PolicyError, SkedgeError
from .core.policy import make_policy
from .core.scenario import Scenario
from .optimum.problems import Reference, covering, reference
from .run import Run, run
from .scenario_file import default_scenario, load_scenario

Source = str | Path | Scenario | Callable[[int], Scenario]
"""A scenario file, the name of a shipped one (``demo``, ``s1``), a scenario, or a function from a seed to one."""

COLUMNS = (
    "jct_mean_s", "jct_rate", "bound_ratio", "jct_p50_s", "jct_p99_s", "slowdown_mean", "makespan_s", "preemptions",
    "postponed_chunks", "utilisation_mean", "uploaded_mb", "cloud_share", "rejected",
)  # fmt: skip
"""Metrics that a comparison shows, in order."""

VALUE_COLUMNS = ("utility_total", "bound_ratio", "acceptance_share", "training_time_p50_s")
"""Those that come first where all jobs say what they are worth."""

COST_COLUMNS = (
    "cost_total", "bound_ratio", "cost_latency", "cost_bandwidth", "cost_exchange", "cost_transfers", "moved_mb",
)  # fmt: skip
"""Those that come first at sites."""

HORIZON_COLUMN = "finished_after_horizon"
"""The one that comes last where there is a horizon."""

UNITS = {"jct_total_s": " s of total JCT", "utility_total": " of total utility", "cost_total": " of total cost"}
"""Of what bounds are on."""

REFERENCE = "srtf"
"""JCT rate is relative to it (JSAC'22 Sec. V); to the first policy if it is not among them."""


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds and its 95 % confidence interval (Student's t); `low` and `high` are None for one seed."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Metrics of every policy and seed.

    Attributes
    ----------
    policies, seeds
        What was compared.
    metrics
        Of each policy and seed, ``metrics[policy][i]`` for ``seeds[i]``, with ``jct_rate`` and ``bound_ratio`` added.
    first
        The runs of the first seed, for the report.
    references
        By seed: the bound that ``bound_ratio`` is relative to; None where none holds for all the runs.
    """

    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    metrics: dict[str, list[dict[str, Any]]]
    first: tuple[Run, ...]
    references: tuple[Reference | None, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """What there is to show."""
        rows = [row for rows in self.metrics.values() for row in rows]
        first = [columns for columns in (VALUE_COLUMNS, COST_COLUMNS) if all(columns[0] in row for row in rows)]
        last = (HORIZON_COLUMN,) if all(row.get(HORIZON_COLUMN) is not None for row in rows) else ()
        return tuple(dict.fromkeys((*(first[0] if first else ()), *COLUMNS, *last)))

    @property
    def bound_text(self) -> str:
        """What ``bound_ratio`` is relative to, in a sentence; empty where there is no bound."""
        found = [r for r in self.references if r is not None]
        if not found:
            return ""
        names = ", ".join(dict.fromkeys(f"{r.bound.name!r} of {r.problem!r}" for r in found))
        value = np.mean([r.bound.value for r in found])
        seconds = np.mean([r.bound.seconds for r in found])
        unit = UNITS[found[0].metric]
        return (
            f"bound: relative to the best bound that holds for all runs here, {names}: {value:.6g}{unit}, "
            f"{seconds:.2g} s to compute (means over seeds)"
        )

    @property
    def unfinished_text(self) -> str:
        """Whose numbers leave jobs out, in a sentence; empty where all finish, or utility is what counts."""
        if VALUE_COLUMNS[0] in self.columns:
            return ""
        share = {
            policy: float(np.mean([1 - row["finished"] / max(row["jobs"], 1) for row in rows]))
            for policy, rows in self.metrics.items()
        }
        short = ", ".join(f"{policy} {left:.1%}" for policy, left in share.items() if left > 0)
        return f"jobs not finished, which count in no time and no cost: {short}" if short else ""

    def estimate(self, policy: str, column: str) -> Estimate | None:
        """Mean and interval of a metric; None where it does not apply."""
        values = [row[column] for row in self.metrics[policy]]
        if any(value is None for value in values):
            return None
        return estimate(np.array(values, float))


def estimate(values: np.ndarray) -> Estimate:
    """Mean of `values` and its 95 % confidence interval by Student's t."""
    mean = float(values.mean())
    if len(values) < 2:
        return Estimate(mean)
    from scipy.stats import t  # noqa: PLC0415 - takes a second to import, and one seed needs none

    half = float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return Estimate(mean, mean - half, mean + half)


def scenario_of(source: Source, seed: int | None = None) -> Scenario:
    """The scenario of a file, of a shipped name, or of a function, at `seed`."""
    if isinstance(source, Scenario):
        if seed not in (None, source.seed):
            raise InputError(
                f"a scenario in memory has its one seed, {source.seed}; give a file, or a function of the seed"
            )
        return source
    if callable(source):
        return source(0 if seed is None else seed)
    if isinstance(source, str) and not source.endswith((".yaml", ".yml")) and not Path(source).exists():
        return default_scenario(source, seed)
    return load_scenario(source, seed)


def compare(
    source: Source,
    policies: Sequence[str],
    seeds: Sequence[int | None] = (None,),
    *,
    processes: int = -1,
    progress: Callable[[str, int], None] | None = None,
) -> Comparison:
    """Run every policy on the scenario at every seed.

    Parameters
    ----------
    seeds
        None: the scenario's own.
    processes
        How many runs at a time; -1: one per core. It changes nothing in the results.
    progress
        Told (policy, seed) when a run is done.

    Raises
    ------
    InputError
        If the scenario or a policy is wrong; no run has begun then, if it can be seen before.
    SkedgeError
        If the operating system ended a run.
    """
    _check(policies)
    if processes == 0:
        raise InputError("processes: 0; it must be at least 1, or -1 for one per core")
    tasks = [(policy, i, seed) for i, seed in enumerate(seeds) for policy in policies]
    found: dict[tuple[str, int], tuple[dict[str, Any], Run | None, int]] = {}
    covered: dict[int, set[str]] = {}
    work = (delayed(_one)(source, *task) for task in tasks)
    try:
        for policy, i, numbers, kept, seed, by in Parallel(n_jobs=processes, return_as="generator_unordered")(work):
            found[policy, i] = numbers, kept, seed
            covered[i] = covered.get(i, set(by)) & set(by)
            if progress is not None:
                progress(policy, seed)
    except BrokenProcessPool as error:
        raise SkedgeError("a run was ended from outside, perhaps for want of memory; try --processes 1") from error
    by_policy = {p: [found[p, i][0] for i in range(len(seeds))] for p in policies}
    _add_rates(by_policy)
    references = tuple(reference(scenario_of(source, seed), covered[i]) for i, seed in enumerate(seeds))
    for rows in by_policy.values():
        for row, to in zip(rows, references, strict=True):
            row["bound_ratio"] = None if to is None else to.ratio(row[to.metric])
    first = tuple(kept for p in policies if (kept := found[p, 0][1]) is not None)
    used = tuple(found[policies[0], i][2] for i in range(len(seeds)))
    return Comparison(tuple(policies), used, by_policy, first, references)


def _check(policies: Sequence[str]) -> None:
    """Refuse what can be seen to be wrong before a run has begun."""
    if not policies:
        raise PolicyError("policies: there is none; name at least one")
    seen: dict[tuple[str, str], str] = {}
    for policy in policies:
        made = make_policy(policy)
        same = (made.name, repr(made.params))
        if same in seen:
            raise PolicyError(f"policies: {policy!r} is the same as {seen[same]!r}; name each once")
        seen[same] = policy


def _one(
    source: Source, policy: str, i: int, seed: int | None
) -> tuple[str, int, dict[str, Any], Run | None, int, tuple[str, ...]]:
    result = run(scenario_of(source, seed), policy)
    covered = covering(result.scenario, result.schedule, completion_of(result.meta))
    return policy, i, result.metrics, result if i == 0 else None, result.scenario.seed, covered


def _add_rates(by_policy: dict[str, list[dict[str, Any]]]) -> None:
    """JCT rate: total JCT over that of the reference on the same seed; None if not all the same jobs finished."""
    reference = REFERENCE if REFERENCE in by_policy else next(iter(by_policy))
    base = [dict(row) for row in by_policy[reference]]
    for rows in by_policy.values():
        for row, to in zip(rows, base, strict=True):
            same = row["finished"] == to["finished"] and to["jct_total_s"]
            row["jct_rate"] = row["jct_total_s"] / to["jct_total_s"] if same else None
