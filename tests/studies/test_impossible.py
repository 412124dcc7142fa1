"""What the reading files say cannot hold, by the bound that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from skedge.optimum.utility.counts import most_completed
from skedge.scenario.file import scenario_from_dict
from skedge.studies.reading import reading_of
from skedge.studies.study import SEARCHED, study_files, study_under


def most_of_fig9(links: str, machine: str) -> list[int | None]:
    """The bound on the jobs that any policy completes by T in PD-ORS's Fig. 9, for each seed of the search."""
    (content,) = (c for c in study_files() if (c["paper"], c["figure"]) == ("pdors", "fig9"))
    selection = reading_of("pdors").selection("plain") | {"links": links, "machine": machine}
    settings = study_under(content, "search", selection).settings
    first_of_seed = (next(iter(settings.simulations(seed, None))) for seed in range(SEARCHED))
    return [most_completed(scenario_from_dict(run.data, run.label, Path())) for run in first_of_seed]


@pytest.mark.parametrize(
    ("links", "machine"), [("wide", "worker"), ("short_slot", "worker"), ("short_slot", "worker_and_ps")]
)
def test_half_of_the_jobs_of_pdors_fig9_cannot_be_complete(links: str, machine: str) -> None:
    """The median of 100 training times is T for every policy, unless 50 jobs are complete by T."""
    assert all(most is not None and most < 50 for most in most_of_fig9(links, machine))


def test_with_fast_links_or_large_machines_half_of_them_may_be_complete() -> None:
    """So that the bound proves nothing there."""
    for links, machine in [("wide", "worker_and_ps"), ("fast", "worker"), ("fast", "worker_and_ps")]:
        assert any(most is not None and most >= 50 for most in most_of_fig9(links, machine))
