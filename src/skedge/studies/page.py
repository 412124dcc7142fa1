"""A study's results in a folder: a page with its figure for readers, JSON and Parquet for programs."""

from __future__ import annotations

import importlib.resources
import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import polars as pl

from skedge.analysis.intervals import Estimate
from skedge.core.errors import InputError
from skedge.report.pictures import can_draw, write_pictures
from skedge.report.write import write_report

from .figure import Figure, svg
from .judge import MOST_SEEDS, Judgement, Verdict, judge, overall, seeds_to_decide
from .outcome import Cell, Outcome, format_cell
from .reading import KEPT
from .study import Study

_LIBRARIES = ("skedge", "torch", "ray")

_HINT = "Points are means over the seeds, bars their 95 % confidence intervals (BCa bootstrap, from 5 seeds on)."
_TESTS = (
    "p: Student's t-test of the differences paired by seed or, where a pseudo-median is stated, Wilcoxon's signed-rank "
    "test; corrected for the number of looks at the seeds (Pocock) and of parts (Holm); below 5 % a part is decided. "
    "d: mean difference by its standard deviation."
)
_OF_PARTS = {Verdict.HOLDS: "hold", Verdict.FAILS: "do not hold", Verdict.OPEN: "are not decided"}


@cache
def _versions() -> dict[str, str]:
    """Versions of the installed libraries, as not every study needs the extras; in a checkout, the sources' commit."""
    versions = {}
    for name in _LIBRARIES:
        # a simulated study needs neither torch nor ray
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    git_log = ["git", "-C", str(importlib.resources.files("skedge")), "log", "-1", "--format=%h", "--", "."]
    with suppress(OSError):
        # in a wheel there is no repository: git fails, and there is no commit
        commit = subprocess.run(git_log, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603 - fixed
        versions |= {"commit": commit} if commit else {}
    return versions


@dataclass(frozen=True)
class StudyResults:
    """The results of a study.

    Attributes
    ----------
    seeds
        Number of seeds that were run.
    rows
        The measurements.
    violations
        Rules that records break, by run.
    runs
        Number of runs.
    looks
        Numbers of seeds at which the claim could have been decided.
    versions
        Those of skedge and its libraries with which the runs were made.
    """

    study: Study
    seeds: int
    rows: pl.DataFrame
    outcome: Outcome
    violations: Mapping[str, Sequence[str]]
    runs: int
    looks: tuple[int, ...] = (1,)
    versions: Mapping[str, str] = field(default_factory=_versions)

    @cached_property
    def judgements(self) -> list[Judgement]:
        """The verdict on each part of the claim."""
        return judge(self.outcome.parts, self.looks)

    @property
    def verdict(self) -> Verdict:
        """Whether the claim holds here."""
        verdict = overall(self.judgements)
        return Verdict.EASIER if verdict is Verdict.HOLDS and self.study.easier else verdict

    @property
    def broken(self) -> bool:
        """Whether a record breaks a rule of the model."""
        return bool(self.violations)

    @property
    def tally(self) -> str:
        """In words: on how many parts there is which verdict."""
        counts = Counter(judgement.verdict for judgement in self.judgements)
        return ", ".join(f"{counts[verdict]} {_OF_PARTS[verdict]}" for verdict in Verdict if counts[verdict])

    @property
    def figure(self) -> Figure:
        """The figure, with the levels that the paper prints."""
        figure = self.outcome.figure
        # only numbers that are values of the figure's y axis
        levels = tuple(
            (number.at, f"the paper: {number.text}") for number in self.study.printed if number.at is not None
        )
        return replace(figure, guides=figure.guides + levels)

    @property
    def sentences(self) -> list[str]:
        """The verdict, and what makes it say little."""
        verdict_text = f"{self.verdict}, with {self.seeds} seed{'s' if self.seeds > 1 else ''}"
        return [
            verdict_text
            if len(self.judgements) == 1
            else f"{verdict_text}: of {len(self.judgements)} parts {self.tally}",
            *([f"easier than the paper's metric: {self.study.easier}"] if self.study.easier else []),
            *([self.power] if self.power else []),
            *(f"near-vacuous: {caveat}" for caveat in self.outcome.caveats),
        ]

    @property
    def power(self) -> str:
        """In words: how many seeds would decide an open claim; empty if it is decided, or has too few for any test."""
        open_parts = [judgement for judgement in self.judgements if judgement.verdict is Verdict.OPEN]
        if self.verdict is not Verdict.OPEN or any(judgement.nearer is None for judgement in open_parts):
            return ""
        seeds = seeds_to_decide(self.judgements)
        # two digits, as it is an estimate
        number = f"about {float(f'{seeds:.2g}'):,.0f}" if seeds is not None else f"more than {MOST_SEEDS:,}"
        return f"{number} seeds would decide it, if what they measure stays as it is"

    @property
    def command(self) -> str:
        """The command that repeats the study."""
        trace = " --trace FILE" if self.study.with_trace else ""
        readings = " --readings" if self.study.reading == KEPT[1] else ""
        return f"skedge reproduce {self.study.paper} {self.study.figure}{readings} --seeds {self.seeds}{trace}"

    @property
    def seed_numbers(self) -> list[int]:
        """The seeds that were run."""
        return list(range(self.study.first_seed, self.study.first_seed + self.seeds))

    @property
    def verified(self) -> str:
        """In words: the number of runs in which every rule holds."""
        if not self.runs:
            return "computed from a formula, without a run"
        return f"every rule holds in {self.runs - len(self.violations)} of {self.runs} runs"

    def plain(self) -> dict[str, Any]:
        """The results without the single rows, as plain JSON types."""
        columns = self.outcome.columns
        table = [dict(zip(columns, map(_plain, row), strict=True)) for row in self.outcome.rows]
        return {
            "paper": self.study.paper,
            "figure": self.study.figure,
            "reading": self.study.reading,
            "ours": self.study.ours,
            "claim": self.study.claim,
            "verdict": str(self.verdict),
            "parts": [_plain_judgement(judgement) for judgement in self.judgements],
            "caveats": list(self.outcome.caveats),
            "power": self.power,
            "easier": self.study.easier,
            "table": table,
            "runs": self.runs,
            "violations": {label: list(sentences) for label, sentences in self.violations.items()},
            "setting": self.study.model_dump(mode="json", exclude_defaults=True),
            "seeds": self.seed_numbers,
            "looks": list(self.looks),
            "versions": dict(self.versions),
            "command": self.command,
        }


def write_findings(results: StudyResults, folder: Path) -> None:
    """Write what was found into `folder`.

    ``report.html``; ``results.json`` and ``results.parquet``, a row for each thing measured; the figure as
    ``figure.svg`` and, with the extra `figures`, ``figure.png`` and ``figure.pdf``; its points in ``figure.csv``.
    """
    # NaN is no JSON: better to fail here than in a reader
    plain = json.dumps(results.plain(), indent=2, allow_nan=False)
    (folder / "results.json").write_text(plain + "\n", encoding="utf-8")
    results.rows.write_parquet(folder / "results.parquet")
    _points(results.figure).write_csv(folder / "figure.csv")
    write_pictures(svg(results.figure) + "\n", folder / "figure")
    write_report(folder / "report.html", page(results))


def judged_again(study: Study, folder: Path) -> StudyResults | None:
    """The results in a study's folder, judged again; None if the runs are of another setting.

    Raises
    ------
    InputError
        If a file of the folder cannot be read.
    """
    try:
        stored = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        if _setting_of_runs(stored["setting"]) != _setting_of_runs(
            study.model_dump(mode="json", exclude_defaults=True)
        ):
            return None
        rows = pl.read_parquet(folder / "results.parquet")
        numbers = stored["violations"], stored["runs"], tuple(stored["looks"]), stored["versions"]
        return StudyResults(study, len(stored["seeds"]), rows, study.settings.outcome(rows), *numbers)
    except (OSError, ValueError, KeyError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{folder}: its results cannot be read: {error}; remove it to run the study again") from error


_WORDS_OF_STUDIES = {
    "also",
    "title",
    "claim",
    "ours",
    "printed",
    "seeds",
    "cap",
    "runs_of",
    "minutes",
    "easier",
    "scaled",
}
"""Fields of a study that no run depends on."""


def _setting_of_runs(setting: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in setting.items() if name not in _WORDS_OF_STUDIES}


def _points(figure: Figure) -> pl.DataFrame:
    """The points of a figure: line, x, mean and the ends of its 95 % interval."""
    rows = [
        (line.label, figure.names[int(x)] if figure.names else f"{x:g}", value.mean, value.low, value.high)
        for line in figure.lines
        for x, value in zip(line.x, line.values, strict=True)
    ]
    # x as text: it is a name where the axis is categorical
    columns = {"line": pl.String, "x": pl.String, "mean": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    return pl.DataFrame(rows, columns, orient="row")


def _p(p: float | None) -> str:
    """A p-value; how small a tiny one is says nothing."""
    return "< 0.0001" if p is not None and p < 1e-4 else format_cell(p, 4)


def page(results: StudyResults) -> str:
    """The report of a study as one HTML file, with the styles of the other reports and no script."""
    study, outcome = results.study, results.outcome
    parts = [
        (judgement.part.text, judgement.verdict, judgement.part.numbers, _p(judgement.p), format_cell(judgement.effect))
        for judgement in results.judgements
    ]
    measured = [[format_cell(cell) for cell in row] for row in outcome.rows]
    source = "Our claim" if study.ours else f"The claim of {study.paper}"
    broken = [f"{label}: {sentence}" for label, sentences in results.violations.items() for sentence in sentences]
    body = [
        f"<header><h1>{escape(study.title)}</h1>",
        f'<p id="lede">{escape(source)}: {escape(study.claim)}. '
        f"<strong>{escape(results.sentences[0])}</strong></p></header>",
        f"<main><section>{svg(results.figure)}",
        f'<p class="hint">{escape(_HINT)} {_files()}</p></section>',
        section(
            "The claim, part by part",
            table(("part", "verdict", "numbers", "p", "effect (d)"), parts) + f'<p class="hint">{escape(_TESTS)}</p>',
        ),
        *([section("What the verdict says", bullets(results.sentences[1:]))] if results.sentences[1:] else []),
        section("What was measured", table(outcome.columns, measured)),
        *(
            [section("What the paper prints", bullets([number.text for number in study.printed]))]
            if study.printed
            else []
        ),
        section("Where the setting departs from the paper's", bullets(study.scaled)),
        section("Rules of the model", f"<p>{escape(results.verified)}</p>{bullets(broken)}"),
        section("Repeat with", f"<pre><code>{escape(results.command)}</code></pre>{_versions_text(results)}"),
        "</main>",
    ]
    return html_page(study.title, "".join(body))


def html_page(title: str, body: str) -> str:
    """An HTML file with the styles of the other reports and no script."""
    css = (importlib.resources.files("skedge.report") / "report.css").read_text("utf-8").strip()
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(title)}</title>\n'
        f"<style>{css}\nsvg {{ max-width: 60rem; width: 100%; }}\n"
        "thead th { padding: .35rem .75rem; }</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _files() -> str:
    """Links to the figure in other forms, and to its numbers."""
    names = ["figure.svg", *(["figure.pdf"] if can_draw() else []), "figure.csv", "results.json"]
    return " ".join(f'<a href="{name}">{name}</a>' for name in names)


def _versions_text(results: StudyResults) -> str:
    """The setting, the versions of the program and its libraries, and about how long it takes."""
    plain = results.plain()
    setting = escape(json.dumps(plain["setting"], indent=2, ensure_ascii=False))
    versions = escape(", ".join(f"{name} {number}" for name, number in plain["versions"].items()))
    text = f"{versions}; about {results.study.minutes:g} minutes on 2 cores"
    return f"<p>{text}</p><details><summary>The setting</summary><pre><code>{setting}</code></pre></details>"


def _plain_judgement(judgement: Judgement) -> dict[str, object]:
    part, mean = judgement.part, judgement.difference
    return {
        "text": part.text,
        "verdict": str(judgement.verdict),
        "numbers": part.numbers,
        "p": judgement.p,
        "effect": judgement.effect,
        "difference": None if mean is None else asdict(mean),
        "seeds_to_decide": judgement.seeds,
    }


def _plain(cell: Cell) -> object:
    return asdict(cell) if isinstance(cell, Estimate) else cell


def section(title: str, inside: str) -> str:
    """A section with its heading."""
    return f"<section><h2>{escape(title)}</h2>{inside}</section>"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def bullets(items: Iterable[str]) -> str:
    """A list; empty without items."""
    entries = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{entries}</ul>" if entries else ""
