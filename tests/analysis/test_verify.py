from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from builders.paths import ROOT
from builders.small_records import (
    DISPATCH,
    GANG,
    LIVE,
    Change,
    S,
    add,
    again,
    both,
    dispatched,
    drop,
    edit,
    gangs,
    scenario,
)
from builders.verify_resources import PLANTED as ON_RESOURCES
from builders.verify_sites import PLANTED as AT_SITES
from builders.verify_strict import PLANTED as ONCE_PAST
from skedge.analysis.verify.verify import RULES, verify
from skedge.core.model.cluster import Physics
from skedge.core.record.schedule import Schedule


@dataclass(frozen=True)
class Planted:
    rule: str
    what: str
    job: str | None
    time: float | None
    change: Change
    record: Callable[[], Schedule] = dispatched
    physics: Physics = field(default_factory=Physics)
    storage_mb: float | None = 30.0


SECOND_SLOTS = Physics(slot=S, slotted=True)
NO_PREEMPTION_AT_4 = both(  # lane 0 finishes a's chunk from 1 to 13 and only then runs b
    edit("runs", 0, end=13, preempted=False), edit("runs", 2, start=13, compute_from=13, end=19), drop("runs", 5)
)

AS_A_GANG = again("runs", 1, chunk=None, lane=None, start=13, compute_from=13, end=14)
OTHER_PS = both(edit("ps", 0, end=15), again("ps", 0, start=15, end=19, server="s1"))
B_WAITS_AT_10 = both(NO_PREEMPTION_AT_4, edit("runs", 0, start=10, compute_from=10, end=22))
ON_TWO_SERVERS = both(edit("runs", 0, workers=1), again("runs", 0, server="s1", end=8))
OUTAGE = add("outages", server="s0", start=9, end=12, reason="lost")
OUTAGE_OF_S1 = add("outages", server="s1", start=2, end=None, reason="cordoned")
LOST_WHILE_A_RESTS = add("outages", server="s0", start=7.5, end=8.5, reason="lost")
BACK_ON_S1 = both(edit("runs", 3, server="s1"), edit("decisions", 5, server="s1"))
CHECKPOINTS = Physics(checkpoint_overhead=S)


def price(*, start: float = 3.0, **values: Any) -> Change:
    """A price that the decision on b changed; `start` in seconds."""
    fine = {"made_at": 3.0, "job": 1, "server": "s1", "resource": "worker:gpu", "to": 9.0, "price": 0.5}
    return add("prices", **{**fine, "from": start, **values})


PLANTED = [
    Planted("M1", "a lane that does not exist", "a", 1, edit("runs", 1, lane=7)),
    Planted("M1", "a chunk that the job does not have", "b", 3, edit("decisions", 2, chunk=1)),
    Planted("M1", "a lane of another server", "a", 1, edit("runs", 1, lane=2)),
    Planted("M1", "a PS slot that does not exist", "a", 1, edit("ps", 0, slot=1)),
    Planted("M1", "a run that ends when it starts", "c", 9, edit("runs", 3, end=9)),
    Planted("M1", "another id than announced", "b", 3, edit("jobs", 1, id="x")),
    Planted("M1", "an upload to nowhere", "c", 4, edit("uploads", 2, to_server=None)),
    Planted("M1", "a plan made after it begins", "b", 3, edit("plans", 0, made_at=4), gangs),
    Planted("M1", "a plan of nothing", "b", 3, edit("plans", 0, workers=0, ps=0), gangs),
    Planted("M1", "a price of a type that is not there", "b", 3, price(resource="worker:fpga"), gangs),
    Planted("M1", "a price below nothing", "b", 3, price(price=-1.0), gangs),
    Planted("M1", "a price of a time before it was made", "b", 3, price(made_at=3, start=2), gangs),
    Planted("M2", "dispatched before it arrives", "b", 2, edit("decisions", 2, time=2)),
    Planted("M2", "decided after it has ended", "b", 11, edit("decisions", 3, time=11, job=1), gangs),
    Planted("M2", "a gang that nobody decided", "b", 3, drop("decisions", 2), gangs),
    Planted("M2", "a gang decided for another server", "a", 9, edit("decisions", 5, server="s1"), gangs),
    Planted("M3", "dispatched to a tpu", "b", 3, edit("decisions", 2, lane=3, server="s1")),
    Planted("M3", "runs on a tpu", "b", 4, edit("runs", 2, lane=3, server="s1")),
    Planted("M4", "two chunks on lane 0 at 3", "b", 3, edit("runs", 2, start=3, compute_from=3, end=9)),
    Planted("M4", "three gpus of s0", "a", 9, edit("runs", 3, workers=3), gangs),
    Planted("M4", "b takes a gpu of s0 while a has both", "b", 3, edit("runs", 1, server="s0"), gangs),
    Planted("M5", "a chunk on two lanes", "a", 3, edit("runs", 5, lane=2, server="s1", start=3, compute_from=3)),
    Planted("M5", "two workers for one chunk", "b", 3, edit("runs", 1, workers=2), gangs),
    Planted("M6", "runs elsewhere than dispatched", "a", 10, edit("runs", 5, lane=2, server="s1")),
    Planted("M6", "dispatched twice", "b", 3.5, again("decisions", 2, time=3.5)),
    Planted("M6", "a chunk that is not dispatched", "a", 0, drop("decisions", 1)),
    Planted("M6", "a dispatched job as a gang", "a", 13, AS_A_GANG),
    Planted("M7", "runs while it is uploaded", "a", 0, edit("runs", 1, start=0, compute_from=0, end=12)),
    Planted("M7", "a gang computes while it is uploaded", "b", 3, edit("runs", 1, compute_from=3), gangs),
    Planted("M7", "a gang dawdles", "b", 5, edit("runs", 1, compute_from=5), gangs),
    Planted("M7", "a gang moves without an upload", "a", 9, BACK_ON_S1, gangs),
    Planted("M7", "a gang resumes on a server that was lost without an upload", "a", 9, LOST_WHILE_A_RESTS, gangs),
    Planted("M7", "resumed without the overhead", "a", 9, edit("runs", 3, end=15), gangs, CHECKPOINTS),
    Planted("M8", "a chunk ends a second early", "a", 18, edit("runs", 5, end=18)),
    Planted("M8", "no overhead for the preemption", "a", 19, edit("runs", 5, end=19), physics=CHECKPOINTS),
    Planted("M8", "a gang works too long", "b", 11, edit("runs", 1, end=11), gangs),
    Planted("M8", "a gang works too little", "b", 9, edit("runs", 1, end=9), gangs),
    Planted("M8", "a mini-batch is missing", "b", 10, edit("runs", 2, work=1.0)),
    Planted("M9", "completion before the last run ends", "b", 10, edit("jobs", 1, completion=9)),
    Planted("M9", "a JCT of its own", "c", 8, edit("jobs", 2, jct=9)),
    Planted("M9", "first start after the first run", "a", 1, edit("jobs", 0, first_start=2)),
    Planted("M10", "free communication on the edge", "b", 4, edit("runs", 2, colocated=True)),
    Planted("M10", "a gang in the cloud, its PS on the edge", "c", 4, edit("ps", 2, server="s1", slot=1), gangs),
    Planted("M10", "one server is enough", "b", 3, lambda s: s, gangs, Physics(colocation="one_server")),
    Planted("M11", "a last run that is preempted", "b", 10, edit("runs", 2, preempted=True)),
    Planted("M11", "a displaced run that is not", "a", 4, edit("runs", 0, preempted=False)),
    Planted("M11", "a suspended gang that is not", "a", 7, edit("runs", 0, preempted=False), gangs),
    Planted("M12", "no PS", "b", 4, drop("ps", 1)),
    Planted("M12", "no PS for the last second", "a", 18, edit("ps", 0, end=18)),
    Planted("M12", "a PS too long", "b", 10, edit("ps", 1, end=12)),
    Planted("M12", "two PSs", "c", 10, again("ps", 2, start=10, end=11)),
    Planted("M13", "two jobs on one slot", "b", 4, edit("ps", 1, server="s0")),
    Planted("M13", "a PS of another type", "b", 4, edit("ps", 1, slot=1)),
    Planted("M14", "changes its PS", "a", 15, OTHER_PS),
    Planted("M15", "wholly in the cloud, PS on the edge", "c", 9, edit("ps", 2, server="s1", slot=1)),
    Planted("M16", "an upload that is too fast", "c", 4, edit("uploads", 2, end=8)),
    Planted("M16", "bytes that are missing", "a", 0, edit("uploads", 0, mb=10.0)),
    Planted("M16", "a chunk that is not uploaded", "a", 0, edit("uploads", 0, chunks=1, mb=10.0)),
    Planted("M16", "no upload", "b", 3, drop("uploads", 1)),
    Planted("M16", "an upload for nothing", "b", 3, again("uploads", 1, to_server="s1")),
    Planted("M16", "an upload before arrival", "b", 2, edit("uploads", 1, start=2, end=3)),
    Planted("M17", "30 MB in 25", "b", 3, lambda s: s, storage_mb=25.0),
    Planted("M18", "two answers", "b", 3, again("jobs", 1)),
    Planted("M18", "no answer", "d", 10, drop("jobs", 3)),
    Planted("M18", "no reason", "d", 10, edit("jobs", 3, reason=None)),
    Planted("M18", "no state", "d", 10, edit("jobs", 3, state=None)),
    Planted("M18", "rejected and runs", "b", 3, edit("jobs", 1, state="rejected", reason="no room")),
    Planted("M18", "finished and never ran", "d", 10, edit("jobs", 3, state="finished")),
    Planted("M19", "runs past the end of its plan", "b", 3, edit("plans", 0, to=9), gangs),
    Planted("M19", "more workers than planned", "b", 3, edit("runs", 1, workers=2), gangs),
    Planted("M20", "a rank that is not D p", "b", 3, edit("decisions", 2, rank=7 * S)),
    Planted("M21", "a worse chunk runs on", "a", 4, NO_PREEMPTION_AT_4),
    Planted("M21", "the worse of two starts", "a", 10, B_WAITS_AT_10),
    Planted("M22", "lane 1 idles from 1 to 2", "a", 1, edit("runs", 1, start=2, compute_from=2, end=14)),
    Planted("M22", "a cloud chunk starts late", "c", 10, edit("runs", 3, start=10, compute_from=10, end=13)),
    Planted("M23", "half a slot", "b", 3.5, edit("decisions", 2, time=3.5), physics=SECOND_SLOTS),
    Planted("M23", "a PS from half a slot on", "a", 1.5, edit("ps", 0, start=1.5), physics=SECOND_SLOTS),
    Planted("M23", "a price from half a slot on", "b", 3.5, price(start=3.5), gangs, SECOND_SLOTS),
    Planted("M25", "a run on a server out of service", "a", 10, OUTAGE),
    Planted("M25", "a gang on a server out of service", "b", 3, OUTAGE_OF_S1, gangs),
    Planted("M24", "servers that part", "a", 0, ON_TWO_SERVERS, gangs),
    Planted("M24", "two allocations at once", "a", 6, edit("runs", 3, start=6, compute_from=6, end=12), gangs),
]  # fmt: skip


def meta_of(record: Callable[[], Schedule]) -> dict[str, Any]:
    return DISPATCH if record is dispatched else GANG


@pytest.mark.parametrize("record", [dispatched, gangs])
@pytest.mark.parametrize("physics", [Physics(), SECOND_SLOTS])
def test_a_valid_record_has_no_violations(record: Callable[[], Schedule], physics: Physics) -> None:
    assert verify(scenario(physics), record(), meta_of(record)) == []


def test_a_price_is_no_violation() -> None:
    assert verify(scenario(), price()(gangs()), GANG) == []


@pytest.mark.parametrize("planted", PLANTED, ids=lambda p: f"{p.rule} {p.what}")
def test_a_planted_violation_is_reported_with_its_rule_job_and_time(planted: Planted) -> None:
    where = scenario(planted.physics, planted.storage_mb)
    found = verify(where, planted.change(planted.record()), meta_of(planted.record))
    time = None if planted.time is None else round(planted.time * S)
    assert (planted.rule, planted.job, time) in [(v.rule, v.job, v.time) for v in found], found


def test_every_rule_has_a_planted_violation() -> None:
    elsewhere = {
        "M35",
        "M37",
        "M38",
        "M39",
        "M40",
        "M41",
        "M42",
        "M43",
        "M48",
    }  # in test_verify_strict, test_verify_live, test_lag, test_sharing, test_time_limits and test_verify_outages
    cases: tuple[Any, ...] = (*PLANTED, *ON_RESOURCES, *AT_SITES, *ONCE_PAST)
    planted = {one.rule for one in cases}
    assert planted | elsewhere == set(RULES)


def test_violations_carry_the_papers_constraint() -> None:
    (found,) = [
        v
        for v in verify(scenario(), edit("runs", 5, end=18, work=8 / 3)(dispatched()), DISPATCH)
        if "trained for" in v.message
    ]
    assert found.constraint == "(2b), (4a)"
    assert "11000000 µs" in found.message  # 3 s + 8 s
    assert "12000000 µs" in found.message


def test_a_broken_plan_frees_its_job() -> None:
    late = both(edit("plans", 0, to=9), edit("plans", 0, broken_at=9))
    assert verify(scenario(), late(gangs()), GANG) == []


def test_lanes_that_do_not_preempt_are_held_to_that() -> None:
    rules = {v.rule for v in verify(scenario(), dispatched(), {"lanes": {"preemptive": False, "rank": "haprf"}})}
    assert rules == {"M11"}


def test_without_preemption_the_chunk_in_service_may_go_on() -> None:
    waits = both(
        NO_PREEMPTION_AT_4,
        edit("runs", 0, work=4.0),
        edit("ps", 0, end=13),
        edit("ps", 1, start=13, end=19),
        edit("jobs", 0, completion=13, jct=13),
        edit("jobs", 1, first_start=13, completion=19, jct=16),
    )
    lanes = {"lanes": {"preemptive": False, "rank": "haprf"}}
    assert verify(scenario(), waits(dispatched()), lanes) == []
    assert {v.rule for v in verify(scenario(), waits(dispatched()), DISPATCH)} == {"M21"}


def test_ranks_are_free_where_lanes_are_not_haprf() -> None:
    other = edit("decisions", 2, rank=7 * S)
    assert verify(scenario(), other(dispatched()), {"lanes": {"preemptive": True, "rank": "custom"}}) == []


def test_equal_ranks_run_in_order_of_dispatch() -> None:
    """With b's rank as large as a's the chunk that was dispatched earlier keeps the lane."""
    same = edit("decisions", 2, rank=24 * S)
    found = verify(scenario(), same(dispatched()), {"lanes": {"preemptive": True, "rank": "custom"}})
    assert [(v.rule, v.job, v.time) for v in found] == [("M11", "a", 4 * S), ("M21", "b", 4 * S)]


def test_a_live_record_may_be_off_by_the_tolerance() -> None:
    late = both(edit("runs", 1, end=13.2), edit("ps", 1, start=4.1))
    assert {v.rule for v in verify(scenario(), late(dispatched()), DISPATCH)} == {"M8", "M12"}
    assert verify(scenario(), late(dispatched()), DISPATCH, tolerance=S // 4) == []


def test_at_most_limit_violations_of_a_rule_are_reported() -> None:
    wrong = both(*(edit("runs", i, colocated=i < 3) for i in range(6)))
    assert len([v for v in verify(scenario(), wrong(dispatched()), DISPATCH) if v.rule == "M10"]) == 5
    assert len([v for v in verify(scenario(), wrong(dispatched()), DISPATCH, limit=2) if v.rule == "M10"]) == 2


def test_the_model_page_states_every_rule() -> None:
    page = (ROOT / "docs" / "model.md").read_text()
    assert [rule for rule in RULES if f"**{rule}**" not in page] == []
    wanted = [
        f"({n}{letter})" for n, letters in ((2, "abcdefghijk"), (4, "abcdefgh"), (7, "abcde")) for letter in letters
    ]
    table = page.split("## 3.")[1].split("## 4.")[0]
    assert [constraint for constraint in wanted if f"| {constraint} |" not in table] == []


def test_what_an_outage_takes_breaks_no_rule() -> None:
    """No PS while a server is out of service; and a lane that does not preempt gives up a chunk with its server."""
    no_ps = both(drop("ps", 1), add("outages", server="s1", start=4, end=10, reason="lost"))
    assert "M12" not in {v.rule for v in verify(scenario(), no_ps(dispatched()), DISPATCH)}
    fifo = {"lanes": {"preemptive": False, "rank": "haprf"}}
    broken = {(v.rule, v.job) for v in verify(scenario(), dispatched(), fifo)}
    assert ("M11", "a") in broken
    lost = add("outages", server="s0", start=4, end=9, reason="lost")
    assert ("M11", "a") not in {(v.rule, v.job) for v in verify(scenario(), lost(dispatched()), fifo)}


def test_an_upload_that_a_live_run_says_was_late_holds_up_its_lane() -> None:
    """A chunk of a reaches lane 1 two seconds after it was announced."""
    late = edit("runs", 1, start=3, compute_from=3, end=15)(dispatched())
    assert "M22" in {v.rule for v in verify(scenario(), late, DISPATCH)}
    assert verify(scenario(), late, {**LIVE, "late_s": {"a": 2.0}}) == []


def test_data_that_come_after_their_job_failed_wait_for_no_lane() -> None:
    """d, of the best rank, is dispatched to a busy lane at 5, its data come at 6; it fails before that, or after."""

    def failing(time: float) -> Change:
        return both(
            drop("decisions", 5),
            add("decisions", time=5, job=3, verb="dispatch", chunk=0, lane=1, server="s0", rank=1, postponed=0),
            add("decisions", time=time, job=3, verb="fail", reason="its code raises"),
        )

    early, late = (verify(scenario(), failing(time)(dispatched()), GANG) for time in (5.5, 8))
    assert ("M21", "a") not in {(v.rule, v.job) for v in early}
    assert ("M21", "a") in {(v.rule, v.job) for v in late}


def test_a_chunk_that_was_trained_before_its_job_failed_waits_no_more() -> None:
    """d, of worse rank, has lane 1 from 13 on, when a's chunk there is trained; a is cancelled at 16."""
    cancelled = both(
        drop("decisions", 5),
        add("decisions", time=12, job=3, verb="dispatch", chunk=0, lane=1, server="s0", rank=99 * S, postponed=0),
        add("decisions", time=16, job=0, verb="fail", reason="cancelled"),
        add(
            "runs",
            job=3,
            chunk=0,
            server="s0",
            lane=1,
            workers=1,
            start=13,
            compute_from=13,
            end=16,
            work=1.0,
            colocated=False,
            preempted=False,
        ),
        edit("runs", 5, end=16, work=2.0),
    )
    assert "M21" not in {v.rule for v in verify(scenario(), cancelled(dispatched()), GANG)}
    untrained = both(cancelled, edit("runs", 1, work=3.0))
    assert "M21" in {v.rule for v in verify(scenario(), untrained(dispatched()), GANG)}
