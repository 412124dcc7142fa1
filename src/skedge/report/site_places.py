"""Positions of sites in a picture: near each other if moving data between them is cheap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skedge.core.model.cluster import Floats

LEAST_FIT = 1 / 3
"""Least part of the distances that the plane must represent; below it the sites are placed on a circle."""

_ZERO = 1e-9
"""Part of the largest eigenvalue, or coordinate, below which one counts as 0."""


@dataclass(frozen=True)
class Places:
    """Sites in a plane.

    Attributes
    ----------
    xy
        x to the right and y upwards of each site, shape ``(sites, 2)``; on a circle its radius is 1, otherwise the
        unit is a cost of a MB.
    fit
        Part of the distances that the plane represents, 0..1: 1 if they equal the costs, less `cost_offset`. None: the
        sites are on a circle, in their order, and distance means nothing.
    cost_offset
        Amount subtracted from every cost.
    """

    xy: Floats
    fit: float | None
    cost_offset: float = 0.0


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
    # A distance has no direction, a cost may: the mean of both.
    distance = (cost + cost.T) / 2
    off_diagonal = ~np.eye(len(cost), dtype=bool)
    min_cost = float(distance[off_diagonal].min(initial=np.inf)) if len(cost) > 1 else 0.0
    # What all pairs cost alike is no distance: taken off, the rest may fit a plane where the costs do not.
    candidates = [
        candidate
        for offset in (0.0, min_cost)
        if (candidate := _classical_scaling(distance - offset * off_diagonal, offset)) is not None
    ]
    best = max(candidates, key=lambda candidate: candidate.fit or 0.0, default=None)
    return _circle(len(cost)) if best is None or best.fit is None or best.fit < LEAST_FIT else best


def _classical_scaling(distance: Floats, offset: float) -> Places | None:
    """Scale distances to the plane; None where no two eigenvectors are the first two."""
    # Torgerson's B by its entries: each row's and column's mean off, the whole mean on again.
    squared = distance**2
    centred = squared - squared.mean(0) - squared.mean(1)[:, None] + squared.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    # eigh() ascends; the appended 0 is a third eigenvalue where there are two sites.
    values, vectors = np.append(values[::-1], 0.0), vectors[:, ::-1]
    # Rounding makes tiny eigenvalues of both signs out of 0, which must neither span an axis nor spoil the fit.
    values[np.abs(values) <= _ZERO * values[0]] = 0.0
    # Not unique: no spread, an imaginary axis, or a second and third eigenvalue that are equal, of which the library
    # may return any rotation.
    if values[0] <= 0 or values[1] < 0 or (values[1] > 0 and values[1] - values[2] <= _ZERO * values[0]):
        return None
    xy = vectors[:, :2] * np.sqrt(values[:2])
    # Costs that are no distances have negative eigenvalues too: they count against the fit.
    fit = float(values[:2].sum() / np.abs(values).sum())
    return Places(_orient(xy, rotate=values[0] - values[1] <= _ZERO * values[0]), fit, offset)


def _orient(xy: Floats, *, rotate: bool) -> Floats:
    """The same places mirrored, and rotated if requested, as described in :func:`place`."""
    if rotate:
        # Equal axes span a plane, in which any rotation is as good: the first site off the centre chooses.
        x, y = xy[_first_nonzero(np.hypot(*xy.T))]
        xy = xy @ np.array([[x, -y], [y, x]]) / np.hypot(x, y)
    x, y = (xy[_first_nonzero(np.abs(axis)), k] for k, axis in enumerate(xy.T))
    # Eigenvectors are unique but for their signs, which differ between libraries.
    return xy * [-1.0 if x > 0 else 1.0, -1.0 if y < 0 else 1.0]


def _first_nonzero(sizes: Floats) -> int:
    """Index of the first size that is not 0; 0 if all are."""
    return int(np.argmax(sizes > np.sqrt(_ZERO) * sizes.max()))


def _circle(sites: int) -> Places:
    angle = np.pi - 2 * np.pi * np.arange(sites) / max(sites, 1)
    return Places(np.column_stack([np.cos(angle), np.sin(angle)]), None)
