"""The report's picture of sites: where they stand, an arrow for each of the strongest pairs, the numbers told."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np
import polars as pl
import pytest

from skedge.analysis.columns import columns
from skedge.analysis.metrics.costs import moved_mb, transfer_cost
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.latency import Linear
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.record.schedule import Schedule, schema
from skedge.prepare import prepare_policy
from skedge.recorded_run import Run
from skedge.report.build import ReportRun, build_report
from skedge.report.site_flows import flows
from skedge.report.site_picture import ARROWS, site_picture
from skedge.report.site_places import place
from skedge.report.site_section import ROWS, site_section
from skedge.simulate import run
from skedge.testing import site_scenario, small_scenario

SVG = "{http://www.w3.org/2000/svg}"
HOUR = 3600 * SECOND
HOSTILE = "<b a='\"&{{css}}</svg>"


def world(cost: np.ndarray, names: list[str] | None = None) -> Scenario:
    """Sites with a gpu each, and one job with a chunk of 10 MB at the first."""
    names = names or [f"m{i}" for i in range(len(cost))]
    cluster = Cluster([Server(n, capacity={"gpu": 4}) for n in names], cost, asymmetric=True)
    job = Job(
        id="a", arrival_s=0.0, epochs=1, chunks=1, minibatches=1, minibatch_s=1.0, chunk_mb=10.0, exchange_mb=1.0,
        worker_needs={"gpu": 1}, ps_needs={"gpu": 1}, data={names[0]: 1}, latency=Linear(30.0, 50.0),
    )  # fmt: skip
    table, given = job_table([job])
    return Scenario(cluster, Jobs(table, cluster, given), Physics(slot=HOUR, slotted=True, horizon=9 * HOUR))


def record(scenario: Scenario, moves: list[tuple[int, int, float]], held: list[tuple[int, int]] = ()) -> Schedule:  # type: ignore[assignment]
    """Rows of (from, to, MB), and of (site, workers) for an hour each."""
    names = scenario.cluster.server_ids
    tables = {name: pl.DataFrame(schema=types) for name, types in schema(names).items()}
    rows = [{"job": 0, "from_site": names[a], "to_server": names[b], "chunks": 1, "mb": mb, "start": 0, "end": 0}
            for a, b, mb in moves]  # fmt: skip
    tables["uploads"] = pl.DataFrame(rows, schema=schema(names)["uploads"])
    runs = [{"job": 0, "server": names[r], "workers": w, "start": 0, "end": HOUR} for r, w in held]
    tables["runs"] = pl.DataFrame(runs, schema=schema(names)["runs"])
    return Schedule(**tables)


def line(*at: float) -> np.ndarray:
    """Costs of a MB between sites on a line."""
    return np.abs(np.subtract.outer(np.array(at), np.array(at)))


def arrows(svg: str) -> dict[tuple[str, str], tuple[float, str]]:
    """Width and text of every arrow, by its ends."""
    found = {}
    for g in ET.fromstring(svg).iter(f"{SVG}g"):  # noqa: S314 - our own
        if g.get("class") == "flow":
            width = float(g.find(f"{SVG}path").get("stroke-width"))  # type: ignore[union-attr,arg-type]
            found[str(g.get("data-from")), str(g.get("data-to"))] = width, str(g.findtext(f"{SVG}title"))
    return found


def discs(svg: str) -> dict[str, tuple[float, float, float]]:
    """Place and radius of every site."""
    found = {}
    for g in ET.fromstring(svg).iter(f"{SVG}g"):  # noqa: S314 - our own
        if g.get("data-site") is not None:
            circle = g.find(f"{SVG}circle")
            assert circle is not None
            x, y, r = (float(str(circle.get(k))) for k in ("cx", "cy", "r"))
            found[str(g.get("data-site"))] = x, y, r
    return found


@pytest.fixture(scope="module")
def result() -> Run:
    scenario = site_scenario(3, sites=12, jobs=30)
    return run(scenario, prepare_policy("fifo", scenario))


def test_three_sites_on_a_line_stand_on_it_as_far_apart_as_their_costs() -> None:
    """Costs 3, 7 and 10 are a line; its middle is the mean, (0 + 3 + 10) / 3; the first site is on the left."""
    found = place(line(0, 3, 10))
    np.testing.assert_allclose(found.xy, np.array([[0, 0], [3, 0], [10, 0]]) - [13 / 3, 0], atol=1e-9)
    assert found.fit == pytest.approx(1.0)
    np.testing.assert_allclose(place(line(10, 3, 0)).xy[:, 0], [13 / 3 - 10, 13 / 3 - 3, 13 / 3], atol=1e-9)


def test_sites_of_a_plane_keep_their_distances_whatever_every_pair_has_in_common() -> None:
    """Costs are distances of points, and then 0.5 more for every pair, which is found and taken off again."""
    points = np.random.default_rng(1).uniform(0, 4, (30, 2))
    points[1] = points[0]
    apart = np.hypot(*(points[:, None] - points).transpose(2, 0, 1))
    for more in (0.0, 0.5):
        found = place(apart + more * ~np.eye(30, dtype=bool))
        made = np.hypot(*(found.xy[:, None] - found.xy).transpose(2, 0, 1))
        np.testing.assert_allclose(made, apart, atol=1e-6)
        assert found.cost_offset == pytest.approx(more)
        assert found.xy[0, 0] < 0 < found.xy[0, 1]


def test_a_square_stands_on_its_corner_with_the_first_site_on_the_left() -> None:
    """Both axes are equally long, so that any turn would do; this one is taken."""
    points = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    found = place(np.hypot(*(points[:, None] - points).transpose(2, 0, 1)))
    half = np.sqrt(0.5)
    np.testing.assert_allclose(found.xy[[0, 2]], [[-half, 0], [half, 0]], atol=1e-7)
    np.testing.assert_allclose(np.sort(found.xy[[1, 3], 1]), [-half, half], atol=1e-7)


@pytest.mark.parametrize(
    "cost",
    [np.zeros((1, 1)), np.zeros((4, 4)), 1.0 - np.eye(5), np.triu(np.random.default_rng(2).random((50, 50)), 1)],
    ids=["one", "free", "equal", "drawn"],
)
def test_costs_that_are_no_distances_in_a_plane_put_the_sites_on_a_circle_in_their_order(cost: np.ndarray) -> None:
    """Clockwise from the left."""
    found = place(cost)
    assert found.fit is None
    np.testing.assert_allclose(np.hypot(*found.xy.T), 1.0)
    np.testing.assert_allclose(found.xy[0], [-1, 0], atol=1e-12)
    if len(cost) > 2:
        assert found.xy[1, 1] > 0
        assert len(set(np.round(np.arctan2(found.xy[:, 1], found.xy[:, 0]), 9).tolist())) == len(cost)


def test_what_is_drawn_on_a_line_is_to_scale() -> None:
    """Sites at 0, 3 and 10: the second divides the way between the others as 3 to 7, at one height."""
    scenario = world(line(0, 3, 10))
    places = discs(site_picture(scenario, record(scenario, [])))
    (x0, y0, _), (x1, y1, _), (x2, y2, _) = (places[f"m{i}"] for i in range(3))
    assert (x1 - x0) / (x2 - x0) == pytest.approx(0.3, abs=1e-3)
    assert y0 == y1 == y2


def test_area_of_a_site_is_the_hours_of_its_workers() -> None:
    """4 workers for an hour have four times the area of 1: twice the radius."""
    scenario = world(line(0, 3, 10))
    places = discs(site_picture(scenario, record(scenario, [], [(0, 1), (2, 3), (2, 1)])))
    assert places["m2"][2] == pytest.approx(2 * places["m0"][2])
    assert places["m1"][2] < places["m0"][2]


def test_arrows_are_the_transfers_added_up_by_pair_and_direction() -> None:
    """40 + 20 MB one way at 3, 30 MB back at 2: 180 and 60; the wider arrow is twice as wide."""
    cost = np.array([[0.0, 3.0], [2.0, 0.0]])
    scenario = world(cost)
    found = arrows(site_picture(scenario, record(scenario, [(0, 1, 40.0), (1, 0, 30.0), (0, 1, 20.0)])))
    assert set(found) == {("m0", "m1"), ("m1", "m0")}
    assert found["m0", "m1"][0] == pytest.approx(2 * found["m1", "m0"][0])
    assert found["m0", "m1"][1] == "m0 → m1\n60 MB moved at 3 a MB: 180"
    assert found["m1", "m0"][1] == "m1 → m0\n30 MB moved at 2 a MB: 60"


def test_pictures_that_are_compared_have_one_scale() -> None:
    """The same 60 MB are half as wide where the widest arrow is of 120 MB."""
    scenario = world(line(0, 1))
    moved = record(scenario, [(0, 1, 60.0)])
    alone, compared = (arrows(site_picture(scenario, moved, mb))["m0", "m1"][0] for mb in (None, 120.0))
    assert compared == pytest.approx(alone / 2)


def test_only_the_strongest_pairs_of_many_have_an_arrow() -> None:
    """Of the 72 pairs of 9 sites, the k-th with k MB, the last 40 by number."""
    scenario = world(line(*range(9)))
    pairs = [(a, b) for a in range(9) for b in range(9) if a != b]
    svg = site_picture(scenario, record(scenario, [(*pair, 1.0 + k) for k, pair in enumerate(pairs)]))
    assert ARROWS == 40
    assert set(arrows(svg)) == {(f"m{a}", f"m{b}") for a, b in pairs[32:]}


def test_no_site_covers_another() -> None:
    """20 sites in one place and 40 on a line, all with work, keep apart and inside the drawing."""
    scenario = world(line(*([0.0] * 20), *range(1, 41)))
    places = np.array(list(discs(site_picture(scenario, record(scenario, [], [(i, 1) for i in range(60)]))).values()))
    apart = np.hypot(*(places[:, None, :2] - places[:, :2]).transpose(2, 0, 1)) + 1e9 * np.eye(60)
    assert (apart > places[:, None, 2] + places[:, 2]).all()
    assert (places[:, :2] > 0).all()


def test_sums_are_those_of_the_metrics(result: Run) -> None:
    """By another method: the metrics' matrix of what moved, and what it cost."""
    found, c = flows(result.scenario, result.schedule), columns(result.scenario, result.schedule)
    assert found is not None
    assert found.moved_mb.sum() > 0
    np.testing.assert_allclose(found.moved_mb, moved_mb(c))
    assert found.total_cost == pytest.approx(transfer_cost(c))
    assert found.stored_mb.sum() == pytest.approx((result.scenario.jobs.chunks * result.scenario.jobs.chunk_mb).sum())


def test_table_lists_the_pairs_with_the_most_data_and_sums_up_the_others(result: Run) -> None:
    """MB and cost of its rows and its last one are those of the run."""
    section = site_section([("fifo", result.scenario, result.schedule)])
    body, foot = re.findall(r"<tbody>(.*?)</tbody><tfoot>(.*?)</tfoot>", section)[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in body.split("</tr>")[:-1]]
    moved = moved_mb(columns(result.scenario, result.schedule))
    assert [row[2] for row in rows] == [f"{mb:,.1f}" for mb in np.sort(moved.ravel())[::-1][:ROWS]]
    last = re.findall(r"<td[^>]*>(.*?)</td>", foot)
    cost = sum(float(row[-1].replace(",", "")) for row in [*rows, last])
    assert cost == pytest.approx(float(result.metrics["cost_transfers"] or 0), abs=0.01 * (ROWS + 1))


def test_scenarios_that_are_no_sites_have_no_picture_and_their_report_no_section() -> None:
    scenario = small_scenario(1)
    made = run(scenario, prepare_policy("fifo", scenario))
    assert site_picture(made.scenario, made.schedule) == ""
    page = build_report([ReportRun("fifo", made.scenario, made.schedule, made.metrics, made.utilisation)])
    assert "sites-title" not in page
    assert "{{sites}}" not in page


def test_a_report_of_sites_shows_every_policy_and_opens_the_first(result: Run) -> None:
    one = ReportRun("fifo", result.scenario, result.schedule, result.metrics, result.utilisation)
    two = ReportRun("<i>", result.scenario, result.schedule, result.metrics, result.utilisation)
    page = build_report([one, two])
    assert page.count("<svg") == 2
    assert re.findall(r'<details class="flows"( open)?><summary><strong>(.*?)<', page) == [
        (" open", "fifo"), ("", "&lt;i&gt;"),
    ]  # fmt: skip
    assert build_report([one, two]) == page


def test_names_of_sites_cannot_become_markup() -> None:
    scenario = world(line(0, 1), [HOSTILE, "b"])
    moved = record(scenario, [(0, 1, 5.0)])
    svg = site_picture(scenario, moved)
    assert set(discs(svg)) == {HOSTILE, "b"}
    assert set(arrows(svg)) == {(HOSTILE, "b")}
    section = site_section([("p", scenario, moved)])
    assert "<b " not in section
    assert section.count("</svg>") == 1


def test_sites_between_which_nothing_moved_are_drawn_without_arrows() -> None:
    scenario = world(np.zeros((1, 1)))
    nothing = record(scenario, [])
    assert arrows(site_picture(scenario, nothing)) == {}
    assert len(discs(site_picture(scenario, nothing))) == 1
    assert "No data were moved." in site_section([("p", scenario, nothing)])
