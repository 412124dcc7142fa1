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
from skedge.core.model.speed import servers_for
from skedge.policies.common.round_robin import max_units

from .applications import Partition, PartitionProblem

_OPTIMAL, _LIMIT, _INFEASIBLE = 0, 1, 2


def solved(of: PartitionProblem, room: tuple[Floats, Floats], nodes: int, gap: float) -> Partition | None:
    """The optimum up to `gap`, or the best known after `nodes` nodes of the tree; None if there is no partition.

    Parameters
    ----------
    room
        Most workers and PSs of each application on each machine.

    Raises
    ------
    SolverError
        If HiGHS fails, or knows no partition after the last node.
    """
    from scipy.optimize import Bounds as Ranges  # noqa: PLC0415 - takes 0.3 s to import
    from scipy.optimize import LinearConstraint, milp  # noqa: PLC0415
    from scipy.sparse import csr_array, vstack  # noqa: PLC0415

    p = program(of, room)
    done = milp(
        p.cost,
        constraints=[LinearConstraint(csr_array(vstack(p.rows)), ub=np.concatenate(p.limits))],
        bounds=Ranges(p.low, p.high),
        integrality=p.whole,
        options={"node_limit": nodes, "mip_rel_gap": gap},
    )
    if done.status == _INFEASIBLE:
        return None
    if done.x is None or done.status not in (_OPTIMAL, _LIMIT):
        raise SolverError(f"HiGHS: {done.message}")
    shape = of.apps.workers.shape
    w, s = (np.rint(part).astype(np.int64).reshape(shape) for part in np.split(done.x[: 2 * math.prod(shape)], 2))
    return Partition(w, s, -done.fun, -done.mip_dual_bound)


class PartitionProgram(NamedTuple):
    """min cost x, rows x <= limits, low <= x <= high; x = (w, s, a, r, l), by application, then machine.

    a_i: the application is in; r_i: something of it is changed; l_i >= |s_i - shat_i|.
    """

    cost: Floats
    rows: list[Any]
    limits: list[Floats]
    low: Floats
    high: Floats
    whole: Ints


def program(of: PartitionProblem, room: tuple[Floats, Floats]) -> PartitionProgram:
    """The integer program of a problem; `room` as in :func:`solved`."""
    from scipy.sparse import csr_array, diags_array, eye_array, kron  # noqa: PLC0415

    apps, fair, (n, machines), was_in = of.apps, of.fair, of.apps.workers.shape, of.apps.survivors
    each, one = kron(eye_array(n), np.ones((1, machines))), eye_array(n)
    per_ps = np.array([middle_ratio(*pair) for pair in zip(apps.ratio, apps.most.tolist(), strict=True)])
    rows = _Rows(n, machines)
    share = [diags_array(of_piece) @ each for of_piece in of.share_of_piece]
    rows.add(of.capacity.T.ravel(), w=kron(csr_array(apps.worker.T), eye_array(machines)),
             s=kron(csr_array(apps.ps.T), eye_array(machines)))  # fmt: skip
    # a <= sum w <= n_i a: an application that is in has a worker, one that is out has none
    rows.add(np.zeros(n), w=-each, a=one)
    rows.add(np.zeros(n), w=each, a=-diags_array(apps.most.astype(float)))
    # a <= sum s, and w / gamma <= sum s <= w / gamma + a: see middle_ratio
    rows.add(np.zeros(n), s=-each, a=one)
    rows.add(np.zeros(n), w=diags_array(1 / per_ps) @ each, s=-each)
    rows.add(np.zeros(n), w=diags_array(-1 / per_ps) @ each, s=each, a=-one)
    # the absolute value as two rows: s - shat <= l and shat - s <= l
    rows.add(fair, w=share[0], s=share[1], l=-one)
    rows.add(-fair, w=-share[0], s=-share[1], l=-one)
    rows.add(np.array([of.bounds.loss]), l=np.ones((1, n)))
    rows.add(np.array([float(of.bounds.changed)]), r=was_in[None, :].astype(float))
    for part, now, most in zip("ws", (apps.workers, apps.servers), room, strict=True):
        _unless_changed(rows, part, now[was_in], most[was_in], np.flatnonzero(was_in))
    gains = [np.repeat(d @ of.price, machines) for d in (apps.worker, apps.ps)]
    high = np.concatenate([*(r.ravel() for r in room), np.ones(2 * n), np.full(n, np.inf)])
    # one that was in stays in: a >= 1
    low = np.concatenate([np.zeros(2 * n * machines), was_in.astype(float), np.zeros(2 * n)])
    whole = np.concatenate([np.ones(len(low) - n), np.zeros(n)]).astype(np.int64)
    return PartitionProgram(-np.concatenate([*gains, np.zeros(3 * n)]), rows.blocks, rows.limits, low, high, whole)


def middle_ratio(ratio: float, most: int) -> float:
    """The middle of all gamma that give each of 1 to `most` workers as many PSs as `ratio` does.

    With it w / gamma <= s <= w / gamma + 1 has the one solution s = max(1, ceil(w / ratio)), and no other s comes as
    near to either side as HiGHS's tolerance of 1e-6.
    """
    workers = np.arange(1, most + 1)
    servers = np.array([servers_for(n, ratio) for n in workers.tolist()])
    least = (workers / servers).max()
    some = servers > 1
    above = (workers[some] / (servers[some] - 1)).min(initial=np.inf)
    return float((least + above) / 2 if some.any() else least + 1)


class _Rows:
    """Rows of a program, a block at a time: sum of block x part <= limit."""

    def __init__(self, n: int, machines: int) -> None:
        self.widths = {"w": n * machines, "s": n * machines, "a": n, "r": n, "l": n}
        self.blocks: list[Any] = []
        self.limits: list[Floats] = []

    def add(self, limits: Floats, **parts: Any) -> None:
        """Add rows; parts of x that are not given do not take part."""
        from scipy.sparse import csr_array, hstack  # noqa: PLC0415

        nothing = {name: csr_array((len(limits), width)) for name, width in self.widths.items()}
        self.blocks.append(hstack(list((nothing | parts).values())))
        self.limits.append(limits)


def room(of: PartitionProblem, in_pool: Ints) -> tuple[Floats, Floats]:
    """Most workers and PSs of each application on the machines of each pool.

    `in_pool` is 1 where a machine is in a pool, shape ``(machines, pools)``.
    """
    apps = of.apps
    most = apps.most, np.maximum(np.ceil(apps.most / apps.ratio), 1)
    fit = (np.array([max_units(of.capacity, need) for need in needs]) @ in_pool for needs in (apps.worker, apps.ps))
    w, s = (np.minimum(n, top[:, None]).astype(float) for n, top in zip(fit, most, strict=True))
    return w, s


def _unless_changed(rows: _Rows, part: str, now: Ints, most: Floats, apps: Ints) -> None:
    """Add x <= x' + (room - x') r and x >= x' - x' r, x' being what `apps` have `now`."""
    from scipy.sparse import csr_array  # noqa: PLC0415

    if not len(apps):
        return
    machines, n = now.shape[1], rows.widths["a"]
    owner = np.repeat(apps, machines)
    cells = owner * machines + np.tile(np.arange(machines), len(apps))
    x, was = np.arange(len(cells)), now.ravel().astype(float)
    shape = len(cells), n * machines
    # with r = 0 both rows say x = x'; with r = 1 they say 0 <= x <= room
    for sign, by in ((1.0, most.ravel() - was), (-1.0, was)):
        mine = csr_array((-by, (x, owner)), (len(cells), n))
        rows.add(sign * was, **{part: csr_array((np.full(len(cells), sign), (x, cells)), shape), "r": mine})
