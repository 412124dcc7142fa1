"""The report as a file: what it embeds, what it leaves out and says so, what cannot break out of it."""

from __future__ import annotations

import html
import json
import re
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from builders.paths import ROOT

sys.path.insert(0, str(ROOT / "tests" / "browser"))

import report_samples as samples

from skedge.core.model.time import SECOND
from skedge.report.bars import busiest_window, choose_bars, merge_adjacent
from skedge.report.build import ReportRun, ReportTable, build_report
from skedge.report.curves import jct_distribution, over_time
from skedge.report.encode import int_column, pack_ints, unpack_ints
from skedge.report.rows import assign_rows
from skedge.report.table import table_view
from skedge.report.write import write_report

HOSTILE = [
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=hacked=1>",
    "<!--",
    'a"b&c\u2028',
    "{{css}}",
]


def _data(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def _column(view: dict[str, Any], name: str) -> list[int]:
    values: list[int] = unpack_ints(view[name]).tolist()
    return values


@pytest.fixture(scope="module")
def runs() -> list[ReportRun]:
    world = samples.scenario(60)
    return [
        samples.report_run("aonline", world, samples.chunked(world, 6, 1)),
        samples.report_run("gangs", world, samples.gangs(world, 2)),
    ]


@pytest.fixture(scope="module")
def page(runs: list[ReportRun]) -> str:
    return build_report(runs, samples.comparison(runs), "Made <up> & seeded", samples.SETTINGS)


class _Tags(HTMLParser):
    """Checks that elements close in the order in which they were opened."""

    VOID = ("meta", "input", "br", "link", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_one_balanced_html_document(page: str) -> None:
    tags = _Tags()
    tags.feed(page)
    assert not tags.open
    assert tags.seen.count("html") == 1
    assert tags.seen.count("script") == 3
    assert "link" not in tags.seen
    assert "img" not in tags.seen


def test_page_refers_to_no_network(page: str) -> None:
    # The one address in the page is the library's own line on where it comes from, in its licence comment.
    assert re.findall(r"https?://[^\s\"']+", page) == ["https://github.com/leeoniya/uPlot"]
    assert not re.search(r"\bsrc=|@import|url\(|\beval\(|new Function", page)
    assert "Permission is hereby granted" in page


def test_page_runs_only_the_scripts_whose_hashes_it_names(page: str) -> None:
    import base64
    import hashlib

    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert "default-src 'none'" in policy[1]
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    for script in scripts:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy[1]
    assert len(scripts) == 2


def test_same_runs_give_the_same_bytes(runs: list[ReportRun], page: str) -> None:
    assert build_report(runs, samples.comparison(runs), "Made <up> & seeded", samples.SETTINGS) == page


def test_job_ids_and_titles_cannot_become_markup() -> None:
    world = samples.scenario(len(HOSTILE), ids=HOSTILE)
    run = samples.report_run("</script><b>", world, samples.chunked(world, 3, 1))
    made = build_report([run], None, "</title><script>", {"<seed>": "</dd>"})
    assert _data(made)["names"] == run.schedule.jobs["id"].to_list()
    assert sorted(_data(made)["names"]) == sorted(HOSTILE)
    assert made.count("</script>") == 3
    assert f"<title>{html.escape('</title><script>')}</title>" in made
    for text in (*HOSTILE[:3], "</dd>", "<seed>"):
        assert text not in made.split('id="report-data">')[1].split("</script>")[0]


def test_bars_are_the_schedules_runs(runs: list[ReportRun], page: str) -> None:
    for run, view in zip(runs, _data(page)["runs"], strict=True):
        bars = view["gantt"]["bars"]
        table = run.schedule.runs.sort("start", "server", "lane", "job", "chunk")
        for name in ("job", "chunk", "server", "workers", "start", "preempted"):
            assert _column(bars, name) == int_column(table, name).tolist()
        assert _column(bars, "length") == (table["end"] - table["start"]).to_list()
        assert _column(bars, "wait") == (table["compute_from"] - table["start"]).to_list()
        assert view["gantt"]["window"] is None
        assert not view["gantt"]["merged"]


def test_jobs_and_metrics_are_the_schedules(runs: list[ReportRun], page: str) -> None:
    data = _data(page)
    for run, view in zip(runs, data["runs"], strict=True):
        jobs = run.schedule.jobs
        assert [data["names"][i] for i in _column(view["jobs"], "name")] == jobs["id"].to_list()
        for name in ("arrival", "first_start", "completion", "jct"):
            assert _column(view["jobs"], name) == jobs[name].fill_null(-1).to_list()
        assert len(view["jobs"]["rejected"]) == (jobs["state"] == "rejected").sum()
        assert view["metrics"] == dict(run.metrics)


def test_settings_and_scenario_are_in_the_page(page: str) -> None:
    data = _data(page)
    assert dict(data["settings"]) == samples.SETTINGS
    assert dict(data["facts"])["scenario seed"] == "7"
    assert dict(data["facts"])["servers"] == "8 edge, with a cloud"


def test_every_lane_has_one_row_and_bars_of_a_row_do_not_overlap(page: str) -> None:
    for view in _data(page)["runs"]:
        gantt = view["gantt"]
        start, length = (unpack_ints(gantt["bars"][c]) for c in ("start", "length"))
        row, height, bar = (unpack_ints(gantt["pieces"][c]) for c in ("row", "height", "bar"))
        assert set(bar.tolist()) == set(range(len(start)))
        by_row: dict[int, list[tuple[int, int]]] = {}
        for r, h, b in zip(row.tolist(), height.tolist(), bar.tolist(), strict=True):
            for k in range(r, r + h):
                by_row.setdefault(k, []).append((int(start[b]), int(start[b] + length[b])))
        for spans in by_row.values():
            spans.sort()
            assert all(a[1] <= b[0] for a, b in pairwise(spans))
        edge = [g for g in gantt["groups"] if not g["cloud"]]
        assert [g["rows"] for g in edge] == [g["slots"] for g in edge]


def test_a_gang_has_as_many_rows_as_workers(page: str) -> None:
    gantt = _data(page)["runs"][1]["gantt"]
    held = np.bincount(unpack_ints(gantt["pieces"]["bar"]), weights=unpack_ints(gantt["pieces"]["height"]))
    assert held.tolist() == unpack_ints(gantt["bars"]["workers"]).tolist()


def test_pack_splits_a_gang_only_where_no_rows_lie_side_by_side() -> None:
    start, end = np.array([0, 0, 0, 5]), np.array([10, 5, 10, 9])
    row, height, bar = assign_rows(start, end, np.array([1, 1, 1, 2]), slots=4)
    # Rows 0 and 2 are busy until 10; the last needs 2 of rows 1 and 3.
    assert list(zip(row.tolist(), height.tolist(), bar.tolist(), strict=True)) == [
        (0, 1, 0), (1, 1, 1), (2, 1, 2), (1, 1, 3), (3, 1, 3),
    ]  # fmt: skip
    row, height, _ = assign_rows(start, end, np.array([1, 1, 1, 2]), slots=0)
    assert row.tolist() == [0, 1, 2, 3]
    assert height.tolist() == [1, 1, 1, 2]


@pytest.fixture(scope="module")
def crowded() -> ReportRun:
    world = samples.scenario(60)
    return samples.report_run("crowded", world, samples.huge(world, 30_000, 3))


def test_cap_is_honoured_and_stated(crowded: ReportRun) -> None:
    view = _data(build_report([crowded], None, "t", {}, bar_cap=2000))["runs"][0]
    gantt = view["gantt"]
    bars = gantt["bars"]
    assert bars["start"]["n"] <= 2000
    assert bars["start"]["n"] > 1500
    assert gantt["runs_total"] == crowded.schedule.runs.height
    assert gantt["bars_total"] == merge_adjacent(crowded.schedule.runs.with_columns(pl.lit(1).alias("merged"))).height
    assert gantt["runs_shown"] == sum(_column(bars, "merged"))
    low, high = gantt["window"]
    start, end = unpack_ints(bars["start"]), unpack_ints(bars["start"]) + unpack_ints(bars["length"])
    assert ((start < high) & (end > low)).all()


def test_uploads_and_ps_slots_above_the_cap_are_left_out_and_counted() -> None:
    world = samples.scenario(200)
    run = samples.report_run("a", world, samples.chunked(world, 6, 1))
    view = _data(build_report([run], None, "t", {}, bar_cap=100))["runs"][0]
    listed = set(_column(view["jobs"], "job"))
    assert view["jobs"]["total"] == 200
    assert listed == set(_column(view["gantt"]["bars"], "job"))
    for name in ("uploads", "ps"):
        table = run.schedule.tables()[name]
        assert view[name]["total"] == table.height
        assert 0 < view[name]["job"]["n"] <= 100
        assert set(_column(view[name], "job")) <= listed


def test_window_holds_every_bar_that_lies_in_it(crowded: ReportRun) -> None:
    servers = crowded.scenario.cluster.server_ids
    chosen = choose_bars(crowded.schedule.runs, servers, 2000)
    assert chosen.window
    low, high = chosen.window
    inside = crowded.schedule.runs.filter((pl.col("start") < high) & (pl.col("end") > low))
    # Merged bars reach out of the window, so they stand for at least the runs in it.
    assert chosen.frame["merged"].sum() >= inside.height
    assert not chosen.lanes_cut


def test_busiest_window_finds_the_burst() -> None:
    calm = np.arange(0, 100_000, 1000)
    burst = np.arange(50_000, 50_100)
    start = np.concatenate([calm, burst])
    low, high = busiest_window(start, start + 10, 50)
    assert 49_900 < low < high < 50_100
    assert 45 <= ((start < high) & (start + 10 > low)).sum() <= 50


def test_more_bars_at_one_instant_than_the_cap_are_cut_by_lane() -> None:
    world = samples.scenario(10)
    runs = samples.chunked(world, 30, 1).runs.with_columns(pl.lit(0).alias("start"), pl.lit(0).alias("compute_from"))
    chosen = choose_bars(runs, world.cluster.server_ids, 20)
    assert chosen.lanes_cut
    assert chosen.frame.height == 20


def _lane_runs(rows: list[tuple[int, int, int, int, bool]]) -> pl.DataFrame:
    """Rows (job, start, compute_from, end, preempted) on lane 0."""
    names = ["job", "start", "compute_from", "end", "preempted"]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    return frame.with_columns(pl.lit(0).alias("lane"), pl.lit(1).alias("merged"), pl.int_range(pl.len()).alias("chunk"))


def test_only_runs_that_touch_and_show_no_event_between_them_are_merged() -> None:
    table = _lane_runs([
        (1, 0, 0, 10, False), (1, 10, 10, 20, False), (1, 20, 20, 30, True),  # one bar, preempted at 30
        (1, 30, 30, 40, False),  # begins after a preemption
        (1, 40, 45, 50, False),  # waits for its upload
        (2, 50, 50, 60, False),  # another job
        (2, 61, 61, 70, False),  # a gap
    ])  # fmt: skip
    bars = merge_adjacent(table)
    assert bars["start"].to_list() == [0, 30, 40, 50, 61]
    assert bars["end"].to_list() == [30, 40, 50, 60, 70]
    assert bars["merged"].to_list() == [3, 1, 1, 1, 1]
    assert bars["preempted"].to_list() == [True, False, False, False, False]


def test_packed_columns_read_back_exactly() -> None:
    for values in ([], [-1], [0, -1, 255], [2**52, -1, 3]):
        assert unpack_ints(pack_ints(np.array(values, np.int64))).tolist() == values
    with pytest.raises(ValueError, match="-2"):
        pack_ints(np.array([-2]))


def test_distribution_counts_rejected_jobs_in_the_denominator() -> None:
    jobs = pl.DataFrame({"jct": [2 * SECOND, None, 4 * SECOND, 4 * SECOND]})
    assert jct_distribution([jobs]) == {"exact": True, "x": [2.0, 4.0], "share": [[0.25, 0.75]]}


def test_grid_of_a_long_run_keeps_the_means() -> None:
    time_s = np.arange(10_000.0)
    table = pl.DataFrame({
        "time_s": time_s, "busy_share": time_s % 2, "waiting_jobs": np.full(10_000, 3), "running_jobs": time_s * 0,
        "submitted": np.ones(10_000),
    })  # fmt: skip
    chart = over_time([table], [0])
    assert not chart["exact"]
    assert np.mean(chart["busy_share"][0]) == pytest.approx(0.5, abs=0.01)
    assert set(chart["waiting_jobs"][0]) == {3.0}
    assert chart["interval"] == 300.0
    assert max(chart["submitted"][0]) == 300.0


def test_table_marks_what_it_is_given_as_decided_and_chooses_units() -> None:
    table = ReportTable(
        ["policy", "jct_mean_s", "finished", "my score"],
        [
            ["a", {"mean": 7200.0, "low": 5400.0, "high": 10800.0}, 5, "1,000"],
            ["b", {"mean": 14400.0, "low": None, "high": None}, 5, "n/a"],
            ["c", None, 5, "20"],
        ],
        {"jct_mean_s": [0]},
    )
    view = table_view(table)
    assert [c["unit"] for c in view["columns"]] == ["", "h", "", ""]
    a, b, c = view["rows"]
    assert a[1] == {
        "text": "2.000",
        "interval": "1.500 … 3.000",
        "sort": 7200.0,
        "exact": "7200 [5400, 10800]",
        "best": True,
    }
    assert "best" not in b[1]
    assert "interval" not in b[1]
    assert c[1]["text"] == "–"
    assert not any("best" in row[2] for row in view["rows"])
    assert [row[3]["sort"] for row in view["rows"]] == [1000.0, "n/a", 20.0]


def test_report_without_comparison_shows_the_metrics(runs: list[ReportRun]) -> None:
    view = _data(build_report(runs, None, "t", {}))["comparison"]
    assert [row[0]["text"] for row in view["rows"]] == ["aonline", "gangs"]
    assert [c["title"] for c in view["columns"]][:3] == ["policy", "jobs", "finished"]
    assert not any("best" in cell for row in view["rows"] for cell in row)  # one run each decides nothing


def test_wrong_input_is_named(runs: list[ReportRun]) -> None:
    with pytest.raises(ValueError, match="no runs"):
        build_report([], None, "t", {})
    with pytest.raises(ValueError, match="'aonline' is used twice"):
        build_report([runs[0], runs[0]], None, "t", {})
    bad = ReportRun("x", runs[0].scenario, runs[0].schedule, {}, pl.DataFrame({"time_s": [0.0]}))
    with pytest.raises(ValueError, match="busy_share"):
        build_report([bad], None, "t", {})


def test_run_in_which_nothing_ran_gives_a_page() -> None:
    world = samples.scenario(3)
    full = samples.chunked(world, 2, 1)
    jobs = full.jobs.with_columns(pl.lit(None, pl.Int64).alias(c) for c in ("first_start", "completion", "jct"))
    nothing = {name: table.clear() for name, table in full.tables().items()} | {"jobs": jobs}
    run = ReportRun(
        "none", world, type(full)(**nothing), {"jct_mean_s": float("nan")}, samples.utilisation(world, full)
    )
    view = _data(build_report([run], None, "t", {}))["runs"][0]
    assert view["gantt"]["bars"]["start"]["n"] == 0
    assert view["metrics"] == {"jct_mean_s": None}


def test_write_leaves_one_whole_file(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    write_report(target, "first")
    write_report(str(target), "second")
    assert target.read_text() == "second"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(UnicodeEncodeError):
        write_report(target, "half\udc80")
    assert target.read_text() == "second"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_the_page_of_millions_of_runs_is_small() -> None:
    world = samples.scenario(2000, servers=60, lanes=40)
    run = samples.report_run("huge", world, samples.huge(world, 3_400_000, 5))
    assert len(build_report([run], None, "t", {})) < 3_000_000


def test_a_bound_from_below_is_marked_and_several_cells_of_a_column_may_be_the_best() -> None:
    table = ReportTable(
        ["policy", "training_time_p50_s"],
        [
            ["a", {"mean": 288000.0, "low": None, "high": None, "censored": True}],
            ["b", {"mean": 144000.0}],
            ["c", "equal"],
        ],
        {"training_time_p50_s": (0, 1)},
    )
    a, b, c = (row[1] for row in table_view(table)["rows"])
    assert (a["text"], b["text"], c["text"]) == ("≥ 3.333", "1.667", "equal")
    assert (a["best"], b["best"], "best" in c) == (True, True, False)
