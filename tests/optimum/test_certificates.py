"""Certificates: beta by hand, and never on the wrong side of the optimum."""

from __future__ import annotations

import numpy as np
import pytest

from builders.chunk_instances import plain, tiny_scenario
from builders.optimum import tiny_utility
from builders.thorough import thorough_except
from reference.optimum_of_chunks import least_total
from reference.optimum_of_utility import most_utility
from skedge.core.model.cluster import Cluster, Job, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.optimum.certificates import certificate_of_chunks, certificate_of_utility, final_prices, mean_beta
from skedge.optimum.pools.pools import pools
from skedge.simulate import run
from skedge.testing import resource_scenarios


def test_beta_is_the_weight_that_is_not_trained() -> None:
    """Two chunks of 4 s on two workers, each 1/2: the mean is 1/2 at first, a half of it at 2 s.

    A chunk of weight 1 comes at 3 s and interrupts one of them. At 3.5 s an eighth of it is done, of the interrupted
    chunk a quarter is left, of the other an eighth.
    """
    cluster = Cluster([Server("e", capacity={"worker:gpu": 2, "ps:cpu": 9})])
    jobs = [Job("a", 0, 1, 2, 4, 1.0, ps_type="cpu"), Job("b", 3, 1, 1, 4, 1.0, ps_type="cpu")]
    table, given = job_table(jobs)
    scenario = Scenario(cluster, Jobs(table, cluster, given))
    result = run(scenario, "aonline:q_mode=fractional")
    times = np.array([0.0, 2.0, 3.5, 10.0]) * SECOND
    found = mean_beta(result, pools(scenario, "chunks")[0], times)
    of_a, of_b = 0.5 * 0.25 + 0.5 * 0.125, 0.875
    assert found == pytest.approx(np.array([0.5, 0.25, (of_a + of_b) / 2, 0.0]))


@pytest.mark.parametrize("seed", range(12))
def test_no_certificate_is_above_the_least_total(seed: int) -> None:
    scenario = tiny_scenario(seed, most_jobs=3)
    found = certificate_of_chunks(scenario)
    assert found is not None
    assert found.value <= least_total(plain(scenario))


@pytest.mark.parametrize("seed", thorough_except([2, 3], [1, 2, 3, 4]))
def test_no_certificate_is_below_the_most_utility(seed: int) -> None:
    scenario = tiny_utility(seed)
    for policy in ("pdors", "oasis"):
        found = certificate_of_utility(run(scenario, policy))
        assert found is not None
        assert found.value >= most_utility(scenario)


def test_prices_at_the_end_are_the_last_that_were_stated() -> None:
    """One row for each server, resource and slot that a plan has touched; the latest counts."""
    result = run(resource_scenarios()[0], "pdors")
    slot = result.scenario.physics.slot
    price = final_prices(result, [-1.0])
    last: dict[tuple[int, str, str], float] = {}
    for row in result.schedule.prices.iter_rows(named=True):
        for t in range(row["from"] // slot, row["to"] // slot):
            last[t, row["server"], row["resource"]] = row["price"]
    assert (price >= 0).sum() == len(last) > 0
    cluster = result.scenario.cluster
    for (t, server, resource), stated in last.items():
        assert price[t, cluster.server_ids.index(server), cluster.resources.index(resource)] == stated


def test_a_run_without_prices_has_no_certificate() -> None:
    assert certificate_of_utility(run(resource_scenarios()[0], "fifo")) is None
