"""The share of busy workers over time, beside the submissions (JSAC'22 Fig. 11)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import polars as pl
from pydantic import Field

from skedge.core.model.cluster import Floats
from skedge.studies.figure import Figure, Line
from skedge.studies.judge import Part
from skedge.studies.outcome import Outcome, format_cell, mean_of, points

from .sweep import Sweep

BUSY = "busy_share_by_slot"
"""A list: the share of the edge workers that are held, at the beginning of each slot from the first arrival on."""


class Course(Sweep):
    """Settings of a study of how busy the edge is over time; its metric is measured once a run, as in a sweep.

    Attributes
    ----------
    slots
        Number of slots that the figure shows.
    busy
        Policies whose share of busy workers is claimed to reach 100 %, at least once.
    idle
        Policies whose share is claimed never to reach it.
    """

    kind: Literal["course"]  # type: ignore[assignment]
    slots: int = Field(ge=2)
    busy: list[str]
    idle: list[str] = Field([])

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the sweep, and the share of busy workers over time."""
        return (*super().metrics, BUSY)

    def outcome(self, rows: pl.DataFrame) -> Outcome:
        """Judge the sweep's claim, and whether all workers are busy at some time."""
        outcome = super().outcome(rows.drop(BUSY))
        by_policy = {policy: rows.filter(pl.col("policy") == policy).sort("seed") for policy in self.policies}
        lines = tuple(self._course(policy, policy_rows[BUSY]) for policy, policy_rows in by_policy.items())
        figure = Figure(
            "Share of busy edge workers over time", "slots", "share of busy workers", lines, guides=((1.0, "all"),)
        )
        shares = [
            *(_reaches_all(name, by_policy[name]) for name in self.busy),
            *(_never_reaches_all(name, by_policy[name]) for name in self.idle),
        ]
        return replace(outcome, parts=(*outcome.parts, *shares), figure=figure)

    def _course(self, policy: str, courses: pl.Series) -> Line:
        """The mean over the seeds at some forty slots; a run that has ended holds no worker."""
        slots = range(0, self.slots, -(-self.slots // 40))
        # means over the seeds need a value of every seed at every slot
        shares = [[course[slot] if slot < len(course) else 0.0 for course in courses.to_list()] for slot in slots]
        return Line(policy, tuple(map(float, slots)), tuple(map(mean_of, shares)))


_ALL = 0.995
"""The share of busy workers that is 100 % in a figure."""


def _reaches_all(policy: str, rows: pl.DataFrame) -> Part:
    """The part of the claim that the share of busy workers reaches 100 %."""
    largest = _largest_shares(rows)
    return Part(f"{policy} reaches 100 %", tuple(largest - _ALL), f"{format_cell(points(mean_of(largest)), 1)} %")


def _never_reaches_all(policy: str, rows: pl.DataFrame) -> Part:
    largest = _largest_shares(rows)
    return Part(f"{policy} stays below 100 %", tuple(_ALL - largest), f"{format_cell(points(mean_of(largest)), 1)} %")


def _largest_shares(rows: pl.DataFrame) -> Floats:
    """One number a seed: the height of its curve."""
    return np.array([max(course) for course in rows[BUSY].to_list()])
