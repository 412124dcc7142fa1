"""What once got past the verifier, each with the rule that finds it now; and a sample of random corruptions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from builders.corruptions import corrupt, fuzz
from builders.verify_strict import (
    ANY,
    PLANTED,
    VERB,
    Change,
    Planted,
    first,
)
from conftest import Said
from skedge.analysis.verify.verify import RULES
from skedge.core.errors import InputError
from skedge.core.model.cluster import Physics
from skedge.core.record.schedule import Schedule
from skedge.recorded_run import Run
from skedge.simulate import run
from skedge.testing import resource_scenarios, site_scenario, small_scenario
from skedge.testing.rerun import difference

SLOTTED = Physics(slotted=True, slot=10_000_000)


@cache
def done(policy: str) -> Run:
    if policy in ("pdors", "dorm"):
        return run(resource_scenarios()[0], policy)
    if policy == "okita":
        return run(site_scenario(1, jobs=40), policy)
    return run(small_scenario(2, physics=SLOTTED) if policy == "batchsche" else small_scenario(0), policy)


def rules(record: Run) -> set[str]:
    return {violation.rule for violation in record.verify()}


def every(table: str, **values: Any) -> Change:
    def change(s: Schedule) -> Schedule:
        frame: pl.DataFrame = getattr(s, table)
        return replace(
            s, **{table: frame.with_columns(pl.lit(v).cast(frame.schema[k]).alias(k) for k, v in values.items())}
        )

    return change


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
    assert sum(seen.detected.values()) >= 20
    assert set(seen.detected) <= set(RULES)


@pytest.mark.parametrize(
    ("policy", "found"), [("aonline", {"M21", "M22"}), ("preemptive", {"M7", "M8"}), ("srtf", {"M8"})]
)
def test_in_parts_and_side_by_side_the_same_rules_are_broken(
    policy: str, found: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Of runs at random that are corrupt; a run on another lane than its chunk's belongs to no queue of its range."""
    rng, whole, broken = np.random.default_rng(5), done(policy), set[str]()
    for _ in range(30):
        made = corrupt(whole, rng, 2)
        if made is None:
            continue
        changed = replace(whole, schedule=made.schedule)
        one_by_one = set(changed.verify(limit=1000))
        with monkeypatch.context() as small:
            for name in (
                "columns.ROWS",
                "verify.elastic.ROWS",
                "verify.parts.RUNS_PER_RANGE",
                "verify.verify.RUNS_PER_RANGE",
            ):
                small.setattr(f"skedge.analysis.{name}", 10)
            assert set(changed.verify(limit=1000)) == one_by_one, made.text
        broken |= {violation.rule for violation in one_by_one}
    assert broken >= found
