"""``skedge view`` in a browser: every view shows what the record says, and asks nobody but its own server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from itertools import product
from typing import Any
from urllib.parse import urlsplit

import polars as pl
import pytest
from waiting import until

from builders.paths import ROOT
from builders.thorough import thorough_except
from skedge.core.model.time import SECOND
from skedge.explanation.explain import explain
from skedge.prepare import prepare_policy
from skedge.recorded_run import Run
from skedge.scenario.file import load_scenario
from skedge.simulate import run
from skedge.testing import site_scenario, small_scenario
from skedge.view.recorded_runs import RecordedRuns
from skedge.view.server import ViewServer

VIEWS = {"lanes": "Lanes", "jobs": "Jobs", "why": "Why", "training": "Training", "map": "Servers", "compare": "Compare"}


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    scenario = small_scenario(3)
    return [run(scenario, prepare_policy(policy, scenario)) for policy in ("aonline", "fifo")]


def served(runs: list[Run]) -> Iterator[str]:
    with ViewServer(RecordedRuns(runs)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def url(runs: list[Run]) -> Iterator[str]:
    yield from served(runs)


@pytest.fixture
def errors() -> list[str]:
    """What the page complained of, and every request to another server."""
    return []


def opened(browser: Any, url: str, errors: list[str], **more: Any) -> Any:
    page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **more})
    page.on("console", lambda message: errors.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith(url) else errors.append(f"request of {r.url}"))
    page.goto(url)
    until(page, "Boolean(window.skedgeView && skedgeView.ready)")
    return page


@pytest.fixture
def page(browser: Any, url: str, errors: list[str]) -> Iterator[Any]:
    one = opened(browser, url, errors)
    yield one
    one.close()
    assert errors == []


def choose(page: Any, view: str) -> None:
    page.get_by_role("tab", name=VIEWS[view]).click()
    page.locator(f"#{view}").wait_for(state="visible")


def test_lanes_have_every_run_of_the_record(page: Any, runs: list[Run]) -> None:
    until(page, "skedgeView.explorer.gantt.drawn > 0")
    bars = page.evaluate(
        "(() => { const b = skedgeView.explorer.run.bars; return [...b.start].map((s, i) => [s, s + b.length[i]]) })()"
    )
    record = runs[0].schedule.runs.select("start", "end").rows()
    assert sorted(map(tuple, bars)) == sorted(record)
    page.locator("#policy").select_option(label=page.locator("#policy option").nth(1).inner_text())
    assert page.evaluate("skedgeView.explorer.run.bars.start.length") == runs[1].schedule.runs.height


def test_a_key_zooms_and_a_search_follows_a_job(page: Any, runs: list[Run]) -> None:
    until(page, "skedgeView.explorer.gantt.drawn > 0")
    before = page.evaluate("skedgeView.explorer.gantt.to - skedgeView.explorer.gantt.from")
    page.locator("#gantt").press("+")
    assert page.evaluate("skedgeView.explorer.gantt.to - skedgeView.explorer.gantt.from") < before
    job = runs[0].jobs["id"][0]
    page.locator("#search").fill(job)
    count = runs[0].schedule.runs.filter(job=0).height
    assert page.locator("#status").inner_text() == f"{count} {'bar' if count == 1 else 'bars'} of job {job}"


def clock(time: int) -> str:
    """As the page writes a time [µs] of less than a day."""
    ms = round(time / 1000)
    text = f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}"
    return f"{text}.{ms % 1000:03}".rstrip("0") if ms % 1000 else text


def test_jobs_are_those_of_the_record(page: Any, runs: list[Run]) -> None:
    choose(page, "jobs")
    rows = page.locator("#jobs-table tbody tr")
    rows.first.wait_for()
    jobs = runs[0].jobs
    assert page.locator("#jobs-count").inner_text() == f"{jobs.height} of {jobs.height} jobs"
    shown = [row.locator("th, td").all_inner_texts() for row in rows.all()]
    assert [row[0] for row in shown] == jobs["id"].to_list()
    assert [row[1] for row in shown] == ["COMPLETED" if s == "finished" else "FAILED" for s in jobs["state"].to_list()]
    finished = jobs.filter(pl.col("state") == "finished")
    assert finished["completion"].max() < 24 * 3600 * SECOND
    ended = {row[0]: row[5] for row in shown if row[1] == "COMPLETED"}
    assert ended == {name: clock(time) for name, time in finished.select("id", "completion").iter_rows()}
    page.locator("#jobs-search").fill(shown[1][0])
    assert rows.count() >= 1
    assert all(shown[1][0] in row.locator("th").inner_text() for row in rows.all())


def test_tenants_and_classes_have_columns(browser: Any, errors: list[str]) -> None:
    example = load_scenario(ROOT / "docs" / "examples" / "shared.yaml")
    for address in served([run(example, "srtf")]):
        one = opened(browser, address, errors)
        choose(one, "jobs")
        one.locator("#jobs-table tbody tr").first.wait_for()
        heads = one.locator("#jobs-table thead th").all_inner_texts()
        rows = [row.locator("th, td").all_inner_texts()[:4] for row in one.locator("#jobs-table tbody tr").all()]
        one.close()
    assert heads[:4] == ["job", "tenant", "class", "state"]
    assert rows[0] == ["v1", "vision", "0", "COMPLETED"]
    assert rows[2] == ["s1", "speech", "1", "COMPLETED"]
    assert errors == []


def test_a_chosen_job_is_explained_with_its_terms(page: Any, runs: list[Run]) -> None:
    choose(page, "jobs")
    job = runs[0].jobs["id"][0]
    page.locator("#jobs-table").get_by_role("button", name=job, exact=True).click()
    page.locator("#why-found h2").wait_for()
    told = explain(runs[0], job)
    assert (
        page.locator("#why-found h2").inner_text() == f"Job {job}: {told.verb} at {clock(round(told.time_s * SECOND))}"
    )
    assert page.get_by_role("region", name="timeline").locator("tbody tr").count() == told.timeline.height
    assert told.terms is not None
    first = page.get_by_role("region", name="candidates").locator("tbody tr").first.inner_text()
    assert told.terms["chunks"][0]["chosen"]["server"] in first


def test_training_shows_what_was_measured_and_the_workers_over_time(browser: Any, errors: list[str]) -> None:
    """Loss and accuracy are of a run that trained for real, which its run.json has; the rest is the record's."""
    simulated = run(small_scenario(3), "aonline")
    job = simulated.jobs["id"][0]
    found = {"accuracy": 0.875, "metric": None, "losses": [[1, 2.5], [2, 1.5], [3, 0.5]], "accuracies": [[1, 0.5]]}
    real = replace(simulated, meta={**simulated.meta, "training": {job: found}})
    for address in served([real]):
        page = opened(browser, address, errors)
        choose(page, "training")
        page.locator("#training-job").fill(job)
        page.keyboard.press("Enter")
        page.locator("#training-found h2").wait_for()
        text = page.locator("#training-found").inner_text()
        assert "accuracy 0.875" in text
        assert "after epoch 1: 0.5" in text
        assert page.locator("#training-charts canvas").count() == 3
        points = page.evaluate("skedgeView.training.found")
        assert points["losses"] == found["losses"]
        runs = real.schedule.runs.filter(pl.col("job") == 0)
        begin, end = runs["start"].min(), runs["end"].max()
        held = runs.filter(start=begin)["workers"].sum()
        assert points["workers"][0] == [pytest.approx(begin / SECOND), held]
        assert points["workers"][-1] == [pytest.approx(end / SECOND), 0]
        assert points["done"][-1][1] == pytest.approx(1)
        page.locator("#training-job").fill("nobody")
        page.keyboard.press("Enter")
        page.locator("#training-found .note").wait_for()
        assert page.locator("#training-charts").is_hidden()
        page.close()
    assert [error for error in errors if "400" not in error] == []


def test_a_simulated_job_has_no_loss(page: Any, runs: list[Run]) -> None:
    choose(page, "jobs")
    page.locator("#jobs-table").get_by_role("button", name=runs[0].jobs["id"][0], exact=True).click()
    choose(page, "training")
    page.locator("#training-found h2").wait_for()
    assert page.locator("#training-loss").is_hidden()
    assert page.locator("#training-charts canvas").count() == 2


def test_an_unknown_job_is_answered_in_a_sentence(browser: Any, url: str, errors: list[str]) -> None:
    page = opened(browser, url, errors)
    choose(page, "why")
    page.locator("#why-job").fill("nobody")
    page.locator("#why-job").press("Enter")
    page.locator("#why-found .note").wait_for()
    assert "job 'nobody' is not in this run" in page.locator("#why-found .note").inner_text()
    page.close()
    assert len(errors) == 1, "Chromium itself reports an answer with status 400, and nothing else"
    assert "status of 400" in errors[0]


def test_servers_and_the_data_moved_are_those_of_the_record(page: Any, runs: list[Run]) -> None:
    choose(page, "map")
    page.locator("#servers-table").wait_for()
    names = page.locator("#servers-table tbody th").all_inner_texts()
    assert names == runs[0].scenario.cluster.server_ids
    assert page.locator("#map-found [data-server]").count() == len(names)
    mb = [
        float(row.locator("td").nth(2).inner_text().replace(",", ""))
        for row in page.locator("#links-table tbody tr").all()
    ]
    assert sum(mb) == pytest.approx(float(runs[0].schedule.uploads["mb"].sum()), abs=0.05 * len(mb) + 0.01)


def test_two_runs_are_compared_job_by_job(page: Any, runs: list[Run]) -> None:
    choose(page, "compare")
    page.locator("#compare-jobs tbody tr").first.wait_for()
    assert page.locator("#comparison tbody tr").count() == 2
    first, second = (dict(one.jobs.select("id", "jct").iter_rows()) for one in runs)
    differ = {name for name in first if first[name] != second[name]}
    shown = {
        row.locator("th").inner_text(): row.locator("td").all_inner_texts()
        for row in page.locator("#compare-jobs tbody tr").all()
    }
    assert set(shown) == differ
    for name, (a, b, _) in shown.items():
        assert a == ("not finished" if first[name] is None else clock(first[name]))
        assert b == ("not finished" if second[name] is None else clock(second[name]))


def test_tabs_are_reached_by_arrow_keys(page: Any) -> None:
    page.get_by_role("tab", name="Lanes").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", name="Jobs").get_attribute("aria-selected") == "true"
    page.keyboard.press("End")
    assert page.locator("#compare").is_visible()
    assert page.url.endswith("#compare")


def test_sites_have_their_transfers(browser: Any, errors: list[str]) -> None:
    scenario = site_scenario(5, sites=6, jobs=12)
    done = run(scenario, prepare_policy("fifo", scenario))
    for url in served([done]):
        page = opened(browser, url, errors)
        assert not page.get_by_role("tab", name="Compare").is_visible()
        choose(page, "map")
        page.locator("#links-table").wait_for()
        pairs = done.schedule.uploads.select("from_site", "to_server").unique()
        assert page.locator("#links-table tbody tr").count() == pairs.height
        page.close()
    assert errors == []


@pytest.mark.parametrize(
    ("width", "scheme"),
    thorough_except([(1280, "light"), (375, "dark")], product([1280, 375], ["light", "dark"])),
)
def test_no_view_has_serious_findings_of_axe(
    browser: Any, url: str, errors: list[str], scheme: str, width: int
) -> None:
    """Names, roles, contrast and the like, by axe-core; and no view is wider than the window."""
    source = axe_source()
    page = opened(browser, url, errors, color_scheme=scheme, viewport={"width": width, "height": 800}, bypass_csp=True)
    for view in VIEWS:
        choose(page, view)
        if view == "why":
            page.locator("#why-job").fill("job-0")
        page.wait_for_load_state("networkidle")
        page.evaluate(source)
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
        assert [
            (view, one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in {"serious", "critical"}
        ] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
    assert errors == []


def axe_source() -> str:
    """The script of axe-core, which the package axe-core-python brings."""
    from importlib.resources import files

    pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
    return files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")


def asked(url: str, path: str, **headers: str) -> int:
    connection = HTTPConnection(urlsplit(url).netloc)
    connection.request("GET", f"/{path}", headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_what_is_wrong_is_refused(url: str) -> None:
    assert asked(url, "v1/view") == 200
    assert asked(url, "v1/nothing") == 404
    assert asked(url, "view/../recorded.py") == 404
    assert asked(url, "v1/jobs?run=2") == 400
    assert asked(url, "v1/jobs?run=x") == 400
    assert asked(url, "v1/view", Host="elsewhere.example:80") == 403
