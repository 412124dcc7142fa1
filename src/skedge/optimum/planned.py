"""Carries out a plan of the chunk problem as a run: dispatches as planned, PSs by A_ps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from skedge.core.events import Dispatch
from skedge.core.model import Ints
from skedge.core.policy import View
from skedge.policies.aonline import AOnline


class PlannedChunks(AOnline):
    """Dispatches every job on arrival as it was planned; clairvoyant, so not for the list of policies.

    Parameters
    ----------
    lanes_of, rank_of
        Lane of every chunk, and rank, by job.
    """

    name: ClassVar[str] = "optimum"

    def __init__(self, lanes_of: Mapping[int, Ints] | None = None, rank_of: Mapping[int, int] | None = None) -> None:
        super().__init__()
        self.lanes_of, self.rank_of = dict(lanes_of or {}), dict(rank_of or {})

    @property
    def lanes(self) -> dict[str, Any]:
        """Lanes preempt; the order of the jobs is the plan's."""
        return {"preemptive": True, "rank": "custom"}

    def _dispatch(self, job: int, lost: tuple[int, ...] | None, view: View) -> Dispatch:  # noqa: ARG002
        lane = self.lanes_of[job]
        unsaid = np.full(len(lane), np.nan)
        return Dispatch(job, lane, self.rank_of[job], unsaid, np.zeros(len(lane), np.int64), "planned")
