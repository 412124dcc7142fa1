"""Explanation of a decision: its reason and the terms that the policy compared, recomputed by replay.

The run is simulated again up to the decision on the job; there, before the order is applied, the policy is asked for
the terms behind it (:meth:`skedge.core.policy.Policy.terms`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from .core.errors import InputError
from .core.events import Allocate, Dispatch, Event, Order, Postpone, Reject, Reserve, Suspend, Transfer
from .core.kernel.drive import drive_to_end
from .core.kernel.kernel import Kernel
from .core.model.cluster import Cluster
from .core.model.time import SECOND
from .core.model.wording import first_names
from .core.policy import Policy, View
from .optimum.types import PLAN_NAME
from .run import Run, prepared
from .sim.failures import world_of

_MOST_NAMED = 3
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


_FORESEEN = "nothing at that time: skedge optimum planned with all jobs known in advance"

_PLACES = Dispatch, Allocate, Reserve, Reject
_DECIDES = *_PLACES, Postpone, Suspend, Transfer


class _Asked:
    """A wrapper of a policy that asks for its terms just before it gives the order to be explained.

    That is the first order that places, plans or rejects the job, or the first of any kind from the time `at` on [µs].
    """

    def __init__(self, policy: Policy, job: int, at: int | None) -> None:
        self.policy, self.job, self.at = policy, job, at

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        for order in self.policy.decide(event, view):
            if self._meant(event.time, order):
                raise _DecisionReached(event.time, order, self.policy.terms(self.job, view))
            yield order

    def _meant(self, time: int, order: Order) -> bool:
        if self.at is None:
            return isinstance(order, _PLACES) and order.job == self.job
        return isinstance(order, _DECIDES) and order.job == self.job and time >= self.at


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
    at = None if at_s is None else round(at_s * SECOND)
    if run.policy == PLAN_NAME:
        time, verb, reason = _on_record(run, index, at)
        terms: Mapping[str, Any] | None = {"compares": _FORESEEN}
    else:
        reached = _replay(run, index, at)
        time, verb, terms = reached.time, type(reached.order).__name__.lower(), reached.terms
        reason = getattr(reached.order, "reason", "")
    later = _decisions(run, index, _DECIDES, time + 1)["time"].unique().sort()
    later_s = [one / SECOND for one in later.to_list()]
    return Explanation(job, time / SECOND, verb, reason, terms, timeline(run, index), later_s)


def _decisions(run: Run, job: int, kinds: Sequence[type[Order]], since: int) -> pl.DataFrame:
    """The recorded decisions of `kinds` on `job` from `since` on [µs]."""
    return run.schedule.decisions.filter(
        pl.col("job") == job,
        pl.col("verb").cast(pl.String).is_in([kind.__name__.lower() for kind in kinds]),
        pl.col("time") >= since,
    )


def _on_record(run: Run, job: int, at: int | None) -> tuple[int, str, str]:
    """Time [µs], verb and reason of the decision to explain, from the record."""
    own = _decisions(run, job, _PLACES if at is None else _DECIDES, at or 0)
    if not len(own):
        raise _never(run, job, at)
    return own.select("time", pl.col("verb").cast(pl.String), pl.col("reason").cast(pl.String)).row(0)


def _never(run: Run, job: int, at: int | None) -> InputError:
    when = "" if at is None else f" from {at / SECOND:g} s on"
    return InputError(f"job {run.scenario.jobs.ids[job]!r}: the policy never decided on it{when}")


def _replay(run: Run, job: int, at: int | None) -> _DecisionReached:
    policy = _Asked(prepared(run.policy, run.scenario), job, at)
    kernel = Kernel(run.scenario, policy)  # type: ignore[arg-type]
    try:
        drive_to_end(kernel, world_of(kernel))
    except _DecisionReached as reached:
        return reached
    raise _never(run, job, at)


def timeline(run: Run, job: int) -> pl.DataFrame:
    """A job's history in time order: arrival, decisions, uploads, runs, parameter servers, completion."""
    s, row = run.schedule, run.schedule.jobs.row(job, named=True)
    rows: list[_Line] = [(row["arrival"], None, "arrives", None, "")]
    moved = pl.col("from_site").is_not_null()
    uploads, moves = s.uploads.filter(~moved), s.uploads.filter(moved)
    rows += [
        (u["start"], u["end"], "uploads", where, f"{_several(u['chunks'], 'chunk')}, {u['mb']:.0f} MB{named}")
        for u, where, named in _together(uploads, job, "to_server", ["start", "chunks"], "end")
    ]
    rows += [
        (u["start"], None, "gets data", u["to_server"], f"{_several(u['chunks'], 'chunk')} from {u['from_site']}")
        for u in _of(moves, job)
    ]
    rows += [_run_line(r, run.scenario.jobs.ids) for r in _runs_of(s.runs, job).iter_rows(named=True)]
    rows += [
        (p["start"], p["end"], "has its PS", p["server"], _ps_detail(p, run.scenario.cluster)) for p in _of(s.ps, job)
    ]
    rows += [
        (p["made_at"], None, "is planned", where, f"from {p['from'] / SECOND} to {p['to'] / SECOND} s{named}")
        for p, where, named in _together(s.plans, job, "server", ["made_at", "from"], "to")
    ]
    rows += [
        (d["time"], None, "is postponed", None, d["reason"] + _worth(d["value"]))
        for d in _of(s.decisions.filter(pl.col("verb") == "postpone"), job)
    ]
    if row["state"] == "finished":
        rows.append((row["completion"], None, "completes", None, f"JCT {row['jct'] / SECOND:.6g} s"))
    else:
        rows.append((row["arrival"], None, "is rejected", None, row["reason"]))
    table = pl.DataFrame(
        [(t / SECOND, None if u is None else u / SECOND, what, where, detail) for t, u, what, where, detail in rows],
        schema=_TIMELINE,
        orient="row",
    )
    return table.sort("time_s", maintain_order=True)


def _worth(value: float | None) -> str:
    return "" if value is None else f": its best plan is worth {value:.6g}"


def _of(table: pl.DataFrame, job: int) -> Iterator[dict[str, Any]]:
    return table.filter(pl.col("job") == job).iter_rows(named=True)


def _ps_detail(p: dict[str, Any], cluster: Cluster) -> str:
    if p["slot"] is not None:
        return f"slot {p['slot']}"
    in_cloud = cluster.cloud is not None and p["server"] == cluster.label(cluster.cloud)
    return "cloud" if in_cloud else _several(p["count"], "PS")


def _run_line(r: dict[str, Any], ids: list[str]) -> _Line:
    what = _several(r["chunks"], "chunk") if r["chunks"] else _several(r["workers"], "worker")
    return r["start"], r["end"], "runs", r["server"], f"{what}, {_end_of(r, ids)}"


def _end_of(r: dict[str, Any], ids: list[str]) -> str:
    """How a run ended: with its work done, with the job on other workers at once (moved), or waiting (displaced)."""
    if not r["preempted"]:
        return "done"
    by = [ids[other] for other in sorted(r["by"])]
    names = f" by {', '.join(by[:_MOST_NAMED])}{', …' * (len(by) > _MOST_NAMED)}" if by else ""
    return ("moved" if r["moved"] else "displaced") + names


def _together(
    table: pl.DataFrame, job: int, server: str, keys: list[str], end: str
) -> Iterator[tuple[dict[str, Any], str, str]]:
    """The job's rows of `table`, each with its location and further server names.

    Rows of equal `keys` on many servers (a spread gang, copies of its data) are combined into one, to the last `end`.
    """
    mine = table.filter(pl.col("job") == job).with_columns(pl.col(server).cast(pl.String))
    for _, rows in mine.group_by(keys, maintain_order=True):
        if len(rows) <= _MOST_NAMED:
            yield from ((row, row[server], "") for row in rows.iter_rows(named=True))
        else:
            names = ", ".join(rows[server][:_MOST_NAMED])
            yield rows.sort(end).row(-1, named=True), f"{len(rows)} servers", f": {names}, …"


def _several(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _runs_of(runs: pl.DataFrame, job: int) -> pl.DataFrame:
    """The job's runs, those of equal start and end on one server combined.

    With the jobs that displaced them (`by`), and whether the job's workers ran on elsewhere at once (`moved`).
    """
    mine = runs.filter(pl.col("job") == job)
    place, keys = ["server", "lane"], ["start", "end", "server", "preempted"]
    next_ = runs.filter((pl.col("job") != job) & pl.col("start").is_in(mine["end"].unique().to_list()))
    next_ = next_.select(pl.col("start").alias("end"), *place, pl.col("job").alias("by")).unique()
    table = mine.group_by(keys, maintain_order=True).agg(
        pl.col("workers").sum(), pl.col("chunk").count().alias("chunks")
    )
    displaced = mine.select(*keys, "lane").join(next_, on=["end", *place], nulls_equal=True)
    by = displaced.group_by(keys).agg(pl.col("by").unique())
    table = table.join(by, on=keys, how="left", maintain_order="left")
    gang_starts = mine.filter(pl.col("chunk").is_null())["start"].unique()
    moved = pl.col("end").is_in(gang_starts.to_list()) & (pl.col("chunks") == 0)
    return table.with_columns(pl.col("server").cast(pl.String), pl.col("by").fill_null([]), moved=moved)
