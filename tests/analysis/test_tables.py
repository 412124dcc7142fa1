"""Tables as arrays, and parts of them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from skedge.analysis.columns import Table
from skedge.scenario.file import scenario_of
from skedge.sim.runs import RunLog
from skedge.simulate import run

FRAME = pl.DataFrame({"job": [3, None, 5, 6], "value": [0.5, None, 1.5, None], "server": ["e1", "e0", None, "e1"]})


def table() -> Table:
    return Table(FRAME, scenario_of("demo").cluster)


def test_null_is_minus_one_and_a_float_that_is_not_there_no_number() -> None:
    assert table()["job"].tolist() == [3, -1, 5, 6]
    assert np.isnan(table()["value"]).tolist() == [False, True, False, True]


@pytest.mark.parametrize("asked", [("job", "value"), ()])
def test_a_part_has_the_rows_that_were_taken(asked: tuple[str, ...]) -> None:
    whole = table()
    for name in asked:
        _ = whole[name]
    taken, middle = whole.take(np.array([3, 0])), whole.slice(1, 3)
    assert (len(taken), taken["job"].tolist(), taken.frame["value"].to_list()) == (2, [6, 3], [None, 0.5])
    assert (len(middle), middle["job"].tolist(), middle.frame["job"].to_list()) == (2, [-1, 5], [None, 5])
    assert middle.take(np.array([1])).frame.rows() == [(5, 1.5, None)]
    assert not taken["job"].flags.writeable


@pytest.mark.parametrize("scale", [1, 2**57])
def test_runs_are_in_order_of_start_job_and_chunk(scale: int) -> None:
    """Also where start and chunk do not fit into one number."""
    scenario, rng = scenario_of("demo-divisible"), np.random.default_rng(0)
    log, job = RunLog(scenario), rng.integers(0, 5, 200).astype(np.int32)
    chunk = (rng.integers(0, 1000, 200) % scenario.jobs.chunks[job]).astype(np.int32)
    start = rng.integers(0, 20, 200) * scale
    order = log._order(start, job, chunk)
    expected = sorted(range(200), key=lambda i: (start[i], job[i], chunk[i], i))
    assert [(start[i], job[i], chunk[i]) for i in order] == [(start[i], job[i], chunk[i]) for i in expected]
    assert len(log._order(start[:0], job[:0], chunk[:0])) == 0


def test_uploads_are_counted_a_few_dispatches_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chunks that a dispatch sends to each server, in any number of ranges of the dispatches."""
    scenario, tables = scenario_of("demo-divisible"), []
    for most, sparse in ((2**22, 16), (1, 16), (10 * len(scenario.cluster.servers), 16), (2**22, 0)):
        monkeypatch.setattr("skedge.core.record.record._MOST_PAIRS", most)
        monkeypatch.setattr("skedge.core.record.record._SPARSE", sparse)
        tables.append(run(scenario, "aonline").schedule.uploads)
    assert all(table.equals(tables[0]) for table in tables)
    sent = run(scenario, "aonline").schedule.decisions.filter(pl.col("verb") == "dispatch")
    counted = sent.group_by("job", "server", maintain_order=True).len().sort("job", "server")
    brought = tables[0].select("job", "to_server", "chunks").sort("job", "to_server")
    assert counted.rows() == brought.rows()
