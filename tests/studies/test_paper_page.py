"""The page of a paper: both readings side by side, what each choice decides, and the search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skedge.studies import paper_page
from skedge.studies.judge import Verdict
from skedge.studies.paper_page import write_paper_page, write_search
from skedge.studies.reading import ChoiceValue, Impossible, OpenChoice, PrintedSetting, Reading
from skedge.studies.search import SearchResult, TriedReading
from skedge.studies.study import Study

HOLDS, FAILS = Verdict.HOLDS, Verdict.FAILS


def reading() -> Reading:
    cloud = OpenChoice(
        name="cloud", text="a <cloud>", at="Sec. II", open="its size", why="none is printed",
        plain="endless", joint="forty",
        values={"endless": ChoiceValue(text="no limit"), "forty": ChoiceValue(text="40 workers")},
    )  # fmt: skip
    printed = PrintedSetting(figures=["fig9"], text="200 jobs", at="Sec. VI")
    never = Impossible(figures=["fig9"], text="too few workers", proof="bound")
    return Reading(paper="she", base="s2", choices=[cloud], printed=[printed], impossible=[never])


def study(figure: str, kept: str) -> Study:
    settings = {
        "kind": "sweep", "base": "s2", "vary": "cluster.draw.servers", "values": [1], "axis": "servers",
        "policies": ["batch"], "metric": "jct_total_s",
    }  # fmt: skip
    return Study.model_validate(
        {
            "paper": "she", "figure": figure, "title": f"Title of {figure}", "claim": "it falls", "minutes": 1,
            "settings": settings, "reading": kept,
        }
    )  # fmt: skip


def results(folder: Path, made: Study, verdict: Verdict, n_holding: int, caveats: list[str]) -> None:
    parts = [{"text": f"part {i}", "verdict": HOLDS if i < n_holding else FAILS, "numbers": "1"} for i in range(2)]
    content = {
        "verdict": verdict, "parts": parts, "seeds": [8, 9], "caveats": caveats, "command": "skedge reproduce",
        "power": "about 40 seeds would decide it" if verdict is Verdict.OPEN else "",
    }  # fmt: skip
    (folder / made.name).mkdir()
    (folder / made.name / "results.json").write_text(json.dumps(content))
    (folder / made.name / "figure.svg").write_text(f"<svg><title>{made.name}</title></svg>")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(paper_page, "all_readings", lambda: {"she": reading()})
    studies = [study(figure, kept) for figure in ("fig7", "fig9") for kept in ("plain", "joint")]
    for made, (verdict, n_holding, caveats) in zip(
        studies, [(HOLDS, 2, []), (FAILS, 1, []), (FAILS, 0, []), (HOLDS, 2, ["nothing happens"])], strict=True
    ):
        results(tmp_path, made, verdict, n_holding, list(caveats))
    tried = (
        TriedReading((), {"fig7": [HOLDS, HOLDS], "fig9": [FAILS, FAILS]}),
        TriedReading((("cloud", "forty"),), {"fig7": [FAILS, HOLDS], "fig9": [HOLDS, HOLDS]}),
    )
    write_search(tmp_path / "search-she.json", SearchResult(tried), "key")
    write_paper_page(tmp_path, "she", "She <et al.>", studies)
    return (tmp_path / "she.html").read_text()


def test_it_counts_the_claims_that_hold_under_each_reading(page: str) -> None:
    assert (
        "Under the plain reading, of 2 claims 1 hold, 0 hold by an easier metric, 1 do not hold, 0 are not decided."
        in page
    )
    assert "Under the joint reading, of 2 claims 1 hold, 0 hold by an easier metric, 1 do not hold" in page


def test_it_shows_both_verdicts_and_pictures_of_a_figure(page: str) -> None:
    assert "<td>holds (2 of 2 parts, 2 seeds)</td><td>does not hold (1 of 2 parts, 2 seeds)</td>" in page
    assert "holds (2 of 2 parts, 2 seeds); near-vacuous: nothing happens" in page
    for name in ("she-fig7-plain", "she-fig7-joint", "she-fig9-plain", "she-fig9-joint"):
        assert f"<svg><title>{name}</title></svg>" in page


def test_it_says_what_each_choice_decides_and_what_the_search_found(page: str) -> None:
    assert "“a &lt;cloud&gt;” (Sec. II): its size" in page
    assert "forty wins fig9 and loses fig7" in page
    assert "2 readings were tried, of at most 150, on the seeds 0 to 7" in page
    parts = "each judged by itself, 2 of 4 hold there under the plain reading, 3 of 4 under the best one"
    assert f"{parts}: cloud = forty." in page
    assert "Held, each in some reading, but never together: fig7 and fig9." in page
    assert "fig9: too few workers (by a bound)" in page
    assert "“200 jobs” (Sec. VI)" in page


def test_a_paper_whose_search_has_not_been_run_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_page, "all_readings", lambda: {"she": reading()})
    write_paper_page(tmp_path, "she", "She et al.", [study("fig7", kept) for kept in ("plain", "joint")])
    page = (tmp_path / "she.html").read_text()
    assert "It has not been run." in page
    assert "<td>not run</td><td>not run</td>" in page
    assert "of 1 claims 0 hold, 0 hold by an easier metric, 0 do not hold, 0 are not decided, 1 were not run." in page


def test_a_study_that_is_not_made_yet_does_not_count_as_the_other_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper_page, "all_readings", lambda: {"she": reading()})
    plain, joint = (study("fig7", kept) for kept in ("plain", "joint"))
    results(tmp_path, plain, HOLDS, 2, [])
    write_paper_page(tmp_path, "she", "She et al.", [plain, joint])
    page = (tmp_path / "she.html").read_text()
    assert "<td>holds (2 of 2 parts, 2 seeds)</td><td>not run</td>" in page
    assert "Under the joint reading, of 1 claims 0 hold" in page


def test_studies_across_papers_have_a_page_without_readings(tmp_path: Path) -> None:
    made = study("fig7", "plain").model_copy(update={"paper": "cross", "reading": "", "ours": True})
    results(tmp_path, made, FAILS, 1, [])
    write_paper_page(tmp_path, "cross", "Across papers", [made])
    page = (tmp_path / "cross.html").read_text()
    assert "Of 1 claims of ours 0 hold, 0 hold by an easier metric, 1 do not hold, 0 are not decided." in page
    assert "<td>ours: it falls</td><td>does not hold (1 of 2 parts, 2 seeds)</td>" in page
    assert "What the text leaves open" not in page
