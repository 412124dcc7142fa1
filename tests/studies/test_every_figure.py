"""``skedge reproduce all``: a folder of figures that is continued, and the page with all verdicts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skedge.studies.runner import RunContext, findings
from skedge.studies.study import Study, find_study

Skedge = Callable[..., Any]


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Study]:
    """Three small studies in place of all: a formula, a sweep whose claim fails, and one that trains."""
    monkeypatch.chdir(tmp_path)
    whole = find_study("pdors", "fig8")
    changed = {"values": [3], "set": {"cluster.draw.servers": 5}, "grows": False, "beside": []}
    small = whole.settings.model_copy(update=changed)
    sweep = whole.model_copy(update={"settings": small, "seeds": 5, "cap": 5})
    studies = [find_study("pdors", "fig5"), sweep, find_study("jsac22", "fig3")]
    monkeypatch.setattr("skedge.cli.figures.all_studies", lambda: studies)
    return studies


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the times, by their paths."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "times.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_all_figures_are_run_judged_and_listed(few: list[Study], skedge: Skedge) -> None:
    """Two are run; the page links to them, says how many claims hold, and why the third was not run."""
    told = skedge("reproduce", "all", "--simulated", "--out", "f", "--json").json
    assert told["verdicts"] == {"pdors-fig5": "holds", "pdors-fig8-plain": "does not hold"}
    assert told["not_run"] == {"jsac22-fig3": "it trains for real"}
    page = Path("f/index.md").read_text()
    counts = "of the papers' claims {} hold, 0 hold by an easier metric, {} do not hold, 0 are not decided ({}% hold)."
    assert f"Under the plain readings, {counts.format(1, 1, 50)}" in page
    assert f"Under the joint readings, {counts.format(1, 0, 100)}" in page, "a formula is made once"
    assert "[All figures, choices and the search](pdors.html)" in page
    assert f"| fig8 | {few[1].claim} | **does not hold**" in page
    assert f"| fig3 | {few[2].claim} | not run: it trains for real |" in page
    assert "Under the plain reading, of 2 claims 1 hold" in Path("f/pdors.html").read_text()
    assert f"In all they are {sum(study.minutes for study in few):,.0f}, of which 12 train for real;" in page
    assert not Path("f/.points").exists()


def test_what_was_ended_half_way_gives_the_same_bytes(
    few: list[Study], skedge: Skedge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended within the second study, then continued: the first is left as it is, and finished points are found."""

    def ended(study: Study, *rest: Any) -> Any:
        asked.append(study.name)
        found = findings(study, *rest)
        if study.name == few[1].name and dying:
            raise KeyboardInterrupt
        return found

    asked, dying = list[str](), True
    whole = skedge("reproduce", "all", "--simulated", "--out", "whole")
    assert whole.code == 0
    monkeypatch.setattr("skedge.cli.figures.findings", ended)
    assert skedge("reproduce", "all", "--simulated", "--out", "f").code != 0
    assert len(list(Path("f/.points").iterdir())) == 10, "2 policies, 5 seeds"
    dying = False
    assert skedge("reproduce", "all", "--simulated", "--out", "f").code == 0
    assert asked == ["pdors-fig5", "pdors-fig8-plain", "pdors-fig8-plain"]
    assert contents(Path("f")) == contents(Path("whole"))


@pytest.mark.thorough
def test_simulated_figures_are_made_while_others_train(
    few: list[Study], skedge: Skedge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study that trains until the simulated ones are finished; each is then found finished."""

    def trained(study: Study, seeds: int | None, how: RunContext) -> Any:
        asked.append(study.name)
        while not Path("f/pdors-fig8-plain").is_dir():
            assert time.monotonic() < limit
            time.sleep(0.1)
        return findings(find_study("pdors", "fig5"), seeds, how)

    asked, limit = list[str](), time.monotonic() + 300
    monkeypatch.setattr("skedge.cli.figures.find_spec", lambda _: object())
    monkeypatch.setattr("skedge.cli.figures.findings", trained)
    told = skedge("reproduce", "all", "--out", "f", "--json").json
    assert asked == ["jsac22-fig3"], "the others ran in the process beside"
    assert told["verdicts"] == {"pdors-fig5": "holds", "pdors-fig8-plain": "does not hold", "jsac22-fig3": "holds"}
    assert set(told["seconds"]) == set(told["verdicts"])
    assert not [path.name for path in Path("f").iterdir() if path.name.startswith(".")]


def test_quickly_there_is_one_seed_and_nothing_is_decided(few: list[Study], skedge: Skedge) -> None:
    """It shows that every study runs. A trace is for those that take one."""
    assert [study.name for study in few][2] == "jsac22-fig3"
    Path("jobs.csv").touch()
    told = skedge("reproduce", "all", "--quick", "--out", "f", "--trace", "jobs.csv", "--json").json
    assert told["verdicts"] == {"pdors-fig5": "holds", "pdors-fig8-plain": "not decided"}
    assert json.loads(Path("f/pdors-fig8-plain/results.json").read_text())["seeds"] == [8]
    assert set(json.loads(Path("f/times.json").read_text())) == set(told["verdicts"])


def test_what_a_folder_holds_is_judged_again_without_a_run(
    few: list[Study], skedge: Skedge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes; another claim's words are taken, runs of another setting are left as they are."""
    skedge("reproduce", "all", "--simulated", "--out", "f")
    before = contents(Path("f"))
    (Path("f/pdors-fig8-plain/report.html")).unlink()
    Path("f/index.md").unlink()
    monkeypatch.setattr("skedge.cli.figures.findings", None)
    told = skedge("reproduce", "all", "--judge", "--out", "f", "--json").json
    assert told["verdicts"] == {"pdors-fig5": "holds", "pdors-fig8-plain": "does not hold"}
    assert contents(Path("f")).keys() == before.keys()
    changed = {path for path, content in contents(Path("f")).items() if content != before[path]}
    assert changed <= {"index.md", "pdors.html"}, "why the third was not run is not said again"

    few[1] = few[1].model_copy(update={"claim": "said otherwise"})
    assert skedge("reproduce", "all", "--judge", "--out", "f", "--json").json["not_run"] == {}
    assert "said otherwise" in Path("f/pdors-fig8-plain/report.html").read_text()
    few[1] = few[1].model_copy(update={"settings": few[1].settings.model_copy(update={"values": [4]})})
    told = skedge("reproduce", "all", "--judge", "--out", "f", "--json").json
    assert told["verdicts"] == {"pdors-fig5": "holds"}
    assert told["not_run"] == {"pdors-fig8-plain": "its setting has changed since"}
    Path("f/pdors-fig5/results.json").write_text("{")
    refused = skedge("reproduce", "all", "--judge", "--out", "f")
    assert refused.code == 1
    assert refused.words.startswith("skedge: f/pdors-fig5: its results cannot be read: ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("all", "fig3"), "reproduce all runs every figure; for fig3 alone: skedge reproduce PAPER fig3"),
        (("all", "pdors"), "reproduce all runs every figure; for pdors alone: skedge reproduce pdors"),
        (("all", "--resume", "x"), "reproduce all continues in its --out by itself: leave --resume out"),
        (("all", "--readings"), "'all' has no reading; jsac22, okita, pdors, she have one"),
        (("pdors", "fig5", "--readings"), "pdors fig5: is made once, and --readings is for simulated figures"),
        (
            ("she", "--readings", "--resume", "x"),
            "reproduce PAPER --readings continues in its --out by itself: leave --resume out",
        ),
        (
            ("pdors", "fig5", "--quick"),
            "--quick, --simulated and --judge are for all figures: skedge reproduce all",
        ),
        (("all", "--judge", "--out", "none"), "none: holds no figure; skedge reproduce all --out none makes them"),
    ],
)
def test_options_that_do_not_fit_are_one_sentence(skedge: Skedge, words: tuple[str, ...], says: str) -> None:
    """Before anything runs."""
    told = skedge("reproduce", *words)
    assert (told.code, told.words) == (1, f"skedge: {says}")
