"""Upload delays: a seeded function of the pair (job, server), not a table.

JSAC'22: Delta_js, the delay of one chunk of job j to server s; it is equal for all chunks of a job on one server, and
uploads do not contend.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.platform.jit import inlined, lean

from .cluster import Ints

_MASK53 = (1 << 53) - 1


class Delays(NamedTuple):
    """The data of :func:`upload_delay`; read-only.

    Attributes
    ----------
    lo, hi
        Range of the delay [µs], by job and kind of server (0 edge, 1 cloud), shape ``(jobs, 2)``.
    key
        Hash of each job's id and the scenario's seed, shape ``(jobs,)``, so that a delay does not depend on other jobs.
    server_key
        Hash of each server's id, shape ``(servers,)``, so that a delay does not depend on other servers.
    cloud
        1 for the cloud and servers as far away (``Server.far``), else 0, shape ``(servers,)``.
    step
        Granularity [µs]: delays are whole multiples of it above ``lo``, which is rounded up to it.
    fixed
        Delays fixed in advance [µs], shape ``(jobs, servers)``, -1 if not fixed; shape ``(0, 0)`` if none are.
    """

    lo: Ints
    hi: Ints
    key: Ints
    server_key: Ints
    cloud: Ints
    step: int
    fixed: Ints

    def followed_by(self, later: Delays) -> Delays:
        """The delays of these jobs, followed by those of `later`."""
        lo, hi = np.concatenate([self.lo, later.lo]), np.concatenate([self.hi, later.hi])
        return self._replace(lo=lo, hi=hi, key=np.append(self.key, later.key), fixed=_concatenated_fixed(self, later))

    def only(self, rows: slice | Ints) -> Delays:
        """The delays of the jobs in these rows."""
        fixed = self.fixed[rows] if self.fixed.size else self.fixed
        return self._replace(lo=self.lo[rows], hi=self.hi[rows], key=self.key[rows], fixed=fixed)


def _concatenated_fixed(first: Delays, later: Delays) -> Ints:
    if not (first.fixed.size or later.fixed.size):
        return first.fixed
    # -1: drawn, not fixed
    gaps = [np.full((len(d.key), len(d.cloud)), -1) for d in (first, later)]
    return np.concatenate([d.fixed if d.fixed.size else gap for d, gap in zip((first, later), gaps, strict=True)])


@inlined
def _mix(x: np.uint64) -> np.uint64:
    """splitmix64's finaliser: 64 bits in, 64 well-mixed bits out."""
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inlined
def upload_delay(d: Delays, job: int, server: int) -> int:
    """Delay of one chunk of `job` to `server` [µs], uniform over the multiples of ``d.step`` in its range."""
    if d.fixed.shape[0] > 0 and d.fixed[job, server] >= 0:
        return d.fixed[job, server]
    kind = d.cloud[server]
    lo, hi = d.lo[job, kind], d.hi[job, kind]
    if hi <= lo:
        return lo
    # the server's hash is mixed first: by xor alone a job and a server of equal hashes would cancel out
    bits = _mix(np.uint64(d.key[job]) ^ _mix(np.uint64(d.server_key[server])))
    # 53 of the 64 bits over 2**53: uniform in [0, 1)
    u = np.float64(bits >> np.uint64(11)) / 9007199254740992.0
    # + 1, as both ends belong to the range
    return lo + np.int64(u * ((hi - lo) // d.step + 1)) * d.step


def upload_delays(d: Delays, jobs: Ints, servers: Ints) -> Ints:
    """:func:`upload_delay` of each pair of the two arrays [µs]."""
    out = np.array(jobs, np.int64)  # copies, so that all callers share one kernel
    _fill_delays(d, out, np.array(servers, np.int64))
    return out


def upload_row(d: Delays, job: int) -> Ints:
    """:func:`upload_delay` of `job` to each server [µs]."""
    out = np.full(len(d.cloud), job, np.int64)
    _fill_delays(d, out, np.arange(len(d.cloud)))
    return out


@lean
def _fill_delays(d: Delays, jobs: Ints, servers: Ints) -> None:
    """Replace each job by its :func:`upload_delay` to the server."""
    for i in range(len(jobs)):
        jobs[i] = upload_delay(d, jobs[i], servers[i])
