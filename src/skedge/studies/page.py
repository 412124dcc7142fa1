"""A study's results in a folder: a page with its figure for readers, JSON and Parquet for programs."""

from __future__ import annotations

import importlib.resources
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import polars as pl

from skedge.analysis.intervals import Estimate
from skedge.report.build import write_report

from .figure import svg
from .judge import Judgement, Verdict, judge, overall
from .outcome import Cell, Outcome, shown
from .study import Hypothesis, Study

_LIBRARIES = ("skedge", "torch", "ray")

_HINT = "Points are means over the seeds, bars their 95 % confidence intervals (BCa bootstrap, from 5 seeds on)."
_TESTS = (
    "p: Student's t-test of the differences paired by seed, corrected by Holm's method for the number of parts; below "
    "5 %, divided by the number of looks at the seeds, a part is decided. d: mean difference by its standard deviation."
)
_OF_PARTS = {Verdict.HOLDS: "hold", Verdict.FAILS: "do not hold", Verdict.OPEN: "are not decided"}


@dataclass(frozen=True)
class Findings:
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
        Number of looks at which the claim could have been decided.
    reasons
        The findings under each hypothesis, if the claim does not hold.
    """

    study: Study
    seeds: int
    rows: pl.DataFrame
    outcome: Outcome
    violations: Mapping[str, Sequence[str]]
    runs: int
    looks: int = 1
    reasons: tuple[tuple[Hypothesis, Findings], ...] = ()

    @cached_property
    def judgements(self) -> list[Judgement]:
        """The verdict on each part of the claim."""
        return judge(self.outcome.parts, self.looks)

    @property
    def verdict(self) -> Verdict:
        """Whether the claim holds here."""
        return overall(self.judgements)

    @property
    def tally(self) -> str:
        """In words: on how many parts there is which verdict."""
        counts = Counter(judgement.verdict for judgement in self.judgements)
        return ", ".join(f"{counts[verdict]} {_OF_PARTS[verdict]}" for verdict in Verdict if counts[verdict])

    @property
    def sentences(self) -> list[str]:
        """The verdict, and under which hypotheses the claim holds."""
        held = f"{self.verdict}, with {self.seeds} seed{'s' if self.seeds > 1 else ''}"
        found = [held if len(self.judgements) == 1 else f"{held}: of {len(self.judgements)} parts {self.tally}"]
        for hypothesis, one in self.reasons:
            word = {Verdict.HOLDS: "holds if", Verdict.FAILS: "does not hold either if"}.get(
                one.verdict, "open whether it holds if"
            )
            found.append(f"{word} {hypothesis.text} ({hypothesis.about}): {one.sentences[0]}")
        return found

    @property
    def command(self) -> str:
        """The command that repeats the study."""
        trace = " --trace FILE" if getattr(self.study.settings, "with_trace", False) else ""
        return f"skedge reproduce {self.study.paper} {self.study.figure} --seeds {self.seeds}{trace}"

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
            "ours": self.study.ours,
            "claim": self.study.claim,
            "verdict": str(self.verdict),
            "parts": [_judged(judgement) for judgement in self.judgements],
            "reasons": [
                {
                    **hypothesis.model_dump(mode="json"),
                    "verdict": str(one.verdict),
                    "parts": [_judged(j) for j in one.judgements],
                    "seeds": list(range(one.seeds)),
                    "runs": one.runs,
                }
                for hypothesis, one in self.reasons
            ],
            "table": table,
            "runs": self.runs,
            "violations": {label: list(of) for label, of in self.violations.items()},
            "setting": self.study.model_dump(mode="json", exclude_defaults=True),
            "seeds": list(range(self.seeds)),
            "versions": _versions(),
            "command": self.command,
        }


def write_findings(found: Findings, folder: Path) -> None:
    """Write ``results.json``, ``results.parquet``, ``figure.svg`` and ``report.html`` into `folder`."""
    plain = {**found.plain(), "rows": found.rows.to_dicts()}
    (folder / "results.json").write_text(json.dumps(plain, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    found.rows.write_parquet(folder / "results.parquet")
    (folder / "figure.svg").write_text(svg(found.outcome.figure) + "\n", encoding="utf-8")
    write_report(folder / "report.html", page(found))


def page(found: Findings) -> str:
    """The report of a study as one HTML file, with the styles of the other reports and no script."""
    study, outcome = found.study, found.outcome
    css = (importlib.resources.files("skedge.report") / "report.css").read_text("utf-8").strip()
    parts = [
        (one.part.text, one.verdict, one.part.numbers, shown(one.p, 4), shown(one.effect)) for one in found.judgements
    ]
    table = [[shown(cell) for cell in row] for row in outcome.rows]
    whose = "Our claim" if study.ours else f"The claim of {study.paper}"
    broken = [f"{label}: {sentence}" for label, of in found.violations.items() for sentence in of]
    body = [
        f"<header><h1>{escape(study.title)}</h1>",
        f'<p id="lede">{escape(whose)}: {escape(study.claim)}. '
        f"<strong>{escape(found.sentences[0])}</strong></p></header>",
        f"<main><section>{svg(outcome.figure)}",
        f'<p class="hint">{escape(_HINT)}</p></section>',
        _section(
            "The claim, part by part",
            _table(("part", "verdict", "numbers", "p", "effect (d)"), parts) + f'<p class="hint">{escape(_TESTS)}</p>',
        ),
        *([_section("Reasons", _list(found.sentences[1:]))] if found.reasons else []),
        _section("What was measured", _table(outcome.columns, table)),
        _section("Where the setting departs from the paper's", _list(study.scaled)),
        _section("Rules of the model", f"<p>{escape(found.verified)}</p>{_list(broken)}"),
        _section("Repeat with", f"<pre><code>{escape(found.command)}</code></pre>"),
        "</main>",
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(study.title)}</title>\n'
        f"<style>{css}\nsvg {{ max-width: 60rem; width: 100%; }}\n"
        "thead th { padding: .35rem .75rem; }</style>\n</head>\n"
        f"<body>\n{''.join(body)}\n</body>\n</html>\n"
    )


def _versions() -> dict[str, str]:
    """Versions of the installed libraries, as not every study needs the extras."""
    found = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _judged(judgement: Judgement) -> dict[str, object]:
    part, mean = judgement.part, judgement.difference
    return {
        "text": part.text,
        "verdict": str(judgement.verdict),
        "numbers": part.numbers,
        "p": judgement.p,
        "effect": judgement.effect,
        "difference": None if mean is None else asdict(mean),
    }


def _plain(cell: Cell) -> object:
    return asdict(cell) if isinstance(cell, Estimate) else cell


def _section(title: str, inside: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{inside}</section>"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _list(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>" if items else ""
