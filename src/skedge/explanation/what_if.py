"""What-if questions: what a submission, a drained or added server, or another policy would do to every job.

A question is a mapping with one field, as the service's API takes it: ``submit`` (a job spec), ``drain`` (a server's
id), ``add`` (a server of a cluster file) or ``policy`` (``name:key=value,…``). The answer compares two forecasts.

``submit`` and ``drain`` are tried on the present state. A running service keeps its policy and its servers, so
``policy`` and ``add`` are compared anew: every job in the system arrives now with the share of its work that is left,
once under the present policy on the present servers, once with the change. Uploads are made again in both.

No forecast has failures: servers in service stay so, and those out of service stay out. A job for which a completion
never comes has None for it, which counts in no sum; such jobs stand first and are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain, count
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from skedge.core.errors import InputError
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster, Server
from skedge.core.model.kinds import kind_of
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND, ticks, whole_slots
from skedge.core.policy import AnyPolicy
from skedge.core.registry import spec_of
from skedge.prepare import prepare_policy
from skedge.recorded_run import Run
from skedge.scenario.file import job_from_spec, job_of, server_from
from skedge.sim.failures import world_of
from skedge.sim.what_if import Foreseen, Present
from skedge.simulate import run

_SCALED = ("minibatch_s", "ps_update_s", "gradient_mb")
"""The columns that the time of a mini-batch, m + G + 2 q / b, is linear in."""

_UNTRAINED = {"factory": "none:none"}
"""Stands for `train` in a job spec that has none: nothing is trained."""


Outcome = Literal["stranded", "freed", "never", "submitted", "later", "sooner", "unchanged"]
"""Effect of a change on a job, in the order in which jobs are listed.

``stranded``: with the change the job never completes; ``freed``: it completes, which it never does without the change;
``never``: it completes neither with the change nor without it; ``submitted``: it is the job asked about, and completes.
"""

_FIRST = get_args(Outcome)[:4]
"""Outcomes that are listed before those of jobs that complete either way."""


@dataclass(frozen=True)
class Effect:
    """Effect of a change on one job: start and completion [s], None where it never comes.

    Attributes
    ----------
    submitted
        True of the job asked about, which is not in the system without the change.
    """

    job: str
    start_before_s: float | None
    start_after_s: float | None
    completion_before_s: float | None
    completion_after_s: float | None
    submitted: bool = False

    @property
    def later_s(self) -> float | None:
        """Delay of the completion [s]; None unless the job completes with and without the change."""
        if self.completion_before_s is None or self.completion_after_s is None:
            return None
        return self.completion_after_s - self.completion_before_s

    @property
    def outcome(self) -> Outcome:
        """The effect in one word."""
        later = self.later_s
        if later is not None:
            return "later" if later > 0 else "sooner" if later < 0 else "unchanged"
        if self.completion_after_s is not None:
            return "submitted" if self.submitted else "freed"
        return "never" if self.completion_before_s is None and not self.submitted else "stranded"


@dataclass(frozen=True)
class Answer:
    """The effects on all jobs in the system, and on the one submitted.

    Attributes
    ----------
    now_s
        The moment of the question [s].
    out_of_service
        Servers that are out of service now, and stay so in both forecasts.
    """

    now_s: float
    effects: tuple[Effect, ...]
    out_of_service: tuple[str, ...] = ()

    @property
    def later_s(self) -> float | None:
        """Sum over the jobs that complete with and without the change [s]; None if there is no such job."""
        changes = [effect.later_s for effect in self.effects if effect.later_s is not None]
        return sum(changes) if changes else None

    @property
    def ranked(self) -> list[Effect]:
        """The effects: jobs that never complete with the change, or without it, first; then the largest changes."""
        return sorted(self.effects, key=_rank)

    @property
    def counts(self) -> dict[Outcome, int]:
        """Number of jobs by outcome."""
        outcomes = [effect.outcome for effect in self.effects]
        return {name: outcomes.count(name) for name in get_args(Outcome)}


def _rank(effect: Effect) -> tuple[int, float]:
    later = effect.later_s
    return (_FIRST.index(effect.outcome), 0.0) if later is None else (len(_FIRST), -abs(later))


def what_if(present: Present, question: Mapping[str, Any]) -> Answer:
    """Answer a question; `present` is not changed.

    Raises
    ------
    InputError
        If the question is wrong, or does not fit the cluster; names the field.
    """
    if len(question) != 1 or next(iter(question)) not in _ANSWERS:
        raise InputError(f"what-if: {', '.join(question) or 'nothing'}: must be one of {', '.join(_ANSWERS)}")
    ((kind, value),) = question.items()
    # the copy is the answer's own: what it does to it is seen nowhere else
    return _ANSWERS[kind](present.copy(), value)


def _submit(present: Present, spec: Any) -> Answer:
    before = present.foresee()
    # a question needs no training code, which a job spec demands
    fields = {"train": _UNTRAINED, **spec} if isinstance(spec, Mapping) else spec
    job = job_of(job_from_spec(fields, "job spec"))
    names = present.kernel.scenario.jobs.index
    # the name may be in the system already, so a number is added
    number = present.submit(replace(job, id=next(name for name in _name_candidates(job.id) if name not in names)))
    return _answer(present, before, present.foresee(), submitted=number)


def _name_candidates(name: str) -> Iterator[str]:
    """`name`, then name-2, name-3 and so on."""
    yield name
    yield from (f"{name}-{number}" for number in count(2))


def _drain(present: Present, server: Any) -> Answer:
    servers, before = present.kernel.scenario.cluster.server_ids, present.foresee()
    if server not in servers:
        raise InputError(f"drain: server {server!r} is unknown; there are {', '.join(servers)}")
    if not present.kernel.in_service[servers.index(server)]:
        raise InputError(f"drain: server {server!r} is out of service already")
    changed = present.copy()
    # on a copy, as the effects are listed for the jobs of the state asked about
    changed.drain(servers.index(server))
    return _answer(present, before, changed.run_out())


def _policy(present: Present, policy: Any) -> Answer:
    return _restarted(present, lambda scenario: scenario, str(policy))


def _add(present: Present, fields: Any) -> Answer:
    server = server_from(fields, "add")
    _check_types(server, present.kernel.scenario.cluster)

    def wider(scenario: Scenario) -> Scenario:
        cluster = kind_of(scenario.cluster).with_server(scenario.cluster, server)
        return replace(scenario, cluster=cluster, jobs=Jobs(scenario.jobs.frame, cluster, scenario.jobs.fixed_delays))

    return _restarted(present, wider, spec_of(present.kernel.policy))


def _check_types(server: Server, cluster: Cluster) -> None:
    """Check that a server's workers and PSs are of types that the others have: no job here knows another one."""
    for kind, type_names in (("worker", cluster.worker_types), ("ps", cluster.ps_types)):
        for name in server.capacity:
            resource_kind, _, type_name = name.partition(":")
            if resource_kind == kind and type_name not in type_names:
                raise InputError(f"add: {kind} type {type_name!r} is of no job here; there are {', '.join(type_names)}")


_ANSWERS: dict[str, Callable[[Present, Any], Answer]] = {
    "submit": _submit, "drain": _drain, "add": _add, "policy": _policy,
}  # fmt: skip
"""The function that answers each kind of question, on a copy of the state."""


def _restarted(present: Present, changed: Callable[[Scenario], Scenario], policy: AnyPolicy) -> Answer:
    """Compare forecasts of what is left to train: as it is, and changed."""
    # the kernel cannot change its cluster or its policy under way, so both sides start from what is left
    scenario = remaining_jobs(present)
    before = _initial_state(present, scenario, spec_of(present.kernel.policy))
    return _answer(before, before.foresee(), _initial_state(present, changed(scenario), policy).run_out())


def _initial_state(present: Present, scenario: Scenario, policy: AnyPolicy) -> Present:
    """The state before the jobs of `scenario` arrive, all now; servers that are out of service in `present` are out."""
    state = Present(Kernel(scenario, prepare_policy(policy, scenario)), present.now)
    # all of its jobs arrive now, as submissions do
    state.submitted = len(scenario.jobs)
    for server in present.out:
        state.drain(server)
    return state


def remaining_jobs(present: Present) -> Scenario:
    """The jobs in the system as a scenario: all arrive now, with the share of their work that is left."""
    kernel, left = present.kernel, present.left()
    scenario, jobs = kernel.scenario, kernel.active()
    # factor: how far the speed of a job differs from the announced one
    share = np.array([left[job] * kernel.factor.get(job, 1.0) for job in jobs.tolist()])
    frame = scenario.jobs.frame[jobs.tolist()].with_columns(
        # m + G + 2 q / b is linear in these columns, so less work is as many mini-batches, each shorter
        pl.lit(present.now / SECOND).alias("arrival_s"),
        *(pl.col(name) * share for name in _SCALED),
    )
    return scenario.of_rows(frame, scenario.jobs.fixed_delays)


def _answer(present: Present, before: Foreseen, after: Foreseen, *, submitted: int | None = None) -> Answer:
    kernel = present.kernel
    # the jobs that complete at this moment, and those submitted, are not among the active ones
    jobs = sorted({*kernel.active().tolist(), *before.completions, *range(kernel.arrived, len(kernel.scenario.jobs))})
    effects = (
        Effect(
            kernel.scenario.jobs.ids[job], _s(before.starts.get(job)), _s(after.starts.get(job)),
            _s(before.completions.get(job)), _s(after.completions.get(job)), job == submitted,
        )
        for job in jobs
    )  # fmt: skip
    return Answer(present.now / SECOND, tuple(effects), present.out_of_service)


def _s(time: int | None) -> float | None:
    return None if time is None else time / SECOND


# -- what would help ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Remedy:
    """A change with which a waiting job would start earlier, found by trying.

    Attributes
    ----------
    change
        In words.
    start_s, completion_s
        With the change [s].
    """

    change: str
    start_s: float
    completion_s: float | None


def find_remedies(present: Present, job: int) -> tuple[Remedy, ...]:
    """The changes that let a waiting job start earlier; `present` is not changed.

    Each server that is out of service is tried back in service. For a job that has not begun, fewer workers are tried:
    half, a quarter and so on to one; the first number that helps is returned. Such a job is submitted again, behind
    the others. Nothing is tried for a job that runs now.
    """
    expected = present.foresee().starts.get(job)
    # it runs
    if expected is not None and expected <= present.now:
        return ()
    changes = chain(_with_servers_back(present, job), _with_fewer_workers(present, job))
    remedies: dict[str, Remedy] = {}
    for kind, words, changed, number in changes:
        foreseen = changed.foresee()
        start = foreseen.starts.get(number)
        # fewer and fewer workers are tried: the first number that helps is named
        if kind not in remedies and start is not None and (expected is None or start < expected):
            remedies[kind] = Remedy(words, start / SECOND, _s(foreseen.completions.get(number)))
    return tuple(remedies.values())


def _with_servers_back(present: Present, job: int) -> Iterator[tuple[str, str, Present, int]]:
    for server, name in zip(present.out, present.out_of_service, strict=True):
        changed = present.copy()
        changed.restore(server)
        yield name, f"if {name} came back", changed, job


def _with_fewer_workers(present: Present, job: int) -> Iterator[tuple[str, str, Present, int]]:
    workers = int(present.kernel.scenario.jobs.workers[job])
    if job in present.kernel.sent:  # its chunks have lanes, however many workers it asks for
        return
    while workers > 1 and present.left().get(job) == 1.0:
        workers //= 2
        changed = present.copy()
        yield "workers", f"with {workers} worker{'s' if workers > 1 else ''}", changed, changed.resubmit(job, workers)


# -- recorded runs -----------------------------------------------------------------------------------------------------


def state_at(scenario: Scenario, policy: AnyPolicy, at_s: float) -> Present:
    """The state of a simulation at a time, with only the jobs that had arrived by then.

    Raises
    ------
    PolicyError
        If the policy does not fit the scenario.
    """
    instance, time = prepare_policy(policy, scenario), ticks(at_s)
    n_arrived = int((whole_slots(scenario.jobs.arrival, scenario.physics.step) <= time).sum())
    present = Present(Kernel(scenario.only(slice(0, n_arrived)), instance), 0)
    world = world_of(present.kernel)
    while (event := world.next_event()) is not None and event.time <= time:
        # it also notes the chunks sent to the cloud, which the kernel does not track
        for order in present.happens(event):
            world.perform(order)
    present.now = time
    # parts are noted when they begin; those that have ended by now are trained
    present.in_cloud = {job: part for job, part in present.in_cloud.items() if part.end > time}
    return present


def replay_run(recorded: Run, policy: AnyPolicy) -> tuple[Answer, Run]:
    """A recorded run under another policy: the effects on all its jobs, and the new run.

    A live record is compared with its own simulation, so that both have the announced times.

    Raises
    ------
    PolicyError
        If the policy is unknown or does not fit the scenario.
    """
    # real times are longer than announced: they would hide what the policy changes
    before = run(recorded.scenario, recorded.policy) if recorded.live else recorded
    after = run(recorded.scenario, policy)
    return Answer(0.0, _effects(before, after)), after


def _effects(before: Run, after: Run) -> tuple[Effect, ...]:
    (starts, ends), (new_starts, new_ends) = _times(before), _times(after)
    return tuple(
        Effect(name, starts.get(job), new_starts.get(job), ends[job], new_ends[job])
        for job, name in enumerate(before.scenario.jobs.ids)
    )


def _times(record: Run) -> tuple[dict[int, float], list[float | None]]:
    """Start of the first run of each job that ran, and completion of each job [s]."""
    starts = record.schedule.runs.group_by("job").agg(pl.col("start").min())
    return {job: start / SECOND for job, start in starts.iter_rows()}, [_s(time) for time in record.jobs["completion"]]


def answer_fields(answer: Answer) -> dict[str, Any]:
    """The answer as plain JSON types: ``now_s``, ``later_s``, ``counts``, and ``jobs`` with a row for each, ranked.

    ``out_of_service`` lists the servers that are out of service in both forecasts.
    """
    rows = [{**asdict(effect), "later_s": effect.later_s, "outcome": effect.outcome} for effect in answer.ranked]
    numbers = {"now_s": answer.now_s, "later_s": answer.later_s, "counts": answer.counts}
    return {**numbers, "out_of_service": list(answer.out_of_service), "jobs": rows}
