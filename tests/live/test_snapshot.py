"""Snapshots: what follows one is decided as after the whole journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from numpy.random import default_rng
from played import Played, journal_in

from skedge.live.control.snapshot import SNAPSHOT, begin, save
from skedge.live.training.trainer import Trainer
from skedge.live.world.carrier import Carrier

POLICIES = {
    "slots": ["aonline", "srtf", "fifo:backfill=true", "drf", "preemptive", "tiresias:limit_s=3", "batch", "batchsche"],
    "resources": ["fifo", "drf", "optimus"],
    "sites": ["okita", "fifo", "drf"],
}


@pytest.fixture(autouse=True)
def _nothing_is_sent_or_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Carrier, "start", lambda _: None)
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


@pytest.mark.parametrize(("kind", "policy"), [(kind, policy) for kind, of in POLICIES.items() for policy in of])
def test_what_follows_a_snapshot_is_decided_as_after_the_whole_journal(tmp_path: Path, kind: str, policy: str) -> None:
    """Controllers begin at snapshots of several entries; in the end every decision is taken again from the first on."""
    snapshot, journal = tmp_path / SNAPSHOT, journal_in(tmp_path, policy, kind)
    for seed, count in enumerate((80, 30, 50)):
        Played(journal, tmp_path, seed, count, snapshot).run()
        reading = journal_in(tmp_path)
        reading.number -= int(default_rng(seed).integers(60))  # as if this were all of the journal
        assert begin(reading)
        save(Played(reading, tmp_path, snapshot=snapshot), snapshot)
        journal = journal_in(tmp_path)
    tail, whole = rebuilt(tmp_path, snapshot), rebuilt(tmp_path)
    assert (len(tail.journal.decided), len(whole.journal.decided)) == (0, 0)
    assert tail.journal.span[0] > 100 > whole.journal.span[0]
    assert answers(tail) == answers(whole)
