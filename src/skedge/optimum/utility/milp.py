"""DMLRS as an integer program: workers and PSs by machine, of every job in each slot.

====================== =============================================================================================
variable               is
====================== =============================================================================================
x[i, t]                1 iff job i's last slot is t, worth u_i(t)
b[i, t, h]             1 iff in slot t job i is inside machine h: all workers and PSs there, the internal rate
v, q[i, t, h]          workers and PSs there then
e[i, t]                1 iff in slot t it is trained at the external rate
w, s[i, t, h]          workers and PSs on h then
====================== =============================================================================================

Rows: x at most once; b and e one of all in a slot, and only up to the last one; v <= F b, sum w <= F e (4); gamma
workers a PS (2), one PS at least; the work of a job that is done (3), at the rates of b and e; capacity (5). All
variables are integer, so that HiGHS and CP-SAT solve the same program. Not modelled are completion within a slot
(continuous time), checkpoint overhead, and upload delays; a plan whose run differs from it is measured by its run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skedge.core.model.cluster import Floats, Placement
from skedge.core.model.scenario import Scenario
from skedge.optimum.solvers import IntegerProgram, ProgramDraft

from .job_slots import JobSlots, max_colocated_workers

MAX_VARIABLES = 60_000
"""Most variables."""

Slots = dict[int, tuple[Placement, Placement]]
"""Workers and PSs of a job, by slot."""


@dataclass(frozen=True)
class UtilityProgram(IntegerProgram):
    """The program, to be minimised: `cost` is -u."""

    first: np.ndarray
    offset: np.ndarray
    servers: int

    def plan(self, x: Floats) -> dict[int, Slots]:
        """The placements of every job that is done."""
        values, plans = np.rint(x).astype(np.int64), dict[int, Slots]()
        for j in range(len(self.first)):
            block = values[self.offset[j] : self.offset[j + 1]].reshape(-1, 2 + 5 * self.servers)
            last = np.flatnonzero(block[:, 0])
            if len(last):
                slots = (self._placed(row) for row in block[: last[0] + 1])
                plans[j] = {int(self.first[j]) + t: placement for t, placement in enumerate(slots) if placement[0]}
        return plans

    def _placed(self, row: np.ndarray) -> tuple[Placement, Placement]:
        _, v, q, w, s = row[2:].reshape(5, self.servers)
        return _nonzero(v + w), _nonzero(q + s)

    def point(self, plan: dict[int, tuple[int, Slots, set[int]]]) -> Floats:
        """The values of the variables of a plan: by job its last slot, its placements, and the slots inside."""
        x = np.zeros(len(self.cost))
        for j, (last, slots, inside) in plan.items():
            block = x[self.offset[j] : self.offset[j + 1]].reshape(-1, 2 + 5 * self.servers)
            block[last - self.first[j], 0] = 1
            for t, (workers, ps) in slots.items():
                row = block[t - self.first[j]]
                parts = row[2:].reshape(5, self.servers)
                # in a slot inside, all workers and PSs are on one machine: v and q, not w and s
                if t in inside:
                    parts[0, workers[0][0]] = 1
                row[1] = t not in inside
                for k, placement in ((1 if t in inside else 3, workers), (2 if t in inside else 4, ps)):
                    for server, n in placement:
                        parts[k, server] = n
        return x


def _nonzero(counts: np.ndarray) -> Placement:
    return tuple((int(h), int(counts[h])) for h in np.flatnonzero(counts))


def utility_program(scenario: Scenario, jobs: JobSlots) -> UtilityProgram | None:
    """The program; None if it has more than :data:`MAX_VARIABLES` variables."""
    count, slots = jobs.utility.shape
    servers = len(scenario.cluster.servers)
    wide = 2 + 5 * servers
    offset = np.concatenate([[0], np.cumsum((slots - jobs.first_slot).clip(0) * wide)]).astype(np.int64)
    if offset[-1] > MAX_VARIABLES:
        return None
    draft = ProgramDraft(int(offset[-1]), 1.0)
    for j in range(count):
        _add_job(scenario, jobs, j, int(offset[j]), draft)
    draft.limit_loads(scenario.cluster.amounts)
    return UtilityProgram(draft.cost, draft.upper, draft.rows, jobs.first_slot, offset, servers)


def _add_job(scenario: Scenario, jobs: JobSlots, j: int, start: int, draft: ProgramDraft) -> None:
    """The variables of a job, slot after slot: x, e, b[h], v[h], q[h], w[h], s[h]; and its rows."""
    cost, upper, rows = draft.cost, draft.upper, draft.rows
    all_jobs, servers = scenario.jobs, len(scenario.cluster.servers)
    max_workers, ratio, slot = int(all_jobs.batch[j]), float(all_jobs.ratio[j]), scenario.physics.slot
    spread_time, colocated_time = (float(scenario.true_work[j, zeta]) / slot for zeta in (0, 1))
    max_colocated = max_colocated_workers(scenario, j) if scenario.physics.colocation == "one_server" else 0
    # one PS more than F workers need: a limit that cuts off no schedule worth having
    ps = int(np.ceil(max_workers / ratio)) + 1
    wide, h = 2 + 5 * servers, range(servers)
    starts = range(start, start + (jobs.utility.shape[1] - int(jobs.first_slot[j])) * wide, wide)
    work: list[tuple[int, float]] = []
    for k, base in enumerate(starts):
        t = int(jobs.first_slot[j]) + k
        b, v, q, w, s = ([base + 2 + part * servers + i for i in h] for part in range(5))
        utility = jobs.utility[j, t]
        cost[base], upper[base] = (-utility, 1) if np.isfinite(utility) else (0.0, 0)
        # without room for a worker and its PS on one machine, b and v are 0
        upper[b], upper[v], upper[w], upper[q], upper[s] = float(max_colocated > 0), max_colocated, max_workers, ps, ps
        # x of this slot and the later ones: the job trains only up to its last slot
        last_slots = [(last, -1.0) for last in starts[k:]]
        rows.add([(base + 1, 1.0), *((i, 1.0) for i in b), *last_slots], -np.inf, 0)
        # external rate: at most F workers (4), gamma a PS (2), one PS and one worker at least; all 0 unless e = 1
        rows.add([*((i, 1.0) for i in w), (base + 1, -float(max_workers))], -np.inf, 0)
        rows.add([*((i, ratio) for i in s), *((i, -1.0) for i in w)], 0, np.inf)
        rows.add([*((i, 1.0) for i in s), (base + 1, -1.0)], 0, np.inf)
        rows.add([*((i, 1.0) for i in s), (base + 1, -float(ps))], -np.inf, 0)
        rows.add([*((i, 1.0) for i in w), (base + 1, -1.0)], 0, np.inf)
        # internal rate: the same on each machine, with b[h] in the place of e
        for i in h:
            rows.add([(v[i], 1.0), (b[i], -float(max_colocated))], -np.inf, 0)
            rows.add([(v[i], 1.0), (b[i], -1.0)], 0, np.inf)
            rows.add([(q[i], ratio), (v[i], -1.0)], 0, np.inf)
            rows.add([(q[i], 1.0), (b[i], -1.0)], 0, np.inf)
            rows.add([(q[i], 1.0), (b[i], -float(ps))], -np.inf, 0)
            _add_loads(scenario, (j, t, i), (v[i], w[i]), (q[i], s[i]), draft)
        work += [*((i, 1.0 / colocated_time) for i in v), *((i, 1.0 / spread_time) for i in w)]
    # x at most once; and if it is 1 somewhere, the work of all slots is at least the whole job (3)
    rows.add([(base, 1.0) for base in starts], -np.inf, 1)
    rows.add([*work, *((base, -1.0) for base in starts)], 0, np.inf)


def _add_loads(
    scenario: Scenario, key: tuple[int, int, int], workers: tuple[int, int], ps: tuple[int, int], draft: ProgramDraft
) -> None:
    """Resources that the variables of a job take; `key`: job, slot and machine."""
    j, t, h = key
    for variables, needs in ((workers, scenario.jobs.worker_needs[j]), (ps, scenario.jobs.ps_needs[j])):
        for r in np.flatnonzero(needs):
            draft.loads[t, h, int(r)] += [(i, float(needs[r])) for i in variables]
