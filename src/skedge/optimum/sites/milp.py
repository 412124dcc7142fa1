"""Okita's problem (2) as an integer program: workers by site, and the PS's site, of every job in each slot.

====================== =============================================================================================
variable               is
====================== =============================================================================================
c[i, t]                1 iff job i's last slot is t, which costs f_i(t + 1 - a_i)
s[i, t, p]             1 iff its PS is at p in slot t
n[i, t, r]             chunks that are trained at r then
w[i, t, r, p]          workers at r then, the PS being at p; each costs pi q^{rp}
x[i, r, r']            chunks of r that are trained at r', in whatever slot; each costs delta way^{rr'}
late[i]                1 iff it ends after the last slot of its table, at its least cost then
====================== =============================================================================================

Rows: one of c and late (2e); one PS at most, and none after the last slot (2c); w <= room s; n <= rate w, which is the
rounding down of (2b), n being whole; every chunk is trained once, where x brings it (2a); capacity (2d). And rows that
hold for every schedule and make the relaxation better: n <= cap s, no slot is a job's last before all is trained, and
:func:`_add_rounding_cut`.

A job is late if it ends after its table. Its use of the sites is then left out and its cost bounded from below, so that
the program is a relaxation; if no job is late it is the problem itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skedge.core.model.cluster import Floats, Ints
from skedge.optimum.solvers import IntegerProgram, ProgramDraft, Rows

from .alone import JobBound
from .terms import SiteJobTerms, SiteTerms


@dataclass(frozen=True)
class SitePlan:
    """The plan of a job.

    Attributes
    ----------
    last
        Its last slot.
    workers, ps
        By slot: workers by site, shape ``(sites,)``; and where the PS is.
    moves
        By slot: (from, to, chunks), each trained there in that slot.
    """

    last: int
    workers: dict[int, Ints]
    ps: dict[int, int]
    moves: dict[int, list[tuple[int, int, int]]]


@dataclass(frozen=True)
class Block:
    """The variables of a job: late, x, then for each slot c, s[p], n[r], and w of the pairs (r, p) with room."""

    job: SiteJobTerms
    start: int
    slots: range
    pairs: np.ndarray

    @property
    def sites(self) -> int:
        """R: number of sites."""
        return len(self.job.data)

    @property
    def wide(self) -> int:
        """Variables of a slot."""
        return 1 + 2 * self.sites + len(self.pairs)

    @property
    def size(self) -> int:
        """Number of all variables of the job."""
        return 1 + self.sites**2 + len(self.slots) * self.wide

    def x(self, source: int, target: int) -> int:
        """Indices of x: chunks from site to site."""
        return self.start + 1 + source * self.sites + target

    def c(self, slot: int) -> int:
        """Index of c: the last slot."""
        return self.start + 1 + self.sites**2 + (slot - self.slots[0]) * self.wide

    def s(self, slot: int, ps: int) -> int:
        """Indices of s: the PS."""
        return self.c(slot) + 1 + ps

    def n(self, slot: int, site: int) -> int:
        """Indices of n: chunks trained."""
        return self.c(slot) + 1 + self.sites + site

    def w(self, slot: int) -> range:
        """Indices of w: workers, in the order of `pairs`."""
        return range(self.c(slot) + 1 + 2 * self.sites, self.c(slot) + self.wide)


@dataclass(frozen=True)
class SiteProgram(IntegerProgram):
    """The program, to be minimised."""

    blocks: tuple[Block, ...]

    def plan(self, values: Floats) -> list[SitePlan] | None:
        """The plan of every job; None if one is late."""
        # integers come back within the solver's tolerance
        v = np.rint(values).astype(np.int64)
        if any(v[block.start] for block in self.blocks):
            return None
        return [_read(block, v) for block in self.blocks]

    def point(self, plans: Sequence[SitePlan]) -> Floats:
        """The values of the variables of plans; a job that ends after its table is late."""
        v = np.zeros(len(self.cost))
        for block, plan in zip(self.blocks, plans, strict=True):
            if plan.last not in block.slots:
                v[block.start] = 1
                continue
            v[block.c(plan.last)] = 1
            for t, workers in plan.workers.items():
                v[block.s(t, plan.ps[t])] = 1
                # w of the pairs with the PS elsewhere stay 0
                for k, (r, p) in zip(block.w(t), block.pairs, strict=True):
                    v[k] = workers[r] if p == plan.ps[t] else 0
            for t, moves in plan.moves.items():
                for source, target, chunks in moves:
                    v[block.n(t, target)] += chunks
                    v[block.x(source, target)] += chunks
        return v


def _read(block: Block, v: Ints) -> SitePlan:
    """Assign the chunks of a site first to slots in which they are trained there, the others in order."""
    left = v[block.start + 1 : block.start + 1 + block.sites**2].reshape(block.sites, block.sites).copy()
    workers, ps, moves = dict[int, Ints](), dict[int, int](), dict[int, list[tuple[int, int, int]]]()
    for t in block.slots:
        trained = [v[block.n(t, r)] for r in range(block.sites)]
        if not any(trained):
            continue
        # at most one s is 1 in a slot (2c)
        ps[t] = int(np.argmax([v[block.s(t, p)] for p in range(block.sites)]))
        workers[t] = np.zeros(block.sites, np.int64)
        np.add.at(workers[t], block.pairs[:, 0], v[block.w(t)])
        # workers at a site that trains nothing in this slot cost something and do nothing
        workers[t] *= np.array(trained) > 0
        moves[t] = []
        for r, chunks in enumerate(trained):
            for source in (r, *(site for site in range(block.sites) if site != r)):
                n_chunks = min(int(chunks) - sum(n for _, to, n in moves[t] if to == r), int(left[source, r]))
                if n_chunks:
                    left[source, r] -= n_chunks
                    moves[t].append((source, r, n_chunks))
    return SitePlan(max(workers), workers, ps, moves)


def size(terms: SiteTerms, ends: Sequence[int]) -> int:
    """Variables of the program whose tables end with these slots."""
    sites = len(terms.capacity)
    return sum(
        1 + sites**2 + (end + 1 - job.first) * (1 + 2 * sites + job.n_pairs)
        for job, end in zip(terms.jobs, ends, strict=True)
    )


def site_program(
    terms: SiteTerms, jobs: Sequence[JobBound], ends: Sequence[int], *, may_be_late: Sequence[bool]
) -> SiteProgram:
    """The program.

    Parameters
    ----------
    terms, jobs
        The problem, and the bound on every job alone: what a late job costs at least.
    ends
        Last slot of every job's table.
    may_be_late
        Whether each job may end after its table.
    """
    blocks = _blocks(terms, ends)
    draft = ProgramDraft(sum(block.size for block in blocks), 0.0)
    for block, bound, may_be in zip(blocks, jobs, may_be_late, strict=True):
        draft.upper[block.start], draft.cost[block.start] = may_be, bound.bound_if_after(block.slots[-1])
        _set_variables(terms, block, draft)
        _add_rows(block, draft.rows)
        _add_loads(block, draft)
    draft.limit_loads(terms.capacity)
    return SiteProgram(draft.cost, draft.upper, draft.rows, tuple(blocks))


def _blocks(terms: SiteTerms, ends: Sequence[int]) -> list[Block]:
    blocks, start = list[Block](), 0
    for job, end in zip(terms.jobs, ends, strict=True):
        blocks.append(Block(job, start, range(job.first, end + 1), np.argwhere(job.room > 0)))
        start += blocks[-1].size
    return blocks


def _set_variables(terms: SiteTerms, block: Block, draft: ProgramDraft) -> None:
    cost, upper = draft.cost, draft.upper
    job, r2 = block.job, block.sites**2
    moves = slice(block.start + 1, block.start + 1 + r2)
    cost[moves] = (job.chunk_mb * terms.path_cost).ravel()
    upper[moves] = np.repeat(job.data, block.sites)
    # upper bounds of 0 take out what can never be: a last slot too early to be done, a PS that has no room or no worker
    r, p = block.pairs.T
    for k, t in enumerate(block.slots, start=1):
        can_be_last = k * job.max_chunks >= job.chunks
        cost[block.c(t)], upper[block.c(t)] = (job.latency(t), 1) if can_be_last else (0.0, 0)
        upper[[block.s(t, q) for q in range(block.sites)]] = (job.local_room >= 0) & (job.cap.sum(axis=0) > 0)
        upper[[block.n(t, q) for q in range(block.sites)]] = np.minimum(job.cap.max(axis=1), job.chunks)
        cost[block.w(t)], upper[block.w(t)] = job.exchange_mb * terms.cost[r, p], job.room[r, p]


def _add_rows(block: Block, rows: Rows) -> None:
    job, sites, slots = block.job, range(block.sites), block.slots
    room, cap = job.room, job.cap
    rows.add([(block.start, 1.0), *((block.c(t), 1.0) for t in slots)], 1, 1)
    trained_by_now: list[tuple[int, float]] = []
    for t in slots:
        ps_variables = [(block.s(t, p), 1.0) for p in sites]
        # at most one PS, and none after the last slot (2c): sum s <= sum of c from t on
        rows.add([*ps_variables, *((block.c(u), -1.0) for u in range(t, slots.stop))], -np.inf, 0)
        # workers beside a PS that is there: w <= room s
        for k, (r, p) in zip(block.w(t), block.pairs, strict=True):
            rows.add([(k, 1.0), (block.s(t, p), -float(room[r, p]))], -np.inf, 0)
        for r in sites:
            workers = [(block.w(t)[k], -job.rate) for k in np.flatnonzero(block.pairs[:, 0] == r)]
            rows.add([(block.n(t, r), 1.0), *workers], -np.inf, 0)
            ps_caps = [(block.s(t, p), -float(cap[r, p])) for p in sites if cap[r, p]]
            rows.add([(block.n(t, r), 1.0), *ps_caps], -np.inf, 0)
        trained_by_now += [(block.n(t, r), 1.0) for r in sites]
        # no slot is the last before all is trained: trained by t >= D sum of c up to t
        rows.add([*trained_by_now, *((block.c(u), -float(job.chunks)) for u in range(slots[0], t + 1))], 0, np.inf)
    # every chunk of r is trained somewhere unless the job is late, and what comes to r is trained there (2a)
    for r in sites:
        outgoing = [(block.x(r, to), 1.0) for to in sites]
        rows.add([*outgoing, (block.start, float(job.data[r]))], float(job.data[r]), float(job.data[r]))
        incoming = [(block.x(source, r), 1.0) for source in sites]
        rows.add([*incoming, *((block.n(t, r), -1.0) for t in slots)], 0, 0)
        _add_rounding_cut(block, r, int(cap[r, r]), rows)


def _add_rounding_cut(block: Block, r: int, cap: int, rows: Rows) -> None:
    """A valid inequality for the chunks of a site, from the integrality of its workers.

    Of the D chunks at r some leave, some are trained while the PS is there, cap in each such slot at most, and W
    workers train rho / E each at most while it is elsewhere: D <= W rate + leave + cap S. With W whole and
    f = D - rate floor(D / rate), W + (leave + cap S) / f >= ceil(D / rate) (mixed integer rounding). S >= 1 makes it
    true by itself if its factor is ceil(D / rate), which is taken where it is smaller.
    """
    job, data = block.job, float(block.job.data[r])
    need = np.ceil(data / job.rate)
    f = data - job.rate * (need - 1)
    # with f near 0 or rate the row says nothing, or its factors 1 / f are too large for the solver
    if not 0.01 * job.rate < f < 0.99 * job.rate:
        return
    remote_pairs = np.flatnonzero((block.pairs[:, 0] == r) & (block.pairs[:, 1] != r))
    workers = [(block.w(t)[k], 1.0) for t in block.slots for k in remote_pairs]
    outgoing = [(block.x(r, to), 1.0 / f) for to in range(block.sites) if to != r]
    local_slots = [(block.s(t, r), min(cap / f, need)) for t in block.slots if cap]
    rows.add([*workers, *outgoing, *local_slots, (block.start, need)], need, np.inf)


def _add_loads(block: Block, draft: ProgramDraft) -> None:
    """Resources that the job's variables take, by slot, site and resource."""
    for t in block.slots:
        for k in np.flatnonzero(block.job.worker):
            for column, (r, _) in zip(block.w(t), block.pairs, strict=True):
                draft.loads[t, int(r), int(k)].append((column, float(block.job.worker[k])))
        for k in np.flatnonzero(block.job.ps):
            for p in range(block.sites):
                draft.loads[t, p, int(k)].append((block.s(t, p), float(block.job.ps[k])))
