"""A decision of DRF on typed slots, compiled: as :mod:`skedge.policies.drf.on_slots`."""

from __future__ import annotations

import numpy as np

from skedge.core.engine.data import look_up
from skedge.core.engine.ledger import PS, Case, Ledger
from skedge.core.model.cluster import Ints
from skedge.core.model.network import upload_delay
from skedge.core.model.time import NEVER
from skedge.platform.jit import compiled
from skedge.policies.drf.progressive_filling import level_filling
from skedge.policies.gangs.placement import forgive, place

from .decide import PREEMPTED, all_ps
from .state import ACTIVE
from .taking import Taking, allocate, suspend_each


@compiled
def fill(case: Case, ledger: Ledger, taking: Taking) -> None:
    """Fill from zero; first take workers from shrinking jobs, then give them to growing jobs."""
    held = taking.held
    jobs = taking.lists[ACTIVE, : taking.counters[ACTIVE]]
    ps_left = np.empty(case.ps_types, np.int64)
    all_ps(case, ps_left)
    counts = level_filling(jobs, held.kind, held.ps_kind, held.max_workers, case.slots.copy(), ps_left)
    present = np.zeros(len(jobs), np.int64)
    for i, job in enumerate(jobs):
        if held.running[job]:
            present[i] = held.own[job].sum()
    for n in np.flatnonzero(counts < present):
        job = jobs[n]
        if counts[n] == 0:
            suspend_each(case, ledger, taking, job, PREEMPTED)
        else:
            where = _nearest(held.own[job], counts[n], _delays(case, job))
            allocate(case, ledger, taking, job, where, ledger.jobs[job, PS])
    for n in np.flatnonzero(counts > present):
        job = jobs[n]
        allocate(case, ledger, taking, job, _where(case, ledger, taking, job, counts[n]), ledger.jobs[job, PS])


@compiled
def _where(case: Case, ledger: Ledger, taking: Taking, job: int, n: int) -> Ints:
    """`n` workers by server: those it has, or where its data are if it has none, and further ones."""
    held, delays, there = taking.held, _delays(case, job), _supplied(ledger, job, len(taking.capacity))
    room = ledger.free[:, held.kind[job]].copy()
    if held.running[job]:
        where = held.own[job].copy()
    else:
        where = _nearest(np.minimum(there, room), n, delays)
        room -= where
    more = n - where.sum()
    if more == 0:
        return where
    for s in range(len(room)):
        if room[s] == 0:
            delays[s] = NEVER
    forgive(room, there - where, more, delays)
    server, count = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for i in range(place(room, delays, more, server, count)):
        where[server[i]] += count[i]
    return where


@compiled
def _nearest(where: Ints, n: int, delays: Ints) -> Ints:
    """`n` of these workers by (delay, server), or all of them."""
    kept, left = np.zeros(len(where), np.int64), n
    for s in np.argsort(delays, kind="mergesort"):
        kept[s] = min(where[s], left)
        left -= kept[s]
    return kept


@compiled
def _delays(case: Case, job: int) -> Ints:
    """Upload delay of a job to each server [µs]."""
    out = np.empty(len(case.delays.cloud), np.int64)
    for s in range(len(out)):
        out[s] = upload_delay(case.delays, job, s)
    return out


@compiled
def _supplied(ledger: Ledger, job: int, n_servers: int) -> Ints:
    """Of how many workers of a job each server has the data."""
    there = np.empty(n_servers, np.int64)
    look_up(ledger.data, job, there)
    return there
