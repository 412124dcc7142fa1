"""The rules for records, and the form of a violation (``docs/model.md``, section 2)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skedge.core.model.cluster import Ints
from skedge.core.model.scenario import Scenario

MessageOf = Callable[[int], str]
"""Returns the message for the violation in a row."""

RULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "M1": ("every name is known, every count and time is possible", ("(2k)", "(4h)", "(7e)")),
    "M2": ("decisions are made while the job is in the system, and no gang starts without one", ("(2i)", "(4h)")),
    "M3": ("workers are of the job's worker type", ("(2a)",)),
    "M4": ("a lane runs one chunk at a time; the workers held on a server are at most those it has", ("(2d)", "(4b)")),
    "M5": ("a job has at most D_j workers at a time, a chunk at most one", ("(2c)", "(4e)")),
    "M6": (
        "each chunk is dispatched once and runs only there: no migration, except from a server out of service",
        ("(4e)", "(7a)", "(7d)"),
    ),
    "M7": ("nothing computes before its data are uploaded", ("(2i)", "(4h)")),
    "M8": ("exactly the work that is needed is done", ("(2b)", "(4a)")),
    "M9": ("completion is the end of the last run, JCT is completion - arrival", ("(2j)",)),
    "M10": ("communication is free exactly where zeta = 1", ("(2g)", "(2h)", "(4f)", "(4g)")),
    "M11": ("a run is marked preempted exactly if it ends before its chunk or job is finished", ("definition",)),
    "M12": ("a job has exactly one PS while it runs and none otherwise", ("(2e)", "(4c)")),
    "M13": ("an edge PS slot is of the job's PS type and serves one job at a time", ("(2e)", "(2f)", "(4c)", "(4d)")),
    "M14": ("a job keeps its PS while it continues to run", ("Alg. 5",)),
    "M15": ("the PS of a job wholly in the cloud is in the cloud", ("(2g)", "(4f)")),
    "M16": (
        "every chunk is uploaded to where it is used, in the time and with the bytes that it takes",
        ("(7a)", "(7c)"),
    ),
    "M17": ("chunks stored on a server do not exceed its storage", ("(7b)", "(7c)", "(7d)")),
    "M18": ("every job is answered once: finished, rejected, failed or cancelled", ("definition",)),
    "M19": ("a planned job runs within its plan unless the plan is marked broken", ("definition",)),
    "M20": ("a HAPRF lane's rank is D_j p_j", ("Sec. IV-C",)),
    "M21": ("a lane runs the highest-ranked chunk that has arrived", ("Sec. IV-C",)),
    "M22": ("no lane idles while a chunk waits for it; a cloud chunk starts when it arrives", ("Sec. IV-C",)),
    "M23": ("in slotted time everything starts and ends on slot boundaries", ("definition",)),
    "M24": ("the workers of a gang are held, start and stop together", ("definition",)),
    "M25": ("nothing starts on a server that is out of service", ("definition",)),
    "M26": ("the amount of a resource held on a server is at most its capacity", ("PD-ORS (5)",)),
    "M27": ("on servers with resources a job has at most F_i workers", ("PD-ORS (4)",)),
    "M28": ("on servers with resources a job has a PS for every gamma_i workers", ("PD-ORS (2)",)),
    "M29": ("prices rise with the planned load, from L to U, and never fall", ("PD-ORS (12)", "Alg. 1")),
    "M30": ("a job is admitted exactly if its utility is above its cost at the prices before it", ("PD-ORS Alg. 1",)),
    "M31": ("data are moved from the sites that have them, at their size and cost", ("Okita (1), (2a), (2f)",)),
    "M32": ("a job at sites has one PS while it holds workers", ("Okita (2c), (2g)",)),
    "M33": ("in a slot a site trains chunks that are there, as many as its workers can", ("Okita (2a), (2b), (2e)",)),
    "M34": ("alpha and the chunks postponed are what Q gives", ("(5)", "Lemma 4")),
    "M35": ("a PS is taken in the cloud only where the edge has none", ("errata E8",)),
    "M36": (
        "batches decide on every job that waits, at prices that follow from the load",
        ("She et al. (7), (8)",),
    ),
    "M37": ("run.json describes how the run was made", ("definition",)),
    "M38": ("the last checkpoint of a job that finished live holds all its mini-batches", ("definition",)),
    "M39": ("no chunk is more than max_lag epochs ahead of its job's slowest chunk", ("definition",)),
    "M40": ("the jobs of a tenant hold at most its quota of the edge workers", ("definition",)),
    "M41": ("a job is preempted after min_runtime at the soonest, and at most most_preemptions times", ("definition",)),
    "M42": ("no job begins while one of a higher class waits for such workers", ("definition",)),
    "M43": ("a job fails when it reaches a limit of its time, and not before", ("definition",)),
    "M48": ("a simulation in which servers fail has the outages on record that its seed gives", ("definition",)),
}
"""By rule: its statement, and the constraints that it checks, of JSAC'22 unless another paper is named."""

WORK_TOLERANCE = 1e-6
"""Relative error allowed in sums of mini-batches, which are floats."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation of one rule.

    Attributes
    ----------
    rule, constraint
        ``M7`` and the paper's numbers, ``(2i), (4h)``.
    job
        The job's id; None if no job is concerned.
    time
        Time [µs]; None if no time is concerned.
    message
        What was found and what would be right, with values.
    """

    rule: str
    constraint: str
    job: str | None
    time: int | None
    message: str


class Findings:
    """The violations found so far, at most `limit` per rule."""

    def __init__(self, scenario: Scenario, limit: int) -> None:
        self.ids = scenario.ids
        self.limit = limit
        self.by_rule: dict[str, list[Violation]] = {rule: [] for rule in RULES}

    def add(self, rule: str, job: int | None, time: int | None, message: str) -> None:
        """Add one violation, unless the rule has reached the limit.

        Parameters
        ----------
        rule
            A key of :data:`RULES`.
        job
            Row number of the jobs table; None if no job is concerned.
        time
            Time of the violation [µs]; None if no time is concerned.
        message
            What was found and what would be right.
        """
        if len(self.by_rule[rule]) < self.limit:
            # M1 reports rows of jobs that do not exist
            has_id = job is not None and 0 <= job < len(self.ids)
            name = self.ids[job] if has_id and job is not None else None
            self.by_rule[rule].append(Violation(rule, ", ".join(RULES[rule][1]), name, time, message))

    def empty_copy(self) -> Findings:
        """No violations, with the same limit."""
        empty = copy(self)
        empty.by_rule = {rule: [] for rule in RULES}
        return empty

    def extend(self, findings: Findings) -> None:
        """Add the violations of others, up to the limit."""
        for rule, violations in findings.by_rule.items():
            self.by_rule[rule] += violations[: self.limit - len(self.by_rule[rule])]

    def add_rows(
        self, rule: str, wrong: NDArray[np.bool_], job: Ints, time: Ints, message: str | MessageOf, *values: Any,
        order: Ints | None = None,
    ) -> None:  # fmt: skip
        """Add a violation for each row that is wrong.

        Parameters
        ----------
        rule
            Its number, such as ``M4``.
        wrong
            Whether each row violates the rule.
        job, time
            The job of each row, and the time of its violation [µs].
        message, values
            The message, with a place for the item of each of `values`; or a function that gives the message of a row.
        order
            The rows are added in ascending order of this; without it, in their own.
        """
        rows = np.flatnonzero(wrong)
        if order is not None:
            rows = rows[np.argsort(order[rows], kind="stable")]
        # messages are worded for the reported rows only
        for i in rows[: self.limit].tolist():
            text = message.format(*(column[i] for column in values)) if isinstance(message, str) else message(i)
            self.add(rule, int(job[i]), int(time[i]), text)

    def all(self) -> list[Violation]:
        """Violations by rule, then in the order found."""
        return [violation for violations in self.by_rule.values() for violation in violations]


Rule = Callable[[Findings], None]
"""A check that adds the violations that it finds."""


def check_all(rules: Sequence[Rule], findings: Findings, *, in_threads: bool) -> None:
    """Check rules that do not depend on each other; `in_threads`: in several threads."""
    if not in_threads:
        for rule in rules:
            rule(findings)
        return

    # each thread has findings of its own; they are merged in the order of the rules, so the report is always the same
    def check_one(rule: Rule) -> Findings:
        rule(rule_findings := findings.empty_copy())
        return rule_findings

    with ThreadPoolExecutor(_max_threads()) as threads:
        for rule_findings in threads.map(check_one, rules):
            findings.extend(rule_findings)


def _max_threads() -> int:
    """One per processor, or what the usual variable says: one in a process of a sweep."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return int(setting) if setting.isdecimal() and int(setting) > 0 else os.cpu_count() or 1
