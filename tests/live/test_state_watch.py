"""The watch of a state folder: what would not be kept is not taken."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skedge.live.controller.state_watch import StateWatch
from skedge.live.journal.journal import SqlJournal


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


@pytest.fixture
def journal(state: Path) -> Iterator[SqlJournal]:
    one = SqlJournal(f"sqlite:///{state / 'journal.db'}", {"id": "a"})
    for number in range(3):
        one.take(number, {"is": "Due", "text": "x" * 100})
    yield one
    one.close()


def test_a_sound_state_has_nothing_wrong(state: Path, journal: SqlJournal) -> None:
    watch = StateWatch(state, journal)
    watch.look()
    assert journal.wrong() == ""
    assert not (state / ".watch").exists()


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made again"])
def test_a_folder_that_is_gone_or_another_is_noticed(state: Path, journal: SqlJournal, again: bool) -> None:
    watch = StateWatch(state, journal)
    shutil.move(state, state.with_name("elsewhere"))
    if again:
        state.mkdir()
    watch.look()
    assert journal.unsound == f"{state} is gone or was replaced while the service was up"
    shutil.rmtree(state, ignore_errors=True)
    shutil.move(state.with_name("elsewhere"), state)
    watch.look()
    assert journal.wrong() == ""


@pytest.mark.parametrize(("number", "said"), [(errno.EROFS, "cannot be written: Read-only file system"), (28, "")])
def test_a_folder_that_cannot_be_written_is_noticed(
    state: Path, journal: SqlJournal, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    """A full disk is told elsewhere."""
    watch = StateWatch(state, journal)

    def refuse(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("skedge.live.controller.state_watch._write", refuse)
    watch.look()
    assert journal.unsound == (said and f"{state} {said}")


def lose(state: Path) -> None:
    with sqlite3.connect(state / "journal.db") as at:
        at.execute("DELETE FROM entries WHERE number = 2")


def change(state: Path) -> None:
    with sqlite3.connect(state / "journal.db") as at:
        at.execute("UPDATE entries SET content = replace(content, 'xxx', 'xyx') WHERE number = 2")


def tear(state: Path) -> None:
    for path in state.glob("journal.db*"):
        path.write_bytes(path.read_bytes().replace(b"xxx", b"xyx"))


@pytest.mark.parametrize("damage", [lose, change, tear])
def test_a_last_entry_that_is_not_as_it_was_written_is_noticed(
    state: Path, journal: SqlJournal, damage: Callable[[Path], None]
) -> None:
    watch = StateWatch(state, journal)
    watch.look()
    damage(state)
    watch.look()
    assert journal.wrong() == "the journal: entry 2 is not as it was written"
