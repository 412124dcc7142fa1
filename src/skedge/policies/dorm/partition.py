"""Dorm's integer program: how a cluster is partitioned among applications (Sun et al., SMARTCOMP'17), by HiGHS.

Application i has w_ih workers and s_ih PSs on machine h. Maximise the utilisation sum_r sum_i sum_h (alpha_i^r w_ih +
beta_i^r s_ih) / C^r so that

- each machine's resources hold;
- an application that is in has 1 to n_i workers and max(1, ceil(w / gamma)) PSs; one that was in stays in;
- *fairness*: sum_i |s_i - shat_i| is at most a bound, s_i being its share of its dominant resource, shat_i that of DRF;
- *overhead*: at most a given number of those that were in have anything changed (r_i).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from skedge.core.errors import SolverError
from skedge.core.model import Floats, Ints
from skedge.core.speed import servers_for
from skedge.policies.common.round_robin import pieces
from skedge.policies.drf.progressive_filling import progressive_filling

_OPTIMAL, _LIMIT, _INFEASIBLE = 0, 1, 2


class Applications(NamedTuple):
    """Applications, in the order of their arrival.

    Attributes
    ----------
    worker, ps
        alpha and beta, shape ``(applications, resources)``; a row has something above 0.
    ratio
        gamma: workers per PS, shape ``(applications,)``.
    most
        n_i: most workers, >= 1, shape ``(applications,)``.
    workers, servers
        What each has now, shape ``(applications, machines)``.
    """

    worker: Floats
    ps: Floats
    ratio: Floats
    most: Ints
    workers: Ints
    servers: Ints

    @property
    def survivors(self) -> np.ndarray:
        """Which have something now, shape ``(applications,)``."""
        return np.asarray(self.workers.any(axis=1))


class Bounds(NamedTuple):
    """Bounds of one solution: `loss` of the sum of differences of shares, `changed` of the number of r_i."""

    loss: float
    changed: int


def fair_shares(apps: Applications, capacity: Floats) -> tuple[Ints, Floats]:
    """Dominant resource of each application, and its share shat_i of it under DRF on the pooled capacity.

    The dominant resource is that of gamma workers and their PS.
    """
    total = capacity.sum(axis=0)
    safe = np.where(total > 0, total, np.inf)
    dominant = ((apps.worker + apps.ps / apps.ratio[:, None]) / safe).argmax(axis=1)
    pooled = total[None, :].copy()
    counts = progressive_filling(apps.worker, apps.ps, apps.ratio, apps.most, pooled, safe)
    return dominant, shares(apps, *counts, dominant, total)


def shares(apps: Applications, workers: Ints, servers: Ints, dominant: Ints, total: Floats) -> Floats:
    """s_i of workers and PSs by machine, shape ``(applications,)``."""
    rows = np.arange(len(dominant))
    used = workers.sum(axis=1) * apps.worker[rows, dominant] + servers.sum(axis=1) * apps.ps[rows, dominant]
    return np.asarray(used / total[dominant])


def partition(
    apps: Applications,
    capacity: Floats,
    bounds: Bounds,
    *,
    nodes: int = 2**31 - 1,
    limit: float = np.inf,
    gap: float = 0.0,
) -> tuple[Ints, Ints] | None:
    """Workers and PSs by application and machine.

    The optimum up to `gap`, or the best known after `nodes` nodes of the tree, or `limit` seconds.

    Returns
    -------
    None if there is no partition within the bounds.

    Raises
    ------
    SolverError
        If HiGHS fails, or has none when the time is over.
    """
    from scipy.optimize import Bounds as Ranges  # noqa: PLC0415 - takes 0.3 s to import
    from scipy.optimize import LinearConstraint, milp  # noqa: PLC0415
    from scipy.sparse import csr_array, vstack  # noqa: PLC0415

    p = _program(apps, capacity, bounds)
    done = milp(
        p.cost,
        constraints=[LinearConstraint(csr_array(vstack(p.rows)), ub=np.concatenate(p.limits))],
        bounds=Ranges(p.low, p.high),
        integrality=p.whole,
        options={"node_limit": nodes, "time_limit": limit, "mip_rel_gap": gap},
    )
    if done.status == _INFEASIBLE:
        return None
    if done.x is None or done.status not in (_OPTIMAL, _LIMIT):
        raise SolverError(f"HiGHS: {done.message}")
    size = apps.workers.size
    w, s = (np.rint(part).astype(np.int64).reshape(apps.workers.shape) for part in np.split(done.x[: 2 * size], 2))
    return w, s


class _Program(NamedTuple):
    """min cost x, rows x <= limits, low <= x <= high; x = (w, s, a, r, l), by application, then machine.

    a_i: the application is in; r_i: something of it is changed; l_i >= |s_i - shat_i|.
    """

    cost: Floats
    rows: list[Any]
    limits: list[Floats]
    low: Floats
    high: Floats
    whole: Ints


def _program(apps: Applications, capacity: Floats, bounds: Bounds) -> _Program:
    from scipy.sparse import csr_array, diags_array, eye_array, kron  # noqa: PLC0415

    (n, machines), total = apps.workers.shape, capacity.sum(axis=0)
    dominant, fair = fair_shares(apps, capacity)
    was_in, at = apps.survivors, np.arange(n)
    each, one = kron(eye_array(n), np.ones((1, machines))), eye_array(n)
    room = _room(apps, capacity)
    per_ps = np.array([middle_ratio(*of) for of in zip(apps.ratio, apps.most.tolist(), strict=True)])
    rows = _Rows(n, machines)
    share = [diags_array(d[at, dominant] / total[dominant]) @ each for d in (apps.worker, apps.ps)]
    rows.add(capacity.T.ravel(), w=kron(csr_array(apps.worker.T), eye_array(machines)),
             s=kron(csr_array(apps.ps.T), eye_array(machines)))  # fmt: skip
    rows.add(np.zeros(n), w=-each, a=one)
    rows.add(np.zeros(n), w=each, a=-diags_array(apps.most.astype(float)))
    rows.add(np.zeros(n), s=-each, a=one)
    rows.add(np.zeros(n), w=diags_array(1 / per_ps) @ each, s=-each)
    rows.add(np.zeros(n), w=diags_array(-1 / per_ps) @ each, s=each, a=-one)
    rows.add(fair, w=share[0], s=share[1], l=-one)
    rows.add(-fair, w=-share[0], s=-share[1], l=-one)
    rows.add(np.array([bounds.loss]), l=np.ones((1, n)))
    rows.add(np.array([float(bounds.changed)]), r=was_in[None, :].astype(float))
    for part, now, most in zip("ws", (apps.workers, apps.servers), room, strict=True):
        _unless_changed(rows, part, now[was_in], most[was_in], np.flatnonzero(was_in))
    price = 1 / np.where(total > 0, total, np.inf)
    gains = [np.repeat(d @ price, machines) for d in (apps.worker, apps.ps)]
    high = np.concatenate([*(r.ravel() for r in room), np.ones(2 * n), np.full(n, np.inf)])
    low = np.concatenate([np.zeros(2 * n * machines), was_in.astype(float), np.zeros(2 * n)])
    whole = np.concatenate([np.ones(len(low) - n), np.zeros(n)]).astype(np.int64)
    return _Program(-np.concatenate([*gains, np.zeros(3 * n)]), rows.blocks, rows.limits, low, high, whole)


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


def _room(apps: Applications, capacity: Floats) -> tuple[Floats, Floats]:
    """Most workers and PSs of each application on each machine."""
    w = np.minimum(np.array([pieces(capacity, need) for need in apps.worker]), apps.most[:, None])
    servers = np.maximum(np.ceil(apps.most / apps.ratio), 1)
    s = np.minimum(np.array([pieces(capacity, need) for need in apps.ps]), servers[:, None])
    return w.astype(float), s.astype(float)


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
    for sign, by in ((1.0, most.ravel() - was), (-1.0, was)):
        mine = csr_array((-by, (x, owner)), (len(cells), n))
        rows.add(sign * was, **{part: csr_array((np.full(len(cells), sign), (x, cells)), shape), "r": mine})
