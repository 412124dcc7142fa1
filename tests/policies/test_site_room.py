"""OASiS at sites never rejects a job that empty sites hold; sites without capacity; sites split between the kinds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from builders.resource_scenarios import resource_scenario
from builders.site_instances import draw_jobs, draw_sites
from builders.sites import POLICIES, TOGETHER, scenario_of, with_ps_needs
from skedge.core.errors import PolicyError, ScenarioError
from skedge.core.model.latency import Linear
from skedge.policies.okita.sites import SiteJob, Sites
from skedge.recorded_run import Run
from skedge.simulate import run


def holds(sites: Sites, job: SiteJob, *, split: bool = False) -> bool:
    """Whether empty sites hold a worker and a PS of the job, by trying every pair of sites."""
    worker, ps = job.demands
    for at, beside in product(range(len(sites)), repeat=2):
        free = sites.capacity.copy()
        free[beside] -= ps
        apart = at % 2 == 0 and beside % 2 == 1
        if (free[beside] >= -1e-9).all() and (free[at] >= worker - 1e-9).all() and (apart or not split):
            return True
    return False


def states(done: Run) -> dict[str, str]:
    return dict(done.jobs.select("id", "state").iter_rows())


def only(worker: float, ps: float, **changes: object) -> SiteJob:
    """A job of one resource with a chunk at the first of two sites; a worker trains a chunk in a slot."""
    usual: dict[str, object] = {
        "arrival": 0, "rate": 1, "chunk_mb": 2, "exchange_mb": 3, "data": (1, 0), "worker": (worker,),
        "ps": (ps,), "latency": Linear(5),
    }  # fmt: skip
    return SiteJob(0, **{**usual, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_whose_ps_must_leave_the_larger_site_to_its_worker_runs(policy: str) -> None:
    """Sites of 2 and 1, worker 2, PS 1: the worker stands at the first, the PS at the second.

    A slot of the exchange costs 3 x 0.5, the latency cost after one slot is 5: 6.5.
    """
    sites = Sites(np.array([[2.0], [1.0]]), np.array([[0.0, 0.5], [0.5, 0.0]]))
    done = run(scenario_of(sites, [only(2, 1)]), policy)
    assert done.verify() == []
    assert states(done) == {"0": "finished"}
    assert done.metrics["cost_total"] == pytest.approx(6.5)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_a_job_is_rejected_exactly_if_empty_sites_do_not_hold_it(seed: int, split: bool) -> None:
    """Small sites, so that a PS at the wrong one leaves no room; by trying every pair of sites."""
    rng = np.random.default_rng(seed)
    sites = draw_sites(rng)
    sites = Sites(np.minimum(sites.capacity, rng.integers(0, 5, sites.capacity.shape)), sites.cost)
    if split and len(sites) < 2:
        return
    jobs = with_ps_needs(draw_jobs(rng, sites, 6))
    done = run(scenario_of(sites, jobs, seed=seed), "oasis" if split else TOGETHER)
    assert done.verify() == []
    expected = {str(job.id): "finished" if holds(sites, job, split=split) else "rejected" for job in jobs}
    assert states(done) == expected


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("policy", POLICIES)
def test_sites_without_capacity_reject_every_job(policy: str) -> None:
    """Without a warning; the reason says that the sites have no room."""
    done = run(scenario_of(Sites(np.zeros((2, 1)), np.zeros((2, 2))), [only(1, 1)]), policy)
    assert states(done) == {"0": "rejected"}
    assert done.jobs["reason"].str.starts_with("never_fits").all()


def test_split_sites_keep_workers_at_even_sites_and_pss_at_odd_ones() -> None:
    """Three sites that each hold all: 0 and 2 have workers, 1 the PS; the whole exchange is paid for."""
    sites = Sites(np.full((3, 1), 9.0), 1 - np.eye(3))
    jobs = [only(1, 1, data=(4, 4, 4))]
    done = run(scenario_of(sites, jobs), "oasis")
    assert done.verify() == []
    assert set(done.schedule.runs["server"]) == {"s0", "s2"}
    assert set(done.schedule.ps["server"]) == {"s1"}
    workers = done.schedule.runs["workers"].sum()
    assert done.metrics["cost_exchange"] == pytest.approx(3 * workers)
    together = run(scenario_of(sites, jobs), TOGETHER)
    assert together.metrics["cost_exchange"] < done.metrics["cost_exchange"]


def test_split_sites_need_two_sites() -> None:
    scenario = scenario_of(Sites(np.eye(1) * 2, np.zeros((1, 1))), [only(1, 1, data=(1,))])
    with pytest.raises(ScenarioError, match=r"oasis: 1 site; .* with split_sites=false they share"):
        run(scenario, "oasis")
    assert states(run(scenario, TOGETHER)) == {"0": "finished"}


def test_sites_that_share_are_refused_on_servers_with_resources() -> None:
    """There workers and PSs are always apart."""
    with pytest.raises(PolicyError, match="split_sites=false goes with sites"):
        run(resource_scenario(0), TOGETHER)
