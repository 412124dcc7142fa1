"""The plans of the jobs: workers and PSs that a policy has reserved for a time to come. Plans are not binding."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from skedge.core.events import Reserve


@dataclass(slots=True)
class PlanRow:
    """Workers and PSs reserved on one server from `start` to `end` [µs]; a row of the table of plans.

    Attributes
    ----------
    made_at
        When it was ordered [µs].
    broken_at
        When the job was found unfinished at the end of the plan [µs]; None: it was not.
    """

    job: int
    server: int
    workers: int
    ps: int
    start: int
    end: int
    made_at: int
    broken_at: int | None = None


class Plans:
    """The newest plan of each job; all reservations of a job at one instant are one plan.

    Attributes
    ----------
    rows
        All rows ever made, in order: the table of plans.
    newest
        The rows of the newest plan, by job.
    """

    def __init__(self) -> None:
        self.rows: list[PlanRow] = []
        self.newest: dict[int, list[PlanRow]] = {}
        self._ends: list[tuple[int, int]] = []

    def reserve(self, order: Reserve, now: int) -> None:
        """Add a row to the plan of its job; an older plan is replaced."""
        row = PlanRow(order.job, order.server, order.workers, order.ps, order.start, order.end, now)
        self.rows.append(row)
        same = [earlier for earlier in self.newest.get(order.job, ()) if earlier.made_at == now]
        self.newest[order.job] = [*same, row]
        # ends are never removed: `take_ended` ignores those that a newer plan has moved
        heappush(self._ends, (order.end, order.job))

    def start(self, job: int) -> int:
        """Start of the newest plan of `job` [µs]."""
        return min(row.start for row in self.newest[job])

    def end(self, job: int) -> int:
        """End of the newest plan of `job` [µs]."""
        return max(row.end for row in self.newest[job])

    def take_ended(self, now: int) -> list[int]:
        """Jobs whose newest plan ends by `now`, and was not returned before, in order of its end."""
        jobs = dict[int, None]()
        while self._ends and self._ends[0][0] <= now:
            # entries of plans that were replaced stay in the heap: their end is not the newest plan's
            end, job = heappop(self._ends)
            # a plan on several servers has an entry for each, and counts once
            if job not in jobs and self.end(job) == end:
                jobs[job] = None
        return list(jobs)

    def mark_broken(self, job: int, now: int) -> None:
        """Mark the newest plan of `job` as broken."""
        for row in self.newest[job]:
            row.broken_at = now
