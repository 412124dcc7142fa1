"""The data of ``aonline.py``: servers and jobs of JSAC'22 in the paper's letters, and a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

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
    """Servers and jobs, the jobs in order of (r_j, id); `grain` 0 is real time, else all times are multiples of it."""

    servers: tuple[Server, ...]
    jobs: tuple[Job, ...]
    grain: int = 0
    epsilon: Fraction | int = 0

    def round_up(self, time: Time) -> Time:
        return -(-time // self.grain) * self.grain if self.grain else time

    def p(self, j: int, zeta: int) -> Time:
        """E_j B_j / n_j, Eq. (1); rounded once, and everything else uses the rounded one (J26). Speed: J29."""
        job = self.jobs[j]
        per_minibatch = Fraction(job.m) + job.G + (1 - zeta) * 2 * Fraction(job.q) / job.b
        return self.round_up(job.E * job.B * per_minibatch / (1 + Fraction(self.epsilon)))

    def delta(self, j: int, server: int) -> Time:
        return self.round_up(self.jobs[j].delta[server])

    def decision_time(self, j: int) -> Time:
        """When the job is collected (Alg. 1 line 2)."""
        return self.round_up(self.jobs[j].r)


Reading = Literal["marginal", "eq5", "fractional"]


@dataclass(frozen=True)
class Mode:
    """Reading of Q (J21 to J24), whether a running chunk may be displaced (J21), and A_online-E (`cloud` False)."""

    q: Reading = "marginal"
    preempt_running: bool = True
    cloud: bool = True


@dataclass(frozen=True)
class Chunk:
    """Chunk d of a job on its worker, where its data are from `arrive` (t_0) on; `dispatched`: the job's turn."""

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


Timeline = list[tuple[Chunk, Time, Time]]
"""Which chunk runs on a worker, from when to when, in order of time."""


@dataclass(frozen=True)
class Cost:
    """Q, its four terms as in Eq. (5), and |A_2|."""

    q: Fraction
    terms: tuple[Fraction, Fraction, Fraction, Fraction]
    postponed: int = 0


@dataclass
class Result:
    """A run: chunks and their costs in order of dispatch, timelines by worker, PSs by job.

    `gaps` are the distances between the least cost and the others, from which a test learns how close a choice was.
    """

    chunks: list[Chunk] = field(default_factory=list)
    zeta: dict[int, int] = field(default_factory=dict)
    costs: list[Cost] = field(default_factory=list)
    rejected: set[int] = field(default_factory=set)
    dispatched_at: dict[int, Time] = field(default_factory=dict)
    gaps: list[Fraction] = field(default_factory=list)
    timelines: dict[Place, Timeline] = field(default_factory=dict)
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
        return sum((self.integral_of_beta(place) for place in self.timelines), Fraction(0))

    @property
    def preemptions(self) -> int:
        return sum(len(runs) - len({chunk for chunk, _, _ in runs}) for runs in self.timelines.values())

    def job_completion(self, j: int) -> Time:
        return max(time for (job, _), time in self.completion.items() if job == j)

    def on(self, place: Place) -> list[Chunk]:
        return [c for c in self.chunks if c.place == place]

    def integral_of_beta(self, place: Place) -> Fraction:
        """beta_sw(t) is the weight of the chunks sent to (s, w), released and uncompleted: a step function."""
        steps: dict[Time, Fraction] = {}
        for c in self.on(place):
            for t, change in ((c.r, Fraction(1, c.D)), (self.completion[c.job, c.d], -Fraction(1, c.D))):
                steps[t] = steps.get(t, Fraction(0)) + change
        area, beta, last = Fraction(0), Fraction(0), Fraction(0)
        for t in sorted(steps):
            area += beta * (t - last)
            beta, last = beta + steps[t], Fraction(t)
        return area
