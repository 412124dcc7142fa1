"""Records that are false in one thing only and agree in all others: each once got past the verifier."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import polars as pl
import pytest

from skedge.core.model.cluster import Physics
from skedge.recorded_run import Run
from skedge.simulate import run
from skedge.testing import resource_scenarios, site_scenario, small_scenario

SLOT = 10_000_000
OF, AT = pl.col("job"), pl.col("time")
VERB = pl.col("verb").cast(pl.String)


@cache
def done(policy: str) -> Run:
    record = run(small_scenario(0), policy)
    assert record.verify() == []
    return record


def forged(record: Run, **tables: pl.DataFrame) -> Run:
    return replace(record, schedule=replace(record.schedule, **tables))


def rules(record: Run) -> set[str]:
    return {violation.rule for violation in record.verify()}


def moved(frame: pl.DataFrame, where: pl.Expr, by: int, *columns: str) -> pl.DataFrame:
    """Times of the rows that satisfy `where`, later by so many µs."""
    return frame.with_columns(pl.when(where).then(pl.col(name) + by).otherwise(name).alias(name) for name in columns)


def test_a_first_allocation_does_not_wait_for_a_checkpoint_that_there_is_not() -> None:
    """The job that ends last computes 10 s late and ends 10 s late; it has never run before."""
    overhead = Physics(checkpoint_overhead=30_000_000)
    record = run(small_scenario(0, physics=overhead), "fifo")
    assert record.verify() == []
    s = record.schedule
    last, late = s.jobs.sort("completion")["job"][-1] == OF, SLOT
    wrong = forged(
        record,
        runs=moved(s.runs, last, late, "compute_from", "end"),
        ps=moved(s.ps, last, late, "end"),
        jobs=moved(s.jobs, last, late, "completion", "jct"),
    )
    assert rules(wrong) == {"M7"}


def test_a_batch_decides_at_a_power_of_two_of_slots_and_at_no_other_time() -> None:
    """A job's only batch puts it off with a value of 0; it is accepted a slot later, at which no batch is due."""
    record = run(small_scenario(2, jobs=1, physics=Physics(slotted=True, slot=SLOT)), "batchsche")
    assert record.verify() == []
    s, always, said = record.schedule, pl.lit(value=True), VERB != "upload"
    accepted = s.decisions.filter(VERB == "allocate")
    text = {name: pl.lit(None, s.decisions.schema[name]) for name in ("server", "workers")}
    put_off = accepted.with_columns(verb=pl.lit("postpone").cast(s.decisions.schema["verb"]), value=pl.lit(0.0), **text)
    later = moved(s.decisions, said, SLOT, "time")
    wrong = forged(
        record,
        decisions=pl.concat([later.filter(~said), put_off, later.filter(said)]),
        runs=moved(s.runs, always, SLOT, "start", "compute_from", "end"),
        ps=moved(s.ps, always, SLOT, "start", "end"),
        plans=moved(s.plans, always, SLOT, "made_at", "from", "to"),
        prices=moved(s.prices, always, SLOT, "made_at", "from", "to"),
        jobs=moved(s.jobs, always, SLOT, "admitted", "first_start", "completion", "jct"),
    )
    assert rules(wrong) == {"M36"}


def test_chunks_that_reach_a_site_do_not_leave_it_at_the_same_instant() -> None:
    """A chunk goes to another site and back a hundred times before its slot; each way is decided, booked and paid."""
    record = run(site_scenario(1, jobs=40), "okita")
    assert record.verify() == []
    s, cost = record.schedule, record.scenario.cluster.transfer_cost
    assert cost is not None
    where = s.uploads["from_site"].is_not_null()
    there = s.uploads.filter(where).head(1).with_columns(chunks=pl.lit(1).cast(s.uploads.schema["chunks"]))
    job, source, target, time = there.select("job", "from_site", pl.col("to_server").cast(pl.String), "start").row(0)
    mb = float(record.scenario.jobs.chunk_mb[job])
    ids = record.scenario.cluster.server_ids
    there = there.with_columns(mb=pl.lit(mb))
    back = there.with_columns(
        from_site=pl.lit(target).cast(s.uploads.schema["from_site"]),
        to_server=pl.lit(source).cast(s.uploads.schema["to_server"]),
    )
    at = s.decisions.with_row_index("_row").filter((job == OF) & (time == AT) & (VERB == "transfer"))["_row"][0]
    said = s.decisions[at]
    ways = [
        said.with_columns(
            server=pl.lit(ids[b]).cast(s.decisions.schema["server"]), value=pl.lit(float(cost[a, b]) * mb)
        )
        for a, b in ((ids.index(source), ids.index(target)), (ids.index(target), ids.index(source)))
    ]
    first = s.uploads.with_row_index("_row").filter(where)["_row"][0]
    wrong = forged(
        record,
        uploads=pl.concat([s.uploads[:first], *[there, back] * 100, s.uploads[first:]]),
        decisions=pl.concat([s.decisions[:at], *ways * 100, s.decisions[at:]]),
    )
    assert rules(wrong) == {"M31"}


def with_uploads(record: Run, job: int, workers: range) -> Run:
    """Copies of a job's chunks, ordered on arrival for each of these numbers of workers, and brought each time."""
    s, chunks = record.schedule, int(record.scenario.jobs.chunks[job])
    begun = s.uploads.filter(job == OF).head(1)
    n, arrival = len(workers), int(record.scenario.jobs.arrival[job])
    took = begun["end"][0] - begun["start"][0]
    brought = pl.concat([begun] * n).with_columns(
        chunks=pl.lit(chunks).cast(s.uploads.schema["chunks"]),
        mb=pl.lit(chunks * float(record.scenario.jobs.chunk_mb[job])),
        start=pl.lit(arrival, pl.Int64),
        end=pl.lit(arrival + took, pl.Int64),
    )
    first = s.decisions.filter(job == OF).head(1)
    orders = pl.concat([first] * n).with_columns(
        time=pl.lit(arrival, pl.Int64),
        verb=pl.lit("upload").cast(s.decisions.schema["verb"]),
        reason=pl.lit("copies").cast(s.decisions.schema["reason"]),
        server=pl.lit(begun["to_server"].cast(pl.String)[0]).cast(s.decisions.schema["server"]),
        value=pl.lit(None, pl.Float64),
        workers=pl.Series(list(workers)).cast(s.decisions.schema["workers"]),
    )
    at = int((s.decisions["time"] < arrival).sum())
    return forged(
        record,
        uploads=pl.concat([s.uploads.filter(job != OF), brought]),
        decisions=pl.concat([s.decisions[:at], orders, s.decisions[at:]]),
    )


def begins_at_once(record: Run) -> int:
    """A job of several chunks with one upload, that runs from its arrival on."""
    at_once = record.schedule.jobs.filter(pl.col("first_start") == pl.col("arrival"))["job"].to_list()
    brought = record.schedule.uploads["job"].to_list()
    return next(job for job in at_once if brought.count(job) == 1 and record.scenario.jobs.chunks[job] > 1)


def test_no_server_is_brought_the_data_of_more_workers_than_a_job_can_have() -> None:
    """A stranger's policy, that may bring data ahead: not for 1,000 workers where there are a few chunks."""
    record = done("srtf")
    stranger = replace(record, meta={**record.meta, "policy": "a-stranger", "promises": {}})
    assert "M5" in rules(with_uploads(stranger, begins_at_once(record), range(1, 1001)))


def test_a_policy_that_brings_data_with_its_allocations_orders_no_uploads_ahead() -> None:
    record = done("srtf")
    job = begins_at_once(record)
    chunks = int(record.scenario.jobs.chunks[job])
    assert rules(with_uploads(record, job, range(chunks, chunks + 1))) == {"M16"}


def test_no_data_are_brought_ahead_to_a_job_that_holds_workers() -> None:
    """An order to upload that brings nothing new, in the middle of a run: the kernel refuses it."""
    record = run(small_scenario(0), "fifo:rule=earliest_server")
    s = record.schedule
    row = s.decisions.with_row_index("_row").filter(VERB == "upload").row(0, named=True)
    one = s.runs.filter(row["job"] == OF).row(0, named=True)
    middle = (one["start"] + one["end"]) // 2
    at = int((s.decisions["time"] < middle).sum())
    order = s.decisions[row["_row"]].with_columns(time=pl.lit(middle, pl.Int64))
    assert rules(forged(record, decisions=pl.concat([s.decisions[:at], order, s.decisions[at:]]))) == {"M6"}


@pytest.mark.parametrize(("policy", "rule"), [("pdors", "M19"), ("oasis", "M19"), ("dorm", "M28"), ("drf", "M28")])
def test_a_job_holds_no_ps_more_than_it_is_said_to(policy: str, rule: str) -> None:
    """One PS more, in the decision too: beyond the job's plan, or beyond what the policy promises of its ratio."""
    record = run(resource_scenarios()[0], policy)
    assert record.verify() == []
    s = record.schedule
    planned = set(s.plans.filter(pl.col("broken_at").is_not_null())["job"].to_list())
    one = next(row for row in s.ps.rows(named=True) if row["job"] not in planned)
    here = (one["job"] == OF) & (pl.col("server").cast(pl.String) == one["server"])

    def more(frame: pl.DataFrame, where: pl.Expr, name: str) -> pl.DataFrame:
        return frame.with_columns(pl.when(here & where).then(pl.col(name) + 1).otherwise(name).alias(name))

    ps = more(s.ps, pl.col("start") == one["start"], "count")
    wrong = forged(record, ps=ps, decisions=more(s.decisions, (one["start"] == AT) & (VERB == "assign_ps"), "workers"))
    assert rule in rules(wrong) <= {rule, "M26"}


def cut(record: Run) -> Run:
    """A job of one run, whose workers nobody gets at its end, is suspended in its middle and goes on 1 µs later."""
    s = record.schedule
    taken = pl.col("end").is_in(s.runs["start"].implode())
    one = s.runs.filter(pl.len().over("job") == 1).filter(~taken).sort("end").row(-1, named=True)
    rows, mine = s.runs.filter(one["job"] == OF), one["job"] == OF
    at = (one["compute_from"] + one["end"]) // 2
    part = (at - one["compute_from"]) / (one["end"] - one["compute_from"])
    former = rows.with_columns(end=pl.lit(at, pl.Int64), work=pl.col("work") * part, preempted=pl.lit(value=True))
    latter = rows.with_columns(
        start=pl.lit(at + 1, pl.Int64), compute_from=pl.lit(at + 1, pl.Int64), end=pl.col("end") + 1,
        work=pl.col("work") * (1 - part),
    )  # fmt: skip
    ps = s.ps.filter(mine)
    twice = [
        ps.with_columns(end=pl.lit(at, pl.Int64)),
        moved(ps, mine, 1, "end").with_columns(start=pl.lit(at + 1, pl.Int64)),
    ]
    again = s.decisions.filter(mine & (VERB == "allocate")).with_columns(time=pl.lit(at + 1, pl.Int64))
    nothing = {name: pl.lit(None, s.decisions.schema[name]) for name in ("server", "workers", "value")}
    stop = again.with_columns(
        time=pl.lit(at, pl.Int64), verb=pl.lit("suspend").cast(s.decisions.schema["verb"]), **nothing
    )
    return forged(
        record,
        runs=pl.concat([s.runs.filter(~mine), former, latter]),
        ps=pl.concat([s.ps.filter(~mine), *twice]),
        decisions=pl.concat([s.decisions, stop, again]).sort("time", maintain_order=True),
        jobs=moved(s.jobs, mine, 1, "completion", "jct"),
    )


@pytest.mark.parametrize("policy", ["fifo", "srtf"])
def test_no_gang_is_suspended_for_nobody(policy: str) -> None:
    assert rules(cut(done(policy))) == {"M11"}
