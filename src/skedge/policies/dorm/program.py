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

    p = program(problem, room)
    result = milp(
        p.cost,
        constraints=[LinearConstraint(p.rows, ub=p.limits)],
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

    a_i: the application is in; r_i: something of it is changed; l_i >= |s_i - shat_i|. `rows` is a sparse array.
    """

    cost: Floats
    rows: Any
    limits: Floats
    low: Floats
    high: Floats
    integrality: Ints


def program(problem: PartitionProblem, room: tuple[Floats, Floats]) -> PartitionProgram:
    """The integer program of a problem; `room` as in :func:`solve`."""
    apps, fair, (n, machines), was_in = problem.apps, problem.fair, problem.apps.workers.shape, problem.apps.survivors
    per_ps = np.array([middle_ratio(*pair) for pair in zip(apps.ratio, apps.max_workers.tolist(), strict=True)])
    rows, unit = _Rows(n, machines), np.ones(n)
    share_w, share_s = problem.share_of_piece
    rows.add(problem.capacity.T.ravel(), w=_by_resource(apps.worker, machines), s=_by_resource(apps.ps, machines))
    # a <= sum w <= n_i a: an application that is in has a worker, one that is out has none
    rows.add(np.zeros(n), w=_sums(-unit, machines), a=_diagonal(unit))
    rows.add(np.zeros(n), w=_sums(unit, machines), a=_diagonal(-apps.max_workers.astype(float)))
    # a <= sum s, and w / gamma <= sum s <= w / gamma + a: see middle_ratio
    rows.add(np.zeros(n), s=_sums(-unit, machines), a=_diagonal(unit))
    rows.add(np.zeros(n), w=_sums(1 / per_ps, machines), s=_sums(-unit, machines))
    rows.add(np.zeros(n), w=_sums(-1 / per_ps, machines), s=_sums(unit, machines), a=_diagonal(-unit))
    # the absolute value as two rows: s - shat <= l and shat - s <= l
    rows.add(fair, w=_sums(share_w, machines), s=_sums(share_s, machines), l=_diagonal(-unit))
    rows.add(-fair, w=_sums(-share_w, machines), s=_sums(-share_s, machines), l=_diagonal(-unit))
    rows.add(np.array([problem.bounds.loss]), l=(np.zeros(n, int), np.arange(n), unit))
    survivors = np.flatnonzero(was_in)
    rows.add(np.array([float(problem.bounds.changed)]), r=(np.zeros_like(survivors), survivors, unit[survivors]))
    for part, present, limit in zip("ws", (apps.workers, apps.servers), room, strict=True):
        _unless_changed(rows, part, present[was_in], limit[was_in], survivors)
    gains = [np.repeat(d @ problem.price, machines) for d in (apps.worker, apps.ps)]
    high = np.concatenate([*(r.ravel() for r in room), np.ones(2 * n), np.full(n, np.inf)])
    # one that was in stays in: a >= 1
    low = np.concatenate([np.zeros(2 * n * machines), was_in.astype(float), np.zeros(2 * n)])
    # l is real; all other parts of x are whole numbers
    integrality = np.concatenate([np.ones(len(low) - n), np.zeros(n)]).astype(np.int64)
    return PartitionProgram(
        -np.concatenate([*gains, np.zeros(3 * n)]), rows.matrix(), np.concatenate(rows.limits), low, high, integrality
    )


_Entries = tuple[Ints, Ints, Floats]
"""Entries of a block: their rows, columns and values."""


def _diagonal(values: Floats) -> _Entries:
    """A row for each application, of the number that it has."""
    applications = np.arange(len(values))
    return applications, applications, values


def _sums(values: Floats, machines: int) -> _Entries:
    """A row for each application: the sum over its machines, times its value."""
    return np.repeat(np.arange(len(values)), machines), np.arange(len(values) * machines), np.repeat(values, machines)


def _by_resource(needs: Floats, machines: int) -> _Entries:
    """A row for each resource and machine: the sum over the applications of what their pieces need there."""
    application, resource = (index[:, None] for index in np.nonzero(needs))
    machine = np.arange(machines)
    rows, columns = resource * machines + machine, application * machines + machine
    return rows.ravel(), columns.ravel(), np.repeat(needs[needs != 0], machines)


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
        widths = {"w": n * machines, "s": n * machines, "a": n, "r": n, "l": n}
        ends = np.cumsum(list(widths.values()))
        self.first_column = dict(zip(widths, ends - list(widths.values()), strict=True))
        self.n_rows, self.n_columns = 0, int(ends[-1])
        self.entries: list[_Entries] = []
        self.limits: list[Floats] = []

    def add(self, limits: Floats, **parts: _Entries) -> None:
        """Add rows; the parts of x that are not named have coefficient 0."""
        for part, (rows, columns, values) in parts.items():
            self.entries.append((self.n_rows + rows, self.first_column[part] + columns, values))
        self.n_rows += len(limits)
        self.limits.append(limits)

    def matrix(self) -> Any:
        """All rows as a sparse matrix."""
        from scipy.sparse import csr_array  # noqa: PLC0415 - takes a while to import

        rows, columns, values = (np.concatenate(entries) for entries in zip(*self.entries, strict=True))
        return csr_array((values, (rows, columns)), (self.n_rows, self.n_columns))


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
    machines = present.shape[1]
    owner = np.repeat(apps, machines)
    cells = owner * machines + np.tile(np.arange(machines), len(apps))
    x, old = np.arange(len(cells)), present.ravel().astype(float)
    # with r = 0 both rows say x = x'; with r = 1 they say 0 <= x <= room
    for sign, slack in ((1.0, limit.ravel() - old), (-1.0, old)):
        rows.add(sign * old, **{part: (x, cells, np.full(len(cells), sign)), "r": (x, owner, -slack)})
