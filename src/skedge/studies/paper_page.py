"""A page a paper: its figures under both readings side by side, its choices with what each decides, and the search.

The studies across papers, which have no readings, have a page of their figures alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from .judge import Verdict
from .page import bullets, html_page, section, table
from .reading import KEPT, OpenChoice, Reading, all_readings
from .search import SearchResult, TriedReading
from .study import SEARCHED, Study

_COUNTED = (Verdict.HOLDS, Verdict.EASIER, Verdict.FAILS, Verdict.OPEN)


_LETTERS = {verdict: verdict.name[0] for verdict in Verdict}
"""A letter a verdict: a search has thousands of them."""


def write_search(file: Path, result: SearchResult, key: str) -> None:
    """Write the attempts of a search, with a letter for the verdict on each part of a claim: whole, or not at all.

    `key` is equal where what decides the verdicts is.
    """
    attempts = [
        {
            "changes": dict(a.changes),
            "verdicts": {figure: "".join(map(_LETTERS.__getitem__, v)) for figure, v in a.verdicts.items()},
        }
        for a in result.attempts
    ]
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps({"key": key, "attempts": attempts}, indent=1) + "\n", encoding="utf-8")
    partial.replace(file)


def read_search(file: Path) -> tuple[SearchResult, str] | None:
    """The attempts of a search and its key; None if there was none."""
    if not file.is_file():
        return None
    content = json.loads(file.read_text(encoding="utf-8"))
    verdict_of = {letter: verdict for verdict, letter in _LETTERS.items()}
    attempts = (
        TriedReading(
            tuple(a["changes"].items()),
            {figure: [verdict_of[letter] for letter in letters] for figure, letters in a["verdicts"].items()},
        )
        for a in content["attempts"]
    )
    return SearchResult(tuple(attempts)), content["key"]


def write_paper_page(folder: Path, paper: str, heading: str, studies: Sequence[Study]) -> None:
    """Write ``PAPER.html`` from the results in `folder`.

    Parameters
    ----------
    folder
        With a folder of results for each study, and ``search-PAPER.json`` if there was a search.
    paper, heading
        The paper, and its name in words.
    studies
        Its studies under both readings, in the order of the page.
    """
    by_figure = dict[str, dict[str, _Made]]()
    for study in studies:
        by_figure.setdefault(study.figure, {})[study.reading] = _made(folder, study)
    reading = all_readings().get(paper)
    readings = KEPT if reading is not None else ("",)
    body = [
        f'<header><h1>{escape(heading)}</h1><p id="lede">{escape(_lede(by_figure, readings))}</p></header><main>',
        section("The claims", _claims(by_figure, readings)),
        *(_reading_sections(reading, folder / f"search-{paper}.json") if reading is not None else []),
        *(_figure(figure, by_reading) for figure, by_reading in by_figure.items()),
        "</main>",
    ]
    (folder / f"{paper}.html").write_text(html_page(heading, "".join(body)), encoding="utf-8")


def _reading_sections(reading: Reading, search_file: Path) -> Iterator[str]:
    search_content = read_search(search_file)
    result = None if search_content is None else search_content[0]
    yield section("What the text leaves open, and what each choice decides", _choices(reading, result))
    yield section("The search for the joint reading", _search_text(reading, result))
    if reading.impossible:
        yield section("What cannot be", bullets(_impossible(reading)))


class _Made(NamedTuple):
    """A study, its results if there are any, and its picture."""

    study: Study
    results: Mapping[str, Any] | None
    svg: str


def _made(folder: Path, study: Study) -> _Made:
    results_file, picture = folder / study.name / "results.json", folder / study.name / "figure.svg"
    if not results_file.is_file():
        return _Made(study, None, "")
    svg = picture.read_text(encoding="utf-8") if picture.is_file() else ""
    return _Made(study, json.loads(results_file.read_text(encoding="utf-8")), svg)


_ByFigure = Mapping[str, Mapping[str, _Made]]
"""Studies by figure and reading; what is made once has one."""


def _lede(by_figure: _ByFigure, readings: Sequence[str]) -> str:
    """How many claims hold, under each reading if there are any; of the papers' claims, or of ours."""
    ours = all(_first(by_reading).study.ours for by_reading in by_figure.values())
    claims = [by_reading for by_reading in by_figure.values() if ours or not _first(by_reading).study.ours]
    sentences = []
    for reading in readings:
        # what is made once counts under both
        made = [_first(by_reading) if len(by_reading) == 1 else by_reading[reading] for by_reading in claims]
        verdicts = [one.results["verdict"] for one in made if one.results is not None]
        counts = [f"{verdicts.count(verdict)} {_words(verdict)}" for verdict in _COUNTED]
        counts += [f"{len(made) - len(verdicts)} were not run"] if len(made) > len(verdicts) else []
        under = f"Under the {reading} reading, of" if reading else "Of"
        sentences.append(f"{under} {len(made)} claims{' of ours' if ours else ''} {', '.join(counts)}.")
    return " ".join(sentences)


def _first(by_reading: Mapping[str, _Made]) -> _Made:
    return next(iter(by_reading.values()))


def _words(verdict: Verdict) -> str:
    plural = {Verdict.HOLDS: "hold", Verdict.EASIER: "hold by an easier metric", Verdict.FAILS: "do not hold"}
    return plural.get(verdict, "are not decided")


def _claims(by_figure: _ByFigure, readings: Sequence[str]) -> str:
    rows = []
    for figure, by_reading in by_figure.items():
        study = _first(by_reading).study
        claim = f"{'ours: ' if study.ours else ''}{study.claim}"
        cells = [_cell(made.results) for made in by_reading.values()]
        # what trains, and a formula
        cells += ["made once"] * (len(readings) - len(cells))
        rows.append((figure, claim, *cells))
    return table(("figure", "claim", *(reading or "verdict" for reading in readings)), rows)


def _cell(result: Mapping[str, Any] | None) -> str:
    """The verdict of a study, how many parts hold, and what makes it say little."""
    if result is None:
        return "not run"
    parts = result["parts"]
    n_holding = sum(part["verdict"] == Verdict.HOLDS for part in parts)
    text = f"{result['verdict']} ({n_holding} of {len(parts)} parts, {len(result['seeds'])} seeds)"
    return "; ".join([text, *remarks_of(result)])


def remarks_of(result: Mapping[str, Any]) -> list[str]:
    """What belongs to a verdict: how many seeds would decide it, and what makes it say little."""
    power = [result["power"]] if result["power"] else []
    return power + [f"near-vacuous: {caveat}" for caveat in result["caveats"]]


def _choices(reading: Reading, result: SearchResult | None) -> str:
    rows = [
        (
            choice.name,
            f"“{choice.text}” ({choice.at}): {choice.open}",
            "; ".join(f"{name}: {option.text}" for name, option in choice.values.items()),
            f"{choice.plain}: {choice.why}",
            choice.joint,
            "" if result is None else _decided(choice, result),
        )
        for choice in reading.choices
    ]
    printed = [(", ".join(p.figures), f"“{p.text}” ({p.at})") for p in reading.printed]
    columns = ("choice", "the text", "what it allows", "plain", "joint", "decides, from the plain reading")
    return table(columns, rows) + (table(("printed for", "the text"), printed) if printed else "")


def _decided(choice: OpenChoice, result: SearchResult) -> str:
    """Which claims a change of this choice alone wins and loses, on the seeds of the search."""
    changes = []
    for value, (won, lost) in result.decided_by(choice.name).items():
        words = [f"{word} {', '.join(sorted(f))}" for word, f in (("wins", won), ("loses", lost)) if f]
        changes.append(f"{value} {' and '.join(words) or 'changes no verdict'}")
    return "; ".join(changes)


def _search_text(reading: Reading, result: SearchResult | None) -> str:
    if result is None:
        return "<p>It has not been run.</p>"
    plain, best = result.attempts[0], result.best
    changes = ", ".join(f"{name} = {value}" for name, value in best.changes) or "no change"
    pairs = "; ".join(" and ".join(pair) for pair in result.never_together)
    return bullets(
        [
            f"{len(result.attempts)} readings were tried, of at most {reading.budget}, on the seeds 0 to "
            f"{SEARCHED - 1} and at three points of a numeric axis: one choice changed at a time from the plain "
            "reading, then from the best, then two at a time from the plain one.",
            f"Of the parts of the claims, each judged by itself, {_parts_text(plain)} hold there under the plain "
            f"reading, {_parts_text(best)} under the best one: {changes}.",
            f"Held in no reading: {', '.join(result.never) or 'none'}.",
            f"Held, each in some reading, but never together: {pairs or 'none'}.",
            f"The verdicts of simulated claims are of seeds from {SEARCHED} on, which the search has not seen.",
            *(
                ["The joint reading of the page is not the best one of this search."]
                if reading.selection("joint") != reading.selection("plain") | dict(best.changes)
                else []
            ),
        ]
    )


def _parts_text(attempt: TriedReading) -> str:
    return f"{attempt.n_parts} of {attempt.n_parts + attempt.n_missing}"


def _impossible(reading: Reading) -> Iterator[str]:
    for entry in reading.impossible:
        yield f"{', '.join(entry.figures)}: {entry.text} (by {'a bound' if entry.proof == 'bound' else 'the search'})"


def _figure(figure: str, by_reading: Mapping[str, _Made]) -> str:
    """A figure under each of its readings: the picture, and the parts of the claim."""
    study = _first(by_reading).study
    title = f"{figure}: {study.title}"
    inside = [f"<p>{escape(study.claim)}</p>"]
    if study.printed:
        inside.append(bullets([f"the paper prints: {number.text}" for number in study.printed]))
    for reading, (_, result, svg) in by_reading.items():
        inside.append(f"<h3>{escape(reading or 'the verdict')}: {escape(_cell(result))}</h3>{svg}")
        if result is not None:
            parts = [(part["text"], part["verdict"], part["numbers"]) for part in result["parts"]]
            inside.append(
                f"<details><summary>The parts of the claim</summary>{table(('part', 'verdict', 'numbers'), parts)}"
                f"<pre><code>{escape(result['command'])}</code></pre></details>"
            )
    if study.scaled:
        inside.append(bullets(study.scaled))
    return f'<section id="{escape(figure)}"><h2>{escape(title)}</h2>{"".join(inside)}</section>'
