"""Policies that put their decisions as questions, which an environment or a function answers one by one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from skedge.core.events import Event, Order
from skedge.core.kernel.absorb import absorb
from skedge.core.kernel.accept import accept
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster
from skedge.core.policy import BasePolicy, View

Observation = NDArray[np.float32]
Mask = NDArray[np.bool_]
Put = TypeVar("Put")


class Question(NamedTuple):
    """A decision to make.

    Attributes
    ----------
    observation
        Features of each action, in [0, 1], shape ``(actions, features)``.
    mask
        Which actions are possible, shape ``(actions,)``; at least one.
    """

    observation: Observation
    mask: Mask


Choose = Callable[[Question], int]
"""Answers a question with the number of an action."""

Decisions = Generator[Question | Order, int, None]
"""Yields orders, and questions, to which the number of an action is sent back."""


class InteractivePolicy(BasePolicy):
    """Base of policies that ask; `choose` answers where the policy runs by itself, as in ``skedge.compare``."""

    features: int

    def __init__(self, choose: Choose | None = None) -> None:
        super().__init__()
        # The environment answers itself and never calls it; by this default the contract of policies can be checked.
        self.choose = choose or first_possible

    def actions(self, cluster: Cluster) -> int:
        """Number of actions on `cluster`."""
        raise NotImplementedError

    def questions(self, event: Event, view: View) -> Decisions:
        """The orders for `event`, and the questions that they depend on."""
        raise NotImplementedError

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """The orders for `event`, with every question answered by `choose`."""
        decisions, answer = self.questions(event, view), None
        while (item := next_decision(decisions, answer)) is not None:
            answer = None
            if isinstance(item, Question):
                answer = int(self.choose(item))
            else:
                yield item


def first_possible(question: Question) -> int:
    """The first action that is possible."""
    return int(question.mask.argmax())


def next_decision(decisions: Generator[Put, int, None], answer: int | None) -> Put | None:
    """The next question or order that a generator puts; None at its end."""
    try:
        # A generator is begun with next(), and goes on after an order likewise; only a question takes an answer.
        return next(decisions) if answer is None else decisions.send(answer)
    except StopIteration:
        return None


class InteractiveKernel(Kernel):
    """The kernel, with the cycle of an event interrupted at each question."""

    policy: InteractivePolicy

    def handle_interactively(self, event: Event) -> Generator[Question, int, list[Order]]:
        """As :meth:`~skedge.core.kernel.kernel.Kernel.handle`; yields the questions of the policy."""
        # The steps of Kernel.handle; between them orders are applied at once, as the next question depends on them.
        event = absorb(self, event)
        decisions, answer = self.policy.questions(event, self.view), None
        orders: list[Order] = []
        while (item := next_decision(decisions, answer)) is not None:
            answer = None
            if isinstance(item, Question):
                answer = yield item
            else:
                accept(self, item)
                orders.append(item)
        return [*orders, *self._completed(event, orders)]


def squash(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers of 0 or more, brought into [0, 1)."""
    # Without a limit that some scenario might exceed, and finest where numbers are small.
    return ratio / (1 + ratio)
