"""What once got past the verifier, each with the rule that finds it now; and a sample of random corruptions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from conftest import Said
from skedge.analysis.verify.verify import RULES
from skedge.core.errors import InputError
from skedge.core.model import Physics
from skedge.core.schedule import Schedule
from skedge.run import Run, run
from skedge.testing import resource_scenarios, site_scenario, small_scenario
from skedge.testing.corruptions import fuzz
from skedge.testing.rerun import difference

SLOTTED = Physics(slotted=True, slot=10_000_000)
Change = Callable[[Schedule], Schedule]
VERB = pl.col("verb").cast(pl.String)


@cache
def done(policy: str) -> Run:
    if policy in ("pdors", "dorm"):
        return run(resource_scenarios()[0], policy)
    if policy == "okita":
        return run(site_scenario(1, jobs=40), policy)
    return run(small_scenario(2, physics=SLOTTED) if policy == "batchsche" else small_scenario(0), policy)


def rules(record: Run) -> set[str]:
    return {violation.rule for violation in record.verify()}


def first(table: str, where: pl.Expr, **values: Any) -> Change:
    """The first row that satisfies `where`, with these columns set."""

    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table)
        rows = frame.with_row_index("_row").filter(where)["_row"]
        assert len(rows), "there is such a row"
        at = pl.int_range(pl.len()) == rows[0]
        new = frame.with_columns(
            pl.when(at).then(value if isinstance(value, pl.Expr) else pl.lit(value)).otherwise(pl.col(name))
            .cast(frame.schema[name]).alias(name)
            for name, value in values.items()
        )  # fmt: skip
        return replace(s, **{table: new})

    return change


def every(table: str, **values: Any) -> Change:
    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table)
        return replace(
            s, **{table: frame.with_columns(pl.lit(v).cast(frame.schema[k]).alias(k) for k, v in values.items())}
        )

    return change


def drop(table: str, where: pl.Expr) -> Change:
    """Without the first row that satisfies `where`."""

    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table).with_row_index("_row")
        row = frame.filter(where)["_row"][0]
        return replace(s, **{table: frame.filter(pl.col("_row") != row).drop("_row")})

    return change


def again(table: str, where: pl.Expr) -> Change:
    """The first row that satisfies `where`, twice."""

    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table)
        return replace(s, **{table: pl.concat([frame, frame.filter(where)[:1]])})

    return change


def in_two(s: Schedule) -> Schedule:
    """The longest run, as two that touch, the first marked preempted; each with its part of the work."""
    row = (s.runs["end"] - s.runs["compute_from"]).arg_max()
    assert row is not None
    one = s.runs[row]
    at = (pl.col("start") + pl.col("end")) // 2
    part = (at - pl.col("compute_from")) / (pl.col("end") - pl.col("compute_from"))
    former = one.with_columns(end=at, work=pl.col("work") * part, preempted=pl.lit(value=True))
    latter = one.with_columns(start=at, compute_from=at, work=pl.col("work") * (1 - part))
    return replace(s, runs=pl.concat([s.runs[:row], former, latter, s.runs[row + 1 :]]))


def outage(**values: Any) -> Change:
    def change(s: Schedule) -> Schedule:
        return replace(s, outages=pl.DataFrame([values], schema=s.outages.schema))

    return change


def exchanged(s: Schedule) -> Schedule:
    """Two chunks of a job that was not preempted exchange half of their work: the job's sum is as it was."""
    job = (
        s.runs.filter(pl.col("chunk").is_not_null(), ~pl.col("preempted"))["job"]
        .value_counts()
        .sort("count")["job"][-1]
    )
    rows = s.runs.with_row_index("_row").filter(pl.col("job") == job)["_row"].to_list()[:2]
    by = s.runs["work"][rows[0]] / 2
    work = pl.when(pl.int_range(pl.len()) == rows[0]).then(pl.col("work") - by)
    work = work.when(pl.int_range(pl.len()) == rows[1]).then(pl.col("work") + by).otherwise("work")
    return replace(s, runs=s.runs.with_columns(work))


@dataclass(frozen=True)
class Planted:
    rule: str
    what: str
    policy: str
    change: Change


DISPATCHED, ALLOCATED = VERB == "dispatch", VERB == "allocate"
ANY = pl.lit(value=True)
SHIFTED = pl.col("value") * 1.001
PAUSED = (VERB != "allocate").all().over("job", "time")
AT_EDGE = pl.col("server").cast(pl.String) != "cloud"
PLANTED = [
    Planted(
        "M6", "a first dispatch that says redispatch", "aonline", first("decisions", DISPATCHED, verb="redispatch")
    ),
    Planted("M11", "a chunk that nothing displaces", "aonline", in_two),
    Planted("M11", "a gang that no decision displaces", "srtf", in_two),
    Planted("M11", "a run's end without its suspension", "srtf", drop("decisions", (VERB == "suspend") & PAUSED)),
    Planted(
        "M2",
        "a suspension of what does not run",
        "srtf",
        first("decisions", VERB == "suspend", time=pl.col("time") - 1),
    ),
    Planted("M2", "an allocation without a run", "srtf", drop("runs", ~pl.col("preempted"))),
    Planted(
        "M2", "an allocation of more workers", "srtf", first("decisions", ALLOCATED, workers=pl.col("workers") + 1)
    ),
    Planted("M2", "admitted later", "aonline", first("jobs", ANY, admitted=pl.col("admitted") + 1)),
    Planted("M2", "decisions out of order", "srtf", first("decisions", pl.col("time") > 0, time=10**12)),
    Planted("M2", "PSs that no decision gives", "dorm", first("ps", ANY, count=pl.col("count") + 1)),
    Planted("M14", "PSs longer than their workers", "dorm", first("ps", ANY, end=pl.col("end") + 1)),
    Planted("M16", "an upload of a dispatch, twice", "aonline", again("uploads", ANY)),
    Planted("M16", "an upload of a gang, twice", "srtf", again("uploads", ANY)),
    Planted("M16", "a gang's upload that is missing", "srtf", drop("uploads", ANY)),
    Planted(
        "M16",
        "a gang's upload with another share",
        "srtf",
        first("uploads", pl.col("chunks") > 1, chunks=pl.col("chunks") - 1, mb=pl.col("mb") - 10.0),
    ),
    Planted("M16", "copies ahead of a batch that are missing", "batch", drop("uploads", ANY)),
    Planted("M1", "an upload of no chunk", "srtf", first("uploads", ANY, chunks=0, mb=0.0)),
    Planted("M1", "an upload from a site where there is none", "srtf", first("uploads", ANY, from_site="e0")),
    Planted("M34", "another alpha", "aonline", first("decisions", DISPATCHED, value=SHIFTED)),
    Planted("M34", "another alpha as printed", "aonline:q_mode=eq5", first("decisions", DISPATCHED, value=SHIFTED)),
    Planted(
        "M34", "another fractional alpha", "aonline:q_mode=fractional", first("decisions", DISPATCHED, value=SHIFTED)
    ),
    Planted(
        "M34",
        "alpha of a cloud chunk",
        "aonline",
        first("decisions", DISPATCHED & pl.col("lane").is_null(), value=SHIFTED),
    ),
    Planted(
        "M34", "a chunk more postponed", "aonline", first("decisions", DISPATCHED, postponed=pl.col("postponed") + 1)
    ),
    Planted("M34", "a sum of alpha that is not that of beta", "aonline", first("decisions", DISPATCHED, value=None)),
    Planted("M8", "work of one chunk done on another", "aonline", exchanged),
    Planted("M25", "an outage in a simulation", "aonline", outage(server="e0", start=1, end=2, reason="lost")),
    Planted(
        "M1", "an outage that ends before it starts", "aonline", outage(server="e0", start=2, end=1, reason="lost")
    ),
    Planted("M1", "an outage of no server", "aonline", outage(server=None, start=1, end=2, reason="lost")),
    Planted("M18", "a job left out as rejected", "srtf", first("jobs", ANY, state="rejected", reason="never_fits")),
    Planted("M18", "failed in a simulation", "srtf", first("jobs", ANY, state="failed", reason="x")),
    Planted("M36", "a price that is not the load's", "batch", first("prices", ANY, price=pl.col("price") * 1.01)),
    Planted("M36", "a price left out", "batchsche", drop("prices", ANY)),
    Planted("M36", "another utility", "batch", first("decisions", ALLOCATED, value=pl.col("value") * 1.01)),
    Planted("M36", "a job that a batch passes over", "batchsche", drop("decisions", VERB == "postpone")),
    Planted(
        "M36",
        "a plan that ends earlier, so that prices fall",
        "batchsche",
        first("plans", AT_EDGE, to=pl.col("to") - 10_000_000),
    ),
    Planted("M19", "a plan that is not broken, marked so", "batch", first("plans", ANY, broken_at=pl.col("to"))),
    Planted("M19", "a plan removed", "batch", drop("plans", ANY)),
    Planted("M19", "a reservation removed", "pdors", drop("decisions", VERB == "reserve")),
    Planted("M29", "a price said to change to what it is", "pdors", again("prices", ANY)),
    Planted("M31", "a transfer without its decision", "okita", drop("decisions", VERB == "transfer")),
    Planted("M1", "a job's value", "aonline", first("jobs", ANY, value=1.0)),
    Planted("M1", "no verb", "aonline", first("decisions", ANY, verb=None)),
    Planted("M1", "a lane of -1 instead of none", "aonline", first("runs", pl.col("lane").is_null(), lane=-1)),
    Planted("M1", "work that is no number", "srtf", first("runs", ANY, work=float("nan"))),
    Planted("M1", "neither preempted nor not", "srtf", first("runs", ANY, preempted=None)),
]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda p: f"{p.rule} {p.what}")
def test_what_once_got_past_the_verifier_is_found(planted: Planted) -> None:
    record = done(planted.policy)
    assert record.verify() == []
    assert planted.rule in rules(replace(record, schedule=planted.change(record.schedule)))


def test_uploads_cannot_go_with_dispatches_that_say_redispatch() -> None:
    """With every dispatch relabelled and no uploads 'uploaded_mb' would be 0."""
    record = done("aonline")
    relabelled = record.schedule.decisions.with_columns(
        verb=VERB.replace("dispatch", "redispatch").cast(record.schedule.decisions.schema["verb"])
    )
    forged = replace(record.schedule, decisions=relabelled, uploads=record.schedule.uploads[:0])
    assert {"M6", "M16"} <= rules(replace(record, schedule=forged))


def test_a_ps_in_the_cloud_while_the_edge_has_one_is_found() -> None:
    """A_ps's second pass: the edge first; a record without that promise may do as it likes."""
    record = done("aonline")
    to_cloud = first("ps", pl.col("slot").is_not_null(), server="cloud", slot=None)(record.schedule)
    assert "M35" in rules(replace(record, schedule=to_cloud))
    stranger = {**record.meta, "policy": "a-stranger", "promises": {}}
    assert "M35" not in rules(replace(record, schedule=to_cloud, meta=stranger))


@pytest.mark.parametrize(
    "said",
    [{"tolerance": 10**15}, {"late_s": {str(i): 1e9 for i in range(25)}}, {"tolerance": 10**15, "late_s": {"1": 1e9}}],
)
def test_a_simulation_has_no_tolerance_whatever_its_run_json_says(said: dict[str, Any]) -> None:
    record = done("aonline")
    wrong = every("runs", start=0, compute_from=0)(record.schedule)
    plain = replace(record, schedule=wrong).verify(limit=100)
    assert plain != []
    assert replace(record, schedule=wrong, meta={**record.meta, **said}).verify(limit=100) == plain


@pytest.mark.parametrize(
    "said",
    [
        {"seed": 99},
        {"scenario": "another"},
        {"lanes": {"preemptive": True, "rank": "custom"}},
        {"promises": {}},
        {"params": {"q_mode": "eq5"}},
        {"policy": "aonline:q_mode=eq5"},
    ],
)
def test_a_run_json_that_is_not_the_run_s_is_found(said: dict[str, Any]) -> None:
    record = done("aonline")
    assert "M37" in rules(replace(record, meta={**record.meta, **said}))


def test_replay_names_the_first_decision_that_differs() -> None:
    record = done("srtf")
    assert difference(record) is None
    other = difference(replace(record, meta=done("tiresias").meta))
    assert other is not None
    assert other.startswith("decision ")
    moved = first("ps", ANY, slot=pl.col("slot") + 1)(record.schedule)
    assert (difference(replace(record, schedule=moved)) or "").startswith("row of ps 0 is ")


def test_a_live_run_is_not_replayed_by_a_simulation() -> None:
    record = done("srtf")
    with pytest.raises(InputError, match="this run was live"):
        difference(replace(record, meta={**record.meta, "world": "ray"}))


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return done("aonline").save(tmp_path / "kept")


def doctored(folder: Path, table: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    path = folder / "tables" / f"{table}.parquet"
    change(pl.read_parquet(path)).write_parquet(path)


def test_verify_replay_holds_for_a_true_run_and_finds_other_words_of_a_reason(
    skedge: Callable[..., Said], kept: Path
) -> None:
    assert skedge("verify", kept, "--replay").code == 0
    doctored(kept, "decisions", lambda d: d.with_columns(reason=pl.lit("because").cast(pl.Categorical)))
    assert skedge("verify", kept).code == 0
    said = skedge("verify", kept, "--replay")
    assert said.code == 1
    assert "M37" in said.err
    assert "decision 0 is" in said.words


@pytest.mark.parametrize("column", ["verb", "job", "time", "server", "chunk", "rank"])
def test_a_null_in_the_decisions_is_a_violation_and_no_traceback(
    skedge: Callable[..., Said], kept: Path, column: str
) -> None:
    doctored(kept, "decisions", lambda d: d.with_columns(pl.lit(None, d.schema[column]).alias(column)))
    said = skedge("verify", kept)
    assert said.code == 1
    assert "M1" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("name", Schedule.names())
def test_a_table_that_is_damaged_is_one_sentence(skedge: Callable[..., Said], kept: Path, name: str) -> None:
    path = kept / "tables" / f"{name}.parquet"
    whole = path.read_bytes()
    column = pl.read_parquet(path).columns[-1]
    for damage in (
        path.unlink,
        lambda: path.write_bytes(whole[: len(whole) // 2]),
        lambda: pl.DataFrame({"a": [1]}).write_parquet(path),
        lambda: _write(whole, path).drop(column).write_parquet(path),
        lambda: _write(whole, path).with_columns(pl.lit([1]).alias(column)).write_parquet(path),
    ):
        damage()
        said = skedge("verify", kept)
        assert said.code == 1
        assert said.err.count("\n") <= 2, said.err
        assert f"{name}.parquet" in said.words
        path.write_bytes(whole)


def _write(whole: bytes, path: Path) -> pl.DataFrame:
    path.write_bytes(whole)
    return pl.read_parquet(path)


@pytest.mark.parametrize(
    "said",
    [
        {"tolerance": "much", "world": "ray"},
        {"tolerance": -1, "world": "ray"},
        {"late_s": [1], "world": "ray"},
        {"late_s": {"1": "late"}, "world": "ray"},
        {"recovery_s": float("inf"), "world": "ray"},
        {"slot_overrun_s": -1.0, "world": "ray"},
        {"lanes": {"preemptive": "perhaps"}},
        {"promises": [1]},
        {"world": 3},
    ],
)
def test_a_run_json_that_is_damaged_is_one_sentence(
    skedge: Callable[..., Said], kept: Path, said: dict[str, Any]
) -> None:
    path = kept / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **said}))
    told = skedge("verify", kept)
    assert told.code == 1
    assert "run.json: the run folder is damaged" in told.words


# -- corruptions at random -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["aonline", "srtf", "preemptive", "batchsche", "pdors", "okita"])
def test_of_random_corruptions_only_equivalent_ones_survive(policy: str) -> None:
    """A sample; ``benchmarks/corruptions.py`` has the rest."""
    seen = fuzz(done(policy), np.random.default_rng(11), 30)
    assert seen.open == {}
    assert sum(seen.found.values()) >= 20
    assert set(seen.found) <= set(RULES)
