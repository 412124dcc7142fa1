"""CPU time of a policy's decisions. It is not part of the record, which is byte-identical on all machines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from skedge.core.events import Event, Order
from skedge.core.policy import Policy, View


class Stopwatch:
    """A wrapper of `policy` that measures the time of its decisions.

    Attributes
    ----------
    seconds
        CPU time of its decisions so far, without the kernel's work between its orders.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy, self.seconds = policy, 0.0

    def __getattr__(self, name: str) -> Any:
        """Forward all other attributes to the policy."""
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
