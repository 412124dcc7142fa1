"""A study's results in a folder: a page with its figure for readers, JSON and Parquet for programs."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import polars as pl

from skedge.analysis.intervals import Estimate
from skedge.report.build import write_report

from .figure import svg
from .outcome import Cell, Outcome, shown
from .study import Study

_LIBRARIES = ("skedge", "torch", "ray")

_HINT = "Points are means over the seeds, bars their 95 % confidence intervals (Student's t)."


@dataclass(frozen=True)
class Findings:
    """The results of a study.

    Attributes
    ----------
    rows
        The measurements.
    violations
        Rules that records break, by run.
    runs
        Number of runs.
    """

    study: Study
    seeds: int
    rows: pl.DataFrame
    outcome: Outcome
    violations: Mapping[str, Sequence[str]]
    runs: int

    @property
    def verdict(self) -> str:
        """In words: whether the claim holds here."""
        if self.study.ours:
            return "holds" if self.outcome.holds else "does not hold"
        return "reproduced" if self.outcome.holds else "not reproduced"

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
            "verdict": self.verdict,
            "parts": [asdict(part) for part in self.outcome.parts],
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
    parts = [(part.text, "yes" if part.holds else "no", part.numbers) for part in outcome.parts]
    table = [[shown(cell) for cell in row] for row in outcome.rows]
    whose = "Our claim" if study.ours else f"The claim of {study.paper}"
    broken = [f"{label}: {sentence}" for label, of in found.violations.items() for sentence in of]
    body = [
        f"<header><h1>{escape(study.title)}</h1>",
        f'<p id="lede">{escape(whose)}: {escape(study.claim)}. <strong>{escape(found.verdict)}</strong></p></header>',
        f"<main><section>{svg(outcome.figure)}",
        f'<p class="hint">{escape(_HINT)}</p></section>',
        _section("The claim, part by part", _table(("part", "holds", "numbers"), parts)),
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
