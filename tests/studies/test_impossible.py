"""What the reading files say cannot hold, by the bound that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skedge.core.model.latency import Piecewise
from skedge.optimum.utility.counts import most_completed
from skedge.recorded_run import Run
from skedge.scenario.file import scenario_from_dict
from skedge.simulate import run
from skedge.studies.reading import KEPT, reading_of
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


@pytest.mark.parametrize("kept", KEPT)
def test_the_advantage_over_fifo_of_okita_fig14_is_not_the_largest_under_the_piecewise_function(kept: str) -> None:
    """What all of FIFO's jobs can cost at most under that is less than its gap under the exponential function."""
    (content,) = (c for c in study_files() if (c["paper"], c["figure"]) == ("okita", "fig14"))
    settings = study_under(content, kept).settings
    for seed in range(2):
        asked = {(s.place["at"], s.policy.partition(":")[0]): s for s in settings.simulations(seed, None)}

        def made(latency: str, policy: str, asked: dict[Any, Any] = asked) -> Run:
            simulation = asked[latency, policy]
            return run(scenario_from_dict(simulation.data, simulation.label, Path()), simulation.policy)

        fifo = made("piecewise", "fifo")
        latencies = [latency for latency in fifo.scenario.jobs.latency if isinstance(latency, Piecewise)]
        assert len(latencies) == 100
        most = fifo.metrics["cost_bandwidth"] + sum(latency.late for latency in latencies)
        gap = made("exponential", "fifo").metrics["cost_total"] - made("exponential", "okita").metrics["cost_total"]
        assert gap > most
