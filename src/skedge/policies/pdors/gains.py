"""Lemmas 1 and 2 of PD-ORS, Eqs. (29) and (30): the gain G_delta before rounding, and what it promises.

G <= 1 favours the packing rows, (24) and (25), G > 1 the cover rows, (26) and that of the PSs. At the paper's own sizes
(29) is 0.25 and its bound of the cover rows is empty (P16), so the default is G = 1 with repair.
"""

from __future__ import annotations

import math

from skedge.core.errors import PolicyError


def packing_gain(delta: float, rows: int, least: float) -> float:
    """G of Lemma 1 and Eq. (29), at most 1: packing rows hold with probability 1 - delta/3.

    Parameters
    ----------
    delta
        In (0, 1].
    rows
        Number of packing rows, RH + 1 in (29).
    least
        W_b (W_2 in (29)): the least b_i / B_ij over the entries above 0.

    Raises
    ------
    PolicyError
        If delta or W_b is out of its range.
    """
    x = 3 * _log_term(delta, rows, least) / (2 * least)
    return 1 + x - math.sqrt(x * x + 2 * x)


def cover_gain(delta: float, rows: int, least: float) -> float:
    """G of Lemma 2 and Eq. (30), at least 1: cover rows hold with probability 1 - delta/3.

    Parameters
    ----------
    delta
        In (0, 1].
    rows
        m, number of cover rows: 2 with that of the PSs (P17).
    least
        W_a, the least a_i / A_ij: min(W_1, W_1 / gamma) here.
    """
    x = _log_term(delta, rows, least) / least
    return 1 + x + math.sqrt(x * x + 2 * x)


def cover_bound(gain: float, delta: float, rows: int, least: float) -> float:
    """Lemma 1: with probability 1 - delta/3 no cover row falls to this part of a_i or below; 0 or less is vacuous.

    The paper prints delta/(3m); the union bound over m rows gives delta/3 (P18).

    Parameters
    ----------
    gain
        G_delta, > 0.
    delta, rows, least
        As in :func:`cover_gain`.
    """
    return gain * (1 - math.sqrt(2 * _log_term(delta, rows, least) / (gain * least)))


def packing_bound(gain: float, delta: float, rows: int, least: float) -> float:
    """Lemma 2: with probability 1 - delta/3 no packing row exceeds this multiple of b_i.

    Parameters
    ----------
    gain
        G_delta, > 0.
    delta, rows, least
        As in :func:`packing_gain`.
    """
    return gain * (1 + math.sqrt(3 * _log_term(delta, rows, least) / (gain * least)))


def _log_term(delta: float, rows: int, least: float) -> float:
    if not 0 < delta <= 1:
        raise PolicyError(f"delta = {delta}; it must be above 0 and at most 1")
    if not least > 0:
        raise PolicyError(f"W = {least}; the bounds of the rounding need a row that can hold something")
    return math.log(3 * rows / delta)
