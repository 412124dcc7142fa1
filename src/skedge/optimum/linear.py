"""A bound from the linear relaxation of a program, valid for any multipliers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skedge.core.model.cluster import Floats

from .solvers import Rows

if TYPE_CHECKING:
    from scipy import sparse


def relaxation_bound(cost: Floats, upper: Floats, rows: Rows, seconds: float) -> float | None:
    """A lower bound on cost x over low <= A x <= high, 0 <= x <= upper; None if no multipliers are found in time.

    Parameters
    ----------
    cost, upper
        Shape ``(variables,)``.
    rows
        The constraints.
    seconds
        Limit of wall time [s].
    """
    from scipy import sparse  # noqa: PLC0415 - takes 0.3 s to import
    from scipy.optimize import linprog  # noqa: PLC0415

    matrix = _matrix(rows, len(cost))
    low, high = np.array(rows.low), np.array(rows.high)
    has_high, has_low, equal = np.isfinite(high) & (low < high), np.isfinite(low) & (low < high), low == high
    solution = linprog(
        cost, A_ub=sparse.vstack([matrix[has_high], -matrix[has_low]]),
        b_ub=np.concatenate([high[has_high], -low[has_low]]),
        A_eq=matrix[equal], b_eq=high[equal], bounds=np.column_stack([np.zeros(len(upper)), upper]), method="highs",
        options={"time_limit": seconds},
    )  # fmt: skip
    if solution.status != 0:
        return None
    multiplier = np.zeros(len(low))
    multiplier[has_high] = solution.ineqlin.marginals[: has_high.sum()]
    # these rows were given negated; a row with two sides has a multiplier from each
    multiplier[has_low] -= solution.ineqlin.marginals[has_high.sum() :]
    multiplier[equal] = solution.eqlin.marginals
    return dual_value(cost, upper, rows, multiplier)


def dual_value(cost: Floats, upper: Floats, rows: Rows, multiplier: Floats) -> float:
    """The bound that follows from multipliers of the rows.

    **Proof.** For any y and any feasible x, cost x = y (A x) + (cost - A' y) x. Of the first, row i gives at least y_i
    low_i where y_i >= 0 and y_i high_i where y_i < 0; of the second, variable j gives at least min(0, its factor) times
    upper_j. A multiplier whose side of the row is infinite is replaced by 0. The possible rounding error of these sums
    is subtracted.

    Parameters
    ----------
    cost, upper
        Shape ``(variables,)``.
    rows
        The constraints.
    multiplier
        Of every row, any numbers.
    """
    low, high = np.array(rows.low), np.array(rows.high)
    y = np.where(np.isfinite(np.where(multiplier >= 0, low, high)), multiplier, 0.0)
    row_bounds = np.where(y > 0, low, np.where(y < 0, high, 0.0))
    matrix = _matrix(rows, len(cost))
    # reduced costs: what is left of the cost of a variable beside its rows
    reduced = cost - matrix.T @ y
    magnitudes, epsilon = np.abs(cost) + abs(matrix).T @ np.abs(y), np.finfo(float).eps * (len(cost) + len(low))
    # a sum of k floats is wrong by at most k eps times the sum of their magnitudes
    rounding_loss = epsilon * (
        np.abs(y) @ np.abs(row_bounds) + magnitudes @ np.where(reduced < epsilon * magnitudes, upper, 0.0)
    )
    return float(y @ row_bounds + np.minimum(reduced, 0.0) @ upper - rounding_loss)


def _matrix(rows: Rows, columns: int) -> sparse.csr_matrix:
    from scipy import sparse  # noqa: PLC0415 - takes 0.3 s to import

    return sparse.csr_matrix((rows.value, rows.column, rows.start), shape=(len(rows.low), columns))
