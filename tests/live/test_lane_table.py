"""The table of lanes: the best rank that has arrived holds its lane; a displaced chunk leaves when it says so."""

from __future__ import annotations

import numpy as np
import pytest

from skedge.core.events import CLOUD, Dispatch
from skedge.live.world.lane_table import LaneTable
from skedge.live.world.runs_log import RunsLog


def order(job: int, lanes: list[int], rank: int) -> Dispatch:
    zeros = np.zeros(len(lanes))
    return Dispatch(job, np.array(lanes), rank, zeros, zeros.astype(np.int64))


def test_a_better_chunk_displaces_and_the_lane_is_free_when_the_other_has_left() -> None:
    table = LaneTable(preemptive=True)
    (slow,) = table.dispatch(order(0, [0], rank=9), [0], None)
    assert list(table.changes()) == [], "nothing has arrived"
    table.arrive(0, 0, range(9))
    assert list(table.changes()) == [(None, slow)]
    table.hold(slow)
    (quick,) = table.dispatch(order(1, [0], rank=1), [0], None)
    table.arrive(1, 0, range(9))
    assert list(table.changes()) == [(slow, quick)]
    slow.leaving = True
    assert list(table.changes()) == [], "it has been asked already"
    table.leave(slow, trained=False)
    assert list(table.changes()) == [(None, quick)]
    table.hold(quick)
    table.leave(quick, trained=True)
    assert list(table.changes()) == [(None, slow)], "the displaced chunk goes on where it was"


def test_lanes_that_do_not_preempt_wait() -> None:
    table = LaneTable(preemptive=False)
    (slow,) = table.dispatch(order(0, [0], rank=9), [0], None)
    table.arrive(0, 0, range(9))
    table.hold(slow)
    table.dispatch(order(1, [0], rank=1), [0], None)
    table.arrive(1, 0, range(9))
    assert list(table.changes()) == []


def test_equal_ranks_go_by_order_of_dispatch() -> None:
    table = LaneTable(preemptive=True)
    (first,) = table.dispatch(order(0, [0], rank=5), [0], None)
    (second,) = table.dispatch(order(1, [0], rank=5), [0], None)
    for job in (1, 0):
        table.arrive(job, 0, range(9))
    for chunk in (first, second):
        assert list(table.changes()) == [(None, chunk)]
        table.hold(chunk)
        table.leave(chunk, trained=True)


def test_chunks_of_a_job_that_came_to_a_lane_together_hold_it_together() -> None:
    """A turn is no change of the lane; a team that is ahead waits, and the next one has the lane."""
    table = LaneTable(preemptive=True)
    first, second, other = table.dispatch(order(0, [0, 0, 1], rank=5), [0, 0], None)
    (worse,) = table.dispatch(order(1, [0], rank=9), [0, 0], None)
    for job in (0, 1):
        table.arrive(job, 0, range(9))
    assert [chunk.team for chunk in (first, second, other)] == [0, 0, 2]
    assert list(table.changes()) == [(None, first), (None, other)]
    table.hold(second)
    table.hold(other)
    assert list(table.changes()) == []
    table.leave(second, trained=False)
    table.ahead.add((0, 0))
    assert list(table.changes()) == [(None, worse)]
    table.hold(worse)
    table.ahead.clear()
    assert list(table.changes()) == [(worse, first)]
    table.leave(worse, trained=True)
    table.hold(first)
    table.leave(first, trained=True)
    assert second.done
    assert not other.done
    assert list(table.changes()) == []


def test_on_lanes_that_do_not_preempt_chunks_run_one_after_another() -> None:
    table = LaneTable(preemptive=False)
    first, second = table.dispatch(order(0, [0, 0], rank=5), [0], None)
    table.arrive(0, 0, range(9))
    table.hold(first)
    table.leave(first, trained=True)
    assert not second.done
    assert list(table.changes()) == [(None, second)]


def test_chunks_in_the_cloud_hold_no_lane_and_a_dropped_job_frees_its_lanes() -> None:
    table = LaneTable(preemptive=True)
    edge, cloud = table.dispatch(order(0, [0, CLOUD], rank=5), [0], 3)
    assert (edge.server, cloud.server) == (0, 3)
    assert table.arrive(0, 3, range(9)) == [cloud]
    table.hold(cloud)
    assert table.occupant == {}
    table.arrive(0, 0, range(9))
    table.hold(edge)
    assert table.occupant == {0: edge}
    table.drop(0)
    assert table.occupant == {}
    assert list(table.changes()) == []


@pytest.mark.parametrize("finished", [False, True])
def test_a_gang_that_is_suspended_as_its_last_minibatch_ends_was_not_preempted(finished: bool) -> None:
    log = RunsLog(["e0", "e1"])
    log.gang(0, ((0, 1), (1, 1)), 0, 0, 1000, zeta=False, preempted=True)
    log.settle(0, 6)
    log.gang(0, ((0, 2),), 2000, 2000, 3000, zeta=False, preempted=True)
    log.settle(0, 10, finished=finished)
    assert log.table()["preempted"].to_list() == [True, True, not finished]


def test_minibatches_of_reports_that_come_at_one_time_are_counted() -> None:
    """Those that a controller has missed can have the time at which it takes over."""
    log = RunsLog(["e0"])
    log.begin(0, 0, 0, 0, 1000, {0: 0}, zeta=False)
    log.end(0, 0, 5000, [50, 0], 100, preempted=False)
    log.begin(0, 0, 0, 0, 5000, {0: 50}, zeta=False)
    log.end(0, 0, 5000, [100, 0], 100, preempted=False)
    log.begin(0, 1, 0, 0, 5000, {1: 0}, zeta=False)
    log.end(0, 1, 5000, [100, 100], 100, preempted=False)
    assert log.table().select("chunk", "start", "end", "work").rows() == [(0, 1000, 5000, 100), (1, 5000, 5001, 100)]


def test_a_chunk_whose_share_of_a_run_is_no_time_has_its_minibatches() -> None:
    log = RunsLog(["e0"])
    log.begin(0, 0, 0, 0, 1000, {0: 0, 1: 0}, zeta=False)
    log.end(0, 0, 1050, [1, 100], 200, preempted=False)
    assert log.table()["work"].to_list() == [1, 100]


def test_minibatches_that_a_lost_coach_has_not_reported_belong_to_the_run_in_which_they_were_trained() -> None:
    """The next coordinator reports the end of the run with the progress of the report before, which is older."""
    log = RunsLog(["e0", "e1"])
    log.begin(0, 0, 0, 0, 1000, {0: 0, 1: 0}, zeta=False)
    log.end(0, 0, 5000, [0, 0], 72, preempted=True)
    log.begin(0, 1, 1, 1, 6000, {1: 22}, zeta=False)
    log.end(0, 1, 9000, [22, 72], 72, preempted=False)
    log.begin(0, 0, 1, 1, 9000, {0: 22}, zeta=False)
    log.end(0, 0, 12000, [72, 72], 72, preempted=False)
    found = log.table().select("chunk", "server", "work").rows()
    assert found == [(0, "e0", 22), (1, "e1", 72), (0, "e1", 50)]
