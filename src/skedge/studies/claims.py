"""The claims of a paper under any selection of its reading, as the search for a joint reading judges them.

Each simulated claim is judged at one look, on the seeds 0 to 7 and at three points of its axis.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skedge.runs.tasks import key_of

from .judge import Verdict
from .kinds.ratio import Ratio
from .kinds.ratios import Ratios
from .kinds.sweep import Gain, Sweep
from .reading import Selection
from .runner import RunContext, findings
from .search import Verdicts
from .study import SEARCHED, Study, study_files, study_under

POINTS = 3
"""Points of an axis at which the search looks: its ends and its middle."""

SOLVE_S = 2.0
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
    """

    def __init__(self, paper: str, context: RunContext, report: Callable[[str], None]) -> None:
        self.context, self.report = context, report
        self.contents = [content for content in study_files() if content["paper"] == paper and _is_judged(content)]

    def __call__(self, selection: Selection) -> Verdicts:
        """The verdicts on each part of each claim."""
        return {
            content["figure"]: self._verdicts(coarse(study_under(content, "search", selection)))
            for content in self.contents
            if self.context.trace is not None or not content["settings"].get("with_trace", False)
        }

    def _verdicts(self, study: Study) -> list[Verdict]:
        """The verdicts on a study, from the folder if they are there: most choices leave most figures as they are."""
        file = self.context.folder / f"{key_of(study.model_dump_json())}.json"
        if not file.is_file():
            self.report(study.name)
            results = findings(study, SEARCHED, self.context)
            _write(file, [str(judgement.verdict) for judgement in results.judgements])
        verdicts: list[str] = json.loads(file.read_text(encoding="utf-8"))
        return [Verdict(verdict) for verdict in verdicts]


def _is_judged(content: dict[str, Any]) -> bool:
    """Whether a study file is about a simulated claim of the paper's own."""
    return not content.get("ours", False) and study_under(content, "plain").simulated


def coarse(study: Study) -> Study:
    """The study at three points of its axis, and with little time for solvers."""
    settings, update = study.settings, dict[str, Any]()
    if isinstance(settings, Sweep | Ratio) and _is_thinned(settings):
        values = settings.values
        update["values"] = [values[0], values[len(values) // 2], values[-1]]
    if isinstance(settings, Ratio | Ratios):
        update["solve_s"] = min(settings.solve_s, SOLVE_S)
    return study.model_copy(update={"settings": settings.model_copy(update=update)})


def _is_thinned(settings: Sweep | Ratio) -> bool:
    """Whether the axis has more points than are needed, and no point that the claim names."""
    if isinstance(settings, Sweep) and (settings.cases or settings.largest_at is not None or settings.most_at):
        return False
    return len(settings.values) > POINTS and not isinstance(settings.values[0], str) and not isinstance(settings, Gain)


def _write(file: Path, verdicts: list[str]) -> None:
    """Write a file of verdicts whole, or not at all."""
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(verdicts) + "\n", encoding="utf-8")
    partial.replace(file)
