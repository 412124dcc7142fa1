"""Positions of sites in a picture: near each other if moving data between them is cheap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skedge.core.model.cluster import Floats

LEAST_FIT = 1 / 3
"""Least part of the distances that the plane must represent; below it the sites are placed on a circle."""

_NONE = 1e-9
"""Part of the largest eigenvalue, or coordinate, below which one counts as 0."""


@dataclass(frozen=True)
class Places:
    """Sites in a plane.

    Attributes
    ----------
    at
        x to the right and y upwards of each site, shape ``(sites, 2)``; on a circle its radius is 1, otherwise the
        unit is a cost of a MB.
    fit
        Part of the distances that the plane represents, 0..1: 1 if they equal the costs, less `less`. None: the sites
        are on a circle, in their order, and distance means nothing.
    less
        Amount subtracted from every cost.
    """

    at: Floats
    fit: float | None
    less: float = 0.0


def place(cost: Floats) -> Places:
    """Place sites so that their distances follow the costs of a MB between them.

    By classical multidimensional scaling [1]_: with B = -1/2 J D^2 J, J the centring matrix, the coordinates are the
    eigenvectors of the two largest eigenvalues of B, each times the root of its eigenvalue; :attr:`Places.fit` is those
    two over the sum of all, by amount. Costs may hold an amount that is the same for every pair, which no plane shows:
    D is the costs, or the costs less the least, whichever fits better. Between two sites the cost is the mean of both
    directions.

    The orientation is unique: the first site that is off the centre is on the left, and above if it is off the
    horizontal axis; if both axes are equally long the first site is on the horizontal one. The sites are on a circle,
    clockwise from the left, if the plane is not determined (several eigenvalues are equal, as with equal costs) or
    represents less than :data:`LEAST_FIT`.

    Parameters
    ----------
    cost
        Cost of a MB from the row's site to the column's, shape ``(sites, sites)``, 0 or more.

    References
    ----------
    .. [1] W. S. Torgerson, "Multidimensional scaling: I. Theory and method", Psychometrika 17 (1952), 401-419.
    """
    apart = (cost + cost.T) / 2
    between = ~np.eye(len(cost), dtype=bool)
    least = float(apart[between].min(initial=np.inf)) if len(cost) > 1 else 0.0
    found = [made for less in (0.0, least) if (made := _scaled(apart - less * between, less)) is not None]
    best = max(found, key=lambda made: made.fit or 0.0, default=None)
    return _circle(len(cost)) if best is None or best.fit is None or best.fit < LEAST_FIT else best


def _scaled(apart: Floats, less: float) -> Places | None:
    """Scale distances to the plane; None where no two eigenvectors are the first two."""
    square = apart**2
    centred = square - square.mean(0) - square.mean(1)[:, None] + square.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    values, vectors = np.append(values[::-1], 0.0), vectors[:, ::-1]
    values[np.abs(values) <= _NONE * values[0]] = 0.0
    if values[0] <= 0 or values[1] < 0 or (values[1] > 0 and values[1] - values[2] <= _NONE * values[0]):
        return None
    at = vectors[:, :2] * np.sqrt(values[:2])
    fit = float(values[:2].sum() / np.abs(values).sum())
    return Places(_upright(at, turn=values[0] - values[1] <= _NONE * values[0]), fit, less)


def _upright(at: Floats, *, turn: bool) -> Floats:
    """The same places mirrored, and rotated if requested, as described in :func:`place`."""
    if turn:
        x, y = at[_first(np.hypot(*at.T))]
        at = at @ np.array([[x, -y], [y, x]]) / np.hypot(x, y)
    x, y = (at[_first(np.abs(axis)), k] for k, axis in enumerate(at.T))
    return at * [-1.0 if x > 0 else 1.0, -1.0 if y < 0 else 1.0]


def _first(sizes: Floats) -> int:
    """Number of the first that is not 0; 0 if all are."""
    return int(np.argmax(sizes > np.sqrt(_NONE) * sizes.max()))


def _circle(sites: int) -> Places:
    angle = np.pi - 2 * np.pi * np.arange(sites) / max(sites, 1)
    return Places(np.column_stack([np.cos(angle), np.sin(angle)]), None)
