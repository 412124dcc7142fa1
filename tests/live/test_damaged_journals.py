"""Journals with damaged bytes: each is refused, naming the entry, or decides as before; a repair says what it loses."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from numpy.random import Generator, default_rng
from played import LIMITS, Played, journal_in

from skedge.core.errors import StateError
from skedge.live.control.journal_chain import Entry
from skedge.live.control.journal_repair import check, repair
from skedge.live.control.service import JOURNAL, open_journal
from skedge.live.control.settings import CLUSTER, Settings, save_settings
from skedge.live.control.snapshot import SNAPSHOT, begin, save
from skedge.live.training.trainer import Trainer
from skedge.live.world.carrier import Carrier

Skedge = Callable[..., Any]

TWO = """
name: two
slot: 1s
cluster: {servers: [{id: e0, workers: {gpu: 2}, ps: {cpu: 2}}, {id: e1, workers: {gpu: 1}, ps: {cpu: 1}},
                    {id: cloud, kind: cloud}]}
"""
ABOUT = {"id": "played", "policy": "srtf", "kind": "slots"}
ARCHIVED = 60
"""Entries in each of the archive's files."""


@pytest.fixture(autouse=True)
def _nothing_is_sent_or_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Carrier, "start", lambda _: None)
    monkeypatch.setattr(Trainer, "start", lambda _: None)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of a service that was killed: an archive of two files, a snapshot after them, a write-ahead log."""
    state = tmp_path_factory.mktemp("lived")
    (state / CLUSTER).write_text(TWO, encoding="utf-8")
    save_settings(state, Settings("srtf", id="played", limits=LIMITS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Carrier, "start", lambda _: None)
        patch.setattr(Trainer, "start", lambda _: None)
        Played(journal_in(state, "srtf", "slots"), state, 1, 150).run()
        for count in (ARCHIVED, 2 * ARCHIVED):
            reading = journal_in(state)
            reading.number = count + 1
            assert begin(reading)
            save(Played(reading, state, snapshot=state / SNAPSHOT), state / SNAPSHOT)
            journal_in(state).shrink(count)
        # what follows is in the write-ahead log alone: it is copied while a connection is open, as after a kill
        journal = journal_in(state)
        for number in range(40):
            journal.take(journal.entries(journal.number - 1, journal.number)[0].time, {"is": "Due"})
            assert number < 40
        copied = state.with_name("killed")
        shutil.copytree(state, copied)
        journal.close()
    assert (copied / f"{JOURNAL}-wal").stat().st_size > 10_000
    return copied


@pytest.fixture(scope="module")
def entries(lived: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    """All entries of its journal."""
    copied = tmp_path_factory.mktemp("whole") / "state"
    shutil.copytree(lived, copied)
    journal = journal_in(copied)
    return journal.entries(0, journal.number)


def continued(state: Path) -> list[Entry]:
    """Continue a service as its controller does; returns the entries that were taken in again."""
    journal = open_journal(f"sqlite:///{state / JOURNAL}", ABOUT, own=True)
    try:
        Played(journal, state, snapshot=state / SNAPSHOT).run()
        assert not journal.decided
        return journal.entries(*journal.span)
    finally:
        journal.close()


def damaged(state: Path, rng: Generator) -> str:
    """Change up to four bytes of a file of the journal's; returns its name."""
    files = [path for path in sorted(state.rglob("*")) if path.name.startswith(("journal", SNAPSHOT))]
    files = [path for path in files if path.is_file() and not path.name.endswith("-shm")]
    file = files[int(rng.integers(len(files)))]
    content = bytearray(file.read_bytes())
    at = int(rng.integers(len(content)))
    for place in range(at, min(at + int(rng.integers(1, 5)), len(content))):
        content[place] ^= int(rng.integers(1, 256))
    file.write_bytes(content)
    return file.name


@pytest.mark.parametrize("seed", range(100))
def test_a_damaged_journal_never_decides_differently_in_silence(
    lived: Path, entries: list[Entry], tmp_path: Path, seed: int
) -> None:
    state = tmp_path / "state"
    shutil.copytree(lived, state)
    file = damaged(state, default_rng(seed))
    try:
        again = continued(state)
    except StateError as error:
        refused = str(error)
    else:
        assert again == entries[again[0].number :], f"{file}: all of it, as it was"
        return
    if not re.search(r"entry \d+", refused):
        assert re.search("restore a backup|states an earlier version|is of version", refused), (file, refused)
        return
    found = check(state)
    assert found.first_bad is not None
    assert (f"entry {found.first_bad} " in refused, found.starts) == (True, False), (file, refused)
    cut = repair(state)
    end = len(entries) - cut.lost
    assert (cut.first_bad, end >= found.first_bad) == (found.first_bad, True)
    left = continued(state)
    assert left[: end - left[0].number] == entries[left[0].number : end]
    assert check(state).first_bad is None
