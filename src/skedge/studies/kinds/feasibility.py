"""When the bound of PD-ORS' Lemma 1 is not vacuous: its Fig. 5, drawn from the formula."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from skedge.analysis.intervals import Estimate
from skedge.policies.pdors.alg4 import packing_gain
from skedge.studies.figure import Figure, Line
from skedge.studies.judge import Part
from skedge.studies.outcome import Outcome

_STEPS = 81


class Feasibility(BaseModel):
    """Settings of a study of 3 m / exp(G W_a / 2) over delta, with G of Eq. (29).

    Attributes
    ----------
    cover
        Values of W_a, ascending; one curve each.
    rows, least, cover_rows
        r and W_b, which G depends on, and m.
    delta
        Least and largest delta.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["feasibility"]
    cover: list[float] = Field(min_length=2)
    rows: int = Field(ge=1)
    least: float = Field(gt=0)
    cover_rows: int = Field(ge=1)
    delta: tuple[float, float]

    def points(self) -> list[dict[str, Any]]:
        """A row for each W_a and delta: the least delta for which the bound is above 0."""
        deltas = np.linspace(*self.delta, _STEPS)
        return [
            {"seed": 0, "at": float(delta), "cover": cover, "value": self._least_delta(cover, float(delta))}
            for cover in self.cover
            for delta in deltas
        ]

    def _least_delta(self, cover: float, delta: float) -> float:
        # Lemma 1: 3 m exp(-G W_a / 2), with G of Eq. (29)
        gain = packing_gain(delta, self.rows, self.least)
        return float(3 * self.cover_rows * np.exp(-gain * cover / 2))

    def meets(self, cover: float) -> float:
        """The delta from which on the curve is below the line; 1 if there is none."""
        from scipy.optimize import brentq  # noqa: PLC0415 - takes 0.3 s to import

        def above(delta: float) -> float:
            return self._least_delta(cover, delta) - delta

        # brentq needs a change of sign: above 0 near delta = 0, and not above it at 1
        return 1.0 if above(1.0) > 0 else float(brentq(above, 1e-12, 1.0))

    def outcome(self, rows: pl.DataFrame) -> Outcome:
        """Judge whether the curves meet the line of delta itself at smaller delta for larger W_a."""
        curves = [rows.filter(pl.col("cover") == cover) for cover in self.cover]
        meets = [self.meets(cover) for cover in self.cover]
        lines = [
            Line(f"W_a = {cover:g}", tuple(curve["at"]), tuple(map(Estimate, curve["value"])))
            for cover, curve in zip(self.cover, curves, strict=True)
        ]
        lines.append(Line("delta", self.delta, tuple(map(Estimate, self.delta))))
        table = tuple(
            (f"{cover:g}", f"{x:.4f}", f"{curve['value'][0]:.4f}", f"{curve['value'][-1]:.4f}")
            for cover, x, curve in zip(self.cover, meets, curves, strict=True)
        )
        numbers = ", ".join(f"{x:.4f}" for x in meets)
        holds = all(a > b for a, b in pairwise(meets))
        part = Part("the curve meets the line at a smaller delta the larger W_a is", holds, numbers)
        columns = ("W_a", "meets delta at", f"at delta = {self.delta[0]:g}", f"at delta = {self.delta[1]:g}")
        name = "3m/exp(G W_a/2)"
        return Outcome((part,), columns, table, Figure(f"{name} over delta", "delta", name, tuple(lines)))
