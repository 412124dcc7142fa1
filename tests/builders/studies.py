"""Verdicts of studies on rows made by hand; studies by the path of their file."""

from __future__ import annotations

import tomllib
from pathlib import Path

import polars as pl

from skedge.studies.judge import judge
from skedge.studies.outcome import Outcome
from skedge.studies.study import Study, study_under

WRITTEN = {
    "figure.csv",
    "figure.pdf",
    "figure.png",
    "figure.svg",
    "report.html",
    "results.json",
    "results.parquet",
}
"""The files of a study's folder."""


def verdicts(outcome: Outcome) -> str:
    """The verdict on each part: y holds, n does not, ? not decided."""
    return "".join(
        {"holds": "y", "does not hold": "n", "not decided": "?"}[one.verdict] for one in judge(outcome.parts)
    )


def repeated(rows: pl.DataFrame, times: int = 3) -> pl.DataFrame:
    """The rows with further seeds whose numbers are the same again."""
    seeds = 1 + int(rows["seed"].max())  # type: ignore[call-overload,arg-type]
    return pl.concat([rows.with_columns(pl.col("seed") + k * seeds) for k in range(times)])


def read_study(path: Path) -> Study:
    """The study of a file, under the plain reading of its paper."""
    return study_under(tomllib.loads(path.read_text(encoding="utf-8")), "plain")
