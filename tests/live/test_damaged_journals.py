"""Journals with damaged bytes: each is refused, naming the entry, or decides as before; a repair says what it loses."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sql
from numpy.random import Generator, default_rng
from played import LIMITS, Played, journal_in

from builders.thorough import thorough_after
from skedge.cli.state_lock import try_lock
from skedge.core.errors import InputError, StateError
from skedge.live.controller.service import open_journal
from skedge.live.controller.settings import CLUSTER, Settings, save_settings
from skedge.live.controller.snapshot import SNAPSHOT, begin, save
from skedge.live.coordinator.trainer import Trainer
from skedge.live.journal.chain import DamagedError, Entry
from skedge.live.journal.journal import JOURNAL, SqlJournal
from skedge.live.journal.tables import ENTRIES
from skedge.live.service.journal_repair import check, repair
from skedge.live.worker.checkpoint import Checkpoints, Life
from skedge.live.world.upload_thread import UploadThread

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
    monkeypatch.setattr(UploadThread, "start", lambda _: None)
    monkeypatch.setattr(Trainer, "start", lambda _: None)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of a service that was killed: an archive of two files, a snapshot after them, a write-ahead log."""
    state = tmp_path_factory.mktemp("lived")
    (state / CLUSTER).write_text(TWO, encoding="utf-8")
    save_settings(state, Settings("srtf", id="played", limits=LIMITS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UploadThread, "start", lambda _: None)
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
    files = [path for path in sorted(state.rglob("*")) if path.name.startswith(("journal", SNAPSHOT, "1-"))]
    files = [path for path in files if path.is_file() and not path.name.endswith("-shm")]
    file = files[int(rng.integers(len(files)))]
    content = bytearray(file.read_bytes())
    at = int(rng.integers(len(content)))
    for place in range(at, min(at + int(rng.integers(1, 5)), len(content))):
        content[place] ^= int(rng.integers(1, 256))
    file.write_bytes(content)
    return file.name


@pytest.mark.parametrize("seed", thorough_after(50, range(100)))
def test_a_damaged_journal_never_decides_differently_in_silence(
    lived: Path, entries: list[Entry], tmp_path: Path, seed: int
) -> None:
    state = tmp_path / "state"
    shutil.copytree(lived, state)
    if seed % 4:  # as at the end of a service: without a write-ahead log, which hides the database's pages
        journal_in(state).close()
    if seed % 8 > 3:  # as after an update of skedge: the archive is needed
        (state / SNAPSHOT).unlink()
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
    if found.first_bad == 0:  # as where the run's description is damaged, which the first entry continues
        with pytest.raises(StateError, match=r"entry 0 .* restore a backup"):
            repair(state)
        return
    cut = repair(state)
    end = len(entries) - cut.lost
    assert (cut.first_bad, end >= found.first_bad) == (found.first_bad, True)
    left = continued(state)
    assert left[: end - left[0].number] == entries[left[0].number : end]
    assert check(state).first_bad is None


# -- one damage at a time ---------------------------------------------------------------------------------------------


@pytest.fixture
def state(lived: Path, tmp_path: Path) -> Path:
    """A copy of that state, closed as at the end of a service: without a write-ahead log."""
    shutil.copytree(lived, tmp_path / "state")
    journal_in(tmp_path / "state").close()
    return tmp_path / "state"


def change(state: Path, number: int, **values: Any) -> None:
    """Change an entry in the database, and nothing else."""
    journal = SqlJournal(f"sqlite:///{state / JOURNAL}", reading=True)
    with journal.engine.begin() as at:
        at.execute(ENTRIES.update().where(ENTRIES.c.number == number).values(**values))
    journal.close()


def delete(state: Path, number: int) -> None:
    journal = SqlJournal(f"sqlite:///{state / JOURNAL}", reading=True)
    with journal.engine.begin() as at:
        at.execute(ENTRIES.delete().where(ENTRIES.c.number >= number))
    journal.close()


def words(answer: Any) -> str:
    """What a command has printed, on one line."""
    return " ".join(answer.out.split())


def archived(state: Path) -> Path:
    """The archive's first file."""
    return min((state / "journal.archive").iterdir())


def test_check_and_repair_name_the_entry_and_what_is_lost(state: Path, entries: list[Entry], skedge: Skedge) -> None:
    """Jobs submitted after it are named, and their checkpoints are set aside; the next controller outnumbers all."""
    number = next(e.number for e in entries if e.number > 2 * ARCHIVED + 20 and e.kind == "decision")
    job = next(
        json.loads(e.content)["job"]["id"] for e in entries if e.number > number and '"is": "Submitted"' in e.content
    )
    for name in (job, "j0"):
        Checkpoints(str(state / "checkpoints")).write(name, Life(7, 1), 3, b"state")
    change(state, number, time=1)
    why = f"entry {number} is damaged: it does not match its checksum"
    with pytest.raises(DamagedError, match=why):
        continued(state)
    checked = skedge("journal", "check", str(state), "--json")
    assert checked.code == 1
    assert checked.json == {
        "entries": len(entries), "first_bad": number, "why": "is damaged: it does not match its checksum",
        "from_snapshot": 2 * ARCHIVED, "starts": False,
    }  # fmt: skip
    repaired = words(skedge("journal", "repair", str(state)))
    assert f"{why}: {len(entries) - number} entries are cut off, with the submissions of " in repaired
    assert job in repaired.split("submissions of ")[1].split(", all that")[0]
    assert sorted(path.name for path in (state / "checkpoints").iterdir()) == ["j0"]
    assert [path.name for path in (state / "checkpoints.journal.damaged-1").iterdir()] == [job]
    left = journal_in(state)
    begun = sum('"is": "Resumed"' in entry.content for entry in left.entries(0, left.number))
    left.close()
    assert begun == 7, "the next controller has number 8, and its checkpoints are newer than those of 7"
    assert skedge("journal", "check", str(state)).code == 0
    again = words(skedge("journal", "repair", str(state)))
    assert "every entry that the service needs is sound; nothing was cut" in again


def test_entries_that_a_write_ahead_log_lost_are_missed(state: Path, entries: list[Entry], skedge: Skedge) -> None:
    """SQLite itself drops what follows a damaged frame without a word."""
    delete(state, len(entries) - 5)
    end = len(entries) - 5
    with pytest.raises(DamagedError, match=f"entry {end} is missing: the journal ends before it"):
        continued(state)
    assert f"entry {end} of {len(entries)} is missing" in words(skedge("journal", "check", str(state)))
    assert repair(state).lost == 5
    assert [entry.number for entry in continued(state)][-1] == end - 1


def test_damage_before_the_snapshot_is_told_and_costs_no_entry(
    state: Path, entries: list[Entry], skedge: Skedge
) -> None:
    archived(state).write_bytes(archived(state).read_bytes()[:200])
    assert continued(state) == entries[2 * ARCHIVED :]
    checked = words(skedge("journal", "check", str(state)))
    assert "entry 0 of" in checked
    assert f"continues from its snapshot, before entry {2 * ARCHIVED}, and needs none before it" in checked
    assert repair(state).first_bad is None
    (state / SNAPSHOT).unlink()
    with pytest.raises(DamagedError, match=r"entry 0 is damaged: .* cannot be read"):
        continued(state)
    with pytest.raises(StateError, match="no entry before it is sound; restore a backup"):
        repair(state)


def test_a_cut_within_the_archive_keeps_what_is_before(state: Path, entries: list[Entry]) -> None:
    (state / SNAPSHOT).unlink()
    second = max((state / "journal.archive").iterdir())
    table = pl.read_parquet(second)
    table.with_columns(time=pl.when(pl.col("number") == ARCHIVED + 7).then(1).otherwise("time")).write_parquet(second)
    cut = repair(state)
    assert (cut.first_bad, cut.lost) == (ARCHIVED + 7, len(entries) - ARCHIVED - 7)
    assert continued(state)[: ARCHIVED + 7] == entries[: ARCHIVED + 7]


def test_a_journal_that_is_gone_or_another_is_no_new_one(state: Path, entries: list[Entry]) -> None:
    """A service that has jobs does not begin anew because its journal cannot be found."""
    journal = SqlJournal(f"sqlite:///{state / JOURNAL}", reading=True)
    with journal.engine.begin() as at:
        at.execute(sql.text("""UPDATE runs SET about = replace(about, '"played"', '"flayed"')"""))
    journal.close()
    with pytest.raises(StateError, match="the journal has a run, and not that of this state, played: it is damaged"):
        continued(state)
    (state / JOURNAL).unlink()
    with pytest.raises(DamagedError, match=f"entry 0 is missing: .* and entry {len(entries) - 1} was written"):
        continued(state)


def test_a_journal_elsewhere_is_repaired_there(state: Path) -> None:
    save_settings(state, Settings("srtf", id="played", journal="postgresql+psycopg://there/db"))
    with pytest.raises(InputError, match="its journal is kept elsewhere, by URL"):
        repair(state)


def test_repair_is_refused_while_the_service_is_up(state: Path, skedge: Skedge) -> None:
    lock = try_lock(state)
    assert lock is not None
    try:
        assert "the service is up; `skedge down" in skedge("journal", "repair", str(state)).err
    finally:
        os.close(lock)
    assert skedge("journal", "repair", str(state)).code == 0
