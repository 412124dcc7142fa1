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
from .paper_page import remarks_of, write_paper_page
from .reading import KEPT, all_readings
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
    names = (study.name for study in studies if (folder / study.name / _RESULTS).is_file())
    results = {name: results_of(folder / name) for name in names}
    lines = ["# Every figure again", "", *_summary(studies, results), ""]
    for paper, heading in PAPERS.items():
        paper_studies = sorted((study for study in studies if study.paper == paper), key=in_order)
        if paper_studies:
            lines += _section(paper, heading, paper_studies, results, missing)
            write_paper_page(folder, paper, heading, paper_studies)
    (folder / "index.md").write_text("\n".join(lines), encoding="utf-8")


def _section(
    paper: str, heading: str, studies: Sequence[Study], results: Mapping[str, Results], missing: Mapping[str, str]
) -> list[str]:
    """The verdicts on a paper's claims, under each reading.

    Parameters
    ----------
    paper, heading
        The paper, and its name in words.
    studies
        Its studies, in the order of the page.
    results
        By study.
    missing
        Why a study was not run, by its name.
    """
    readings = KEPT if paper in all_readings() else ("",)
    lines = [
        f"## {heading}",
        "",
        f"[{'All figures, choices and the search' if paper in all_readings() else 'All figures'}]({paper}.html)",
        "",
        f"| figure | claim | {' | '.join(r or 'verdict' for r in readings)} | seeds | minutes |",
    ]
    lines.append("|---" * (4 + len(readings)) + "|")
    for figure in dict.fromkeys(study.figure for study in studies):
        of_figure = [study for study in studies if study.figure == figure]
        # what trains, and a formula, is made once
        verdicts = [_verdict(study, results.get(study.name), missing) for study in of_figure]
        verdicts += [""] * (len(readings) - len(verdicts))
        n_seeds = [str(len(results[study.name]["seeds"])) for study in of_figure if study.name in results]
        minutes = sum(study.minutes for study in of_figure)
        study = of_figure[0]
        lines.append(
            f"| {study.figures} | {study.claim} | {' | '.join(verdicts)} | {', '.join(n_seeds)} | {minutes:g} |"
        )
    return [*lines, ""]


def in_order(study: Study) -> list[tuple[int, str]]:
    """Sorts fig3 before fig10: the parts of the figure's name, numbers by their value."""
    return [(int(number or 0), word) for word, number in re.findall(r"(\D+)(\d*)", study.figure)]


def results_of(folder: Path) -> Results:
    """The results in a study's folder."""
    results: Results = json.loads((folder / _RESULTS).read_text(encoding="utf-8"))
    return results


def _summary(studies: Sequence[Study], results: Mapping[str, Results]) -> list[str]:
    """In words: how many claims hold."""
    counts, claims = [], [study for study in studies if study.name in results and not study.ours]
    for reading in KEPT:
        # what is made once counts under both readings
        of_reading = [results[s.name] for s in claims if s.reading in ("", reading) or not s.simulated]
        counts.append(f"Under the {reading} readings, of the papers' claims {_verdict_counts(of_reading)}.")
    our_results = [results[study.name] for study in studies if study.name in results and study.ours]
    minutes, trained = _minutes(studies), _minutes([study for study in studies if study.trained])
    runs = sum(result["runs"] for result in results.values())
    return [
        f"{' '.join(counts)} Of our own {_verdict_counts(our_results)}. {runs:,} runs, each checked against every "
        "rule of the model. A verdict is a paired test over seeds, corrected for the number of its parts and of the "
        "looks at the seeds. Each paper's page has its readings: what the text leaves open, what was chosen, what each "
        "choice decides; and every figure with its parts and numbers. `make reproduce` makes each figure's own page "
        "beside them. Minutes are those of 2 cores, about; figures of one setting share their runs. "
        f"In all they are {minutes:,.0f}, of which {trained:,.0f} train for real; "
        "`reproduce all` simulates beside those.",
    ]


def _minutes(studies: Sequence[Study]) -> float:
    """Minutes of all studies; of figures that share their runs, the longest one counts."""
    longest = dict[tuple[str, str, str], float]()
    for study in studies:
        group = (study.paper, study.reading, study.runs_of or study.figure)
        # runs are shared, so the other figures of the group cost nothing more
        longest[group] = max(study.minutes, longest.get(group, 0.0))
    return sum(longest.values())


def _verdict_counts(results: Sequence[Results]) -> str:
    counts = Counter(result["verdict"] for result in results)
    words = {
        Verdict.HOLDS: "hold",
        Verdict.EASIER: "hold by an easier metric",
        Verdict.FAILS: "do not hold",
        Verdict.OPEN: "are not decided",
    }
    parts = ", ".join(f"{counts[verdict]} {word}" for verdict, word in words.items())
    # no share of nothing
    share = f" ({counts[Verdict.HOLDS] / len(results):.0%} hold)" if results else ""
    return f"{parts}{share}"


def _verdict(study: Study, result: Results | None, missing: Mapping[str, str]) -> str:
    if result is None:
        return f"not run: {missing.get(study.name, 'not yet')}"
    return "; ".join([f"**{result['verdict']}**", *remarks_of(result)])
