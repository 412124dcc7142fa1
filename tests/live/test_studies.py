"""The studies of the papers' testbeds on real training, one tiny run of each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest

from conftest import SERVERS
from skedge.live.cluster.engine import Engine
from skedge.recorded_run import Run
from skedge.runs.result_cache import ResultCache
from skedge.scenario.schema import ServerForm
from skedge.studies import testbed
from skedge.studies.study import Study, find_study
from skedge.studies.trial import TrialResult

SMALL = {"minibatches": 4, "epochs": 3}
ONE_TYPE: dict[str, Any] = {"worker_types": ["gpu"]}
"""The workers of this testbed; the studies' own has two types."""


@pytest.fixture(scope="module")
def at(engine: Engine) -> testbed.Testbed:
    forms = [
        ServerForm(
            id=server.id,
            kind=server.kind,
            workers={"gpu": int(server.capacity.get("worker:gpu", 0))} if server.kind == "edge" else {},
            ps={"cpu": int(server.capacity.get("ps:cpu", 0))} if server.kind == "edge" else {},
        )
        for server in SERVERS
    ]
    return testbed.Testbed(engine, [form.model_dump(exclude_defaults=True) for form in forms], {})


def smaller(figure: str, **settings: Any) -> Study:
    study = find_study("jsac22", figure)
    return study.model_copy(update={"settings": study.settings.model_copy(update=settings)})


def carried_out(study: Study, at: testbed.Testbed) -> tuple[pl.DataFrame, list[TrialResult]]:
    """The rows of one seed; no record breaks a rule."""
    seen: list[TrialResult] = []

    def note(ran: TrialResult, record: Run) -> None:
        assert ran.violations == ()
        assert record.verify() == []
        seen.append(ran)

    return pl.DataFrame(testbed.run_trials(study, range(1), at, note)), seen


def short(job: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A job of a study with two chunks and few epochs."""
    train = {**job["train"], "args": {**job["train"]["args"], "chunks": 2}}
    return {**job, **SMALL, "chunks": 2, "workers": 2, "train": train, **more}


def test_accuracy_is_measured_after_every_epoch_of_the_jobs_shown(at: testbed.Testbed) -> None:
    """Two jobs of three epochs: a row for each, and the last is the final accuracy."""
    jobs = find_study("jsac22", "fig3").settings.jobs[-2:]  # type: ignore[union-attr]
    small = [short(job, arrival_s=0.5 * i) for i, job in enumerate(jobs)]
    study = smaller("fig3", jobs=small, shown=["lenet"])
    rows, (ran,) = carried_out(study, at)
    assert rows["epoch"].to_list() == [1, 2, 3]
    assert rows["accuracy"][-1] == ran.accuracy["lenet"]
    assert set(ran.accuracy) == {"lenet", "short"}
    assert set(ran.curves) == {"lenet"}
    outcome = study.settings.outcome(rows)
    assert outcome.figure.lines[0].x == (1.0, 2.0, 3.0)


def test_every_policy_is_counted_on_the_same_jobs(at: testbed.Testbed) -> None:
    """Two policies on two and on three jobs: a row each, beside what the simulation foresaw."""
    study = smaller(
        "fig5", policies=["aonline", "srtf"], jobs=[2, 3], epochs=(1, 2), chunks=(1, 2), span_s=1.0, **ONE_TYPE
    )
    rows, _ = carried_out(study, at)
    assert rows.select("policy", "jobs").rows() == [("aonline", 2), ("srtf", 2), ("aonline", 3), ("srtf", 3)]
    assert (rows["jct_mean_s"] >= 0.95 * rows["jct_mean_simulated_s"]).all(), "none is sooner than foreseen"
    assert len(study.settings.outcome(rows).parts) == 3, "both grow, and one is below the other"


def test_a_trained_run_that_is_kept_serves_another_figure_and_a_continued_study(
    at: testbed.Testbed, tmp_path: Path
) -> None:
    """Fig. 4 and 6 have the same runs; an engine is not even there the second time, and the record is."""
    small: dict[str, Any] = {
        "policies": ["aonline", "srtf"],
        "jobs": [2],
        "epochs": (1, 1),
        "chunks": (1, 2),
        **ONE_TYPE,
    }
    kept, records = ResultCache(tmp_path), list[Run]()
    testbed.run_trials(smaller("fig4", **small), range(1), at, lambda _, record: records.append(record), kept)
    gone = replace(at, engine=cast("Engine", None))
    note = lambda _, record: records.append(record)  # noqa: E731
    rows = testbed.run_trials(smaller("fig6", **small), range(1), gone, note, ResultCache(tmp_path))
    assert [row["policy"] for row in rows] == ["aonline", "srtf"]
    for before, after in zip(records[:2], records[2:], strict=True):
        assert before.schedule.runs.equals(after.schedule.runs)
        assert after.verify() == []


def test_a_job_is_trained_undisturbed_and_preempted(at: testbed.Testbed) -> None:
    """One job of three chunks that hold all three workers; the short one displaces two of them."""
    of = find_study("jsac22", "accuracy").settings
    lenet = short(of.jobs[0], epochs=24, chunks=3, workers=3)  # type: ignore[union-attr]
    lenet["train"]["args"]["chunks"] = 3
    other = short(of.others[0], arrival_s=2.0, epochs=1)  # type: ignore[union-attr]
    study = smaller("accuracy", jobs=[lenet], others=[other])
    rows, _ = carried_out(study, at)
    assert rows["how"].to_list() == ["undisturbed", "preempted"]
    assert rows["displaced"][0] == 0
    assert rows["displaced"][1] >= 1
    assert rows["accuracy"].is_between(0.2, 1.0).all()
    assert study.settings.outcome(rows).parts[-1].values is True
