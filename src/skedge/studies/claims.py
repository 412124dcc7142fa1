"""The claims of a paper under any selection of its reading, as the search for a joint reading judges them.

Each simulated claim is judged at one look, on the seeds 0 to 7; where its axis has numbers and the claim names none of
them, at three points. Its parts are judged one by one, without a correction for their number: eight seeds cannot decide
all of a dozen parts by ranks, and the search compares readings, it proves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .judge import Verdict, judge
from .kinds.ratio import Ratio
from .kinds.ratios import Ratios
from .kinds.sweep import Sweep
from .overview import key_of_study
from .reading import Selection
from .runner import RunContext, findings
from .search import Verdicts
from .study import SEARCHED, Study, study_files, study_under

POINTS = 3
"""Points of an axis at which the search looks: its ends and its middle."""

SOLVE_S = 1.0
"""Limit of the solvers in the search [s]."""


class ClaimJudge:
    """Judges a paper's claims under selections; each study is run once, and results are kept in a folder.

    Parameters
    ----------
    paper
        The paper.
    context
        Where the runs are made; its folder keeps the verdicts.
    report
        Called with a study's name before it is run.
    seeds
        Number of seeds, at most those that no claim is judged on.
    """

    def __init__(self, paper: str, context: RunContext, report: Callable[[str], None], seeds: int = SEARCHED) -> None:
        self.context, self.report, self.seeds = context, report, seeds
        self.contents = [
            content for content in study_files() if content["paper"] == paper and _is_judged(content, context.trace)
        ]

    def __call__(self, selection: Selection) -> Verdicts:
        """The verdicts on each part of each claim."""
        return {
            content["figure"]: self._verdicts(coarse(study_under(content, "search", selection)))
            for content in self.contents
        }

    def _verdicts(self, study: Study) -> list[Verdict]:
        """The verdicts on a study, from the folder if they are there: most choices leave most figures as they are."""
        trace = self.context.trace if study.with_trace else None
        file = self.context.folder / f"{key_of_study(study, self.seeds, trace)}.json"
        if not file.is_file():
            self.report(study.name)
            results = findings(study, self.seeds, replace(self.context, trace=trace))
            judgements = [judgement for part in results.outcome.parts for judgement in judge([part])]
            _write(file, [str(judgement.verdict) for judgement in judgements])
        verdicts: list[str] = json.loads(file.read_text(encoding="utf-8"))
        return [Verdict(verdict) for verdict in verdicts]


def _is_judged(content: dict[str, Any], trace: Path | None) -> bool:
    """Whether a study file is about a simulated claim of the paper's own that can be judged here."""
    if content.get("ours", False):
        return False
    study = study_under(content, "plain")
    has_solvers = not isinstance(study.settings, Ratio | Ratios) or find_spec("highspy") is not None
    return study.simulated and has_solvers and (trace is not None or not study.with_trace)


def coarse(study: Study) -> Study:
    """The study at three points of its axis, without policies that no part is about, and with little solver time."""
    settings, update = study.settings, dict[str, Any]()
    if isinstance(settings, Sweep | Ratio) and _is_thinned(settings):
        values = settings.values
        update["values"] = [values[0], values[len(values) // 2], values[-1]]
    if isinstance(settings, Sweep | Ratios):
        update["beside"] = []
    if isinstance(settings, Ratio | Ratios):
        update["solve_s"] = min(settings.solve_s, SOLVE_S)
    return study.model_copy(update={"settings": settings.model_copy(update=update)})


def _is_thinned(settings: Sweep | Ratio) -> bool:
    """Whether the axis has more points than are needed, and no point that the claim names."""
    if isinstance(settings, Sweep) and (settings.cases or settings.largest_at is not None or settings.most_at):
        return False
    return len(settings.values) > POINTS and not isinstance(settings.values[0], str)


def _write(file: Path, verdicts: list[str]) -> None:
    """Write a file of verdicts whole, or not at all."""
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(verdicts) + "\n", encoding="utf-8")
    partial.replace(file)
