"""The sentences below a comparison: the kind of its intervals, and what else a reader of its numbers must know."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skedge.analysis.intervals import FEWEST
from skedge.core.model.wording import ELASTIC

from .columns import VALUE_COLUMNS

if TYPE_CHECKING:
    from .comparison import Comparison

_UNITS = {"jct_total_s": " s of total JCT", "utility_total": " of total utility", "cost_total": " of total cost"}
"""Units of the metrics that have bounds."""


def sentences(c: Comparison) -> list[str]:
    """The sentences that apply, in their order."""
    parts = (
        failed_text(c), interval_text(c), bound_text(c), unfinished_text(c), idle_text(c), cloud_text(c),
        upload_text(c), elastic_text(c), verified_text(c),
    )  # fmt: skip
    return [text for text in parts if text]


def elastic_text(c: Comparison) -> str:
    """A sentence on jobs that not every policy can hold as gangs, where the scenario has them."""
    return ELASTIC if c.first_runs[0].scenario.source.get("elastic") else ""


def failed_text(c: Comparison) -> str:
    """The policies that are left out, with their first errors."""
    first = {failure.policy: failure for failure in reversed(c.failures)}
    times = {policy: sum(failure.policy == policy for failure in c.failures) for policy in first}
    return "; ".join(
        f"{policy} failed and is left out, with {times[policy]} of {len(c.seeds)} "
        f"seed{'s' if len(c.seeds) > 1 else ''} (seed {failure.seed}: {failure.text})"
        for policy, failure in sorted(first.items())
    )


def interval_text(c: Comparison) -> str:
    """The kind of the intervals, or why there is none; empty for one seed."""
    if len(c.seeds) < 2:
        return ""
    # Before all other cases: statistics of equal numbers would be true and mislead.
    if _identical(c):
        return "every seed gave the same runs, as nothing is drawn here: no interval and no *"
    if c.seeding == "same":
        return (
            "the jobs are the same for every seed, which draws upload delays and the like around them, so that seeds "
            "are no samples of a workload: means without intervals, and no *"
        )
    sampling = (
        "the scenario's own seed has the trace as it is, others draw its jobs again in blocks of consecutive arrivals"
        if c.seeding == "resampled"
        else ""
    )
    if len(c.seeds) < FEWEST:
        text = f"means over seeds; no intervals with fewer than {FEWEST} seeds"
        return "; ".join(filter(None, (text, sampling)))
    if sampling:
        return (
            f"means over seeds; {sampling}; 95 % intervals of Student's t are of one such window, so more seeds do not "
            f"narrow them; differences to {c.reference} on equal seeds, * where their intervals do not contain 0"
        )
    return (
        f"means over seeds with 95 % bootstrap intervals; differences to {c.reference} on equal seeds with 95 % "
        "intervals of Student's t, * where those do not contain 0"
    )


def _identical(c: Comparison) -> bool:
    """Whether the runs of each policy are the same with every seed, by all their metrics."""
    return all(row == rows[0] for rows in c.metrics.values() for row in rows)


def bound_text(c: Comparison) -> str:
    """The bound that ``bound_ratio`` is relative to; empty where no policy has that ratio."""
    bounds = [r for r in c.references if r is not None]
    if not bounds or all(c.estimate(policy, "bound_ratio") is None for policy in c.policies):
        return ""
    # Another bound may be the best with another seed; each is named once.
    names = ", ".join(dict.fromkeys(f"{r.bound.name!r} of {r.problem!r}" for r in bounds))
    value = np.mean([r.bound.value for r in bounds])
    unit = _UNITS[bounds[0].metric]
    mean = " (mean over seeds)" if len(c.seeds) > 1 else ""
    return f"bound: relative to the best bound that holds for all runs here, {names}: {value:.6g}{unit}{mean}"


def unfinished_text(c: Comparison) -> str:
    """Unfinished jobs by policy; empty if all jobs finish, or if utilities are compared."""
    if VALUE_COLUMNS[0] in c.columns or not c.unfinished_shares:
        return ""
    listing = ", ".join(f"{policy} {fraction:.1%}" for policy, fraction in c.unfinished_shares.items())
    caveat = "" if _same_jobs(c) else "; where two policies finished different jobs, there is no rate and no difference"
    return f"jobs not finished, which count in no time and no cost: {listing}{caveat}"


def _same_jobs(c: Comparison) -> bool:
    """Whether all policies finished the same jobs."""
    return all(c.finished.get(policy) == c.finished.get(c.policies[0]) for policy in c.policies)


def idle_text(c: Comparison) -> str:
    """A sentence for scenarios without contention; else empty."""
    rows = [row for rows in c.metrics.values() for row in rows]
    idle = all(row.get("queueing_mean_s") == 0 and not row["preemptions"] and not row["rejected"] for row in rows)
    return "no job ever waited: policies cannot differ in the order of jobs, only in where jobs run" if idle else ""


def cloud_text(c: Comparison) -> str:
    """The policies that may use the cloud; empty if all may or none may, or nothing was trained there."""
    if len(c.groups) < 2:
        return ""
    # Of the two groups the first one may not use the cloud (Comparison.groups).
    without, within = (", ".join(group) for group in c.groups)
    return (
        f"{within} may use the cloud, which has neither an end nor a price; {without} may not, but for jobs that fit "
        "nowhere else: nothing is decided between those and these"
    )


def upload_text(c: Comparison) -> str:
    """The share of uploads in the JCT, from the least to the greatest of the policies; empty without uploads."""
    shares = {policy: c.estimate(policy, "upload_jct_share") for policy in c.policies if _has_uploads(c, policy)}
    means = {policy: share.mean for policy, share in shares.items() if share is not None and share.mean > 0}
    if not means:
        return ""
    lowest, highest = (end(means, key=lambda policy: means[policy]) for end in (min, max))
    low, high = f"{means[lowest]:.1%}", f"{means[highest]:.1%}"
    return f"waiting for uploads is {low} of JCT" if low == high else (
        f"waiting for uploads is from {low} of JCT ({lowest}) to {high} ({highest})"
    )  # fmt: skip


def _has_uploads(c: Comparison, policy: str) -> bool:
    return all("upload_jct_share" in row for row in c.metrics[policy])


def verified_text(c: Comparison) -> str:
    """The result of the verification."""
    if c.violations is None:
        return "not verified"
    breaches = [
        f"{policy} with seed {seed}: {', '.join(dict.fromkeys(v.rule for v in violations))}"
        for policy, by_seed in c.violations.items()
        for seed, violations in zip(c.seeds, by_seed, strict=True)
        if violations
    ]
    if breaches:
        return f"rules broken by {'; '.join(breaches)}"
    runs = len(c.policies) * len(c.seeds)
    return f"{runs} {'run' if runs == 1 else 'runs'}, every rule verified"
