"""Dorm's integer program: how a cluster is partitioned among applications (Sun et al., SMARTCOMP'17), by HiGHS.

Application i has w_ih workers and s_ih PSs on machine h. Maximise the utilisation sum_r sum_i sum_h (alpha_i^r w_ih +
beta_i^r s_ih) / C^r so that

- each machine's resources hold;
- an application that is in has 1 to n_i workers and max(1, ceil(w / gamma)) PSs; one that was in stays in;
- *fairness*: sum_i |s_i - shat_i| is at most a bound, s_i being its share of its dominant resource, shat_i that of DRF;
- *overhead*: at most a given number of those that were in have anything changed (r_i).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from skedge.core.errors import SolverError
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import max_units, servers_for

from .applications import Partition, PartitionProblem

_OPTIMAL, _LIMIT, _INFEASIBLE = 0, 1, 2


def solve(problem: PartitionProblem, room: tuple[Floats, Floats], nodes: int, gap: float) -> Partition | None:
    """The optimum up to `gap`, or the best known after `nodes` nodes of the tree; None if there is no partition.

    Parameters
    ----------
    problem
        Applications, machines or pools, and bounds.
    room
        Most workers and PSs of each application on each machine.
    nodes, gap
        Limit of the solver's tree, and relative distance from the optimum at which it may end.

    Raises
    ------
    SolverError
        If HiGHS fails, or knows no partition after the last node.
    """
    from scipy.optimize import Bounds as Ranges  # noqa: PLC0415 - takes 0.3 s to import
    from scipy.optimize import LinearConstraint, milp  # noqa: PLC0415
    from scipy.sparse import csr_array, vstack  # noqa: PLC0415

    p = program(problem, room)
    result = milp(
        p.cost,
        constraints=[LinearConstraint(csr_array(vstack(p.rows)), ub=np.concatenate(p.limits))],
        bounds=Ranges(p.low, p.high),
        integrality=p.integrality,
        options={"node_limit": nodes, "mip_rel_gap": gap},
    )
    # D5: at the limit of nodes HiGHS returns the best partition that it knows, and a bound of all
    if result.status == _INFEASIBLE:
        return None
    if result.x is None or result.status not in (_OPTIMAL, _LIMIT):
        raise SolverError(f"HiGHS: {result.message}")
    shape = problem.apps.workers.shape
    w, s = (np.rint(counts).astype(np.int64).reshape(shape) for counts in np.split(result.x[: 2 * math.prod(shape)], 2))
    return Partition(w, s, -result.fun, -result.mip_dual_bound)


class PartitionProgram(NamedTuple):
    """min cost x, rows x <= limits, low <= x <= high; x = (w, s, a, r, l), by application, then machine.

    a_i: the application is in; r_i: something of it is changed; l_i >= |s_i - shat_i|.
    """

    cost: Floats
    rows: list[Any]
    limits: list[Floats]
    low: Floats
    high: Floats
    integrality: Ints


def program(problem: PartitionProblem, room: tuple[Floats, Floats]) -> PartitionProgram:
    """The integer program of a problem; `room` as in :func:`solve`."""
    from scipy.sparse import csr_array, diags_array, eye_array, kron  # noqa: PLC0415

    apps, fair, (n, machines), was_in = problem.apps, problem.fair, problem.apps.workers.shape, problem.apps.survivors
    # the sum over the machines of an application, and one number of each application
    by_application, identity = kron(eye_array(n), np.ones((1, machines))), eye_array(n)
    per_ps = np.array([middle_ratio(*pair) for pair in zip(apps.ratio, apps.max_workers.tolist(), strict=True)])
    rows = _Rows(n, machines)
    share = [diags_array(share_row) @ by_application for share_row in problem.share_of_piece]
    rows.add(problem.capacity.T.ravel(), w=kron(csr_array(apps.worker.T), eye_array(machines)),
             s=kron(csr_array(apps.ps.T), eye_array(machines)))  # fmt: skip
    # a <= sum w <= n_i a: an application that is in has a worker, one that is out has none
    rows.add(np.zeros(n), w=-by_application, a=identity)
    rows.add(np.zeros(n), w=by_application, a=-diags_array(apps.max_workers.astype(float)))
    # a <= sum s, and w / gamma <= sum s <= w / gamma + a: see middle_ratio
    rows.add(np.zeros(n), s=-by_application, a=identity)
    rows.add(np.zeros(n), w=diags_array(1 / per_ps) @ by_application, s=-by_application)
    rows.add(np.zeros(n), w=diags_array(-1 / per_ps) @ by_application, s=by_application, a=-identity)
    # the absolute value as two rows: s - shat <= l and shat - s <= l
    rows.add(fair, w=share[0], s=share[1], l=-identity)
    rows.add(-fair, w=-share[0], s=-share[1], l=-identity)
    rows.add(np.array([problem.bounds.loss]), l=np.ones((1, n)))
    rows.add(np.array([float(problem.bounds.changed)]), r=was_in[None, :].astype(float))
    for part, present, limit in zip("ws", (apps.workers, apps.servers), room, strict=True):
        _unless_changed(rows, part, present[was_in], limit[was_in], np.flatnonzero(was_in))
    gains = [np.repeat(d @ problem.price, machines) for d in (apps.worker, apps.ps)]
    high = np.concatenate([*(r.ravel() for r in room), np.ones(2 * n), np.full(n, np.inf)])
    # one that was in stays in: a >= 1
    low = np.concatenate([np.zeros(2 * n * machines), was_in.astype(float), np.zeros(2 * n)])
    # l is real; all other parts of x are whole numbers
    integrality = np.concatenate([np.ones(len(low) - n), np.zeros(n)]).astype(np.int64)
    return PartitionProgram(
        -np.concatenate([*gains, np.zeros(3 * n)]), rows.blocks, rows.limits, low, high, integrality
    )


def middle_ratio(ratio: float, max_workers: int) -> float:
    """The middle of all gamma that give each of 1 to `max_workers` workers as many PSs as `ratio` does.

    With it w / gamma <= s <= w / gamma + 1 has the one solution s = max(1, ceil(w / ratio)), and no other s comes as
    near to either side as HiGHS's tolerance of 1e-6.
    """
    workers = np.arange(1, max_workers + 1)
    servers = np.array([servers_for(n, ratio) for n in workers.tolist()])
    lower = (workers / servers).max()
    multi_ps = servers > 1
    upper = (workers[multi_ps] / (servers[multi_ps] - 1)).min(initial=np.inf)
    return float((lower + upper) / 2 if multi_ps.any() else lower + 1)


class _Rows:
    """Rows of a program, added block by block: the sum over the parts of x of block times part is at most the limit."""

    def __init__(self, n: int, machines: int) -> None:
        self.widths = {"w": n * machines, "s": n * machines, "a": n, "r": n, "l": n}
        self.blocks: list[Any] = []
        self.limits: list[Floats] = []

    def add(self, limits: Floats, **parts: Any) -> None:
        """Add rows; the parts of x that are not named have coefficient 0."""
        from scipy.sparse import csr_array, hstack  # noqa: PLC0415

        nothing = {name: csr_array((len(limits), width)) for name, width in self.widths.items()}
        self.blocks.append(hstack(list((nothing | parts).values())))
        self.limits.append(limits)


def room(problem: PartitionProblem, in_pool: Ints) -> tuple[Floats, Floats]:
    """Most workers and PSs of each application on the machines of each pool.

    `in_pool` is 1 where a machine is in a pool, shape ``(machines, pools)``.
    """
    # pieces are counted machine by machine: a pool does not hold a piece that none of its machines holds
    apps = problem.apps
    max_counts = apps.max_workers, np.maximum(np.ceil(apps.max_workers / apps.ratio), 1)
    fit = (
        np.array([max_units(problem.capacity, need) for need in needs]) @ in_pool for needs in (apps.worker, apps.ps)
    )
    w, s = (np.minimum(n, limit[:, None]).astype(float) for n, limit in zip(fit, max_counts, strict=True))
    return w, s


def _unless_changed(rows: _Rows, part: str, present: Ints, limit: Floats, apps: Ints) -> None:
    """Add x <= x' + (room - x') r and x >= x' - x' r, x' being the `present` counts of `apps`."""
    from scipy.sparse import csr_array  # noqa: PLC0415

    if not len(apps):
        return
    machines, n = present.shape[1], rows.widths["a"]
    owner = np.repeat(apps, machines)
    cells = owner * machines + np.tile(np.arange(machines), len(apps))
    x, old = np.arange(len(cells)), present.ravel().astype(float)
    shape = len(cells), n * machines
    # with r = 0 both rows say x = x'; with r = 1 they say 0 <= x <= room
    for sign, slack in ((1.0, limit.ravel() - old), (-1.0, old)):
        change_block = csr_array((-slack, (x, owner)), (len(cells), n))
        rows.add(sign * old, **{part: csr_array((np.full(len(cells), sign), (x, cells)), shape), "r": change_block})
