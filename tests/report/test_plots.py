"""Charts of runs: what they show is the record's, they need no network, and the classes show themselves in Jupyter."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree as ET

import pytest
from IPython.core.interactiveshell import InteractiveShell

from builders.paths import ROOT

sys.path.insert(0, str(ROOT / "tests" / "browser"))

import report_samples as samples

import skedge
from skedge.comparison.compare import compare
from skedge.core.errors import InputError
from skedge.core.model.time import SECOND
from skedge.optimum.types import Bound, Optimum
from skedge.recorded_run import Run
from skedge.report import notebook, plots
from skedge.report.pictures import standalone
from skedge.report.plots import MIME, Plots
from skedge.report.scenario_summary import summary_html
from skedge.report.table import ReportTable
from skedge.simulate import run
from skedge.testing import small_scenario

HOSTILE = '</script><img src=x onerror="hacked=1">'


@pytest.fixture(scope="module")
def done() -> Run:
    return run(small_scenario(3), "srtf")


def _values(plot: plots.Plot) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plot.spec["data"]["values"]
    return found


def test_completion_times_are_the_jobs(done: Run) -> None:
    times = done.jobs["jct"].drop_nulls().sort()
    shares = {round(point["x"] * SECOND): point["y"] for point in _values(done.plot.jct())}
    assert list(shares) == sorted(set(times))
    for time, share in shares.items():
        assert share == pytest.approx((times <= time).sum() / done.jobs.height)


def test_lanes_hold_the_work_of_the_record(done: Run) -> None:
    """A bar is as high as its run has workers, and lies on the rows of its server."""
    plot = done.plot.lanes()
    unit = {"s": 1, "min": 60, "h": 3600, "d": 86400}[re.findall(r"\[(\w+)\]", plot.spec["encoding"]["x"]["title"])[0]]
    drawn = sum((bar["end"] - bar["start"]) * (bar["below"] - bar["row"]) for bar in _values(plot)) * unit
    runs = done.schedule.runs
    assert drawn == pytest.approx(float(((runs["end"] - runs["start"]) * runs["workers"]).sum()) / SECOND)
    assert {bar["job"] for bar in _values(plot)} == set(done.jobs["id"])
    assert {bar["server"] for bar in _values(plot)} == set(runs["server"].cast(str))


def test_utilisation_is_that_of_the_run(done: Run) -> None:
    assert [point["y"] for point in _values(done.plot.utilisation())] == pytest.approx(
        done.utilisation["busy_share"].to_list(), abs=1e-6
    )


def test_more_bars_than_are_drawn_are_said() -> None:
    world = samples.scenario(60)
    shown = Plots([samples.report_run("a", world, samples.chunked(world, 6, 1))])
    assert shown.lanes().spec["title"]["subtitle"] == ""
    few = shown.lanes(max_bars=40)
    assert few.spec["title"]["subtitle"] == "the busiest window"
    assert 0 < len({(bar["job"], bar["start"]) for bar in _values(few)}) <= 40


def test_sixteen_policies_have_lines_of_their_own() -> None:
    world = samples.scenario(5)
    schedule = samples.chunked(world, 2, 1)
    shown = Plots([samples.report_run(f"policy {i}", world, schedule) for i in range(16)])
    encoding = shown.jct().spec["encoding"]
    colours, dashes = (encoding[of]["scale"]["range"] for of in ("color", "strokeDash"))
    assert len({(colour, *dash) for colour, dash in zip(colours, dashes, strict=True)}) == 16
    names = [text.text for text in ET.fromstring(shown.jct().svg()).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314 - it is ours
    assert {f"policy {i}" for i in range(16)} <= set(names)


@pytest.mark.parametrize("name", ["lanes", "jct", "utilisation"])
def test_a_chart_needs_no_network(name: str, done: Run) -> None:
    """The specification has its data, and the drawing refers to nothing."""
    bundle = done.plot.charts()[name]._repr_mimebundle_()
    assert set(bundle) == {MIME, "image/svg+xml", "text/plain"}
    assert set(bundle[MIME]["data"]) == {"values"}
    assert "<script" not in bundle["image/svg+xml"]
    assert set(re.findall(r"https?://[^\s\"']+", bundle["image/svg+xml"])) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_a_chart_is_written_as_svg_png_and_pdf(done: Run, tmp_path: Path) -> None:
    files = done.plot.jct().save(tmp_path / "a.b")
    assert [file.name for file in files] == ["a.b.svg", "a.b.png", "a.b.pdf"]
    assert [file.read_bytes()[:4] for file in files] == [b"<svg", b"\x89PNG", b"%PDF"]
    with pytest.raises(InputError, match=r"missing/a\.svg: cannot be written: No such file"):
        done.plot.jct().save(tmp_path / "missing" / "a")


def test_a_drawing_alone_has_its_own_colours() -> None:
    assert standalone('<g fill="var(--line-1, #0072b2)" stroke="var(--ink, #1a2129)"/>') == (
        '<g fill="#0072b2" stroke="#1a2129"/>'
    )


def test_a_policy_that_was_not_run_is_named(done: Run) -> None:
    with pytest.raises(InputError, match="policy 'fifo' is not among these runs: srtf"):
        done.plot.lanes("fifo")


def test_without_the_extra_jupyter_draws_and_files_are_refused(done: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (plots, notebook):
        monkeypatch.setattr(module, "can_draw", lambda: False)
    assert set(done.plot.jct()._repr_mimebundle_()) == {MIME, "text/plain"}
    with pytest.raises(InputError, match=r"needs the extra `figures`: pip install 'skedge\[figures\]'"):
        done.plot.jct().svg()
    assert "charts need the extra" in done._repr_html_()
    assert "<img" not in done._repr_html_()


def _images(html: str) -> list[ET.Element]:
    """The charts in the HTML, which is well formed but for its images and line breaks."""
    ET.fromstring(re.sub(r"<(img|br)([^>]*)>", r"<\1\2/>", html))  # noqa: S314 - it is ours
    coded = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', html)
    return [ET.fromstring(base64.b64decode(one)) for one in coded]  # noqa: S314 - it is ours


def test_runs_comparisons_optima_and_scenarios_show_themselves(done: Run) -> None:
    both = compare(small_scenario(3), ["srtf", "fifo"], seeds=[3], processes=1)
    bound = Bound("least", 1.0, 0.1, "a <note>")
    best = Optimum("chunks", "jct_total_s", "lower", done, "srtf", 2.0, bound, (bound,))
    assert len(_images(done._repr_html_())) == 1
    assert len(_images(both._repr_html_())) == 1
    assert '<th scope="col">policy</th>' in both._repr_html_()
    assert len(_images(best._repr_html_())) == 1
    assert "best found, gap 50.00%" in best._repr_html_()
    assert "a &lt;note&gt;" in best._repr_html_()
    assert _images(summary_html(done.scenario)) == []


def test_a_scenario_is_a_table_in_a_notebook(done: Run) -> None:
    """The core has no HTML: the package tells IPython how to show a scenario."""
    shell = InteractiveShell()
    shown, _ = shell.display_formatter.format(done.scenario)
    assert "text/html" not in shown
    with patch("IPython.get_ipython", lambda: shell):
        skedge._show_scenarios_in_notebooks()
    shown, _ = shell.display_formatter.format(done.scenario)
    assert shown["text/html"] == summary_html(done.scenario)


def test_names_cannot_become_markup() -> None:
    world = samples.scenario(3, ids=[HOSTILE, "b", "c"])
    shown = Plots([samples.report_run(HOSTILE, world, samples.chunked(world, 2, 1))])
    for plot in shown.charts().values():
        assert "<img" not in plot.svg()
    html = notebook.notebook_html(HOSTILE, ReportTable(("policy", "b"), [[HOSTILE, 1.0]]), [shown.lanes()], HOSTILE)
    assert HOSTILE not in html
    assert len(_images(html)) == 1


@pytest.mark.parametrize("count", [0, 1])
def test_a_run_with_nothing_in_it_is_drawn(count: int) -> None:
    """No jobs, and a job that did not finish."""
    world = samples.scenario(count)
    empty = samples.chunked(world, 0, 1)
    shown = Plots([samples.report_run("a", world, empty)])
    for plot in shown.charts().values():
        assert plot.svg().startswith("<svg")


def test_report_draws_recorded_runs(skedge: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    page, pictures = tmp_path / "page.html", tmp_path / "pictures"
    said = skedge("report", folder, folder, "--out", page, "--pictures", pictures)
    assert said.code == 0, said.err
    assert said.out.split() == ["report:", str(page), "pictures:", str(pictures)]
    assert sorted(file.suffix for file in pictures.iterdir()) == [".pdf"] * 3 + [".png"] * 3 + [".svg"] * 3
    policy = Run.load(folder).policy
    for label in (f"{policy} (1)", f"{policy} (2)", f"skedge report {folder} {folder}"):
        assert label in page.read_text("utf-8")
    assert skedge("report", folder, "--out", page).code == 0
    said = skedge("report", folder, "--out", page, "--pictures", pictures)
    assert (said.code, said.words) == (1, f"skedge: {pictures}: exists already; name a new folder or remove it")


def test_report_replaces_no_other_file(skedge: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "mine.html"
    page.write_text("<p>mine</p>")
    said = skedge("report", folder, "--out", page)
    assert said.code == 1
    assert "mine.html: exists and is not a report of skedge; name another file with --out" in said.words
    assert page.read_text() == "<p>mine</p>"
