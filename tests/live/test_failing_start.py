"""A disk that fails while a controller begins costs time, and not the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulated import host
from simulated.disks import disk
from simulated.scheduler import World
from skedge.live import host as seam
from skedge.live.controller.state_watch import StateWatch
from skedge.live.durable import make_folder
from skedge.live.journal import database_file
from skedge.live.journal.database_file import DatabaseFile
from skedge.live.journal.journal import SqlJournal

STATE = Path("/state")


def test_a_folder_that_could_not_be_looked_at_is_not_taken_for_another_one(tmp_path: Path) -> None:
    journal = SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}", {"id": "s"})

    def program() -> None:
        make_folder(STATE)
        disk("machine").suffer("broken", 2.0)
        watch = StateWatch(STATE, journal)
        watch.look()
        assert journal.unsound
        host.sleep(3.0)
        watch.look()
        assert not journal.unsound

    with seam.installed(host), World(0) as world:
        world.process("controller", program)
        world.run()
    journal.close()
    for crash in world.crashes:
        raise crash.error


def test_nor_is_the_journals_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "journal.db").touch()
    with monkeypatch.context() as patch:
        patch.setattr(database_file, "_identity", lambda _: None)
        file = DatabaseFile(tmp_path / "journal.db")
        assert file.gone()
    assert not file.gone()
    (tmp_path / "journal.db").rename(tmp_path / "moved")
    (tmp_path / "journal.db").touch()
    assert file.gone()
