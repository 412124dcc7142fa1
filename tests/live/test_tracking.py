"""Training logged to TensorBoard and MLflow: by their own readers, once each, in spite of outages and restarts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from skedge.core.errors import InputError
from skedge.live.controller import tracking
from skedge.live.controller.tracking import JobTraining, Tracking, tracked

BEGINS = JobTraining("net", {"epochs": 2, "args.model": "lenet"}, "RUNNING", 0, 0.0, 2, [], None, over=False)
TRAINS = replace(BEGINS, update=9, progress=0.5, losses=[(3, 2.0), (9, 1.0)])
WAITS = replace(TRAINS, state="SUSPENDED", workers=0)
TRAINED = replace(WAITS, state="COMPLETED", update=18, progress=1.0, losses=[(n, 9.0 / n) for n in range(1, 19)])
ENDS = replace(TRAINED, accuracy=0.75, over=True)
"""A job that trains, is preempted and completes; in the end all losses are known."""


class Told:
    """What the controller says, question by question; the last answer again and again."""

    def __init__(self, *answers: Sequence[JobTraining]) -> None:
        self.replies, self.left = list(answers), list[list[str]]()

    def __call__(self, left: Sequence[str]) -> list[JobTraining]:
        self.left.append(list(left))
        return list(self.replies.pop(0) if len(self.replies) > 1 else self.replies[0])


class Kept:
    """A tracker that keeps what it is told, and fails when it is to."""

    log_of: ClassVar[list[tuple[Any, ...]]] = []
    fails = 0

    def __init__(self, where: str, service: str) -> None:
        self.where, self.service = where, service

    def _take(self, *what: Any) -> None:
        if Kept.fails:
            Kept.fails -= 1
            raise ConnectionError("nobody listens")
        self.log_of.append(what)

    def begin(self, job: str, spec: Any) -> None:
        self._take("begin", job, dict(spec))

    def log(self, job: str, update: int, values: Any) -> None:
        self._take(job, update, dict(values))

    def end(self, job: str, state: str) -> None:
        self._take("end", job, state)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    monkeypatch.setattr(Kept, "log_of", [])
    monkeypatch.setattr(Kept, "fails", 0)
    monkeypatch.setitem(tracking._TRACKERS, "kept", (Kept, "json", "json"))
    return Kept.log_of


def steps(*answers: Sequence[JobTraining], count: int | None = None) -> Told:
    told = Told(*answers)
    it = Tracking(["kept:here"], "it", told)
    for _ in range(count or len(answers)):
        it.step()
    return told


def test_a_job_is_logged_once_from_begin_to_end(kept: list[tuple[Any, ...]]) -> None:
    told = steps([BEGINS], [TRAINS], [WAITS], [TRAINED], [ENDS], [])
    assert kept[:4] == [
        ("begin", "net", {"epochs": 2, "args.model": "lenet"}),
        ("net", 0, {"progress": 0.0, "workers": 2.0}),
        ("net", 3, {"loss": 2.0}),
        ("net", 9, {"loss": 1.0}),
    ]
    assert [update for _, update, values in kept[1:-1] if "loss" in values] == [3, 9, *range(10, 19)], "none twice"
    assert kept[-2:] == [("net", 18, {"progress": 1.0, "workers": 0.0, "accuracy": 0.75}), ("end", "net", "COMPLETED")]
    assert told.left == [[], ["net"], ["net"], ["net"], ["net"], []]


def test_what_a_tracker_did_not_take_is_logged_later(
    kept: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    whole = list(kept)
    steps([BEGINS], [TRAINS], [ENDS])
    whole = list(kept)
    kept.clear()
    Kept.fails = 3
    steps([TRAINS], [TRAINS], [TRAINS], [TRAINS], [ENDS])
    losses = [[one for one in of if "loss" in one[-1]] for of in (whole, kept)]
    assert losses[0] == losses[1]
    assert kept[-1] == whole[-1]
    assert capsys.readouterr().err.count("kept:here does not take what is logged: ConnectionError: nobody listens") == 1


def test_tensorboard_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    it = Tracking([f"tensorboard:{tmp_path}"], "it", Told([TRAINS], [ENDS]))
    it.step()
    it.step()
    events = EventAccumulator(str(tmp_path / "net"), {"tensors": 0}).Reload()
    values = {
        tag: [(one.step, float(one.tensor_proto.float_val[0])) for one in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
    }
    assert values["loss"][:2] == [(3, 2.0), (9, 1.0)]
    assert values["progress"] == [(9, 0.5), (18, 1.0)]
    assert values["accuracy"] == [(18, 0.75)]


def test_mlflow_has_a_run_which_a_restarted_service_continues(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    first = Tracking([f"mlflow:{uri}"], "it", Told([TRAINS]))
    first.step()
    second = Tracking([f"mlflow:{uri}"], "it", Told([ENDS]))
    second.step()
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("skedge").experiment_id])
    assert (run.info.run_name, run.info.status) == ("net", "FINISHED")
    assert run.data.params == {"epochs": "2", "args.model": "lenet"}
    assert run.data.metrics == {"loss": 0.5, "progress": 1.0, "workers": 0.0, "accuracy": 0.75}
    assert {one.step for one in client.get_metric_history(run.info.run_id, "loss")} == set(range(1, 19))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("wandb:x", "must be tensorboard:FOLDER or mlflow:URI"),
        ("tensorboard:", "must be tensorboard:FOLDER or mlflow:URI"),
        ("mlflow:runs", "MLflow takes a URI, such as http://HOST:PORT or sqlite"),
        ("missing:x", "missing is not installed here: pip install some-package"),
    ],
)
def test_a_wrong_tracker_is_told(url: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tracking._TRACKERS, "missing", (Kept, "no_such_module", "some-package"))
    with pytest.raises(InputError, match=words):
        tracked(url)


def test_a_folder_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in ("tensorboard", "mlflow"):
        monkeypatch.setitem(tracking._TRACKERS, kind, (Kept, "json", ""))
    assert tracked("tensorboard:runs") == f"tensorboard:{tmp_path}/runs"
    assert tracked("mlflow:http://127.0.0.1:5000") == "mlflow:http://127.0.0.1:5000"
