"""The policies that a comparison is between."""

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
    given: AnyPolicy

    @property
    def family(self) -> str:
        """The policy's name without parameters."""
        return self.label.partition(":")[0]

    def fresh(self) -> AnyPolicy:
        """The policy for a run."""
        return self.given if isinstance(self.given, str) else deepcopy(self.given)

    def may_use_cloud(self) -> bool | None:
        """Whether it may use the cloud; None if that is not declared."""
        return getattr(policy_of(self.given), "may_use_cloud", None)

    def module(self) -> str:
        """The source of the policy's module, as a kept point holds for the same policy only."""
        return Path(inspect.getfile(type(policy_of(self.given)))).read_text(encoding="utf-8")


def entrants_of(policies: Sequence[AnyPolicy]) -> list[Entrant]:
    """The policies of a comparison.

    Raises
    ------
    PolicyError
        If one is wrong, or there is none, or one is named twice.
    """
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
        entrants.append(Entrant(label, given))
    return entrants
