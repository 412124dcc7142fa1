"""Readings: each paper's choices, what they set, and that no figure has a setting of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from skedge.core.errors import InputError
from skedge.core.registry import make_policy
from skedge.studies.claims import coarse
from skedge.studies.paper_page import read_search
from skedge.studies.reading import (
    KEPT,
    ChoiceValue,
    OpenChoice,
    PrintedSetting,
    Reading,
    all_readings,
    reading_of,
    with_parameters,
)
from skedge.studies.study import all_studies, study_files, study_under

PAPERS = sorted(all_readings())
FIXED = {"base", "set", "set_for", "variants_set"}
"""Settings of a study that say how its scenario is, and not what is varied, run and claimed."""

FIGURES = Path(__file__).parents[2] / "docs" / "figures"


def small() -> Reading:
    cloud = OpenChoice(
        name="cloud", text="a cloud", at="Sec. II", open="its size", why="none is printed",
        plain="endless", joint="forty",
        values={
            "endless": ChoiceValue(text="no limit"),
            "forty": ChoiceValue(
                text="40 workers", set={"slot": "2h"}, policies={"batch": {"cloud_capacity": 40}},
                settings={"fig9": {"metric": "jobs"}},
            ),
        },
    )  # fmt: skip
    printed = PrintedSetting(figures=["fig9"], text="200 jobs", at="Sec. VI", set={"workload.synthetic.jobs": 200})
    return Reading(paper="she", base="s2", choices=[cloud], printed=[printed])


def content(figure: str = "fig9") -> dict[str, object]:
    settings = {
        "kind": "sweep",
        "vary": "cluster.draw.servers",
        "values": [1],
        "axis": "servers",
        "policies": ["batch"],
    }
    return {"figure": figure, "settings": settings | {"metric": "jct_total_s"}}


def test_a_figure_gets_what_is_printed_for_it_and_what_was_chosen() -> None:
    made = small().apply(content(), {"cloud": "forty"})
    assert made["settings"]["base"] == "s2"
    assert made["settings"]["set"] == {"workload.synthetic.jobs": 200, "slot": "2h"}
    assert made["settings"]["metric"] == "jobs"
    assert made["parameters"] == {"batch": {"cloud_capacity": 40}}
    plain = small().apply(content("fig3"), small().selection("plain"))
    assert (plain["settings"]["set"], plain["parameters"]) == ({}, {})


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        ({"clod": "forty"}, "has no choice 'clod' \\(did you mean cloud\\?\\)"),
        ({"cloud": "fifty"}, "the choice cloud is 'fifty'; the text allows endless, forty"),
        ({}, "the choice cloud is None; the text allows endless, forty"),
    ],
)
def test_a_selection_that_the_text_does_not_allow_is_refused(selection: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        small().apply(content(), selection)


def test_a_choice_whose_value_is_not_there_is_refused() -> None:
    fields = small().choices[0].model_dump() | {"joint": "fifty"}
    with pytest.raises(ValidationError, match="joint is 'fifty', which is none of endless, forty"):
        OpenChoice.model_validate(fields)


def test_the_parameters_of_a_reading_give_way_to_a_figures_own() -> None:
    parameters = {"batch": {"order": "shortest", "strict_upload": False, "cloud_capacity": 40}}
    spelled = with_parameters("batch:order=arrival", parameters)
    assert spelled == "batch:strict_upload=false,cloud_capacity=40,order=arrival"
    assert make_policy(spelled).params.model_dump()["cloud_capacity"] == 40
    assert with_parameters("fifo", parameters) == "fifo"


@pytest.mark.parametrize("figure", [c for c in study_files() if c["paper"] in PAPERS and not c.get("ours")], ids=str)
def test_no_figure_sets_what_its_reading_fixes(figure: dict[str, object]) -> None:
    """A figure's file says its axis, its policies and its claim; where it trains, its scale."""
    settings = figure["settings"]
    assert isinstance(settings, dict)
    assert not FIXED & settings.keys()


@pytest.mark.parametrize("paper", PAPERS)
def test_each_value_of_each_choice_makes_studies(paper: str) -> None:
    """Every study of the paper can be made under each value; a choice that changes no study has no place there."""
    reading, files = reading_of(paper), [c for c in study_files() if c["paper"] == paper]
    plain = [study_under(c, "other", reading.selection("plain")) for c in files]
    for choice in reading.choices:
        for value in choice.values:
            changed = [study_under(c, "other", reading.selection("plain") | {choice.name: value}) for c in files]
            assert (changed != plain) == (value != choice.plain), (choice.name, value)
    known = {figure for c in files for figure in (c["figure"], *c.get("also", []))}
    named = [c.figures for c in reading.choices] + [p.figures for p in reading.printed]
    named += [entry.figures for entry in reading.impossible]
    assert {figure for figures in named for figure in figures} <= known


@pytest.mark.parametrize("paper", PAPERS)
def test_the_joint_reading_is_what_the_search_found(paper: str) -> None:
    file = FIGURES / f"search-{paper}.json"
    if (found := read_search(file)) is None:
        pytest.skip(f"{paper}: the search has not been run")
    reading = reading_of(paper)
    assert reading.selection("joint") == reading.selection("plain") | dict(found[0].best.changes)


def test_studies_are_made_under_both_readings_and_judged_on_seeds_that_the_search_has_not_seen() -> None:
    by_name = {study.name: study for study in all_studies()}
    assert len(by_name) == len(all_studies())
    for study in by_name.values():
        both = study.simulated and study.paper in PAPERS
        assert (study.name.endswith(KEPT)) == both
        assert study.first_seed == (8 if both else 0)


def test_the_search_looks_at_three_points() -> None:
    study = next(s for s in all_studies() if s.name.startswith("jsac22-fig7"))
    values = study.settings.values  # type: ignore[union-attr]
    assert coarse(study).settings.values == [values[0], values[2], values[4]]  # type: ignore[union-attr]


def test_results_are_kept_with_their_key(tmp_path: Path) -> None:
    assert read_search(tmp_path / "none.json") is None
    attempts = [{"changes": {"cloud": "forty"}, "verdicts": {"fig3": "H"}}]
    (tmp_path / "s.json").write_text(json.dumps({"key": "k", "attempts": attempts}))
    found = read_search(tmp_path / "s.json")
    assert found is not None
    assert (found[0].best.holds, found[1]) == ({"fig3"}, "k")
