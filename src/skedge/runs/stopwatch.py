"""How long a policy takes to decide. No part of a record: that is the same byte for byte on any machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from skedge.core.events import Event, Order
from skedge.core.policy import Policy, View


class Stopwatch:
    """A policy that does as `policy` does, and knows how long that takes.

    Attributes
    ----------
    seconds
        CPU time of its decisions so far; what the kernel does between its orders does not count.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy, self.seconds = policy, 0.0

    def __getattr__(self, name: str) -> Any:
        """Whatever else the policy has."""
        return getattr(self.policy, name)

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Decide as the policy does."""
        began = time.process_time()
        orders = iter(self.policy.decide(event, view) or ())
        while (order := next(orders, None)) is not None:
            self.seconds += time.process_time() - began
            yield order
            began = time.process_time()
        self.seconds += time.process_time() - began
