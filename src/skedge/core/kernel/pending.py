"""Orders that are checked and applied together, by one call of a compiled function.

A policy sees the effect of each order before it makes the next: so single orders wait, and are applied as soon as it
looks at its view again, or has made all orders of the event.
"""

from __future__ import annotations

from contextlib import suppress
from struct import error as NotInt64Error  # noqa: N812 - it is raised for what is no whole number of 64 bits
from struct import pack_into
from typing import TYPE_CHECKING

import numpy as np

from skedge.core.engine.orders import ALLOCATE, ALLOCATE_EACH, ORDER_REASON, SUSPEND
from skedge.core.errors import OrderError, StateError
from skedge.core.events import Allocate, Order, OrderBatch, Suspend
from skedge.core.model.cluster import Floats, Ints
from skedge.core.record.record import REASONS_OF_BATCHES

from .accept import accept

if TYPE_CHECKING:
    from .state import State

_NO_VALUES: Floats = np.zeros(0)


class PendingOrders:
    """Allocations and suspensions on servers with slots that were made and not applied yet.

    Parameters
    ----------
    state
        They are applied to it.

    Attributes
    ----------
    in_rows
        Whether orders wait: on servers with slots.
    orders
        Those that wait, in order.
    refused
        Why one was refused while the policy looked at its view. It is raised there, and again when the policy has made
        all its orders: whatever the policy does with errors, the run ends.
    """

    def __init__(self, state: State) -> None:
        self.state, self.in_rows = state, state.books.in_rows
        self.orders: list[Order] = []
        self.refused: OrderError | None = None
        self._rows: list[int] = []
        self._places: list[int] = []
        self._values: dict[int, float] = {}
        self._reserve(64, 64)
        self._same: Ints = np.arange(256)

    def _reserve(self, n_rows: int, n_places: int) -> None:
        self._row_array: Ints = np.zeros((n_rows, 6), np.int64)
        self._place_array: Ints = np.zeros((n_places, 2), np.int64)

    def add(self, order: Order) -> bool:
        """Have an order wait; False if it is none that can."""
        if not self.in_rows:
            return False
        if isinstance(order, Suspend):
            self._rows += SUSPEND, order.job, -1, self.state.record.reason(order.reason), 0, 0
        elif isinstance(order, Allocate):
            ps, placement = order.ps, order.where
            if isinstance(ps, int) or len(ps) != 1 or ps[0][1] != 1:
                return False
            verb, reason = ALLOCATE if order.gang else ALLOCATE_EACH, self.state.record.reason(order.reason)
            self._rows += verb, order.job, ps[0][0], reason, len(self._places) // 2, len(placement)
            for pair in placement if len(placement) == 1 else sorted(placement):
                self._places += pair
            if order.value is not None:
                self._values[len(self.orders)] = order.value
        else:
            return False
        self.orders.append(order)
        return True

    def apply(self) -> None:
        """Check and apply those that wait.

        Raises
        ------
        OrderError
            If one breaks a rule, now or before; those before it are applied.
        """
        if self.refused is not None:
            raise self.refused
        orders, rows, places, values = self.orders, self._rows, self._places, self._values
        if not orders:
            return
        self.orders, self._rows, self._places, self._values = [], [], [], {}
        if len(rows) > self._row_array.size or len(places) > self._place_array.size:
            self._reserve(2 * len(orders), len(places))
        n_reasons = len(self.state.record.decisions.reasons)
        if n_reasons > len(self._same):
            self._same = np.arange(2 * n_reasons)
        try:  # in a third of the time of an assignment
            pack_into(f"{len(rows)}q", self._row_array.data, 0, *rows)
            pack_into(f"{len(places)}q", self._place_array.data, 0, *places)
        except NotInt64Error:
            self._apply_singly(orders)
            return
        compared = _NO_VALUES if not values else np.array([values.get(i, np.nan) for i in range(len(orders))])
        n_applied = self.state.engine.apply_rows(
            self._row_array, self._place_array, compared, self._same, 0, len(orders)
        )  # fmt: skip
        if n_applied < len(orders):
            self._apply_singly(orders[n_applied : n_applied + 1])
            raise StateError(f"{orders[n_applied]!r} is refused, and breaks no rule")

    def _apply_singly(self, orders: list[Order]) -> None:
        """The same by :func:`.accept.accept`, which knows what is wrong with an order."""
        try:
            for order in orders:
                accept(self.state, order)
        except OrderError as error:
            self.refused = error
            raise

    def take(self, batch: OrderBatch) -> list[Order]:
        """Check and apply the orders of a batch of tables; returns those that are no allocations and suspensions.

        Raises
        ------
        OrderError
            If one breaks a rule; those before it are applied.
        """
        self.apply()
        record, rows, other_orders, first = self.state.record, batch.rows, list[Order](), 0
        reasons = record.numbers(batch.wording)
        while first < len(rows):
            first = self.state.engine.apply_rows(rows, batch.places, _NO_VALUES, reasons, first, len(rows))
            if first == len(rows):
                break
            order, number = order_of(batch, first), rows[first, ORDER_REASON]
            if isinstance(order, Allocate | Suspend) and reasons[number] < 0:
                reasons[number] = record.reason(order.reason)
                continue
            accept(self.state, order)
            other_orders.append(order)
            first += 1
        return other_orders


def check_tables(batch: OrderBatch) -> None:
    """Check that a batch is made of tables of numbers.

    Raises
    ------
    OrderError
        If it is not.
    """
    if not (_is_table(batch.rows, 6) and _is_table(batch.places, 2)):
        raise OrderError("M1", "a batch needs tables of int64: six columns of rows, two of places")


def _is_table(array: Ints, columns: int) -> bool:
    if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.ndim != 2:
        return False
    return array.shape[1] == columns and array.flags.c_contiguous


def order_of(batch: OrderBatch, number: int) -> Order:
    """The order for which row `number` of a batch stands.

    Raises
    ------
    OrderError
        If it stands for none.
    """
    row = batch.rows[number].tolist()
    with suppress(IndexError):
        order = batch.order_of(row)
        if not isinstance(order, Allocate | Suspend) or 0 <= row[ORDER_REASON] < REASONS_OF_BATCHES:
            return order
    text = f"row {number} of a batch, {row}, stands for no order: its verb, reason or places do not exist"
    raise OrderError("M1", text)
