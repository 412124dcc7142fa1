"""Queues that theory knows: Poisson arrivals, exponential sizes, one chunk a job, no uploads and no communication."""

from __future__ import annotations

from itertools import pairwise
from math import exp, factorial

import numpy as np
import polars as pl
import pytest
from scipy.integrate import quad
from scipy.stats import t as student

from skedge.core.model.cluster import Cluster, Job, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.simulate import run

MEAN = 100.0
"""Of the sizes [s]."""
JOBS, BATCHES = 2500, 20


def queue(workers: int, load: float, seed: int, jobs: int = JOBS) -> Scenario:
    """Jobs that keep `workers` workers busy for a share `load` of the time."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(MEAN / (workers * load), jobs))
    table, _ = job_table([Job("0", 0.0, 1, 1, 1, 1.0)])
    frame = pl.concat([table] * jobs).with_columns(
        pl.Series("id", [str(i) for i in range(jobs)]),
        pl.Series("arrival_s", arrivals),
        pl.Series("minibatch_s", rng.exponential(MEAN, jobs)),
    )
    cluster = Cluster([Server("e", capacity={"worker:gpu": workers, "ps:cpu": workers})])
    return Scenario(cluster, Jobs(frame, cluster), seed=seed)


def times(scenario: Scenario, policy: str) -> np.ndarray:
    """JCT of each job [s]."""
    return run(scenario, policy).jobs["jct"].to_numpy() / SECOND


def assert_mean(sample: np.ndarray, expected: float) -> None:
    """The mean is within a 99 % interval of batch means around `expected`, which is no wider than a quarter of it."""
    means = sample[len(sample) % BATCHES :].reshape(BATCHES, -1).mean(axis=1)
    half = student.ppf(0.995, BATCHES - 1) * means.std(ddof=1) / np.sqrt(BATCHES)
    assert half < expected / 4
    assert abs(means.mean() - expected) < half, (means.mean(), expected, half)


def in_order_of_arrival(scenario: Scenario, workers: int) -> np.ndarray:
    """JCT of each job [s] by the recursion of Kiefer and Wolfowitz: the worker that is free first takes the next."""
    free, out = np.zeros(workers), []
    for arrival, size in scenario.jobs.frame.select("arrival_s", "minibatch_s").rows():
        first = int(free.argmin())
        free[first] = max(free[first], arrival) + size
        out.append(free[first] - arrival)
    return np.array(out)


def erlang_c(workers: int, load: float) -> float:
    """Mean time in M/M/c [s]: the chance to wait, over c mu - lambda, and the service."""
    a = workers * load
    last = a**workers / factorial(workers) / (1 - load)
    waits = last / (sum(a**k / factorial(k) for k in range(workers)) + last)
    return waits * MEAN / (workers * (1 - load)) + MEAN


@pytest.mark.parametrize(("workers", "load"), [(1, 0.5), (3, 0.7)])
def test_fifo_is_m_m_c(workers: int, load: float) -> None:
    """Every JCT is the recursion's to a millisecond, and their mean 1 / (mu - lambda), for c > 1 Erlang's."""
    scenario = queue(workers, load, seed=1)
    found = times(scenario, "fifo")
    assert found == pytest.approx(in_order_of_arrival(scenario, workers), abs=1e-3)
    assert_mean(found, erlang_c(workers, load))
    assert erlang_c(1, load) == pytest.approx(MEAN / (1 - load))


@pytest.mark.parametrize("policy", ["fifo:backfill=true", "fifo:rule=earliest_server", "tiresias:limit_s=1000000"])
def test_what_is_first_come_first_served_on_one_worker_is_fifo(policy: str) -> None:
    """No job can pass another: all ask for one worker; Tiresias-L has one queue where its limit is never reached."""
    scenario = queue(1, 0.7, seed=2, jobs=500)
    assert times(scenario, policy).tolist() == times(scenario, "fifo").tolist()


def srpt_mean(load: float) -> float:
    """Mean time in M/M/1 under SRPT [s] (Schrage and Miller 1966), sizes in units of their mean."""

    def busy(x: float) -> float:  # load of the jobs up to size x
        return load * (1 - exp(-x) * (1 + x))

    def wait(x: float) -> float:
        second = 2 - exp(-x) * (x * x + 2 * x + 2)  # integral of t^2 e^-t up to x
        return load * (second + x * x * exp(-x)) / (2 * (1 - busy(x)) ** 2)

    def stay(x: float) -> float:
        return quad(lambda t: 1 / (1 - busy(t)), 0, x)[0]

    points = np.linspace(0, 40, 801)
    values = [exp(-x) * (wait(x) + stay(x)) for x in points]
    return MEAN * float(sum((a + b) / 2 for a, b in pairwise(values)) * (points[1] - points[0]))


def srpt(scenario: Scenario) -> np.ndarray:
    """JCT of each job [s] on one worker that always takes the job with the least left."""
    arrivals, sizes = (scenario.jobs.frame[name].to_numpy() for name in ("arrival_s", "minibatch_s"))
    left: dict[int, float] = {}
    now, number, done = 0.0, 0, np.zeros(len(sizes))
    while number < len(sizes) or left:
        following = arrivals[number] if number < len(sizes) else np.inf
        if left:
            job = min(left, key=lambda j: (left[j], j))
            end = min(now + left[job], following)
            left[job] -= end - now
            now = end
            if left[job] <= 1e-9:
                done[job] = now
                del left[job]
        now = max(now, following) if not left else now
        while number < len(sizes) and arrivals[number] <= now:
            left[number] = sizes[number]
            number += 1
    return done - arrivals


@pytest.mark.parametrize("load", [0.5, 0.7])
def test_srtf_is_m_m_1_srpt(load: float) -> None:
    """The formula of Schrage and Miller, and no longer a mean than FIFO's on the same jobs."""
    scenario = queue(1, load, seed=1)
    found = times(scenario, "srtf")
    assert found == pytest.approx(srpt(scenario), abs=1e-3)
    assert_mean(found, srpt_mean(load))
    assert found.mean() < in_order_of_arrival(scenario, 1).mean()


def test_a_online_on_one_worker_is_preemptive_shortest_job_first() -> None:
    """Of one chunk each, rank D p is the size: M/M/1 with preemptive priority by size (Phipps 1956 with resumption)."""
    load = 0.6
    found = times(queue(1, load, seed=3), "aonline")

    def busy(x: float) -> float:
        return load * (1 - exp(-x) * (1 + x))

    def stay(x: float) -> float:
        return load * (2 - exp(-x) * (x * x + 2 * x + 2)) / (2 * (1 - busy(x)) ** 2) + x / (1 - busy(x))

    assert_mean(found, MEAN * quad(lambda x: exp(-x) * stay(x), 0, 60)[0])
