"""A disk that fails while a controller begins costs time, and not the service."""

from __future__ import annotations

from pathlib import Path

from simulated import host
from simulated.disks import disk
from simulated.scheduler import World
from skedge.live import host as seam
from skedge.live.control.journal import SqlJournal
from skedge.live.control.journal_place import Place
from skedge.live.control.state_watch import StateWatch
from skedge.live.durable import make_folder, remove, write_whole

STATE = Path("/state")


def test_a_folder_that_could_not_be_looked_at_is_not_taken_for_another_one(tmp_path: Path) -> None:
    journal = SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}", {"id": "s"})

    def program() -> None:
        make_folder(STATE)
        write_whole(STATE / "journal.db", b"content")
        disk("machine").suffer("broken", 2.0)
        place, watch = Place(STATE / "journal.db"), StateWatch(STATE, journal)
        assert place.gone()
        watch.look()
        assert journal.unsound
        host.sleep(3.0)
        assert not place.gone()
        watch.look()
        assert not journal.unsound
        remove(STATE / "journal.db")
        write_whole(STATE / "journal.db", b"another file")
        assert place.gone()

    with seam.installed(host), World(0) as world:
        world.process("controller", program)
        world.run()
    journal.close()
    for crash in world.crashes:
        raise crash.error
