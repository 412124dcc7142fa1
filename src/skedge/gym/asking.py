"""Policies that put their decisions as questions, so that something outside may answer them one by one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from skedge.core.events import Event, Order
from skedge.core.kernel.absorb import absorb
from skedge.core.kernel.apply import apply
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster
from skedge.core.policy import BasePolicy, View

Observation = NDArray[np.float32]
Mask = NDArray[np.bool_]
Said = TypeVar("Said")


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

Asked = Generator[Question | Order, int, None]
"""Yields orders, and questions, to which the number of an action is sent back."""


class Asking(BasePolicy):
    """Base of policies that ask; `choose` answers where the policy runs by itself, as in ``skedge.compare``."""

    features: int

    def __init__(self, choose: Choose | None = None) -> None:
        super().__init__()
        self.choose = choose or first_possible

    def actions(self, cluster: Cluster) -> int:
        """Number of actions on `cluster`."""
        raise NotImplementedError

    def questions(self, event: Event, view: View) -> Asked:
        """The orders for `event`, and the questions that they depend on."""
        raise NotImplementedError

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """The orders for `event`, with every question answered by `choose`."""
        asked, answer = self.questions(event, view), None
        while (said := next_of(asked, answer)) is not None:
            answer = None
            if isinstance(said, Question):
                answer = int(self.choose(said))
            else:
                yield said


def first_possible(question: Question) -> int:
    """The first action that is possible."""
    return int(question.mask.argmax())


def next_of(asked: Asked, answer: int | None) -> Question | Order | None:
    """What a policy says next; None at its end."""
    try:
        return next(asked) if answer is None else asked.send(answer)
    except StopIteration:
        return None


class AskedKernel(Kernel):
    """The kernel, with the cycle of an event interrupted at each question."""

    policy: Asking

    def asked(self, event: Event) -> Generator[Question, int, list[Order]]:
        """As :meth:`~skedge.core.kernel.kernel.Kernel.handle`; yields the questions of the policy."""
        event = absorb(self, event)
        asked, answer = self.policy.questions(event, self.view), None
        orders: list[Order] = []
        while (said := next_of(asked, answer)) is not None:
            answer = None
            if isinstance(said, Question):
                answer = yield said
            else:
                apply(self, said)
                orders.append(said)
        return orders + self._completed(event, orders)


def squashed(ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers of 0 or more, brought into [0, 1)."""
    return ratio / (1 + ratio)
