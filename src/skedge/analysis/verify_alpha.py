"""Rule M34: alpha and the postponed chunks of a dispatch are what the policy's reading of Q makes them.

Every lane is followed from dispatch to dispatch. What lies there is known of the record: chunks sent, those that are
done, and how long the one in service has run. From that the lane is foreseen as announced, with the new chunk and
without it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skedge.core.jit import compiled, inlined, lean
from skedge.core.model import Floats, Ints
from skedge.core.network import upload_delays
from skedge.core.time import NEVER, SECOND

from .dual import sum_alpha_s, sum_beta_s
from .rules import Findings
from .sweeps import in_groups
from .verify_chunks import Chunks

MODES = {"marginal": 0, "eq5": 1, "fractional": 2}
"""Readings of Q (docs/errata.md, J21 to J24)."""

_CLOSE = 1e-6
"""Relative error allowed: policies weigh with whole numbers, and add up."""


def check_alpha(k: Chunks, found: Findings, mode: str, *, preemptive: bool) -> None:
    """M34 for every dispatched chunk, on lanes and in the cloud, and Lemma 4 for their sums."""
    c, d = k.c, k.c.dispatches
    if mode not in MODES or not len(d):
        return
    alpha, postponed = _on_lanes(k, MODES[mode], preemptive=preemptive)
    cloud = d["lane"] < 0
    alpha[cloud] = _in_cloud(k, MODES[mode])[cloud]
    got = d.frame["value"].fill_null(np.nan).to_numpy()
    wrong = ~(np.abs(got - alpha) <= _CLOSE * np.abs(alpha) + 1e-9)
    say = "alpha of chunk {} is {:.9g} s; Q is {:.9g} s"
    found.rows("M34", wrong, d["job"], d["time"], lambda i: say.format(d["chunk"][i], got[i], alpha[i]))
    other = d["postponed"] != postponed
    say_later = "chunk {} is said to postpone {} chunks; it postpones {}"
    found.rows(
        "M34", other, d["job"], d["time"], lambda i: say_later.format(d["chunk"][i], d["postponed"][i], postponed[i])
    )  # fmt: skip
    if mode == "marginal" and c.scenario.physics.estimate_error == 0:
        _lemma_4(k, found)


def _lemma_4(k: Chunks, found: Findings) -> None:
    """Sum alpha = sum beta, where Q is the marginal increase and what was announced is true."""
    alpha, beta = sum_alpha_s(k.c), sum_beta_s(k.c)
    if alpha is not None and beta is not None and not abs(alpha - beta) <= _CLOSE * abs(beta):
        found.add("M34", None, None, f"the sum of alpha is {alpha:.9g} s, that of beta {beta:.9g} s (Lemma 4)")


def _in_cloud(k: Chunks, mode: int) -> Floats:
    """(t - r + Delta + p) / D of each dispatch row [s], were it to the cloud; Alg. 3 line 8."""
    d, scenario = k.c.dispatches, k.c.scenario
    job = d["job"]
    p = scenario.chunk_time[job, k.zeta.at(job, d["time"])]
    response = d["time"] - scenario.jobs.arrival[job] + upload_delays(scenario.delays, job, d["server"]) + p
    each: Floats = (response - (p / 2 if mode == MODES["fractional"] else 0)) / scenario.jobs.chunks[job] / SECOND
    return each


def _on_lanes(k: Chunks, mode: int, *, preemptive: bool) -> tuple[Floats, Ints]:
    """Alpha [s] and the number of chunks postponed, by dispatch row; 0 in the cloud."""
    c, d, t = k.c, k.c.dispatches, k.c.chunks
    jobs, lanes = c.scenario.jobs, c.scenario.cluster.lanes
    sent, first = in_groups(np.where(d["lane"] >= 0, d["lane"], -1).astype(np.int32), np.arange(len(d)), lanes)
    runs, run_first = in_groups(k.run.astype(np.int32), t["start"], k.count)
    each = c.scenario.chunk_time[d["job"], 0]
    weight = 1 / jobs.chunks[d["job"]]
    gone = np.where(k.last[k.sent] >= 0, k.last[k.sent], NEVER)
    alpha, postponed = _follow_lanes(
        sent, first, d["job"].astype(np.int64), d["time"], d["rank"], k.ready, each, weight, gone, k.sent,
        runs, run_first, t["start"], t["end"], t["preempted"], jobs.arrival[d["job"]],
        c.scenario.physics.checkpoint_overhead, preemptive, mode,
    )  # fmt: skip
    return alpha / SECOND, postponed


_RANK, _ARRIVE, _LEFT, _EACH, _COUNT = range(5)
"""Columns of a queue: a row for chunks of one dispatch; time left of the first of them and of a whole one [µs]."""


@compiled
def _follow_lanes(
    sent: Ints, first: Ints, job: Ints, time: Ints, rank: Ints, ready: Ints, each: Ints, weight: Floats, gone: Ints,
    chunk: Ints, runs: Ints, run_first: Ints, start: Ints, end: Ints, preempted: NDArray[np.bool_], release: Ints,
    overhead: int, preemptive: bool, mode: int,
) -> tuple[Floats, Ints]:  # fmt: skip
    alpha, postponed = np.zeros(len(job)), np.zeros(len(job), np.int64)
    for lane in range(len(first) - 1):
        live = np.empty(first[lane + 1] - first[lane], np.int64)  # rows that may still be there, in order of dispatch
        n, i = 0, first[lane]
        queue, share = np.zeros((8, 5), np.int64), np.zeros(8)
        work, times = np.zeros((2, 8, 5), np.int64), np.zeros((2, 8), np.int64)
        while i < first[lane + 1]:
            row, last = sent[i], i
            while last < first[lane + 1] and job[sent[last]] == job[row] and time[sent[last]] == time[row]:
                last += 1
            now, kept = time[row], 0
            for m in range(n):
                if gone[live[m]] > now:
                    live[kept] = live[m]
                    kept += 1
            n = kept
            if len(queue) < n + 2:
                queue, share, work = (
                    np.zeros((2 * n + 2, 5), np.int64),
                    np.zeros(2 * n + 2),
                    np.zeros((2, 2 * n + 2, 5), np.int64),
                )
            if times.shape[1] < n + last - i + 1:
                times = np.zeros((2, 2 * (n + last - i + 1)), np.int64)
            size, serving = _queue(
                queue,
                share,
                live,
                n,
                now,
                job,
                time,
                rank,
                ready,
                each,
                weight,
                chunk,
                runs,
                run_first,
                start,
                end,
                preempted,
                overhead,
            )
            mine = _insert(queue, share, size, rank[row], ready[row], each[row], weight[row])
            if 0 <= mine <= serving:
                serving += 1
            size += 1
            base = ready[row]
            for m in range(i, last):
                queue[mine, _COUNT] = m - i + 1
                if mode == 1:
                    cost, later = _as_printed(queue, share, size, mine, now, serving, overhead, preemptive, work[0])
                else:
                    cost = _flow(
                        queue, share, size, now, NEVER, base, serving, overhead, preemptive, mode, work[0], times[0]
                    )
                    queue[mine, _COUNT] -= 1
                    cost -= _flow(
                        queue, share, size, now, NEVER, base, serving, overhead, preemptive, mode, work[1], times[1]
                    )
                    queue[mine, _COUNT] += 1
                    later = _later(queue, size, mine, times)
                alpha[sent[m]] = (base - release[row]) * weight[row] + cost
                postponed[sent[m]] = later
                live[n] = sent[m]
                n += 1
            i = last
    return alpha, postponed


@lean
def _queue(
    queue: Ints, share: Floats, live: Ints, n: int, now: int, job: Ints, time: Ints, rank: Ints, ready: Ints,
    each: Ints, weight: Floats, chunk: Ints, runs: Ints, run_first: Ints, start: Ints, end: Ints,
    preempted: NDArray[np.bool_], overhead: int,
) -> tuple[int, int]:  # fmt: skip
    """Fill the queue, best rank first, equal ranks by dispatch; returns its size and who is in service (-1: none)."""
    size, serving, m = 0, -1, 0
    while m < n:
        row, count = live[m], 0
        while m < n and job[live[m]] == job[row] and time[live[m]] == time[row]:
            count += 1
            m += 1
        left, serves = each[row], False
        for k in range(run_first[chunk[row]], run_first[chunk[row] + 1]):
            run = runs[k]
            if start[run] >= now:
                break
            left = max(1, left - (min(end[run], now) - start[run]))
            if end[run] < now:
                left += overhead if preempted[run] else 0
            else:
                serves = True
        place = _insert(queue, share, size, rank[row], ready[row], each[row], weight[row])
        queue[place, _LEFT], queue[place, _COUNT] = left, count
        size += 1
        if 0 <= place <= serving:
            serving += 1
        if serves:
            serving = place
    return size, serving


@inlined
def _insert(queue: Ints, share: Floats, size: int, rank: int, arrive: int, each: int, weight: float) -> int:
    """Open a row behind those of rank up to `rank`; returns its place."""
    i = size
    while i > 0 and queue[i - 1, _RANK] > rank:
        for f in range(5):
            queue[i, f] = queue[i - 1, f]
        share[i] = share[i - 1]
        i -= 1
    queue[i, _RANK], queue[i, _ARRIVE], queue[i, _LEFT], queue[i, _EACH], queue[i, _COUNT] = rank, arrive, each, each, 0
    share[i] = weight
    return i


@lean
def _flow(  # noqa: C901, PLR0912 - one loop: a call per step would cost more than the step
    queue: Ints, share: Floats, size: int, now: int, until: int, base: int, serving: int, overhead: int,
    preemptive: bool, mode: int, work: Ints, times: Ints,
) -> float:  # fmt: skip
    """Serve the queue from `now` to `until`; returns sum of (c - base) / D over the chunks, or their fractional flow.

    `work` is left as the queue is then; `times` gets every chunk's completion, by row and number.
    """
    flow, at, number = 0.0, now, 0
    for g in range(size):
        for f in range(5):
            work[g, f] = queue[g, f]
    # number of the first chunk of each row: rows are numbered one behind the other
    offset = 0
    for g in range(size):
        work[g, _RANK] = offset
        offset += queue[g, _COUNT]
    while at < until:
        best, coming, busy = -1, until, -1
        for g in range(size):
            if work[g, _COUNT] == 0:
                continue
            if work[g, _ARRIVE] > at:
                coming = min(coming, work[g, _ARRIVE])
                continue
            if not preemptive and work[g, _LEFT] < work[g, _EACH] and busy < 0:
                busy = g
            if best < 0:
                best = g
                if preemptive:
                    break
        if best < 0:
            if coming >= until:
                break
            at = coming
            continue
        if busy >= 0:
            best = busy
        elif preemptive and overhead > 0 and serving >= 0 and serving != best and work[serving, _COUNT] > 0:
            work[serving, _LEFT] += overhead
        stop = min(until, at + work[best, _LEFT]) if not preemptive else min(until, coming)
        span = stop - at
        whole = work[best, _LEFT] + (work[best, _COUNT] - 1) * work[best, _EACH]
        span = min(span, whole)
        if mode == 2:
            flow += share[best] * span * (at - base + span / 2.0) / work[best, _EACH]
        serving = best
        while span > 0 and span >= work[best, _LEFT]:
            at += work[best, _LEFT]
            span -= work[best, _LEFT]
            number = work[best, _RANK]
            if len(times) > 0:
                times[number] = at
            work[best, _RANK] += 1
            if mode != 2:
                flow += share[best] * (at - base)
            work[best, _COUNT] -= 1
            work[best, _LEFT] = work[best, _EACH]
            serving = -1
        if span > 0:
            at += span
            work[best, _LEFT] -= span
            serving = best
    return flow


@lean
def _as_printed(
    queue: Ints,
    share: Floats,
    size: int,
    mine: int,
    now: int,
    serving: int,
    overhead: int,
    preemptive: bool,
    work: Ints,
) -> tuple[float, int]:
    """Eq. (5): what is better, or equal, at t0 goes before; what is worse, arrived or not, is postponed by p."""
    count, t0, p = queue[mine, _COUNT], queue[mine, _ARRIVE], queue[mine, _EACH]
    queue[mine, _COUNT] = 0
    _flow(queue, share, size, now, t0, now, serving, overhead, preemptive, 0, work, queue[:0, 0])
    queue[mine, _COUNT] = count
    ahead, harm, later = (count - 1) * p, 0.0, 0
    for g in range(size):
        if g == mine or work[g, _COUNT] == 0:
            continue
        if queue[g, _RANK] <= queue[mine, _RANK]:
            ahead += work[g, _LEFT] + (work[g, _COUNT] - 1) * work[g, _EACH]
        else:
            later += work[g, _COUNT]
            harm += share[g] * work[g, _COUNT] * p
    return (ahead + p) * share[mine] + harm, later


@lean
def _later(queue: Ints, size: int, mine: int, times: Ints) -> int:
    """Chunks that complete later with the last chunk of row `mine` than without it."""
    later, a, b = 0, 0, 0
    for g in range(size):
        chunks = queue[g, _COUNT]
        without = chunks - 1 if g == mine else chunks
        for m in range(without):
            if times[0, a + m] > times[1, b + m]:
                later += 1
        a, b = a + chunks, b + without
    return later
