"""The policies of a comparison."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from skedge.core.errors import PolicyError
from skedge.core.policy import AnyPolicy
from skedge.core.registry import policy_of, spec_of


@dataclass(frozen=True)
class Entrant:
    """A policy that is compared, and its name there; an object of a policy serves one run, so each run has a copy."""

    label: str
    policy: AnyPolicy

    @property
    def family(self) -> str:
        """The policy's name without parameters."""
        return self.label.partition(":")[0]

    def new_policy(self) -> AnyPolicy:
        """The policy for a run."""
        return self.policy if isinstance(self.policy, str) else deepcopy(self.policy)

    def may_use_cloud(self) -> bool | None:
        """Whether it may use the cloud; None if that is not declared."""
        return getattr(policy_of(self.policy), "may_use_cloud", None)

    def module(self) -> str:
        """The source of the policy's module, as a kept point holds for the same policy only."""
        return Path(inspect.getfile(type(policy_of(self.policy)))).read_text(encoding="utf-8")


def entrants_of(policies: Sequence[AnyPolicy]) -> list[Entrant]:
    """The policies of a comparison.

    Raises
    ------
    PolicyError
        If one is wrong, or there is none, or one is named twice.
    """
    if not policies:
        raise PolicyError("policies: the list is empty; name at least one")
    labels: dict[tuple[str, str], str] = {}
    entrants = []
    for policy in policies:
        instance = policy_of(policy)
        # By name and parameters: a policy named with a default written out is the same policy.
        label, key = policy if isinstance(policy, str) else spec_of(instance), (instance.name, repr(instance.params))
        if key in labels:
            problem = "is named twice" if label == labels[key] else f"is the same as {labels[key]!r}"
            raise PolicyError(f"policies: {label!r} {problem}; name each once")
        labels[key] = label
        entrants.append(Entrant(label, policy))
    return entrants
