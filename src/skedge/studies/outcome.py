"""The outcome of a study: its claim part by part, a table and a figure; and the formatting of its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from skedge.analysis.intervals import Estimate, estimate

from .figure import Figure

Cell = str | int | Estimate | None


@dataclass(frozen=True)
class Part:
    """A part of a claim that can be checked: its text, whether it holds, and the numbers."""

    text: str
    holds: bool
    numbers: str


@dataclass(frozen=True)
class Outcome:
    """The outcome of a study.

    Attributes
    ----------
    parts
        Parts of the claim, which is reproduced if all of them hold.
    columns, rows
        A table for readers.
    """

    parts: tuple[Part, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    figure: Figure

    @property
    def holds(self) -> bool:
        """Whether all parts of the claim hold."""
        return all(part.holds for part in self.parts)


def mean_of(values: Iterable[float]) -> Estimate:
    """Mean and 95 % interval (Student's t)."""
    return estimate(np.array(list(values), float))


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of `y` over `x`, by least squares."""
    at = np.array(x, float) - np.mean(x)
    return float(at @ np.array(y, float) / (at @ at))


def shown(cell: Cell, digits: int = 2) -> str:
    """A cell as text: an estimate as mean ± half its interval."""
    if not isinstance(cell, Estimate):
        return "–" if cell is None else str(cell)
    half = "" if cell.high is None else f" ± {cell.high - cell.mean:.{digits}f}"
    return f"{cell.mean:.{digits}f}{half}"


def points(cell: Estimate) -> Estimate:
    """A share, or a difference of shares, in percentage points."""
    low, high = (None if end is None else 100 * end for end in (cell.low, cell.high))
    return Estimate(100 * cell.mean, low, high)
