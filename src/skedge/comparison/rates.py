"""The JCT rate of JSAC'22 Sec. V-A: total JCT over that of a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import eq
from typing import Any

from .columns import REFERENCE


def reference_among(policies: Sequence[str]) -> str:
    """The policy that rates and differences are relative to."""
    return REFERENCE if REFERENCE in policies else policies[0]


def add_rates(by_policy: Mapping[str, Sequence[dict[str, Any]]], finished: Mapping[str, Sequence[str]]) -> None:
    """Add the JCT rate to metrics: total JCT over the reference's for the same seed.

    Parameters
    ----------
    by_policy
        Metrics by policy and seed.
    finished
        Likewise, a hash of which jobs finished. Totals over different jobs do not compare: then the rate is None.
    """
    reference = reference_among(tuple(by_policy))
    base = [row["jct_total_s"] for row in by_policy[reference]]
    for policy, rows in by_policy.items():
        # Row by row is seed by seed: both policies had the same jobs.
        for row, base_total, same_jobs in zip(rows, base, map(eq, finished[policy], finished[reference]), strict=True):
            row["jct_rate"] = row["jct_total_s"] / base_total if same_jobs and base_total else None
