"""Prices of resources as functions of their booked amounts, as primal-dual schedulers charge them.

A unit of a resource costs, in every slot in which it is used, a price that grows with the part of the capacity that is
taken in that slot. A :class:`LoadProfile` holds the loads over time, a :class:`Curve` gives the price of a load. Slots
count from an origin that the owner of the profile chooses; slot t is [t, t + 1).
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


def from_zero(max_price: float, scale: float, *, normed: bool) -> Curve:
    """The curve of She et al., Eqs. (7) and (8): theta^x - 1 with theta = scale `max_price` + 1; 0 at x = 0.

    Parameters
    ----------
    max_price
        F, the price when all is taken (> 0), if `normed`.
    scale
        2TSU for workers, 2TSV for PSs (> 0).
    normed
        True: divided by `scale`, so that all is as the text says (ERRATA H2); False: as printed, `scale` times that.
    """
    low = 1 / scale if normed else 1.0
    return Curve(low, math.log1p(scale * max_price), low)


class LoadProfile(NamedTuple):
    """Loads of resources over the slots, a row each.

    Attributes
    ----------
    starts, load, size
        From slot ``starts[row, i]`` on ``load[row, i]`` units are taken: :mod:`skedge.policies.common.step_functions`.
    capacity
        Units of each row, shape ``(rows,)``; inf: without limit, for ever as if nothing were taken.
    curve
        What a unit costs.
    """

    starts: Ints
    load: Ints
    size: Ints
    capacity: Floats
    curve: Curve


def empty_profile(capacity: Floats, curve: Curve) -> LoadProfile:
    """A profile without load."""
    return LoadProfile(*constant(np.zeros(len(capacity), np.int64)), capacity, curve)


def with_room(profile: LoadProfile) -> LoadProfile:
    """`profile`, enlarged if needed for one more :func:`take` in every row."""
    if int(profile.size.max(initial=0)) + 2 <= profile.starts.shape[1]:
        return profile
    return profile._replace(starts=wider(profile.starts), load=wider(profile.load))


@lean
def take(profile: LoadProfile, row: int, units: int, start: int, end: int) -> None:
    """Take units from slot `start` up to slot `end`.

    Parameters
    ----------
    profile
        Changed in place; it must have room (:func:`with_room`).
    row
        The resource.
    units
        Number of units.
    start, end
        Slots, ``0 <= start < end``.
    """
    profile.size[row] = add(profile.starts, profile.load, row, profile.size[row], units, start, end, 0)


@lean
def free_units(profile: LoadProfile, row: int, start: int, end: int) -> float:
    """Units that are free in every slot from `start` up to `end`; inf for an unlimited resource.

    Parameters
    ----------
    profile, row
        The loads, and the resource.
    start, end
        Slots, ``0 <= start < end``.
    """
    max_load = 0
    for i in range(profile.size[row]):
        if profile.starts[row, i] < end and (i + 1 == profile.size[row] or profile.starts[row, i + 1] > start):
            # the fullest slot decides, since workers are held in every slot of the window
            max_load = max(max_load, profile.load[row, i])
    return profile.capacity[row] - max_load


@lean
def price(profile: LoadProfile, row: int, load: int) -> float:
    """Price of a unit per slot when `load` units are taken; the row has a capacity above 0."""
    # an unlimited resource has load / inf = 0, so it is free of charge for ever (H21)
    return profile.curve.low * math.exp(profile.curve.growth * (load / profile.capacity[row])) - profile.curve.shift


@lean
def window_price(profile: LoadProfile, row: int, start: int, end: int) -> float:
    """Total price of a unit over all slots from `start` up to `end`.

    Parameters
    ----------
    profile, row
        The loads, and the resource, whose capacity is above 0.
    start, end
        Slots, ``0 <= start <= end``.
    """
    total, i = 0.0, 0
    while i < profile.size[row] and profile.starts[row, i] < end:
        until = end if i + 1 == profile.size[row] else min(end, profile.starts[row, i + 1])
        # step by step, not slot by slot: prices change only where something was booked
        slots = until - max(start, profile.starts[row, i])
        if slots > 0:
            total += slots * price(profile, row, profile.load[row, i])
        i += 1
    return total
