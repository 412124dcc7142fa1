"""The state of a policy in a compiled loop: few and wide arrays, as each argument of a function costs compile time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Ints
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import NEVER
from skedge.policies.gangs.placement import Gang, Rule, Scratch, make_scratch
from skedge.policies.gangs.tiresias import Attained, Clocks, no_clocks, with_clocks

FIFO, SRTF, TIRESIAS, PREEMPTIVE, DRF = range(5)
"""The policies of this package."""

ACTIVE, RANKED, CHOSEN, FINISHED, STOPS, MOVES, BEGINS, DECIDED, BEGUN, WAKE_AT = range(10)
"""Numbers of ``PolicyState.counters``: lengths of the first lists, the last decision [µs]; of Tiresias-L the jobs that
have begun and its next wake-up [µs]."""

VERDICT, REMAINING, COMPLETED, SPARE, FURTHER = 7, 8, 9, 10, 11
"""Rows of ``PolicyState.lists`` after those of the lists ACTIVE to BEGINS."""


class PolicyState(NamedTuple):
    """The state of the policy.

    Attributes
    ----------
    policy
        FIFO, SRTF or TIRESIAS.
    attained, knob
        Of Tiresias-L: the limit at which jobs are demoted; promotion after `knob` times the executed time.
    rule
        Options of the selection.
    capacity
        Workers by (server, type).
    gang, scratch, clocks
        As the policies have them.
    where
        Room for a placement: (server, workers) rows.
    lists
        Jobs that the edge can hold, those in the order of the last selection, those that run, those that complete at
        this instant; those that the last decision stops, moves and begins; verdicts of a selection, SRTF's remaining
        times by job, the jobs completed so far (``Ledger.counters[DONE]``), and two rows to work on.
    at
        Numbers; see above.
    """

    policy: int
    attained: Attained
    knob: float
    rule: Rule
    capacity: Ints
    gang: Gang
    scratch: Scratch
    clocks: Clocks
    where: Ints
    lists: Ints
    counters: Ints


def width_of(scenario: Scenario) -> int:
    """The largest number of servers of a gang."""
    return min(int(scenario.jobs.workers.max(initial=1)), len(scenario.cluster.servers))


def make_choice(scenario: Scenario, policy: int, rule: Rule, attained: Attained, knob: float) -> PolicyState:
    """The policy before the first event."""
    cluster, jobs, counters = scenario.cluster, scenario.jobs, np.zeros(10, np.int64)
    count, places, counters[WAKE_AT] = len(jobs), np.zeros((len(jobs), width_of(scenario)), np.int64), NEVER
    none, lists = np.zeros(count, np.int64), np.zeros((12, count), np.int64)
    lists[REMAINING] = -1
    kinds = jobs.workers.copy(), jobs.worker_type.copy(), np.maximum(jobs.ps_type, 0)
    gang = Gang(*kinds, places, places.copy(), none, none.copy())
    types = len(cluster.worker_types), max(1, len(cluster.ps_types))
    scratch = make_scratch(len(cluster.servers), *types, cluster.lanes)
    where = np.zeros((len(cluster.servers) + 1, 2), np.int64)
    clocks = with_clocks(no_clocks(), count)
    return PolicyState(policy, attained, knob, rule, cluster.workers, gang, scratch, clocks, where, lists, counters)
