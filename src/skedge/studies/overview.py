"""All figures in one folder: which studies are still to be run, and a page with the verdict on every claim."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skedge.runs.tasks import key_of

from .judge import Verdict
from .study import Study

PAPERS = {
    "jsac22": "A_online, preemptive (JSAC'22)",
    "she": "A_online, batch (She et al.)",
    "okita": "Okita",
    "pdors": "PD-ORS",
    "cross": "Across papers",
}
"""The papers in the order of the page, with their headings."""

_RESULTS, _KEY = "results.json", "key"

Results = Mapping[str, Any]
"""The content of a study's ``results.json``."""


def key_of_study(study: Study, seeds: int | None, trace: Path | None) -> str:
    """Equal keys mean equal results of a simulated study: of its file, the seeds, its trace and the program."""
    return key_of(study.model_dump_json(), seeds, trace.read_bytes() if study.with_trace and trace else None)


def is_finished(folder: Path, key: str) -> bool:
    """Whether a study's folder holds the results of this key."""
    key_file = folder / _KEY
    return key_file.is_file() and key_file.read_text(encoding="utf-8").strip() == key


def finish(folder: Path, key: str) -> None:
    """Mark a study's folder as finished."""
    (folder / _KEY).write_text(key + "\n", encoding="utf-8")


def write_overview(folder: Path, studies: Sequence[Study], missing: Mapping[str, str]) -> None:
    """Write ``index.md`` into the folder of the studies' folders; `missing`: why a study was not run, by its name."""
    names = (study.name for study in studies if study.name not in missing and (folder / study.name).is_dir())
    results = {name: results_of(folder / name) for name in names}
    lines = ["# Every figure again", "", *_summary(studies, results), ""]
    for paper, heading in PAPERS.items():
        paper_studies = sorted((study for study in studies if study.paper == paper), key=in_order)
        rows = [_row(study, results.get(study.name), missing) for study in paper_studies]
        if rows:
            lines += [
                f"## {heading}",
                "",
                "| figure | claim | verdict | seeds | minutes |",
                "|---|---|---|---|---|",
                *rows,
                "",
            ]
    (folder / "index.md").write_text("\n".join(lines), encoding="utf-8")


def in_order(study: Study) -> list[tuple[int, str]]:
    """Sorts fig3 before fig10: the parts of the figure's name, numbers by their value."""
    return [(int(number or 0), word) for word, number in re.findall(r"(\D+)(\d*)", study.figure)]


def results_of(folder: Path) -> Results:
    """The results in a study's folder."""
    results: Results = json.loads((folder / _RESULTS).read_text(encoding="utf-8"))
    return results


def _summary(studies: Sequence[Study], results: Mapping[str, Results]) -> list[str]:
    """In words: how many claims hold."""
    paper_results = [results[study.name] for study in studies if study.name in results and not study.ours]
    our_results = [results[study.name] for study in studies if study.name in results and study.ours]
    simulated = Counter(
        results[study.name]["verdict"] for study in studies if study.name in results and not study.trained
    )
    undecided = f"{simulated[Verdict.OPEN]} of {simulated.total()}"
    minutes, trained = _minutes(studies), _minutes([study for study in studies if study.trained])
    runs = sum(result["runs"] + sum(reason["runs"] for reason in result["reasons"]) for result in results.values())
    return [
        f"Of the papers' claims {_verdict_counts(paper_results)}. Of our own {_verdict_counts(our_results)}. "
        f"Of the simulated claims {undecided} are not decided. {runs:,} runs, "
        "each checked against every rule of the model. "
        "A verdict is a paired test over seeds, corrected for the number of its parts and of the looks at the seeds; "
        "each figure's page has the parts, the numbers, the setting and, where the claim does not hold, the reasons "
        "that were tried. Minutes are those of 2 cores, about; figures of one setting "
        "share their runs (jsac22 4 and 6; okita 4 and 5, 7 and 8). "
        f"In all they are {minutes:,.0f}, of which {trained:,.0f} train for real; "
        "`reproduce all` simulates beside those.",
    ]


def _minutes(studies: Sequence[Study]) -> float:
    """Minutes of all studies; of figures that share their runs, the longest one counts."""
    longest = dict[tuple[str, str], float]()
    for study in studies:
        group = (study.paper, study.runs_of or study.figure)
        # runs are shared, so the other figures of the group cost nothing more
        longest[group] = max(study.minutes, longest.get(group, 0.0))
    return sum(longest.values())


def _verdict_counts(results: Sequence[Results]) -> str:
    counts = Counter(result["verdict"] for result in results)
    words = {Verdict.HOLDS: "hold", Verdict.FAILS: "do not hold", Verdict.OPEN: "are not decided"}
    parts = ", ".join(f"{counts[verdict]} {word}" for verdict, word in words.items())
    # no share of nothing
    share = f" ({counts[Verdict.HOLDS] / len(results):.0%} hold)" if results else ""
    return f"{parts}{share}"


def _row(study: Study, result: Results | None, missing: Mapping[str, str]) -> str:
    if result is None:
        return (
            f"| {study.figures} | {study.claim} | not run: {missing.get(study.name, 'not yet')} | | {study.minutes:g} |"
        )
    verdict = "; ".join([f"**{result['verdict']}**", *(_reason_text(reason) for reason in result["reasons"])])
    page = f"[{study.figures}]({study.name}/report.html)"
    return f"| {page} | {study.claim} | {verdict} | {len(result['seeds'])} | {study.minutes:g} |"


def _reason_text(reason: Mapping[str, Any]) -> str:
    words = {str(Verdict.HOLDS): "holds if", str(Verdict.FAILS): "nor if"}
    return f"{words.get(reason['verdict'], 'open if')} {reason['text']}"
