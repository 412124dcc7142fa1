"""Windows resampled from a trace: its own jobs in blocks, as often as the seed draws them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from skedge.core.model.cluster import Cluster, Job, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.scenario.file import load_scenario
from skedge.scenario.resampled import origin_of, resampled, window_of
from skedge.scenario.save import save_scenario
from skedge.simulate import run
from skedge.testing import small_scenario

CLUSTER = Cluster([Server("e", capacity={"worker:gpu": 4, "ps:cpu": 4})])


def scenario(arrivals: list[float], ids: list[str] | None = None, upload: dict[str, float] | None = None) -> Scenario:
    """Jobs that arrive then, the i-th of i + 1 seconds."""
    names = ids or [f"j{i}" for i in range(len(arrivals))]
    jobs = [
        Job(name, at, 1, 1, 1, i + 1.0, upload_s=upload or {})
        for i, (name, at) in enumerate(zip(names, arrivals, strict=True))
    ]
    table, given = job_table(jobs)
    return Scenario(CLUSTER, Jobs(table, CLUSTER, given), seed=1)


def originals(made: Scenario) -> list[int]:
    """The row that each job was, by its length."""
    return (made.jobs.frame["minibatch_s"].cast(pl.Int64) - 1).to_list()


def test_jobs_follow_each_other_in_blocks_as_long_after_each_other_as_they_did() -> None:
    """16 jobs with gaps 1, 2, ..., 15 s: blocks of 4; the gap before the first one is the mean, 8 s."""
    arrivals = np.cumsum([5, *range(1, 16)]).astype(float).tolist()
    made = resampled(scenario(arrivals), 3)
    rows = originals(made)
    assert len(rows) == 16
    for block in range(0, 16, 4):
        assert [(row - rows[block]) % 16 for row in rows[block : block + 4]] == [0, 1, 2, 3]
    gap = [8.0 if row == 0 else float(row) for row in rows]
    assert made.jobs.frame["arrival_s"].to_list() == [5 + sum(gap[1 : i + 1]) for i in range(16)]


def test_every_job_is_drawn_equally_often() -> None:
    """Over 400 seeds, 40 jobs: within five standard deviations of 400, as a block of 7 is drawn whole."""
    times = Counter(
        row for seed in range(400) for row in originals(resampled(scenario([float(i) for i in range(40)]), seed))
    )
    assert sum(times.values()) == 400 * 40
    assert all(abs(times[row] - 400) < 5 * 400**0.5 for row in range(40))


def test_ids_stay_unique_also_where_they_look_like_copies() -> None:
    """And delays given by job go with each copy."""
    ids = ["a", "a.2", "a.3", "b"]
    given = scenario([0.0, 1.0, 2.0, 3.0], ids, {"e": 7.0})
    for seed in range(40):
        made = resampled(given, seed)
        assert len(set(made.jobs.ids)) == 4
        assert dict(made.jobs.fixed_delays) == {name: {"e": 7.0} for name in made.jobs.ids}
        assert run(made, "fifo").verify() == []


@pytest.mark.parametrize("arrivals", [[], [4.0], [0.0, 0.0, 0.0]])
def test_few_jobs_and_jobs_at_once_are_resampled_too(arrivals: list[float]) -> None:
    made = resampled(scenario(arrivals), 1)
    assert made.jobs.frame["arrival_s"].to_list() == arrivals


def test_a_resampled_window_is_kept_and_says_what_it_is(tmp_path: Path) -> None:
    made = resampled(small_scenario(3, jobs=9), 5)
    assert resampled(small_scenario(3, jobs=9), 5).jobs.frame.equals(made.jobs.frame)
    assert not resampled(small_scenario(3, jobs=9), 6).jobs.frame.equals(made.jobs.frame)
    again = load_scenario(save_scenario(made, tmp_path))
    assert again.jobs.frame.equals(made.jobs.frame)
    assert again.source["resampled"] == {"seed": 5, "block": 3}


def test_only_jobs_of_a_trace_or_a_table_are_resampled_and_not_by_their_own_seed(tmp_path: Path) -> None:
    table, drawn = save_scenario(small_scenario(3, jobs=9), tmp_path / "t"), tmp_path / "d.yaml"
    drawn.write_text(
        "seed: 4\ncluster: {servers: [{id: e, workers: {gpu: 4}, ps: {cpu: 4}}]}\n"
        "workload: {synthetic: {jobs: 9, span: 1h}}\n"
    )
    trace = tmp_path / "trace.yaml"
    (tmp_path / "t.csv").write_text("id,at,s,n\n" + "".join(f"{i},{60 * i},{100 + i},1\n" for i in range(9)))
    trace.write_text(
        drawn.read_text().split("workload")[0] + "workload: {trace: {path: t.csv, map: "
        "{id: id, arrival: at, duration: s, gpus: n}}}\n"
    )
    found = {name: origin_of(source) for name, source in (("table", table), ("drawn", drawn), ("trace", trace))}
    assert {name: tuple(one) for name, one in found.items()} == {
        "table": (3, True), "drawn": (4, False), "trace": (4, True)
    }  # fmt: skip
    assert tuple(origin_of(small_scenario(2))) == (2, False)
    assert tuple(origin_of(small_scenario)) == (0, False)
    for source, own, other in ((table, 3, 4), (trace, 4, 5)):
        origin = origin_of(source)
        as_it_is = [window_of(source, seed, origin).jobs.frame for seed in (None, own)]
        assert as_it_is[0].equals(as_it_is[1])
        assert as_it_is[0].equals(load_scenario(source).jobs.frame)
        assert window_of(source, other, origin).jobs.ids != load_scenario(source, other).jobs.ids
