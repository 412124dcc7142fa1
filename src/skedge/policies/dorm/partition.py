"""A partition for Dorm: the integer program machine by machine if that is small, else by pools of equal machines.

The program of pools of machines is a relaxation: the sums over the machines of a pool of any partition satisfy it. So
its bound is one of every partition's, and its solution says who gets how much, and who is changed. What it changes
is then placed on the machines. The utilisation of what has room, beside the bound, is the gap that is proved.
"""

from __future__ import annotations

import numpy as np

from skedge.core.errors import SolverError
from skedge.core.model.cluster import Floats, Ints

from .applications import Applications, Bounds, Partition, PartitionProblem, problem
from .placement import packing
from .program import room, solve


def partition(
    apps: Applications, capacity: Floats, bounds: Bounds, *, cells: int, nodes: int, gap: float
) -> Partition | None:
    """The partition of most utilisation, or one near it.

    Parameters
    ----------
    apps, capacity, bounds
        The applications, the machines, shape ``(machines, resources)``, and the bounds.
    cells
        Largest number of applications x machines for which the program is solved machine by machine.
    nodes, gap
        Nodes of the solver's tree in one solution, and relative distance from the optimum at which the search may end;
        for pools a fifth of the distance, as the packing loses some.

    Returns
    -------
    None if there is no partition within the bounds.

    Raises
    ------
    SolverError
        If HiGHS fails or knows no partition at the last node, or what it gives pools has no room on their machines.
    """
    machine_problem = problem(apps, capacity, bounds)
    pool = pools(capacity, cells // len(apps.max_workers))
    # D7; every machine is a pool of its own: the program's solution is a partition, and nothing has to be packed
    if pool.max() + 1 == len(capacity):
        return solve(machine_problem, room(machine_problem, np.eye(len(capacity), dtype=np.int64)), nodes, gap)
    # 1 where a machine is in a pool, shape (machines, pools): a product with it sums over the pool
    in_pool = np.eye(pool.max() + 1, dtype=np.int64)[pool]
    pooled = apps._replace(workers=apps.workers @ in_pool, servers=apps.servers @ in_pool)
    plan = solve(
        machine_problem._replace(apps=pooled, capacity=in_pool.T @ capacity),
        room(machine_problem, in_pool),
        nodes,
        gap / 5,
    )
    return None if plan is None else _best_packing(machine_problem, pooled, pool, plan)


def pools(capacity: Floats, limit: int) -> Ints:
    """The pool of each machine: one per machine if there are at most `limit`, else one per capacity, else one."""
    machines = len(capacity)
    equal = np.unique(capacity, axis=0, return_inverse=True)[1].ravel()
    # the finest division that is small enough: the coarser the pools, the weaker the relaxation
    finer = [pool for pool in (np.arange(machines), equal) if pool.max() < limit]
    return finer[0] if finer else np.zeros(machines, np.int64)


def _best_packing(machine_problem: PartitionProblem, pooled: Applications, pool: Ints, plan: Partition) -> Partition:
    """The best of four packings: of `plan`, and of what it gives newcomers beside unchanged survivors.

    Each with the largest pieces first, by their largest part of a resource, and by the sum of their parts.
    """
    parts = np.concatenate([machine_problem.apps.worker, machine_problem.apps.ps]) * machine_problem.price
    survives = machine_problem.apps.survivors[:, None]
    # the changes of survivors may pack badly; without them only newcomers need room, and `packing` checks the bounds
    newcomers_only = plan._replace(
        workers=np.where(survives, pooled.workers, plan.workers),
        servers=np.where(survives, pooled.servers, plan.servers),
    )
    variants = [
        (candidate, size) for candidate in (newcomers_only, plan) for size in (parts.max(axis=1), parts.sum(axis=1))
    ]
    packings = [
        packed for candidate, size in variants if (packed := packing(machine_problem, pooled, pool, candidate, size))
    ]
    if not packings:
        raise SolverError("the partition of pools of machines has no room on the machines")
    return max(packings, key=lambda packed: packed.use)
