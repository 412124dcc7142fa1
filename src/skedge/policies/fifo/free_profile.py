"""Free slots over the future: what reservations leave, by server and type, as step functions."""

from __future__ import annotations

from typing import NamedTuple

from skedge.core.jit import lean
from skedge.core.model import Cluster, Ints
from skedge.core.time import NEVER
from skedge.policies.common.step_functions import add, constant, wider


class Steps(NamedTuple):
    """Step functions, workers first, then PSs; row = server * types + type.

    Attributes
    ----------
    worker_at, worker_free, worker_size
        From ``at[row, i]`` to ``at[row, i + 1]`` there are ``free[row, i]`` free, ``i < size[row]``.
    ps_at, ps_free, ps_size
        The same for PSs.
    worker_types, ps_types, servers
        Numbers of them.
    """

    worker_at: Ints
    worker_free: Ints
    worker_size: Ints
    ps_at: Ints
    ps_free: Ints
    ps_size: Ints
    worker_types: int
    ps_types: int
    servers: int


class Profiles:
    """The step functions of a cluster, all free at first."""

    def __init__(self, cluster: Cluster) -> None:
        workers, ps = constant(cluster.workers.ravel()), constant(cluster.ps.ravel())
        self.state = Steps(*workers, *ps, cluster.workers.shape[1], cluster.ps.shape[1], len(cluster.servers))

    def make_room(self) -> None:
        """Ensure room for one more reservation in every row; it adds at most two steps to a row."""
        s = self.state
        if int(s.worker_size.max(initial=0)) + 2 > s.worker_at.shape[1]:
            s = s._replace(worker_at=wider(s.worker_at), worker_free=wider(s.worker_free))
        if int(s.ps_size.max(initial=0)) + 2 > s.ps_at.shape[1]:
            s = s._replace(ps_at=wider(s.ps_at), ps_free=wider(s.ps_free))
        self.state = s


@lean
def _first_gap(at: Ints, free: Ints, row: int, size: int, need: int, start: int, duration: int) -> int:
    """Earliest time >= `start` from which `need` are free for `duration`."""
    i = 0
    while i + 1 < size and at[row, i + 1] <= start:
        i += 1
    while i < size and at[row, i] < start + duration:
        if free[row, i] < need:
            # the last step has no end, so what it lacks never becomes free
            if i + 1 == size:
                return NEVER
            start = max(start, at[row, i + 1])
        i += 1
    return start


@lean
def earliest(s: Steps, kind: int, ps_kind: int, k: int, duration: int, ready: Ints) -> tuple[int, int]:
    """The server that can start k workers and a PS earliest for `duration`, and when; (-1, NEVER) if none can.

    `ready` is the earliest start by server [µs]; ties go to the earlier `ready`, then to the first server.
    """
    best, best_start = -1, NEVER
    for server in range(s.servers):
        row, ps_row = server * s.worker_types + kind, server * s.ps_types + ps_kind
        start = ready[server]
        # workers and the PS must be free together: each pushes the start back until neither does
        while start < NEVER:
            later = _first_gap(s.worker_at, s.worker_free, row, s.worker_size[row], k, start, duration)
            later = (
                _first_gap(s.ps_at, s.ps_free, ps_row, s.ps_size[ps_row], 1, later, duration)
                if later < NEVER
                else later
            )
            if later == start:
                break
            start = later
        if start < best_start or (start == best_start and best >= 0 and ready[server] < ready[best]):
            best, best_start = server, start
    return best, best_start


@lean
def reserve(s: Steps, server: int, kind: int, ps_kind: int, k: int, ps: int, start: int, end: int, now: int) -> None:
    """Take k workers and `ps` PSs of `server` from `start` to `end`; steps that are over by `now` are dropped."""
    row, ps_row = server * s.worker_types + kind, server * s.ps_types + ps_kind
    s.worker_size[row] = add(s.worker_at, s.worker_free, row, s.worker_size[row], -k, start, end, now)
    s.ps_size[ps_row] = add(s.ps_at, s.ps_free, ps_row, s.ps_size[ps_row], -ps, start, end, now)
