from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from builders.small_records import DISPATCH, GANG, S, again, both, dispatched, drop, edit, gangs, scenario
from skedge.analysis.metrics.metrics import metrics, utilisation
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.simulate import run

SLOT_OF_5_S = Physics(slot=5 * S, slotted=True)


def test_metrics_of_dispatched_chunks() -> None:
    """JCT 19, 7, 8; solo times 24/2, 6/1 and 18/2 s; edge workers are held 3 + 12 + 6 + 9 = 30 s of 4 * 19 s."""
    got = metrics(scenario(), dispatched(), DISPATCH)
    assert got == {
        "jobs": 4,
        "finished": 3,
        "rejected": 1,
        "failed": 0,
        "jobs_in_cloud": 1,
        "jct_total_s": 34.0,
        "jct_mean_s": pytest.approx(34 / 3),
        "jct_p50_s": 8.0,
        "jct_p90_s": pytest.approx(16.8),  # 0.8 of the way from 8 to 19
        "jct_p99_s": pytest.approx(18.78),  # 0.98 of it
        "slowdown_mean": pytest.approx((19 / 12 + 7 / 6 + 8 / 9) / 3),
        "slowdown_p50": pytest.approx(7 / 6),
        "slowdown_p90": pytest.approx(7 / 6 + 0.8 * (19 / 12 - 7 / 6)),
        "slowdown_p99": pytest.approx(7 / 6 + 0.98 * (19 / 12 - 7 / 6)),
        "makespan_s": 19.0,
        "finished_after_horizon": None,
        "queueing_mean_s": 0.0,  # each starts when its data are there
        "upload_time_mean_s": pytest.approx((1 + 1 + 5) / 3),
        "upload_jct_share": pytest.approx((1 + 1 + 5) / 34),
        "preemptions": 1,
        "postponed_chunks": 1,
        "migrations": 0,
        "utilisation_mean": pytest.approx(30 / 76),
        "lane_waste_share": 0.0,
        "communication_time_s": 20.0,  # 2 s for each of the 8 + 2 mini-batches on the edge
        "upload_chunk_s": 13.0,  # a 1 + 1, b 1, c 5 + 5
        "uploaded_mb": 50.0,
        "cloud_share": pytest.approx(6 / 16),
        "sum_alpha_s": 31.0,  # 6.5 + 6.5 + 10 + 4 + 4
        "sum_beta_s": pytest.approx(31.0),  # (19 + 13)/2 + 7 + (8 + 8)/2
    }


def test_metrics_of_gangs() -> None:
    """a waits for 1 s, b for 1 s, c for 5 s with its workers held: that is upload, not queueing."""
    got = metrics(scenario(), gangs(), GANG)
    assert got["jct_total_s"] == 15 + 7 + 8
    assert got["preemptions"] == 1
    assert got["migrations"] == 0
    assert got["queueing_mean_s"] == 0.0
    assert got["upload_time_mean_s"] == pytest.approx((1 + 1 + 5) / 3)
    assert got["utilisation_mean"] == pytest.approx((2 * 7 + 7 + 2 * 6) / (4 * 15))
    assert got["sum_alpha_s"] is None
    assert got["sum_beta_s"] is None


def test_utilisation_up_to_the_horizon_counts_what_is_held_before_it() -> None:
    """Up to 10 s: a holds two workers for 7 s and again from 9, b one from 3 to 10; there are 4. None in the cloud."""
    with_horizon = replace(scenario(), physics=replace(scenario().physics, slot=5 * S, horizon=10 * S))
    got = metrics(with_horizon, gangs(), GANG)
    assert got["utilisation_to_horizon_share"] == pytest.approx((2 * 7 + 2 * 1 + 7) / (4 * 10))
    assert got["utilisation_mean"] == pytest.approx((2 * 7 + 7 + 2 * 6) / (4 * 15)), "over the makespan"
    assert "utilisation_to_horizon_share" not in metrics(scenario(), gangs(), GANG)


def test_a_gang_that_comes_back_elsewhere_has_migrated() -> None:
    elsewhere = both(edit("runs", 3, server="s1"), edit("decisions", 5, server="s1"))
    assert metrics(scenario(), elsewhere(gangs()), GANG)["migrations"] == 1


@pytest.mark.parametrize(("data", "migrations"), [("kept", 1), ("last_place", 2)])
def test_a_gang_that_comes_back_to_its_data_has_not_migrated(
    data: Literal["kept", "last_place"], migrations: int
) -> None:
    """a moves to s1 at 9 and back to s0 at 11, where its data still are, unless the last place alone counts."""
    away = both(edit("runs", 3, end=11, server="s1"), edit("decisions", 5, server="s1"))
    back = both(away, again("runs", 3, start=11, compute_from=11, end=13, server="s0"))
    back = both(back, again("decisions", 5, time=11, server="s0"))
    assert metrics(scenario(Physics(data=data)), back(gangs()), GANG)["migrations"] == migrations


def test_a_gang_that_moves_without_a_break_is_not_preempted() -> None:
    at_once = edit("runs", 3, start=7, compute_from=8, end=14, server="s1")
    at_once = both(at_once, edit("decisions", 5, time=7, server="s1"))
    got = metrics(scenario(), at_once(gangs()), GANG)
    assert (got["preemptions"], got["migrations"]) == (0, 1)


def test_the_share_of_uploads_counts_those_of_later_allocations() -> None:
    """a waits for data from 0 to 1, and from 9 to 10 on s1, where they are not; b for 1 s, c for 5 s; JCTs are 30 s."""
    elsewhere = both(edit("runs", 3, server="s1", compute_from=10), edit("decisions", 5, server="s1"))
    moved = both(elsewhere, again("uploads", 0, to_server="s1", start=9, end=10))
    first, later = (metrics(scenario(), record, GANG)["upload_jct_share"] for record in (gangs(), moved(gangs())))
    assert first == pytest.approx(7 / 30)
    assert later == pytest.approx(8 / 30)


def test_waiting_for_a_lane_is_queueing() -> None:
    """b reaches lane 0 at 4 and starts at 13: 9 s; the two others wait for nothing."""
    waits = both(edit("runs", 0, end=13), edit("runs", 2, start=13, compute_from=13, end=19), drop("runs", 5))
    assert metrics(scenario(), waits(dispatched()), DISPATCH)["queueing_mean_s"] == pytest.approx(9 / 3)


def test_waste_is_what_rounding_to_slots_adds() -> None:
    """In slots of 5 s, a's 12 s are 15, b's 6 are 10 and c's 3 are 5: 2*3 + 4 + 2*2 = 14 s to spare.

    The record holds workers for 3 + 12 + 6 + 9 + 2*3 = 36 s.
    """
    assert metrics(scenario(SLOT_OF_5_S), dispatched(), DISPATCH)["lane_waste_share"] == pytest.approx(14 / 36)


def test_waste_of_gangs_is_computing_time_beyond_their_work() -> None:
    """b computes 1 s longer than its 6 s; workers are held 2*7 + 8 + 2*8 + 2*6 = 50 s."""
    longer = both(edit("runs", 1, end=11), edit("jobs", 1, completion=11, jct=8))
    got = metrics(scenario(Physics(slot=S, slotted=True)), longer(gangs()), GANG)
    assert got["lane_waste_share"] == pytest.approx(1 / 50)


def test_nothing_finished_gives_none() -> None:
    empty = dispatched()
    empty = replace(empty, **{k: t.clear() for k, t in empty.tables().items() if k != "jobs"})
    for row in range(3):
        empty = edit("jobs", row, state="rejected", reason="no room", completion=None, jct=None)(empty)
    got = metrics(scenario(), empty, DISPATCH)
    assert (got["finished"], got["rejected"], got["jct_total_s"], got["jct_mean_s"]) == (0, 4, None, None)
    assert (got["cloud_share"], got["utilisation_mean"], got["makespan_s"], got["queueing_mean_s"]) == (None,) * 4


def test_utilisation_over_time() -> None:
    """At 0, 4.75, 9.5, 14.25 and 19 s; a, b, c arrive before 4.75 s; d at 10 s, and is rejected at once."""
    got = utilisation(scenario(), dispatched(), points=5)
    assert got["time_s"].to_list() == [0, 4.75, 9.5, 14.25, 19]
    assert got["busy_share"].to_list() == [0, 2 / 4, 2 / 4, 1 / 4, 0]
    assert got["running_jobs"].to_list() == [0, 2, 3, 1, 0]
    assert got["waiting_jobs"].to_list() == [1, 1, 0, 0, 0]
    assert got["submitted"].to_list() == [3, 0, 1, 0, 0]


def test_a_job_that_fails_is_in_the_system_until_then() -> None:
    """One worker: the first job fails after 4 s of its 10; the second waits from 1 s on and runs from 4 to 14 s."""
    cluster = Cluster([Server("n0", capacity={"worker:gpu": 1, "ps:cpu": 1})])
    jobs = [Job(name, at, 1, 1, 10, 1.0, max_run_time_s=most) for name, at, most in (("a", 0, 4.0), ("b", 1, None))]
    table, given = job_table(jobs)
    done = run(Scenario(cluster, Jobs(table, cluster, given)), "fifo")
    got = utilisation(done.scenario, done.schedule, points=8)
    assert got["time_s"].to_list() == [0, 2, 4, 6, 8, 10, 12, 14]
    assert got["running_jobs"].to_list() == [1, 1, 1, 1, 1, 1, 1, 0]
    assert got["waiting_jobs"].to_list() == [0, 1, 0, 0, 0, 0, 0, 0]


def test_a_job_with_a_part_of_its_work_in_the_cloud_counts_as_in_the_cloud() -> None:
    """Four chunks of 100 s: one on the only worker, three in the cloud, whose data take 50 s to come."""
    cluster = Cluster([Server("n0", capacity={"worker:gpu": 1, "ps:cpu": 1}), Server("cloud", "cloud")])
    job = Job("a", 0, epochs=1, chunks=4, minibatches=100, minibatch_s=1, upload_s={"n0": 0, "cloud": 50})
    table, given = job_table([job])
    got = run(Scenario(cluster, Jobs(table, cluster, given), Physics(slot=S)), "aonline").metrics
    assert (got["jobs_in_cloud"], got["cloud_share"]) == (1, 0.75)
