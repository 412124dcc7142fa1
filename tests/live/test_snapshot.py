"""Snapshots: what follows one is decided as after the whole journal."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from numpy.random import default_rng
from played import LIMITS, Played, empty, journal_in

from builders.thorough import thorough_except
from skedge.core.model.cluster import Cluster, Server
from skedge.core.model.scenario import Scenario
from skedge.live.controller.record_parts import RECORD, add_part
from skedge.live.controller.settings import CLUSTER, Settings, save_settings
from skedge.live.controller.snapshot import SNAPSHOT, Snapshot, begin, newest, save
from skedge.live.controller.snapshot_process import main
from skedge.live.coordinator.trainer import Trainer
from skedge.live.journal.journal import SqlJournal
from skedge.live.world.upload_thread import UploadThread
from skedge.prepare import prepare_for_service
from skedge.scenario.file import load_cluster_file

POLICIES = {
    "slots": ["aonline", "srtf", "fifo:backfill=true", "drf", "preemptive", "tiresias:limit_s=3", "batch", "batchsche"],
    "resources": ["fifo", "drf", "optimus"],
    "sites": ["okita", "fifo", "drf"],
}


@pytest.fixture(autouse=True)
def _nothing_is_sent_or_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UploadThread, "start", lambda _: None)
    monkeypatch.setattr(Trainer, "start", lambda _: None)


def rebuilt(folder: Path, snapshot: Path | None = None) -> Played:
    """A service rebuilt from its journal, or from a snapshot and what follows it."""
    service = Played(journal_in(folder), folder, snapshot=snapshot)
    service.run()
    return service


def answers(service: Played) -> dict[str, Any]:
    """Everything that a service says of its jobs and has on record, when nobody asks for the present time."""
    run = service.record()
    tables = {
        name: getattr(run.schedule, name).to_dict(as_series=False) for name in ("decisions", "runs", "ps", "jobs")
    }
    world = service.world
    return {
        **tables,
        "events": service.status.happened,
        "history": service.status.history,
        "progress": [list(world.trainers.progress(job)) for job in range(len(world.scenario.jobs))],
        "meta": world.meta(),
        "keys": service.submissions._keys,
    }


QUICK = [("slots", "aonline"), ("slots", "srtf"), ("slots", "batch"), ("resources", "drf"), ("sites", "okita")]


@pytest.mark.parametrize(
    ("kind", "policy"), thorough_except(QUICK, [(kind, policy) for kind, of in POLICIES.items() for policy in of])
)
def test_what_follows_a_snapshot_is_decided_as_after_the_whole_journal(tmp_path: Path, kind: str, policy: str) -> None:
    """Controllers begin at snapshots of several entries, and what is before the first two is archived.

    In the end every decision is taken again from the first on.
    """
    snapshot, journal = tmp_path / SNAPSHOT, journal_in(tmp_path, policy, kind)
    for seed, count in enumerate((80, 30, 50)):
        Played(journal, tmp_path, seed, count, snapshot).run()
        reading = journal_in(tmp_path)
        reading.number -= int(default_rng(seed).integers(60))  # as if this were all of the journal
        assert begin(reading)
        save(Played(reading, tmp_path, snapshot=snapshot), snapshot)
        journal = journal_in(tmp_path)
        if seed < 2:
            journal.shrink(json.loads(snapshot.read_bytes().partition(b"\n")[0])["next"][0])
    tail, whole = rebuilt(tmp_path, snapshot), rebuilt(tmp_path)
    assert (len(tail.journal.decided), len(whole.journal.decided)) == (0, 0)
    assert tail.journal.span[0] > 100 > whole.journal.span[0]
    assert answers(tail) == answers(whole)


def lived(folder: Path, policy: str = "srtf", seed: int = 1) -> SqlJournal:
    """The journal of a service that has taken some inputs."""
    folder.mkdir(exist_ok=True)
    Played(journal_in(folder, policy, "slots"), folder, seed, 40).run()
    return journal_in(folder)


def saved(folder: Path) -> Path:
    """A snapshot of such a service."""
    journal = lived(folder)
    assert begin(journal)
    save(Played(journal, folder), folder / SNAPSHOT)
    return folder / SNAPSHOT


def found(path: Path, journal: SqlJournal, scenario: Scenario | None = None) -> Snapshot | None:
    scenario = scenario or empty("slots")
    return newest(path, scenario, prepare_for_service("srtf", scenario), journal)


def test_a_snapshot_that_cannot_be_used_is_set_aside_and_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, more = saved(tmp_path / "it"), Server("e2", capacity={"worker:gpu": 1})
    scenario = empty("slots")
    larger = replace(scenario, cluster=Cluster([*scenario.cluster.servers, more]))
    wrong = [
        ("it was made with another run", found(path, lived(tmp_path / "fifo", policy="fifo"))),
        ("it is not of this journal", found(path, lived(tmp_path / "other", seed=2))),
        ("it was made with another cluster", found(path, journal_in(path.parent), larger)),
    ]
    with monkeypatch.context() as patch:
        patch.setattr("skedge.live.controller.snapshot._source", lambda _: "other")
        wrong.append(("it was made with another source code", found(path, journal_in(path.parent))))
    used = found(path, journal_in(path.parent))
    assert used is not None
    whole = path.read_bytes()
    for content, why in ((whole[:-9], "it is damaged"), (b"\x80\x05", "it cannot be read: ")):
        path.write_bytes(content)
        wrong.append((why, found(path, journal_in(path.parent))))
    lines = capsys.readouterr().err.splitlines()
    for line, (why, snapshot) in zip(lines, wrong, strict=True):
        assert snapshot is None
        assert line.startswith(f"snapshot {path}: {why}")
        assert line.endswith("; the whole journal is taken in")


def test_a_snapshot_that_is_overtaken_by_a_later_one_does_not_begin_at_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would have later inputs than it says, which were then taken in twice."""
    lived(tmp_path)
    path, overtaken = tmp_path / SNAPSHOT, journal_in(tmp_path)
    overtaken.number -= 20
    assert begin(overtaken)
    latest = journal_in(tmp_path)
    assert begin(latest)
    save(Played(latest, tmp_path), path)
    save(Played(overtaken, tmp_path, snapshot=path), path)
    assert f"snapshot {path}: it has later entries than are taken in" in capsys.readouterr().err
    assert answers(rebuilt(tmp_path, path)) == answers(rebuilt(tmp_path))


def test_a_service_with_a_damaged_snapshot_takes_in_its_whole_journal(tmp_path: Path) -> None:
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes()[:-9])
    service = rebuilt(tmp_path, path)
    assert (service.journal.span[0], len(service.journal.decided)) == (0, 0)


def test_the_parts_of_the_record_are_the_record_of_the_jobs_that_have_left(tmp_path: Path) -> None:
    """Two parts, and a third after the first was deleted: each job's rows stand in one part, and all are there."""
    parts = tmp_path / RECORD
    for seed in range(3):
        Played(journal_in(tmp_path, "srtf", "slots") if seed == 0 else journal_in(tmp_path), tmp_path, seed, 60).run()
        service = rebuilt(tmp_path)
        add_part(service, parts, service.journal.number)
        if seed == 1:
            shutil.rmtree(min(parts.iterdir()))
    left = sorted(set(range(service.kernel.arrived)) - set(service.kernel.active().tolist()))
    names = [service.kernel.scenario.jobs.ids[job] for job in left]
    jobs = pl.read_parquet(parts / "*" / "jobs.parquet").sort("job")
    assert (jobs["job"].to_list(), jobs["name"].to_list()) == (left, names)
    assert len(left) > 3
    for name, table in service.record().schedule.tables().items():
        if "job" in table.columns:
            of = table.filter(pl.col("job").is_in(left))
            kept = pl.read_parquet(parts / "*" / f"{name}.parquet").select(of.columns)
            assert sorted(kept.rows(), key=repr) == sorted(of.rows(), key=repr), name


def test_a_snapshot_is_made_by_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a service that is up is all that it needs."""
    (tmp_path / CLUSTER).write_text(
        "name: two\nslot: 1s\ncluster: {servers: [{id: e0, workers: {gpu: 2}, ps: {cpu: 2}}, "
        "{id: e1, workers: {gpu: 1}, ps: {cpu: 1}}, {id: cloud, kind: cloud}]}\n",
        encoding="utf-8",
    )
    save_settings(tmp_path, Settings("srtf", id="played", limits=LIMITS))
    journal = lived(tmp_path)
    monkeypatch.setattr("os.nice", lambda _: None)
    assert main(tmp_path) == 0
    assert main(tmp_path) == 0, "nothing has happened since: no part of the record, and the same snapshot"
    used = found(tmp_path / SNAPSHOT, journal, load_cluster_file(tmp_path / CLUSTER))
    assert used is not None
    assert 0 < used.number < journal.number
    assert (tmp_path / SNAPSHOT).stat().st_mode & 0o777 == 0o600
