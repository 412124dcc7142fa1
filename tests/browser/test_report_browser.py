"""The report in a browser, opened as a file: it draws, answers and runs nothing that it was given as data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import report_samples as samples
from waiting import until

from skedge.prepare import prepare_policy
from skedge.report.build import ReportRun, build_report
from skedge.report.site_picture import ARROWS
from skedge.report.write import write_report
from skedge.simulate import run
from skedge.testing import site_scenario

HOSTILE = "</script><img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
FRAME_MS = 50.0
SLACK = 4.0
"""How much slower than promised a busy machine may draw."""

# Draws while zooming and panning; reading a pixel back makes the canvas finish what it was told.
REDRAW = """() => {
  const gantt = skedgeReport.explorer.gantt;
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const frame = (act) => {
    const began = performance.now();
    act();
    gantt.draw();
    context.drawImage(gantt.canvas, 0, 0);
    context.getImageData(0, 0, 1, 1);
    return performance.now() - began;
  };
  gantt.rowHeight = 3;
  gantt.resize();
  gantt.reset();
  const times = [frame(() => {})], drawn = gantt.drawn;
  for (let i = 0; i < 12; i++) {
    const back = i % 2 ? 1 : -1; // to and fro, so that nearly all bars stay in view
    times.push(frame(() => gantt.zoom(0.95 ** back)), frame(() => gantt.move(15 * back, 3 * back)));
  }
  return { drawn, times };
}"""


@pytest.fixture(scope="module")
def runs() -> list[ReportRun]:
    names = [f"job-{i:04}" for i in range(699)]
    world = samples.scenario(700, servers=20, lanes=8, ids=[*names, HOSTILE])
    return [
        samples.report_run("aonline", world, samples.chunked(world, 15, 1)),
        samples.report_run("gangs", world, samples.gangs(world, 4)),
    ]


@pytest.fixture(scope="module")
def report(runs: list[ReportRun], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, build_report(runs, samples.comparison(runs), "Two policies", samples.SETTINGS))
    return path


@pytest.fixture
def errors() -> list[str]:
    """What the page complained of, and every request beyond its own file."""
    return []


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _open(browser: Any, report: Path, errors: list[str], scheme: str = "light") -> Any:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    page.on("console", lambda message: errors.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith(report.as_uri()) else errors.append(f"request of {r.url}"))
    page.goto(report.as_uri())
    until(page, "window.skedgeReport && skedgeReport.explorer.gantt.drawn > 0")
    return page


@pytest.fixture
def page(browser: Any, report: Path, errors: list[str]) -> Iterator[Any]:
    opened = _open(browser, report, errors)
    yield opened
    opened.close()
    assert errors == []


def test_page_draws_in_both_colour_schemes(
    browser: Any, report: Path, errors: list[str], scheme: str, tmp_path: Path
) -> None:
    page = _open(browser, report, errors, scheme)
    assert page.locator("#comparison tbody tr").count() == 2
    assert page.locator(".uplot canvas").count() == 3
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    page.screenshot(path=str(tmp_path / f"{scheme}.png"), full_page=True)
    page.close()
    assert errors == []


def test_colour_scheme_may_change_while_the_page_is_open(page: Any) -> None:
    before = page.evaluate("skedgeReport.explorer.gantt.theme.paper")
    page.emulate_media(color_scheme="dark")
    until(page, "before => skedgeReport.explorer.gantt.theme.paper !== before", before)
    assert page.locator(".uplot canvas").count() == 3


def test_table_is_sorted_by_its_titles(page: Any) -> None:
    title = page.locator("#comparison thead button", has_text="JCT mean")
    first = page.locator("#comparison tbody tr th").first
    title.click()
    low = first.inner_text()
    title.click()
    assert first.inner_text() != low
    assert page.locator("#comparison th[aria-sort=descending]").count() == 1


def test_ten_thousand_bars_are_redrawn_within_a_frame(page: Any, runs: list[ReportRun]) -> None:
    result = page.evaluate(REDRAW)
    assert runs[0].schedule.runs.height > 10_000
    assert result["drawn"] > 9_000
    assert sorted(result["times"])[len(result["times"]) // 2] < FRAME_MS * SLACK


def _middle_of_a_bar(page: Any) -> dict[str, float]:
    """A pixel inside a wide bar, and its job."""
    found: dict[str, float] = page.evaluate("""() => {
      const g = skedgeReport.explorer.gantt, { bars, pieces } = g.run;
      for (let i = 0; i < pieces.bar.length; i++) {
        const b = pieces.bar[i], middle = bars.start[b] + bars.length[b] / 2;
        const x = GUTTER + (middle - g.from) / (g.to - g.from) * (g.width - GUTTER);
        const y = rowTop(g, pieces.row[i]) + g.rowHeight / 2;
        if (x > GUTTER + 9 && x < g.width - 9 && y > AXIS + 9 && y < g.height - 9 && g.barAt(x, y) === b)
          return { x, y, name: g.run.nameOf(bars.job[b]) };
      }
    }""")
    return found


def test_pointer_shows_a_bar_and_a_click_follows_its_job(page: Any, runs: list[ReportRun]) -> None:
    at = _middle_of_a_bar(page)
    page.locator("#gantt").hover(position={"x": at["x"], "y": at["y"]})
    tip = page.locator("#tip").inner_text()
    assert f"job {at['name']}, chunk " in tip
    assert "edge-" in tip
    page.locator("#gantt").click(position={"x": at["x"], "y": at["y"]})
    assert page.locator("#search").input_value() == at["name"]
    job = runs[0].scenario.jobs.index[str(at["name"])]
    bars = runs[0].schedule.runs.filter(job=job).height
    assert page.locator("#status").inner_text() == f"{bars} bars of job {at['name']}"
    details = page.locator("#details").inner_text()
    assert details.count("run: chunk") == bars
    for word in ("arrival", "upload of", "parameter server", "JCT"):
        assert word in details
    assert page.evaluate("skedgeReport.explorer.gantt.selected") == job
    page.locator("#gantt").press("Escape")
    assert page.locator("#details").inner_text() == ""


@pytest.mark.parametrize("how", ["key", "wheel", "leave"])
def test_the_label_at_the_pointer_goes(how: str, page: Any) -> None:
    at = _middle_of_a_bar(page)
    page.locator("#gantt").hover(position={"x": at["x"], "y": at["y"]})
    assert page.locator("#tip").is_visible()
    if how == "key":
        page.locator("#gantt").press("+")
    elif how == "wheel":
        page.mouse.wheel(0, 100)
    else:
        page.mouse.move(1, 1)
    page.locator("#tip").wait_for(state="hidden", timeout=2000)


def test_sixteen_policies_have_marks_of_their_own_in_the_legends(
    browser: Any, errors: list[str], tmp_path: Path
) -> None:
    """Each line has another colour or dash, and its mark in the legend has both."""
    world = samples.scenario(5)
    schedule = samples.chunked(world, 2, 1)
    path = tmp_path / "many.html"
    write_report(path, build_report([samples.report_run(f"policy {i}", world, schedule) for i in range(16)]))
    page = _open(browser, path, errors)
    for chart in ("jct", "utilisation", "waiting"):
        marks = page.locator(f"#chart-{chart} .u-series .u-marker").evaluate_all(
            "all => all.map(mark => mark.style.background)"
        )
        assert len(set(marks[-16:])) == 16
        assert sum("repeating-linear-gradient" in mark for mark in marks) == 12
        drawn = page.evaluate(
            f"skedgeReport.charts.{chart}.series.slice(-16).map(s => [s.stroke(), ...s.dash].join(' '))"
        )
        assert len(set(drawn)) == 16
    page.close()
    assert errors == []


def test_legends_show_values_only_where_the_pointer_is(page: Any) -> None:
    for chart in ("jct", "utilisation", "waiting"):
        values = page.locator(f"#chart-{chart} .u-series .u-value")
        assert set(values.all_inner_texts()) == {""}
        page.locator(f"#chart-{chart} .u-over").hover()
        until(page, f"document.querySelector('#chart-{chart} .u-series .u-value').textContent !== ''")
        assert "" not in values.all_inner_texts()
        page.mouse.move(1, 1)


def test_every_drawing_has_a_role_and_a_name_and_tables_scroll(page: Any) -> None:
    names = page.locator("canvas").evaluate_all("""all => all.map(c => [c.getAttribute("role"),
      c.getAttribute("aria-label") || document.getElementById(c.getAttribute("aria-labelledby")).textContent])""")
    assert [role for role, _ in names] == ["img"] * 3 + ["application"]
    assert all(name for _, name in names)
    page.set_viewport_size({"width": 400, "height": 800})
    until(page, "document.documentElement.scrollWidth <= 400")  # the charts follow the width
    assert page.evaluate("(t => t.scrollWidth > t.clientWidth)(document.getElementById('comparison'))")


def test_bars_that_are_all_shown_are_no_warning(browser: Any, errors: list[str], tmp_path: Path) -> None:
    world = samples.scenario(40)
    run = samples.report_run("a", world, samples.huge(world, 4000, 1))
    path = tmp_path / "all.html"
    write_report(path, build_report([run], bar_cap=run.schedule.runs.height - 1))
    page = _open(browser, path, errors)
    limit = page.locator("#limit")
    assert limit.get_attribute("class") == "hint"
    assert limit.inner_text().startswith("All ")
    page.close()
    assert errors == []


def test_search_finds_a_job_and_moves_to_it(page: Any) -> None:
    page.locator("#search").fill("job-0642")
    assert page.locator("#details h3").inner_text() == "Job job-0642 under aonline"
    page.locator("#search").fill("064")
    assert "11 jobs match" in page.locator("#status").inner_text()
    page.locator("#search").press("Enter")
    assert page.locator("#details h3").inner_text() == "Job job-0064 under aonline"
    page.locator("#search").fill("nobody")
    assert page.locator("#status").inner_text() == "no such job"


def test_policy_is_switched_and_the_job_stays_chosen(page: Any) -> None:
    page.locator("#search").fill("job-0100")
    page.locator("#policy").select_option(label="gangs")
    assert page.locator("#details h3").inner_text() == "Job job-0100 under gangs"
    assert "gang of" in page.locator("#details").inner_text()


def test_wheel_drag_and_keys_move_the_view(page: Any) -> None:
    view = "(() => { const g = skedgeReport.explorer.gantt; return [g.from, g.to, g.scroll] })()"
    canvas = page.locator("#gantt")
    start = page.evaluate(view)
    canvas.hover(position={"x": 600, "y": 200})
    page.mouse.wheel(0, -400)
    until(page, f"before => {view}[1] < before", start[1])
    zoomed = page.evaluate(view)
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 150, steps=4)
    page.mouse.up()
    dragged = page.evaluate(view)
    assert dragged[0] > zoomed[0]
    assert dragged[2] > zoomed[2]
    assert page.locator("#details").inner_text() == ""
    canvas.press("ArrowRight")
    assert page.evaluate(view)[0] > dragged[0]
    canvas.press("-")
    canvas.press("0")
    assert page.evaluate(view) == start


def test_markup_in_a_job_id_stays_text(page: Any) -> None:
    page.locator("#search").fill(HOSTILE)
    assert page.locator("#details h3").inner_text() == f"Job {HOSTILE} under aonline"
    page.locator("#search").fill(HOSTILE[:20])
    assert page.locator("#details img").count() == 0
    assert page.evaluate("window.hacked") is None


def test_what_is_left_out_is_said(browser: Any, runs: list[ReportRun], errors: list[str], tmp_path: Path) -> None:
    path = tmp_path / "capped.html"
    write_report(path, build_report(runs, None, "Capped", {}, bar_cap=500))
    page = _open(browser, path, errors)
    limit = page.locator("#limit").inner_text()
    assert limit.startswith("Showing ")
    assert "of 10,500 bars" in limit
    assert "window" in limit
    page.close()
    assert errors == []


def test_sites_and_their_flows_are_drawn_without_a_script(
    browser: Any, errors: list[str], scheme: str, tmp_path: Path
) -> None:
    """Every site and arrow has a place in view, no name leaves the picture, and a folded policy opens."""
    scenario = site_scenario(5, sites=12, jobs=40)
    done = run(scenario, prepare_policy("fifo", scenario))
    both = [ReportRun(name, scenario, done.schedule, done.metrics, done.utilisation) for name in ("a", "b")]
    path = tmp_path / "sites.html"
    write_report(path, build_report(both))
    page = _open(browser, path, errors, scheme)
    first, second = (page.locator(".flows").nth(i) for i in range(2))
    assert first.locator(".flow").count() == ARROWS
    assert first.locator("[data-site]").count() == 12
    picture = first.locator("svg").bounding_box()
    for name in first.locator("svg text").all():
        box = name.bounding_box()
        assert box["x"] >= picture["x"]
        assert box["x"] + box["width"] <= picture["x"] + picture["width"]
    assert not second.locator("svg").is_visible()
    second.locator("summary").click()
    assert second.locator("svg").is_visible()
    strongest = first.locator(".flow").last
    assert strongest.evaluate("flow => getComputedStyle(flow).opacity") == "0.8"
    strongest.locator("polygon").hover(force=True)
    assert strongest.evaluate("flow => getComputedStyle(flow).opacity") == "1"
    page.close()
    assert errors == []
