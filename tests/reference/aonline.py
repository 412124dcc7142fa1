"""A_online of JSAC'22 as a plain program: for a reader of the paper, exact, slow.

Functions have the paper's names, variables its letters, and comments give the lines of Alg. 1 to 5, which stand in the
order of the paper. Where the printed text cannot be meant, the entry of ``docs/errata.md`` stands beside the code as
J1, J2, ... Times are integers or fractions in any one unit, weights are fractions: no number is ever rounded but
p_j, Delta_js and decision times, to whole `grain`\\ s.

The data (jobs, chunks, the result) are in ``aonline_model.py``.

A worker's timeline y is not kept and shifted as in Alg. 4 (J1, J2). It follows from the chunks that were sent to the
worker, and is made anew from time 0 for every question. beta and the PSs follow from the timelines.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from reference.aonline_model import CLOUD, Chunk, Cost, Instance, Interval, Mode, Place, Result, Time, Timeline

# -- Alg. 1: A_online -------------------------------------------------------------------------------------------------


def a_online(instance: Instance, mode: Mode | None = None) -> Result:
    """Alg. 1. Arrivals and active jobs are two sets (J7); a job without room waits until a job ends (J19)."""
    mode, result = mode or Mode(), Result()
    t: Time = Fraction(-1)
    to_come, waiting = sorted(range(len(instance.jobs)), key=instance.decision_time), list[int]()
    # line 1, from event to event: between them nothing is decided
    while to_come or waiting:
        ends = [result.job_completion(j) for j in result.zeta]
        t = min([instance.decision_time(j) for j in to_come[:1]] + [c for c in ends if waiting and c > t])
        # line 2, and before it the jobs that wait for storage, if a job has ended
        retried, waiting = (waiting, []) if t in ends else ([], waiting)
        arrivals = [j for j in to_come if instance.decision_time(j) == t]
        to_come = to_come[len(arrivals) :]
        # line 3
        for j in retried + arrivals:
            if never_fits(instance, j, mode):
                result.rejected.add(j)
            elif a_greedy(instance, j, t, mode, result):
                update_variables(result, j, mode)
            else:
                waiting.append(j)
    # line 4: the choice of a PS changes nothing else, so it can be made at the end, from the final timelines
    result.ps = a_ps(instance, result)
    return result


# -- Alg. 2: A_greedy -------------------------------------------------------------------------------------------------


def a_greedy(instance: Instance, j: int, now: Time, mode: Mode, result: Result) -> bool:
    """Alg. 2 for one job; False, and nothing changed, if a chunk finds no room (J19)."""
    job, chosen = instance.jobs[j], list[Chunk]()
    costs, gaps = [], []
    free = free_storage(instance, result, now)
    dispatched = len({c.job for c in result.chunks})

    def chunk(d: int, place: Place, zeta: int = 0) -> Chunk:
        arrive = now + instance.delta(j, place[0])
        return Chunk(j, d, place, arrive, instance.p(j, zeta), job.r, job.D, dispatched)

    def q(d: int, place: Place) -> Cost:
        placed = [c for c in chosen if c.place == place]
        return calculate_q(result.on(place) + placed, chunk(d, place), mode)

    # lines 3-8: C_j, an entry for each qualified worker, in the order that decides ties: edge, server, worker (J13)
    qualified = [
        (s, w) for s, server in enumerate(instance.servers) for w, t in enumerate(server.workers) if t == job.type
    ]
    C = {place: q(0, place) for place in qualified}
    if mode.cloud:
        C[CLOUD, 0] = cloud_q(instance, j, now, 1, mode)
    d, zeta = 0, 0
    while d < job.D:
        # lines 10-11; a server without room for the chunk is passed over (J19)
        open_entries = {place: cost for place, cost in C.items() if place[0] == CLOUD or free[place[0]] >= job.u}
        if not open_entries:
            return False
        best = min(open_entries, key=lambda place: open_entries[place].q)
        least = open_entries[best]
        gaps += [abs(cost.q - least.q) for cost in open_entries.values() if cost.q != least.q]
        if best[0] == CLOUD:
            # lines 12-16: this and all remaining chunks, not those that are on the edge already (J6)
            zeta = int(d == 0)
            chosen += [chunk(k, (CLOUD, len(result.chunks) + k), zeta) for k in range(d, job.D)]
            costs += [least] * (job.D - d)
            break
        # lines 23-24 before 21-22 (J5): alpha is the entry that was chosen, and the chunk is placed
        chosen.append(chunk(d, best))
        costs.append(least)
        free[best[0]] -= job.u
        if d == 0 and mode.cloud:
            # lines 17-20: the job is no longer wholly in the cloud, so zeta = 0 there (J4)
            C[CLOUD, 0] = cloud_q(instance, j, now, 0, mode)
        # lines 21-22: the entry of this worker is now that of the next chunk; no other entry changes
        C[best] = q(d + 1, best)
        d += 1
    result.chunks += chosen
    result.costs += costs
    result.gaps += gaps
    result.zeta[j], result.dispatched_at[j] = zeta, now
    return True


# -- Alg. 3: CALCULATEQ -----------------------------------------------------------------------------------------------


def cloud_q(instance: Instance, j: int, now: Time, zeta: int, mode: Mode) -> Cost:
    """Alg. 3 line 8, with zeta as an argument instead of lines 3-7 (J4)."""
    job, p = instance.jobs[j], Fraction(instance.p(j, zeta))
    own = p / 2 if mode.q == "fractional" else p
    # every chunk has a private worker there: the second and the fourth term are 0
    terms = (Fraction(now + instance.delta(j, CLOUD) - job.r) / job.D, Fraction(0), own / job.D, Fraction(0))
    return Cost(sum(terms, Fraction(0)), terms)


def calculate_q(queue: list[Chunk], new: Chunk, mode: Mode) -> Cost:
    """Alg. 3 lines 10-12: Q of `new` on a worker to which the chunks of `queue` were sent before (J22).

    The increase of sum (c - r) / D on the worker: its timeline is made with and without the chunk.
    """
    if mode.q == "eq5":
        return _eq5(queue, new, mode)
    without, including = (timeline(chunks, preempt=mode.preempt_running) for chunks in (queue, [*queue, new]))
    delay = Fraction(new.arrive - new.r) / new.D
    c_before, c_after = completions(without), completions(including)
    postponed = sum(c_after[c] > c_before[c] for c in queue)
    if mode.q == "fractional":
        q = fractional_flow(including) - fractional_flow(without)
        own, processing = fractional_flow(including, new), Fraction(new.p) / (2 * new.D)
    else:
        q = flow(including) - flow(without)
        own, processing = Fraction(c_after[new] - new.r) / new.D, Fraction(new.p) / new.D
    return Cost(q, (delay, own - delay - processing, processing, q - own), postponed)


def _eq5(queue: list[Chunk], new: Chunk, mode: Mode) -> Cost:
    """Eq. (5) as printed; A(t0) is what was assigned and is uncompleted at t0, whether it has arrived or not (J22)."""
    runs, t0 = timeline(queue, preempt=mode.preempt_running), new.arrive
    pending = [c for c, end in completions(runs).items() if end > t0]
    a1 = [c for c in pending if c.D * c.p <= new.D * new.p]
    a2 = [c for c in pending if c.D * c.p > new.D * new.p]
    terms = (
        Fraction(t0 - new.r) / new.D,
        Fraction(sum(remaining(runs, c, t0) for c in a1)) / new.D,
        Fraction(new.p) / new.D,
        new.p * sum((Fraction(1, c.D) for c in a2), Fraction(0)),
    )
    return Cost(sum(terms, Fraction(0)), terms, len(a2))


# -- Alg. 4: UPDATEVARIABLES ------------------------------------------------------------------------------------------


def update_variables(result: Result, j: int, mode: Mode) -> None:
    """Alg. 4: y of the workers to which chunks of job j were sent. beta (line 8) is integrated from the run (J3)."""
    for place in {c.place for c in result.chunks if c.job == j}:
        runs = timeline(result.on(place), preempt=mode.preempt_running)
        result.timelines[place] = runs
        result.completion |= {(c.job, c.d): time for c, time in completions(runs).items()}


def timeline(chunks: Iterable[Chunk], *, preempt: bool = True) -> Timeline:
    """HAPRF on one worker, in place of the shifts of lines 3-7 (J1, J2)."""
    left = {c: c.p for c in chunks}
    runs: Timeline = []
    t: Time = 0
    while left:
        arrived = [c for c in left if c.arrive <= t]
        if not arrived:
            t = min(c.arrive for c in left)
            continue
        best = min(arrived, key=lambda c: c.rank)
        stop = t + left[best]
        if preempt:
            # the next arrival may be of a better rank
            stop = min([stop, *(c.arrive for c in left if c.arrive > t)])
        left[best] -= stop - t
        if left[best] == 0:
            del left[best]
        start = t
        # a chunk that continues after an arrival is one run
        if runs and runs[-1][0] is best and runs[-1][2] == t:
            start = runs.pop()[1]
        runs.append((best, start, stop))
        t = stop
    return runs


def completions(runs: Timeline) -> dict[Chunk, Time]:
    return {chunk: stop for chunk, _, stop in runs}


# -- Alg. 5: A_ps -----------------------------------------------------------------------------------------------------


def a_ps(instance: Instance, result: Result) -> dict[int, list[tuple[Time, Time, int, int]]]:
    """Alg. 5: [from, to, server, p] by job. The PS chosen is the free qualified one of lowest (server, p)."""
    times = running_times(result)
    slots = {(s, p): t for s, server in enumerate(instance.servers) for p, t in enumerate(server.ps)}
    z: dict[int, tuple[Time, Place]] = {}
    assignments: dict[int, list[tuple[Time, Time, int, int]]] = {j: [] for j in times}
    for t in sorted({bound for intervals in times.values() for interval in intervals for bound in interval}):
        running = {j: stop for j, intervals in times.items() for start, stop in intervals if start <= t < stop}
        # first pass, lines 3-4: jobs that continue keep theirs (J8, J9)
        z = {j: (stop, ps) for j, (stop, ps) in z.items() if stop > t}
        # second pass, lines 5-6: the others choose among the free ones; the cloud's if there is none (J9, J10)
        for j in sorted(set(running) - set(z)):
            busy = {ps for _, ps in z.values()}
            free = [ps for ps, kind in slots.items() if kind == instance.jobs[j].ps_type and ps not in busy]
            ps = min(free) if free and not result.zeta[j] else (CLOUD, -1)
            z[j] = running[j], ps
            assignments[j].append((t, running[j], *ps))
    return assignments


def running_times(result: Result) -> dict[int, list[Interval]]:
    """When each job runs (line 2): while any of its chunks does; intervals that touch are one."""
    runs = sorted((start, stop, c.job) for line in result.timelines.values() for c, start, stop in line)
    times: dict[int, list[Interval]] = {}
    for start, stop, j in runs:
        intervals = times.setdefault(j, [])
        if intervals and start <= intervals[-1][1]:
            intervals[-1] = intervals[-1][0], max(stop, intervals[-1][1])
        else:
            intervals.append((start, stop))
    return times


# -- Sec. VI: storage -------------------------------------------------------------------------------------------------


def free_storage(instance: Instance, result: Result, t: Time) -> dict[int, Fraction | float]:
    """U_s less u_j for every chunk that was sent to s and whose job is uncompleted at t (J19)."""
    free = {s: float("inf") if server.storage is None else server.storage for s, server in enumerate(instance.servers)}
    for c in result.chunks:
        if c.place[0] != CLOUD and result.job_completion(c.job) > t:
            free[c.place[0]] -= instance.jobs[c.job].u
    return free


def never_fits(instance: Instance, j: int, mode: Mode) -> bool:
    """True if there is no qualified worker, or too little room even if nothing else is stored; the cloud has both."""
    job = instance.jobs[j]
    qualified = [server for server in instance.servers if job.type in server.workers]
    if mode.cloud or not qualified:
        return not mode.cloud
    if job.u == 0 or any(server.storage is None for server in qualified):
        return False
    return sum(Fraction(server.storage) // job.u for server in qualified) < job.D  # type: ignore[arg-type, misc]


# -- Sec. IV: the quantities of the proofs ----------------------------------------------------------------------------


def remaining(runs: Timeline, chunk: Chunk, t: Time) -> Time:
    """p-hat(t): what is left of a chunk at t; of one that has begun it is less than p (J21)."""
    return chunk.p - sum(max(0, min(stop, t) - start) for c, start, stop in runs if c is chunk)


def flow(runs: Timeline) -> Fraction:
    """Sum of (c_jd - r_j) / D_j over the chunks of a worker."""
    return sum((Fraction(time - c.r) / c.D for c, time in completions(runs).items()), Fraction(0))


def fractional_flow(runs: Timeline, chunk: Chunk | None = None) -> Fraction:
    """Sum of 1/D_j times the integral of remaining/p from r_j on, over all chunks of a worker, or of one alone.

    Work done at time t was left from r_j to t; a run from a to b does (b - a)/p of it, on average at (a + b)/2.
    """
    parts = (
        (Fraction(start + stop) / 2 - c.r) * (stop - start) / c.p / c.D
        for c, start, stop in runs
        if chunk is None or c is chunk
    )
    return sum(parts, Fraction(0))


def fractional_beta(result: Result, place: Place, t: Time, *, just_before: bool = False) -> Fraction:
    """Sum of (1/D) remaining(t)/p over the chunks of (s, w) released by t, or before it: beta of (6a')."""
    runs = result.timelines.get(place, [])
    released = (c for c in result.on(place) if c.r < t or (c.r == t and not just_before))
    return sum((Fraction(remaining(runs, c, t)) / c.p / c.D for c in released), Fraction(0))
