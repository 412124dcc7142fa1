"""What a seed draws before its run: the set-up, the jobs, and the faults."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any

from .actors import RAY_KINDS
from .databases import SQL_KINDS
from .faults import Fault
from .head import PLAIN, HeadPlan, head_plan_of
from .misbehaving import misbehaving
from .network import NETWORK_KINDS
from .setups import Setup, setup_of

FAULTS_S = 40.0
"""Time in which faults happen [s]."""

KINDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "kill": (0.0, 0.0), "freeze": (0.1, 30.0), "jump": (-86_400.0, 86_400.0), **NETWORK_KINDS, **RAY_KINDS,
        "power": (0.0, 0.0), "full": (0.5, 20.0), "slow": (1.0, 20.0), **SQL_KINDS,
        "child": (0.0, 0.0), "second": (0.0, 20.0),
        "storage full": (0.5, 8.0), "storage broken": (0.1, 60.0), "storage slow": (1.0, 10.0),
    }
)  # fmt: skip
"""Kinds of fault, each with the range of its seconds. Besides those of the scheduler, the network, Ray, disks and
databases: a job's process dies; the controller is thought dead, and goes on after a while; and what can happen to the
storage of checkpoints."""

OF_CONTROLLERS, OF_SERVERS = ("second", *SQL_KINDS, "storage"), ("child", "power", "full", "slow")
"""Beginnings of the kinds that happen to controllers alone, and of those that happen to processes on servers alone."""

EARLY, EARLY_NEAR = (10, 1500), (1, 30)
"""First and last operation of a process at which a fault happens, and the same of those beside which one does."""

NEAR: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "controller": (
            "begin",
            "committed",
            "call coordinator attach",
            "call coordinator order",
            "call coordinator news",
            "call agent",
        ),
        "coordinator": ("call ps", "call agent", "notify", "answers attach", "answers order", "answers news"),
        "job_code": ("ask", "answers"),
        "agent": ("ask", "flushed", "replaced", "answers store", "answers gradient"),
        "ps": ("ask", "flushed", "replaced", "answers load", "answers save", "answers apply"),
    }
)
"""Beginnings of the operations beside which a fault may change most, by that of the victim's name."""

MOST_CHILDREN = 2
"""Most faults of jobs' processes in a run: a job whose processes end four times is FAILED as it must be."""


@dataclass(frozen=True)
class Plan:
    """What a seed draws before its run.

    Attributes
    ----------
    seed
        Of the schedule.
    setup, policy, jobs, faults
        The cluster and what goes with it, the policy, the specs of the jobs, and the faults.
    cancelled
        Numbers of the jobs that are cancelled after a while.
    cordons
        Number of times that a server is cordoned.
    head
        What is drawn for the head of the service.
    """

    seed: int
    setup: Setup
    policy: str
    jobs: tuple[dict[str, Any], ...]
    faults: tuple[Fault, ...]
    cancelled: frozenset[int] = frozenset()
    cordons: int = 0
    head: HeadPlan = PLAIN


def plan_of(seed: int, kind: str | None = None, faults: Sequence[str] = ()) -> Plan:
    """The plan of a seed, with a set-up of a kind, or of any, and `faults` of these kinds alone, or of some drawn."""
    random, setup = Random(f"{seed} plan"), setup_of(seed, kind)  # noqa: S311 - no secret
    misdeeds = Random(f"{seed} misdeeds")  # noqa: S311 - no secret
    specs = [setup.spec(random, number) for number in range(random.randint(2, 8))]
    specs = [_with_local_steps(Random(f"{seed} {number} local"), spec) for number, spec in enumerate(specs)]  # noqa: S311
    jobs = tuple(misbehaving(misdeeds, spec) for spec in specs)
    cancelled = frozenset(number for number in range(len(jobs)) if random.random() < 0.15)
    drawn, head = tuple(_faults(random, random.choice((2, 5, 10, 20)), setup.victims(), faults)), head_plan_of(seed)
    policy, cordons = random.choice(setup.policies), random.choice((0, 0, 1))
    return Plan(seed, setup, policy, jobs, drawn + head.faults, cancelled, cordons, head)


def _with_local_steps(random: Random, spec: dict[str, Any]) -> dict[str, Any]:
    """Have the workers of one job of four train two or three mini-batches a round by themselves."""
    train = spec["train"] | ({"local_steps": random.choice((2, 3))} if random.random() < 0.25 else {})
    return spec | {"train": train}


def _faults(random: Random, n: int, victims: Sequence[str], only: Sequence[str]) -> Iterator[Fault]:
    """Faults of some kinds: few kinds and many of each find other things than all of them.

    A third of them happen by time, a third at operations that are rather early, as processes begin again and again, and
    a third beside an operation of :data:`NEAR`.
    """
    kinds, children = list(only) or random.sample(list(KINDS), random.choice((2, 4, 8, len(KINDS)))), 0
    for _ in range(n):
        kind, victim = (
            random.choice(kinds),
            random.choice(victims if random.random() < 0.6 else ("controller", "coordinator")),
        )
        if kind.startswith(OF_CONTROLLERS):
            victim = "controller"
        elif kind.startswith(OF_SERVERS):
            victim = random.choice([name for name in victims if name.startswith(("agent", "ps"))])
            children += kind == "child"
        seconds, time_s = random.uniform(*KINDS[kind]), random.uniform(0.0, FAULTS_S)
        when, near = random.choice(("time", "operation", "near")), random.choice(_near(victim))
        first, last = EARLY_NEAR if when == "near" else EARLY
        operation = int(math.exp(random.uniform(math.log(first), math.log(last))))
        if kind == "child" and children > MOST_CHILDREN:
            continue
        if when == "time":
            yield Fault(kind, victim, time_s, None, seconds)
        else:
            yield Fault(kind, victim, None, operation, seconds, near if when == "near" else "")


def _near(victim: str) -> tuple[str, ...]:
    return next(operations for beginning, operations in NEAR.items() if victim.startswith(beginning))
