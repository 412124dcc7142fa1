"""The columns of the record and what is said of them, in the code, in the files and in the docs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

from builders.paths import ROOT
from skedge.core.record.record_fields import KEY, RECORD, job_labels
from skedge.core.record.schedule import Schedule, schema
from skedge.runs.meta import _OPTIONAL
from skedge.scenario.file import default_scenario
from skedge.simulate import run
from skedge.testing import site_scenario, small_scenario


def test_every_column_of_the_record_has_a_label() -> None:
    columns = schema(["any"])
    assert set(RECORD) == set(Schedule.names()) == set(columns)
    for name, of in RECORD.items():
        assert list(of.columns) == list(columns[name])
        assert all(about for _, about in of.columns.values())


def test_times_have_a_unit() -> None:
    times = {
        "start",
        "end",
        "compute_from",
        "time",
        "arrival",
        "admitted",
        "first_start",
        "completion",
        "jct",
        "made_at",
    }
    for of in RECORD.values():
        assert all(of.columns[name].unit == "µs" for name in times & set(of.columns))


@pytest.mark.parametrize("make", [small_scenario, site_scenario, lambda _: default_scenario("s4")])
def test_every_column_of_a_jobs_table_has_a_label(make: object) -> None:
    columns = make(0).jobs.frame.columns  # type: ignore[operator]
    said = json.loads(job_labels(*columns)[KEY])["columns"]
    assert list(said) == columns
    assert said["arrival_s"] == {"unit": "s", "about": "arrival [r_j]"}


def test_the_files_of_a_run_carry_the_labels(tmp_path: Path) -> None:
    folder = run(small_scenario(0), "srtf").save(tmp_path / "run")
    for name in Schedule.names():
        file = folder / "tables" / f"{name}.parquet"
        said = json.loads(pl.read_parquet_metadata(file)[KEY])
        assert said["row"] == RECORD[name].row
        assert list(said["columns"]) == pl.read_parquet(file).columns
    jobs = json.loads(pl.read_parquet_metadata(folder / "jobs.parquet")[KEY])
    assert jobs["columns"]["minibatch_s"]["unit"] == "s"


def test_the_page_names_every_field_of_run_json() -> None:
    text = (
        (ROOT / "docs" / "run-folder.md").read_text(encoding="utf-8").partition("## run.json")[2].partition("\n## ")[0]
    )
    named = {name for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    simulated = set(run(small_scenario(0), "srtf").meta)
    assert simulated | set(_OPTIONAL) <= named
