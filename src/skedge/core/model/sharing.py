"""Sharing of a cluster by tenants: weights, quotas, priority classes, bounds on preemption between jobs (ADR 32)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .fields import Maybe, Number, Rule, cast_fields, instance_of, mapping
from .job_fields import DEFAULT_TENANT, Ints
from .time import LONGEST_S, ticks

if TYPE_CHECKING:
    from .scenario import Scenario

_SPAN = Maybe(Number(f"None (no limit) or a number above 0, at most {LONGEST_S:g}", 0, LONGEST_S, above=True))
_TENANT: dict[str, Rule] = {
    "weight": Number("a number above 0, at most 1e+06", 0, 1e6, above=True),
    "quota": Number("a share of the workers, above 0 and at most 1", 0, 1, above=True),
    "max_wait_s": _SPAN,
    "max_run_time_s": _SPAN,
}


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant.

    Attributes
    ----------
    weight
        Of two tenants whose jobs of one class wait, the one with fewer workers by weight goes first, > 0.
    quota
        The largest share of the edge workers of each type that its jobs hold together, in (0, 1].
    max_wait_s, max_run_time_s
        Limits of each of its jobs [s], > 0 (:mod:`skedge.core.model.time_limits`); a job's own hold if they are lower.
        None: no limit.
    """

    weight: float = 1.0
    quota: float = 1.0
    max_wait_s: float | None = None
    max_run_time_s: float | None = None

    def __post_init__(self) -> None:
        """Check and cast the fields."""
        cast_fields(self, _TENANT, "tenant")


_SHARING: dict[str, Rule] = {
    "tenants": mapping(lambda _name: instance_of(Tenant)),
    "min_runtime_s": Number(f"a number from 0 to {LONGEST_S:g}", 0, LONGEST_S),
    "most_preemptions": Maybe(Number("None (no bound) or a whole number from 0 to 1e+09", 0, 1e9, whole=True)),
    "ageing_s": Maybe(Number(f"None (never) or a number from 1e-06 to {LONGEST_S:g}", 1e-6, LONGEST_S)),
}


@dataclass(frozen=True)
class Sharing:
    """The rules by which jobs of several tenants and priority classes share the edge workers.

    Attributes
    ----------
    tenants
        By name; ``default``, of jobs that name none, is added if it is missing.
    min_runtime_s
        A job that holds workers keeps them for so long [s], whoever waits.
    most_preemptions
        A job that was preempted so often keeps its workers to the end; None: no bound.
    ageing_s
        A job that waits for so long [s] rises by one class, and by another each time this passes again; None: never.

    Raises
    ------
    ScenarioError
        Names the field, its value and the values allowed.
    """

    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    min_runtime_s: float = 0.0
    most_preemptions: int | None = None
    ageing_s: float | None = None

    def __post_init__(self) -> None:
        """Check the fields, and add the tenant of jobs that name none."""
        cast_fields(self, _SHARING, "cluster.sharing")
        if DEFAULT_TENANT not in self.tenants:
            # last, so that those named keep the numbers of their order
            object.__setattr__(self, "tenants", {**self.tenants, DEFAULT_TENANT: Tenant()})

    @property
    def names(self) -> list[str]:
        """The tenants, in the order of their numbers."""
        return list(self.tenants)

    @property
    def min_runtime(self) -> int:
        """As `min_runtime_s`, in µs."""
        return int(ticks(self.min_runtime_s))

    @property
    def ageing(self) -> int | None:
        """As `ageing_s`, in µs."""
        return None if self.ageing_s is None else max(1, int(ticks(self.ageing_s)))

    def limits(self, workers: Ints) -> Ints:
        """The most workers of each type that each tenant holds, shape ``(tenants, types)``, of so many by type."""
        quotas = np.array([tenant.quota for tenant in self.tenants.values()])
        # a quota such as 0.29 of 100 is 29, not 28.999...
        return np.floor(quotas[:, None] * workers * (1 + 1e-12)).astype(np.int64)

    def class_after(self, priority: int, waited: int) -> int:
        """The class of a job that has waited for so long [µs]."""
        return priority if self.ageing is None else priority + waited // self.ageing


def share_of(scenario: Scenario, job: int) -> dict[str, Any]:
    """``tenant`` and ``priority`` of a job, for readers; nothing on a cluster without tenants."""
    sharing, jobs = scenario.cluster.sharing, scenario.jobs
    if sharing is None:
        return {}
    return {"tenant": sharing.names[jobs.tenant[job]], "priority": int(jobs.priority[job])}
