"""Small random instances of A_online, drawn from any source of integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from reference.aonline_model import CLOUD, Instance, Job, Mode, Reading, Server

Pick = Callable[[int, int], int]
"""A whole number from the first to the second, both included."""
T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """What instances to draw."""

    servers: int = 3
    jobs: int = 7
    chunks: int = 6
    delays: int = 6
    """Largest upload delay to an edge server."""
    hard: bool = True
    """Mini-batches of lengths that are no whole numbers, and speeds above 1."""
    storage: bool = True
    grains: tuple[int, ...] = (1, 1, 7)


def one_of(pick: Pick, choices: Sequence[T]) -> T:
    return choices[pick(0, len(choices) - 1)]


def draw_instance(pick: Pick, kind: Kind) -> Instance:
    """An instance in µs. Every type of worker and of PS is somewhere on the edge."""
    types = "abc"[: pick(1, 3)]
    servers = [_server(pick, kind, types) for _ in range(pick(1, kind.servers))]
    missing = [t for t in types if not any(t in s.workers for s in servers)]
    first = servers[0]
    servers[0] = Server(tuple(sorted([*first.workers, *missing])), tuple(sorted([*first.ps, *types])), first.storage)
    hard = kind.hard and pick(0, 1) == 1
    jobs = [_job(pick, kind, types, len(servers), hard=hard) for _ in range(pick(1, kind.jobs))]
    jobs.sort(key=lambda job: job.r)
    epsilon = Fraction(one_of(pick, (0, 3, 10)), 10) if hard else 0
    return Instance(tuple(servers), tuple(jobs), one_of(pick, kind.grains), epsilon)


def _server(pick: Pick, kind: Kind, types: str) -> Server:
    workers = sorted(one_of(pick, types) for _ in range(pick(0, 3)))
    ps = sorted(one_of(pick, types) for _ in range(pick(0, 2)))
    limited = kind.storage and pick(0, 2) > 0
    return Server(tuple(workers), tuple(ps), pick(0, 12) if limited else None)


def _job(pick: Pick, kind: Kind, types: str, servers: int, *, hard: bool) -> Job:
    unequal = pick(0, 3) > 0
    same = pick(0, kind.delays)
    delta = {s: pick(0, kind.delays) if unequal else same for s in range(servers)} | {CLOUD: pick(0, 15)}
    q, b = (Fraction(pick(0, 3)), one_of(pick, (1, 3, 7))) if hard else (pick(0, 1), 2)
    return Job(
        r=pick(0, 20), E=pick(1, 2), D=pick(1, kind.chunks), B=pick(1, 4),
        m=Fraction(pick(1, 400), 100) if hard else pick(1, 2), G=Fraction(pick(0, 30), 100) if hard else 0,
        q=q, b=b, delta=delta, type=one_of(pick, types), ps_type=one_of(pick, types), u=pick(0, 3),
    )  # fmt: skip


def draw_mode(pick: Pick, readings: tuple[Reading, ...] = ("marginal", "eq5")) -> Mode:
    return Mode(one_of(pick, readings), preempt_running=pick(0, 2) > 0, cloud=pick(0, 2) > 0)
