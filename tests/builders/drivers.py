"""The two ways in which a simulation is driven: event by event, and in the policy's compiled loop."""

from __future__ import annotations

from unittest.mock import patch

import polars as pl

from skedge.core.errors import StuckError
from skedge.core.model.scenario import Scenario
from skedge.recorded_run import Run
from skedge.simulate import run

NEVER_LARGE = 10**9


def driven(scenario: Scenario, policy: str, *, compiled: bool) -> Run:
    """The run, in the loop or event by event, however few jobs there are."""
    n_jobs = 0 if compiled else NEVER_LARGE
    with patch("skedge.simulate.LARGE", n_jobs), patch("skedge.simulate.SMALL", n_jobs):
        done = run(scenario, policy)
    # only Python measures how long each decision takes
    assert (done.decisions_s is None) == compiled
    return done


def difference(scenario: Scenario, policy: str) -> list[str]:
    """The tables in which the records of both differ; where one is stuck the other has to be, too."""
    records = list[dict[str, pl.DataFrame]]()
    for compiled in (True, False):
        try:
            records.append(dict(driven(scenario, policy, compiled=compiled).schedule.tables()))
        except StuckError:
            records.append({})
    first, second = records
    return [
        name for name in first | second if not (name in first and name in second and first[name].equals(second[name]))
    ]
