"""DMLRS relaxed to what its bounds need: jobs that buy worker-slots, resources of all machines together.

In every slot a job is trained either *inside* one machine, workers and PSs together, at the internal rate and with as
many workers as the largest machine holds, or with up to F_i workers anywhere at the external rate (Fact 1). A worker
takes alpha of the resources, and 1 / gamma of a PS's beta. Constraints that only make schedules worse are left out:
which machine it is, integral workers and PSs, at least one PS per job, the checkpoint overhead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skedge.core.model.cluster import Floats
from skedge.core.model.network import upload_row
from skedge.core.model.scenario import Scenario
from skedge.core.model.speed import servers_for
from skedge.core.model.ties import FITS
from skedge.core.model.time import whole_slots


@dataclass(frozen=True)
class JobSlots:
    """The jobs of a scenario on servers with resources and a horizon of T slots.

    Attributes
    ----------
    needs
        Demand of a worker with its share of a PS, alpha + beta / gamma, shape ``(jobs, resources)``.
    capacity
        Capacity of all machines together, shape ``(resources,)``.
    first_slot
        First slot in which each job can be trained, shape ``(jobs,)``.
    utility
        Utility if the job's last slot is t, shape ``(jobs, T)``; -inf where that cannot be.
    fraction, workers
        A slot's two steps, shape ``(jobs, 2)``: the part of the job that is trained by going inside, and by then going
        on to F_i workers; and the worker-slots that each of them takes for a whole job. The second takes no fewer.
    """

    needs: Floats
    capacity: Floats
    first_slot: np.ndarray
    utility: Floats
    fraction: Floats
    workers: Floats


def job_slots(scenario: Scenario) -> JobSlots | None:
    """The relaxation; None without a horizon, or if a job has no utility.

    In continuous time a completion within slot t counts as one at the slot's beginning, which is worth no less.
    """
    jobs, physics, cluster = scenario.jobs, scenario.physics, scenario.cluster
    if physics.slots is None or None in jobs.utility:
        return None
    slot, count = physics.slot, physics.slots
    delays = np.array([upload_row(scenario.delays, j).min() for j in range(len(jobs))], np.int64)
    release = whole_slots(jobs.arrival, physics.step) + delays
    steps = [_steps(scenario, j) for j in range(len(jobs))]
    fraction, workers = (np.array([step[k] for step in steps]).reshape(-1, 2) for k in (0, 1))
    min_slots = 1 / np.maximum(fraction.sum(axis=1), 1e-300)  # slots
    utility = np.full((len(jobs), count), -np.inf)
    for j, utility_of in enumerate(jobs.utility):
        for t in range(int(release[j] // slot), count):
            end = (t + 1) * slot if physics.slotted else max(t * slot, float(release[j] + min_slots[j] * slot))
            if utility_of is not None and (t + 1) * slot >= release[j] + min_slots[j] * slot * (1 - 1e-9):
                utility[j, t] = utility_of((end - float(jobs.arrival[j])) / slot)
    return JobSlots(
        needs=jobs.worker_needs + jobs.ps_needs / jobs.ratio[:, None],
        capacity=cluster.amounts.sum(axis=0) * (1 + FITS),
        first_slot=(release // slot).astype(np.int64),
        utility=utility,
        fraction=fraction,
        workers=workers,
    )


def _steps(scenario: Scenario, job: int) -> tuple[tuple[float, float], tuple[float, float]]:
    slot = scenario.physics.slot
    spread_time, colocated_time = (float(scenario.true_work[job, zeta]) / slot for zeta in (0, 1))
    max_workers = min(int(scenario.jobs.batch[job]), max_spread_workers(scenario, job))
    max_colocated = max_colocated_workers(scenario, job) if scenario.physics.colocation == "one_server" else 0
    # one step: where going inside is impossible, or slower, it is never better than the external rate
    if max_colocated == 0 or colocated_time > spread_time:
        return (max_workers / spread_time, 0.0), (spread_time, spread_time)
    # two steps: first all that fits inside, then on to F workers anywhere, which adds what they train more
    first = max_colocated / colocated_time
    extra = max_workers / spread_time - first
    if extra <= 0:
        return (first, 0.0), (colocated_time, colocated_time)
    return (first, extra), (colocated_time, max((max_workers - max_colocated) / extra, colocated_time))


def max_spread_workers(scenario: Scenario, job: int) -> int:
    """Workers of `job` that fit on all machines together, without their PSs."""
    need, amounts = scenario.jobs.worker_needs[job], scenario.cluster.amounts
    if not (need > 0).any():
        return int(scenario.jobs.batch[job])
    return int(np.floor((amounts[:, need > 0] / need[need > 0]).min(axis=1) + 1e-6).sum())


def max_colocated_workers(scenario: Scenario, job: int) -> int:
    """Most workers of `job` that fit on one machine together with their PSs."""
    jobs, amounts = scenario.jobs, scenario.cluster.amounts
    # bisection: with more workers, at least as many PSs and so no less of each resource is taken
    low, high = 0, int(jobs.batch[job])
    while low < high:
        w = (low + high + 1) // 2
        demand = w * jobs.worker_needs[job] + servers_for(w, float(jobs.ratio[job])) * jobs.ps_needs[job]
        if (demand <= amounts + 1e-8 * np.maximum(amounts, 1.0)).all(axis=1).any():
            low = w
        else:
            high = w - 1
    return low
