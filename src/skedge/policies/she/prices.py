"""Prices of resources as functions of their booked amounts, as primal-dual schedulers charge them.

A unit of a resource costs, in every slot in which it is used, a price that grows with the part of the capacity that is
taken in that slot. A :class:`Book` holds the loads over time, a :class:`Curve` says what a load costs. Slots count from
an origin that the owner of the book chooses; slot t is [t, t + 1).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.platform.jit import lean
from skedge.policies.common.step_functions import add, constant, wider


class Curve(NamedTuple):
    """Price of a unit per slot: low exp(growth x) - shift at the part x in [0, 1] of the capacity that is taken."""

    low: float
    growth: float
    shift: float


def from_zero(most: float, scale: float, *, normed: bool) -> Curve:
    """The curve of She et al., Eqs. (7) and (8): theta^x - 1 with theta = scale `most` + 1; 0 at x = 0.

    Parameters
    ----------
    most
        F, the price when all is taken (> 0), if `normed`.
    scale
        2TSU for workers, 2TSV for PSs (> 0).
    normed
        True: divided by `scale`, so that all is as the text says (ERRATA H2); False: as printed, `scale` times that.
    """
    low = 1 / scale if normed else 1.0
    return Curve(low, math.log1p(scale * most), low)


class Book(NamedTuple):
    """Loads of resources over the slots, a row each.

    Attributes
    ----------
    at, load, size
        From slot ``at[row, i]`` on ``load[row, i]`` units are taken: :mod:`skedge.policies.common.step_functions`.
    capacity
        Units of each row, shape ``(rows,)``; inf: without limit, for ever as if nothing were taken.
    curve
        What a unit costs.
    """

    at: Ints
    load: Ints
    size: Ints
    capacity: Floats
    curve: Curve


def empty_book(capacity: Floats, curve: Curve) -> Book:
    """An empty book."""
    return Book(*constant(np.zeros(len(capacity), np.int64)), capacity, curve)


def with_room(book: Book) -> Book:
    """`book`, enlarged if needed for one more :func:`take` in every row."""
    if int(book.size.max(initial=0)) + 2 <= book.at.shape[1]:
        return book
    return book._replace(at=wider(book.at), load=wider(book.load))


def take(book: Book, row: int, units: int, start: int, end: int) -> None:
    """Take units from slot `start` up to slot `end`; the book must have room (:func:`with_room`)."""
    book.size[row] = add(book.at, book.load, row, int(book.size[row]), units, start, end, 0)


@lean
def room(book: Book, row: int, start: int, end: int) -> float:
    """Units that are free in every slot from `start` up to `end`; inf for an unlimited resource."""
    most = 0
    for i in range(book.size[row]):
        if book.at[row, i] < end and (i + 1 == book.size[row] or book.at[row, i + 1] > start):
            # the fullest slot decides, since workers are held in every slot of the window
            most = max(most, book.load[row, i])
    return book.capacity[row] - most


@lean
def price(book: Book, row: int, load: int) -> float:
    """Price of a unit per slot when `load` units are taken; the row has a capacity above 0."""
    return book.curve.low * math.exp(book.curve.growth * (load / book.capacity[row])) - book.curve.shift


@lean
def window_price(book: Book, row: int, start: int, end: int) -> float:
    """What a unit costs in all slots from `start` up to `end`; the row has a capacity above 0."""
    total, i = 0.0, 0
    while i < book.size[row] and book.at[row, i] < end:
        until = end if i + 1 == book.size[row] else min(end, book.at[row, i + 1])
        # step by step, not slot by slot: prices change only where something was booked
        slots = until - max(start, book.at[row, i])
        if slots > 0:
            total += slots * price(book, row, book.load[row, i])
        i += 1
    return total


def pieces(book: Book, row: int, start: int, end: int) -> list[tuple[int, int, float]]:
    """Prices of a unit from slot `start` up to `end`: (from, up to, price), in order; empty if unlimited."""
    if math.isinf(book.capacity[row]):
        return []
    at, count = book.at[row].tolist(), int(book.size[row])
    steps = zip(at[:count], [*at[1:count], end], book.load[row, :count].tolist(), strict=True)
    cut = [(max(a, start), min(b, end), load) for a, b, load in steps]
    return [(a, b, float(price(book, row, load))) for a, b, load in cut if a < b]
