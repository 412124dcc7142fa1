"""The parts of a run: ranges of its jobs, each with its rows of all tables. A run in memory has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from skedge.core.model.scenario import Scenario
from skedge.core.record.schedule import Schedule

Steps = Callable[[str, int, int], None]
"""Called with what is done part by part, with the number of parts done so far, and of all."""


def parts_of(
    scenario: Scenario, schedule: Schedule, ranges: list[tuple[int, int]], done: Callable[[], None]
) -> Iterator[tuple[int, Scenario, Schedule]]:
    """The number of the first job of each part, the scenario with its jobs alone, and their rows.

    The last part also has the rows of impossible jobs.

    Parameters
    ----------
    scenario, schedule
        The run.
    ranges
        The parts: those of the scenario, or one of all jobs.
    done
        Called after each part.
    """
    for first, end in ranges:
        yield first, scenario.part(first, end), schedule.of_jobs(first, None if end == scenario.count else end)
        done()


def counting(steps: Steps | None, label: str, parts: int) -> Callable[[], None]:
    """Tell `steps` each time that it is called that one more part is done."""
    numbers = count(1)

    def done() -> None:
        if steps is not None:
            steps(label, next(numbers), parts)

    return done
