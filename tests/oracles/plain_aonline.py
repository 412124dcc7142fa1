"""A_online of JSAC'22 by the plain path: for a reader of the paper, exact, slow.

Functions have the paper's names and comments give the lines of Alg. 1 to 5. Where the printed text cannot be meant,
the entry of ``docs/errata.md`` stands beside the code as J1, J2, ... Times are whole numbers or fractions in any one
unit, weights are fractions: no number is ever rounded but p_j, Delta_js and decision times, to whole `grain`\\ s.

A worker's timeline is not kept and shifted (Alg. 4, J1, J2): it follows from the chunks that were given to the worker,
and is worked out anew from time 0 whenever it is asked for. beta and the PSs follow from the timelines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

Time = int | Fraction
Place = tuple[int, int]
"""(server, worker); (CLOUD, a number of its own) for each private worker in the cloud."""
Interval = tuple[Time, Time]
CLOUD = -1


@dataclass(frozen=True)
class Server:
    """[W_s] and [P_s] as lists of types, and U_s (None: without limit)."""

    workers: tuple[str, ...]
    ps: tuple[str, ...] = ()
    storage: Fraction | int | None = None


@dataclass(frozen=True)
class Job:
    """A job in the paper's letters; `delta` by server, CLOUD included where there is one."""

    r: Time
    E: int
    D: int
    B: int
    m: Fraction | int
    G: Fraction | int = 0
    q: Fraction | int = 0
    b: Fraction | int = 1
    delta: Mapping[int, Time] = field(default_factory=dict)
    type: str = "0"
    ps_type: str = "0"
    u: Fraction | int = 0


@dataclass(frozen=True)
class Instance:
    """Servers and jobs, the jobs in order of (r_j, id); `grain` 0 is real time, else all times are whole grains."""

    servers: tuple[Server, ...]
    jobs: tuple[Job, ...]
    grain: int = 0
    epsilon: Fraction | int = 0

    def whole(self, time: Time) -> Time:
        return -(-time // self.grain) * self.grain if self.grain else time

    def p(self, j: int, zeta: int) -> Time:
        """E_j B_j / n_j, Eq. (1); rounded once, and everything else uses the rounded one (J26). Speed: J29."""
        job = self.jobs[j]
        per_minibatch = Fraction(job.m) + job.G + (1 - zeta) * 2 * Fraction(job.q) / job.b
        return self.whole(job.E * job.B * per_minibatch / (1 + Fraction(self.epsilon)))

    def delta(self, j: int, server: int) -> Time:
        return self.whole(self.jobs[j].delta[server])

    def seen(self, j: int) -> Time:
        """When the job is collected (Alg. 1 line 2)."""
        return self.whole(self.jobs[j].r)


Reading = Literal["marginal", "eq5", "fractional"]
"""A reading of Q."""


@dataclass(frozen=True)
class Mode:
    """Reading of Q (J21 to J24), whether a running chunk may be displaced (J21), and A_online-E (`cloud` False)."""

    q: Reading = "marginal"
    preempt_running: bool = True
    cloud: bool = True


@dataclass(frozen=True)
class Chunk:
    """A dispatched chunk; `place` says to which worker, `dispatched` is the rank of its job's dispatch."""

    job: int
    d: int
    place: Place
    arrive: Time
    p: Time
    r: Time
    D: int
    dispatched: int

    @property
    def rank(self) -> tuple[Time, int, int]:
        """HAPRF, smaller first: 1 / gamma = D p; equal rates in order of dispatch (J28), chunks by number."""
        return self.D * self.p, self.dispatched, self.d


@dataclass(frozen=True)
class Cost:
    """Q, its four terms as in Eq. (5), and |A_2|."""

    q: Fraction
    terms: tuple[Fraction, Fraction, Fraction, Fraction]
    postponed: int = 0


@dataclass
class Result:
    """What a run did; chunks in order of dispatch."""

    chunks: list[Chunk] = field(default_factory=list)
    zeta: dict[int, int] = field(default_factory=dict)
    costs: list[Cost] = field(default_factory=list)
    rejected: set[int] = field(default_factory=set)
    dispatched_at: dict[int, Time] = field(default_factory=dict)
    gaps: list[Fraction] = field(default_factory=list)
    timelines: dict[Place, list[tuple[Chunk, Time, Time]]] = field(default_factory=dict)
    completion: dict[tuple[int, int], Time] = field(default_factory=dict)
    ps: dict[int, list[tuple[Time, Time, int, int]]] = field(default_factory=dict)

    @property
    def sum_alpha(self) -> Fraction:
        return sum((cost.q for cost in self.costs), Fraction(0))

    @property
    def sum_flow(self) -> Fraction:
        """Sum of (c_jd - r_j) / D_j."""
        return sum((Fraction(self.completion[c.job, c.d] - c.r) / c.D for c in self.chunks), Fraction(0))

    @property
    def sum_beta(self) -> Fraction:
        """beta_sw(t), integrated over time and summed over all workers, the cloud's private ones too (J25)."""
        return sum((integral_of_beta(self, place) for place in self.timelines), Fraction(0))

    @property
    def preemptions(self) -> int:
        return sum(len(runs) - len({chunk for chunk, _, _ in runs}) for runs in self.timelines.values())

    def job_completion(self, j: int) -> Time:
        return max(time for (job, _), time in self.completion.items() if job == j)

    def on(self, place: Place) -> list[Chunk]:
        return [c for c in self.chunks if c.place == place]


def timeline(chunks: Iterable[Chunk], *, preempt: bool = True) -> list[tuple[Chunk, Time, Time]]:
    """HAPRF on one worker: which chunk runs from when to when. Running on after an arrival is one run."""
    left = {c: c.p for c in chunks}
    runs: list[tuple[Chunk, Time, Time]] = []
    t: Time = 0
    while left:
        here = [c for c in left if c.arrive <= t]
        if not here:
            t = min(c.arrive for c in left)
            continue
        best = min(here, key=lambda c: c.rank)
        stop = t + left[best]
        if preempt:
            stop = min([stop, *(c.arrive for c in left if c.arrive > t)])
        left[best] -= stop - t
        if left[best] == 0:
            del left[best]
        start = t
        if runs and runs[-1][0] is best and runs[-1][2] == t:
            start = runs.pop()[1]
        runs.append((best, start, stop))
        t = stop
    return runs


def completions(runs: list[tuple[Chunk, Time, Time]]) -> dict[Chunk, Time]:
    return {chunk: stop for chunk, _, stop in runs}


def remaining(runs: list[tuple[Chunk, Time, Time]], chunk: Chunk, t: Time) -> Time:
    """p-hat(t): what is left of a chunk at t; of one that has begun it is less than p (J21)."""
    return chunk.p - sum(max(0, min(stop, t) - start) for c, start, stop in runs if c is chunk)


def flow(runs: list[tuple[Chunk, Time, Time]]) -> Fraction:
    """Sum of (c_jd - r_j) / D_j over the chunks of a worker."""
    return sum((Fraction(time - c.r) / c.D for c, time in completions(runs).items()), Fraction(0))


def fractional_flow(runs: list[tuple[Chunk, Time, Time]], r_from: Chunk | None = None) -> Fraction:
    """Sum of 1/D_j times the integral of remaining/p from r_j on; of one chunk if it is given.

    Work done at time t was left from r_j to t; a run from a to b does (b - a)/p of it, on average at (a + b)/2.
    """
    parts = (
        (Fraction(start + stop) / 2 - c.r) * (stop - start) / c.p / c.D
        for c, start, stop in runs
        if r_from is None or c is r_from
    )
    return sum(parts, Fraction(0))


def integral_of_beta(result: Result, place: Place) -> Fraction:
    """beta_sw(t) is the weight of the chunks given to (s, w), released and uncompleted: a step function."""
    steps: dict[Time, Fraction] = {}
    for c in result.on(place):
        for t, change in ((c.r, Fraction(1, c.D)), (result.completion[c.job, c.d], -Fraction(1, c.D))):
            steps[t] = steps.get(t, Fraction(0)) + change
    area, beta, since = Fraction(0), Fraction(0), Fraction(0)
    for t in sorted(steps):
        area += beta * (t - since)
        beta, since = beta + steps[t], Fraction(t)
    return area


def fractional_beta(result: Result, place: Place, t: Time, *, just_before: bool = False) -> Fraction:
    """Sum of (1/D) remaining(t)/p over the chunks of (s, w) released by t, or before it: beta of (6a')."""
    runs = result.timelines.get(place, [])
    released = (c for c in result.on(place) if c.r < t or (c.r == t and not just_before))
    return sum((Fraction(remaining(runs, c, t)) / c.p / c.D for c in released), Fraction(0))


def calculate_q(others: list[Chunk], new: Chunk, mode: Mode) -> Cost:
    """Alg. 3 lines 10-12: Q of `new` on a worker that was given `others`."""
    if mode.q == "eq5":
        return _eq5(others, new, mode)
    before, after = (timeline(c, preempt=mode.preempt_running) for c in (others, [*others, new]))
    delay = Fraction(new.arrive - new.r) / new.D
    was, now = completions(before), completions(after)
    postponed = sum(now[c] > was[c] for c in others)
    if mode.q == "fractional":
        q = fractional_flow(after) - fractional_flow(before)
        own, processing = fractional_flow(after, new), Fraction(new.p) / (2 * new.D)
    else:
        q, own, processing = flow(after) - flow(before), Fraction(now[new] - new.r) / new.D, Fraction(new.p) / new.D
    return Cost(q, (delay, own - delay - processing, processing, q - own), postponed)


def _eq5(others: list[Chunk], new: Chunk, mode: Mode) -> Cost:
    """Eq. (5) as printed; A(t0) is what was assigned and is uncompleted at t0, whether it has arrived or not (J22)."""
    runs, t0 = timeline(others, preempt=mode.preempt_running), new.arrive
    pending = [c for c, done in completions(runs).items() if done > t0]
    a1 = [c for c in pending if c.D * c.p <= new.D * new.p]
    a2 = [c for c in pending if c.D * c.p > new.D * new.p]
    terms = (
        Fraction(t0 - new.r) / new.D,
        Fraction(sum(remaining(runs, c, t0) for c in a1)) / new.D,
        Fraction(new.p) / new.D,
        new.p * sum((Fraction(1, c.D) for c in a2), Fraction(0)),
    )
    return Cost(sum(terms, Fraction(0)), terms, len(a2))


def cloud_q(instance: Instance, j: int, now: Time, zeta: int, mode: Mode) -> Cost:
    """Alg. 3 line 8, with zeta given (J4)."""
    job, p = instance.jobs[j], Fraction(instance.p(j, zeta))
    own = p / 2 if mode.q == "fractional" else p
    terms = (Fraction(now + instance.delta(j, CLOUD) - job.r) / job.D, Fraction(0), own / job.D, Fraction(0))
    return Cost(sum(terms, Fraction(0)), terms)


def a_greedy(instance: Instance, j: int, now: Time, mode: Mode, result: Result) -> bool:
    """Alg. 2 for one job; False, and nothing changed, if a chunk finds no room (J19)."""
    job, costs, gaps = instance.jobs[j], [], []
    chosen: list[Any] = []
    free = free_storage(instance, result, now)
    order = len({c.job for c in result.chunks})

    def chunk(d: int, place: Place, zeta: int = 0) -> Chunk:
        arrive = now + instance.delta(j, place[0])
        return Chunk(j, d, place, arrive, instance.p(j, zeta), job.r, job.D, order)

    def q(d: int, place: Place) -> Cost:
        mine = [c for c in chosen if c.place == place]
        return calculate_q(result.on(place) + mine, chunk(d, place), mode)

    # lines 3-8: C_j, one entry a qualified worker, in the order that decides ties: edge, server, worker (J13)
    qualified = [
        (s, w) for s, server in enumerate(instance.servers) for w, t in enumerate(server.workers) if t == job.type
    ]
    C = {place: q(0, place) for place in qualified}
    if mode.cloud:
        C[CLOUD, 0] = cloud_q(instance, j, now, 1, mode)
    d, zeta = 0, 0
    while d < job.D:
        # lines 10-11; a server without room for the chunk is passed over (J19)
        fits = {place: cost for place, cost in C.items() if place[0] == CLOUD or free[place[0]] >= job.u}
        if not fits:
            return False
        best = min(fits, key=lambda place: fits[place].q)
        gaps += [abs(cost.q - fits[best].q) for cost in fits.values() if cost.q != fits[best].q]
        if best[0] == CLOUD:
            # lines 12-16: this and all remaining chunks, not those that are on the edge already (J6)
            zeta = int(d == 0)
            chosen += [chunk(i, (CLOUD, len(result.chunks) + i), zeta) for i in range(d, job.D)]
            costs += [fits[best]] * (job.D - d)
            break
        chosen.append(chunk(d, best))
        costs.append(fits[best])
        free[best[0]] -= job.u
        if d == 0 and mode.cloud:
            # lines 17-20: the job is no longer wholly in the cloud, so zeta = 0 there (J4)
            C[CLOUD, 0] = cloud_q(instance, j, now, 0, mode)
        # lines 21-22, after the chunk is on the worker (J5)
        C[best] = q(d + 1, best)
        d += 1
    result.chunks += chosen
    result.costs += costs
    result.gaps += gaps
    result.zeta[j], result.dispatched_at[j] = zeta, now
    return True


def running_times(result: Result) -> dict[int, list[Interval]]:
    """When each job runs: while any of its chunks does; times that touch are one."""
    runs = sorted((start, stop, c.job) for line in result.timelines.values() for c, start, stop in line)
    times: dict[int, list[Interval]] = {}
    for start, stop, j in runs:
        mine = times.setdefault(j, [])
        if mine and start <= mine[-1][1]:
            mine[-1] = mine[-1][0], max(stop, mine[-1][1])
        else:
            mine.append((start, stop))
    return times


def a_ps(instance: Instance, result: Result) -> dict[int, list[tuple[Time, Time, int, int]]]:
    """Alg. 5: [from, to, server, p] by job. The PS chosen is the free qualified one of lowest (server, p)."""
    times = running_times(result)
    slots = {(s, p): t for s, server in enumerate(instance.servers) for p, t in enumerate(server.ps)}
    z: dict[int, tuple[Time, Place]] = {}
    out: dict[int, list[tuple[Time, Time, int, int]]] = {j: [] for j in times}
    for t in sorted({bound for mine in times.values() for interval in mine for bound in interval}):
        # first pass, lines 3-4: jobs that run on keep theirs (J8, J9)
        now = {j: stop for j, mine in times.items() for start, stop in mine if start <= t < stop}
        z = {j: held for j, held in z.items() if held[0] > t}
        # second pass, lines 5-6: the others choose among the free ones; the cloud's if there is none (J9, J10)
        for j in sorted(set(now) - set(z)):
            taken = {place for _, place in z.values()}
            free = [ps for ps, kind in slots.items() if kind == instance.jobs[j].ps_type and ps not in taken]
            place = min(free) if free and not result.zeta[j] else (CLOUD, -1)
            z[j] = now[j], place
            out[j].append((t, now[j], *place))
    return out


def a_online(instance: Instance, mode: Mode | None = None) -> Result:
    """Alg. 1. Arrivals and active jobs are two sets (J7); a job without room waits until a job ends (J19)."""
    mode, result, t = mode or Mode(), Result(), Fraction(-1)
    coming, waiting = sorted(range(len(instance.jobs)), key=instance.seen), list[int]()
    while coming or waiting:
        ends = [result.job_completion(j) for j in result.zeta]
        t = Fraction(min([instance.seen(j) for j in coming[:1]] + [c for c in ends if waiting and c > t]))
        # line 2, and before it the jobs that wait for storage, if a job has ended
        again, waiting = (waiting, []) if t in ends else ([], waiting)
        arrivals = [j for j in coming if instance.seen(j) == t]
        coming = coming[len(arrivals) :]
        # line 3
        for j in again + arrivals:
            if never_fits(instance, j, mode):
                result.rejected.add(j)
            elif a_greedy(instance, j, t, mode, result):
                work_out(result, j, mode)
            else:
                waiting.append(j)
    # line 4: which PS a job has changes nothing else, so it can be worked out at the end
    result.ps = a_ps(instance, result)
    return result


def work_out(result: Result, j: int, mode: Mode) -> None:
    """Timelines and completions of the workers that have been given chunks of job j."""
    for place in {c.place for c in result.chunks if c.job == j}:
        runs = timeline(result.on(place), preempt=mode.preempt_running)
        result.timelines[place] = runs
        result.completion |= {(c.job, c.d): time for c, time in completions(runs).items()}


def free_storage(instance: Instance, result: Result, t: Time) -> dict[int, Fraction | float]:
    """U_s less u_j for every chunk that was sent to s and whose job is uncompleted at t (J19)."""
    free = {s: float("inf") if server.storage is None else server.storage for s, server in enumerate(instance.servers)}
    for c in result.chunks:
        if c.place[0] != CLOUD and result.job_completion(c.job) > t:
            free[c.place[0]] -= instance.jobs[c.job].u
    return free


def never_fits(instance: Instance, j: int, mode: Mode) -> bool:
    """Whether there is no qualified worker, or too little room even if nothing else is stored; the cloud has both."""
    job = instance.jobs[j]
    able = [server for server in instance.servers if job.type in server.workers]
    if mode.cloud or not able:
        return not mode.cloud
    if job.u == 0 or any(server.storage is None for server in able):
        return False
    return sum(Fraction(server.storage or 0) // job.u for server in able) < job.D
