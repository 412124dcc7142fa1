"""Explanation of a decision: its reason and the terms that the policy compared, recomputed by replay.

The run is simulated again up to the decision on the job; there, before the order is applied, the policy is asked for
the terms behind it (:meth:`skedge.core.policy.Policy.terms`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from skedge.core.errors import InputError
from skedge.core.events import (
    Allocate,
    Dispatch,
    Event,
    Order,
    Postpone,
    Reject,
    Reserve,
    Suspend,
    Transfer,
    single_orders,
)
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster
from skedge.core.model.time import SECOND
from skedge.core.model.wording import first_names
from skedge.core.policy import Policy, View
from skedge.optimum.types import PLAN_NAME
from skedge.prepare import prepare_policy
from skedge.recorded_run import Run
from skedge.sim.compiled import use_loop
from skedge.sim.failures import world_of

_MAX_NAMES = 3
"""Maximum number of jobs or servers named in one line."""

_Line = tuple[int, int | None, str, str | None, str]
_TIMELINE: dict[str, Any] = {
    "time_s": pl.Float64,
    "until_s": pl.Float64,
    "what": pl.String,
    "server": pl.String,
    "detail": pl.String,
}


class _DecisionReached(Exception):  # noqa: N818 - stops a replay, not an error
    def __init__(self, time: int, order: Order, terms: Mapping[str, Any] | None) -> None:
        super().__init__()
        self.time, self.order, self.terms = time, order, terms


_OFFLINE_PLAN = "nothing at that time: skedge optimum planned with all jobs known in advance"

_PLACING_ORDERS = Dispatch, Allocate, Reserve, Reject
_ALL_ORDERS = *_PLACING_ORDERS, Postpone, Suspend, Transfer


class _TermsRecorder:
    """A wrapper of a policy that asks for its terms just before it gives the order to be explained.

    That is the first order that places, plans or rejects the job, or the first of any kind from `since` on [µs].
    """

    def __init__(self, policy: Policy, job: int, since: int | None) -> None:
        self.policy, self.job, self.since = policy, job, since

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        for order in single_orders(self.policy.decide(event, view)):
            if self._is_target(event.time, order):
                # before the order is applied: the view is still the one that the policy decided on
                raise _DecisionReached(event.time, order, self.policy.terms(self.job, view))
            yield order

    def _is_target(self, time: int, order: Order) -> bool:
        if self.since is None:
            return isinstance(order, _PLACING_ORDERS) and order.job == self.job
        return isinstance(order, _ALL_ORDERS) and order.job == self.job and time >= self.since


@dataclass(frozen=True)
class Explanation:
    """Explanation of where a job is, and why.

    Attributes
    ----------
    job
        Its id.
    time_s
        Time of the decision [s].
    verb, reason
        The decision and the policy's reason.
    terms
        The quantities that the policy compared; None if it does not report them.
    timeline
        The job's history in time order: columns time_s, until_s, what, server, detail.
    later_s
        Times of the later decisions on the job [s].
    """

    job: str
    time_s: float
    verb: str
    reason: str
    terms: Mapping[str, Any] | None
    timeline: pl.DataFrame
    later_s: list[float]


def explain(run: Run, job: str, at_s: float | None = None) -> Explanation:
    """Explain the decision on `job` in `run`.

    Parameters
    ----------
    run
        The run, whose policy must be installed.
    job
        Id of the job.
    at_s
        Explain the first decision of any kind from this time on [s]; None: the first that places, plans or rejects the
        job.

    Raises
    ------
    InputError
        If the run has no such job, or no decision on it that late.
    """
    index = run.scenario.jobs.index.get(job)
    if index is None:
        raise InputError(f"job {job!r} is not in this run; its jobs are {first_names(run.scenario.jobs.ids)}")
    since = None if at_s is None else round(at_s * SECOND)
    # a planned schedule has no policy to ask: its record is all there is
    if run.policy == PLAN_NAME:
        time, verb, reason = _recorded_decision(run, index, since)
        terms: Mapping[str, Any] | None = {"compares": _OFFLINE_PLAN}
    else:
        reached = _replay(run, index, since)
        time, verb, terms = reached.time, type(reached.order).__name__.lower(), reached.terms
        reason = getattr(reached.order, "reason", "")
    # strictly later: one event may bring several orders on a job, which are one decision
    later = _decisions(run, index, _ALL_ORDERS, time + 1)["time"].unique().sort()
    later_s = [t / SECOND for t in later.to_list()]
    return Explanation(job, time / SECOND, verb, reason, terms, timeline(run, index), later_s)


def _decisions(run: Run, job: int, kinds: Sequence[type[Order]], since: int) -> pl.DataFrame:
    """The recorded decisions of `kinds` on `job` from `since` on [µs]."""
    return run.schedule.decisions.filter(
        pl.col("job") == job,
        pl.col("verb").cast(pl.String).is_in([kind.__name__.lower() for kind in kinds]),
        pl.col("time") >= since,
    )


def _recorded_decision(run: Run, job: int, since: int | None) -> tuple[int, str, str]:
    """Time [µs], verb and reason of the decision to explain, from the record."""
    decisions = _decisions(run, job, _PLACING_ORDERS if since is None else _ALL_ORDERS, since or 0)
    if not len(decisions):
        raise _no_decision(run, job, since)
    return decisions.select("time", pl.col("verb").cast(pl.String), pl.col("reason").cast(pl.String)).row(0)


def _no_decision(run: Run, job: int, since: int | None) -> InputError:
    suffix = "" if since is None else f" from {since / SECOND:g} s on"
    return InputError(f"job {run.scenario.jobs.ids[job]!r}: the policy never decided on it{suffix}")


def _replay(run: Run, job: int, since: int | None) -> _DecisionReached:
    # the same scenario, policy and seed give the same events, so that the decision is met again
    policy = _TermsRecorder(prepare_policy(run.policy, run.scenario), job, since)
    kernel = Kernel(run.scenario, policy)  # type: ignore[arg-type]
    world = world_of(kernel)
    if not run.live:
        time = _recorded_decision(run, job, since)[0]
        use_loop(world, kernel, until=time, compiling=False)
    try:
        drive_to_end(kernel, world)
    except _DecisionReached as reached:
        # raised from within the kernel's loop: the rest of the run is of no interest
        return reached
    raise _no_decision(run, job, since)


def timeline(run: Run, job: int) -> pl.DataFrame:
    """A job's history in time order: arrival, decisions, uploads, runs, parameter servers, completion."""
    s, row = run.schedule, run.schedule.jobs.row(job, named=True)
    rows: list[_Line] = [(row["arrival"], None, "arrives", None, "")]
    # uploads come from outside, moves from another site
    moved = pl.col("from_site").is_not_null()
    uploads, moves = s.uploads.filter(~moved), s.uploads.filter(moved)
    rows += [
        (u["start"], u["end"], "uploads", place, f"{_counted_noun(u['chunks'], 'chunk')}, {u['mb']:.0f} MB{named}")
        for u, place, named in _merged_rows(uploads, job, "to_server", ["start", "chunks"], "end")
    ]
    rows += [
        (u["start"], None, "gets data", u["to_server"], f"{_counted_noun(u['chunks'], 'chunk')} from {u['from_site']}")
        for u in _rows_of_job(moves, job)
    ]
    rows += [_run_line(r, run.scenario.jobs.ids) for r in _runs_of(s.runs, job).iter_rows(named=True)]
    rows += [
        (p["start"], p["end"], "has its PS", p["server"], _ps_detail(p, run.scenario.cluster))
        for p in _rows_of_job(s.ps, job)
    ]
    rows += [
        (p["made_at"], None, "is planned", place, f"from {p['from'] / SECOND} to {p['to'] / SECOND} s{named}")
        for p, place, named in _merged_rows(s.plans, job, "server", ["made_at", "from"], "to")
    ]
    rows += [
        (d["time"], None, "is postponed", None, d["reason"] + _value_text(d["value"]))
        for d in _rows_of_job(s.decisions.filter(pl.col("verb") == "postpone"), job)
    ]
    if row["state"] == "finished":
        rows.append((row["completion"], None, "completes", None, f"JCT {row['jct'] / SECOND:.6g} s"))
    else:
        rows.append((row["arrival"], None, "is rejected", None, row["reason"]))
    table = pl.DataFrame(
        [
            (t / SECOND, None if u is None else u / SECOND, action, place, detail)
            for t, u, action, place, detail in rows
        ],
        schema=_TIMELINE,
        orient="row",
    )
    # stable: rows of one time stay in the order of cause and effect in which they were added
    return table.sort("time_s", maintain_order=True)


def _value_text(value: float | None) -> str:
    return "" if value is None else f": its best plan is worth {value:.6g}"


def _rows_of_job(table: pl.DataFrame, job: int) -> Iterator[dict[str, Any]]:
    return table.filter(pl.col("job") == job).iter_rows(named=True)


def _ps_detail(p: dict[str, Any], cluster: Cluster) -> str:
    if p["slot"] is not None:
        return f"slot {p['slot']}"
    # PSs in the cloud have no slots to number
    in_cloud = cluster.cloud is not None and p["server"] == cluster.label(cluster.cloud)
    return "cloud" if in_cloud else _counted_noun(p["count"], "PS")


def _run_line(r: dict[str, Any], ids: list[str]) -> _Line:
    size = _counted_noun(r["chunks"], "chunk") if r["chunks"] else _counted_noun(r["workers"], "worker")
    return r["start"], r["end"], "runs", r["server"], f"{size}, {_end_text(r, ids)}"


def _end_text(r: dict[str, Any], ids: list[str]) -> str:
    """The end of a run: with its work done, with the job on other workers at once (moved), or waiting (displaced)."""
    if not r["preempted"]:
        return "done"
    by = [ids[rival] for rival in sorted(r["by"])]
    names = f" by {', '.join(by[:_MAX_NAMES])}{', …' * (len(by) > _MAX_NAMES)}" if by else ""
    return ("moved" if r["moved"] else "displaced") + names


def _merged_rows(
    table: pl.DataFrame, job: int, server: str, keys: list[str], end: str
) -> Iterator[tuple[dict[str, Any], str, str]]:
    """The job's rows of `table`, each with its location and further server names.

    Rows of equal `keys` on many servers (a spread gang, copies of its data) are combined into one, to the last `end`.
    """
    own_rows = table.filter(pl.col("job") == job).with_columns(pl.col(server).cast(pl.String))
    for _, rows in own_rows.group_by(keys, maintain_order=True):
        if len(rows) <= _MAX_NAMES:
            yield from ((row, row[server], "") for row in rows.iter_rows(named=True))
        else:
            names = ", ".join(rows[server][:_MAX_NAMES])
            # the row that ends last stands for all: the group is complete only then
            yield rows.sort(end).row(-1, named=True), f"{len(rows)} servers", f": {names}, …"


def _counted_noun(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _runs_of(runs: pl.DataFrame, job: int) -> pl.DataFrame:
    """The job's runs, those of equal start and end on one server combined.

    With the jobs that displaced them (`by`), and whether the job's workers ran on elsewhere at once (`moved`).
    """
    own_runs = runs.filter(pl.col("job") == job)
    place, keys = ["server", "lane"], ["start", "end", "server", "preempted"]
    # runs of other jobs that begin where and when one of this job ends: they displaced it
    next_ = runs.filter((pl.col("job") != job) & pl.col("start").is_in(own_runs["end"].unique().to_list()))
    next_ = next_.select(pl.col("start").alias("end"), *place, pl.col("job").alias("by")).unique()
    table = own_runs.group_by(keys, maintain_order=True).agg(
        pl.col("workers").sum(), pl.col("chunk").count().alias("chunks")
    )
    # gangs have no lane, and null must equal null
    displaced = own_runs.select(*keys, "lane").join(next_, on=["end", *place], nulls_equal=True)
    by = displaced.group_by(keys).agg(pl.col("by").unique())
    table = table.join(by, on=keys, how="left", maintain_order="left")
    # a gang's rows have no chunk; one that ends as another starts has moved its workers
    gang_starts = own_runs.filter(pl.col("chunk").is_null())["start"].unique()
    moved = pl.col("end").is_in(gang_starts.to_list()) & (pl.col("chunks") == 0)
    return table.with_columns(pl.col("server").cast(pl.String), pl.col("by").fill_null([]), moved=moved)
