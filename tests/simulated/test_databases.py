"""A journal in simulated processes: whatever becomes of its transactions, each entry is written once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import sqlalchemy as sql

from skedge.live import host as seam
from skedge.live.journal import tables
from skedge.live.journal.journal import LateEntryError, SqlJournal

from . import host
from .databases import LATE_S, Database, add_faults, create_engine
from .disks import disk
from .faults import Fault
from .scheduler import World, running_world

ENTRIES = 4


def written(file: Path, seed: int, fault: Fault) -> tuple[list[int], set[str]]:
    """The entries of a journal on a server, whose controller suffers a fault, and the reasons for which it waited."""
    url, reasons = "sqlite://", set[str]()

    def program() -> None:
        journal = SqlJournal(url, {"id": str(seed)})

        def wait() -> None:
            reasons.add(journal.blocked.rpartition(": ")[2])
            host.sleep(1.0)

        journal.meanwhile = wait
        for number in range(ENTRIES):
            journal.take(number, {"is": "Due"})
            host.sleep(0.3)
        journal.close()

    with seam.installed(host), World(seed, [fault]) as world, simulated_engines("FULL"):
        Database(world, url, str(file))
        add_faults(world)
        world.process("p", program)
        world.run()
        for crash in world.crashes:
            raise crash.error
    journal = SqlJournal(f"sqlite:///{file}", run_id=str(seed))
    journal.close()
    return [time for time, _ in journal.inputs], reasons


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("full", "database or disk is full"), ("busy", "database is locked"), ("lost", "the connection is lost")],
)
def test_each_entry_is_written_once(kind: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "journal.db"
    for seed in range(8):
        fault = Fault(f"sql {kind}", "p", time_s=0.1 + 0.1 * seed, seconds=7.0)
        assert written(file, seed, fault) == (list(range(ENTRIES)), {reason})


def test_a_lock_that_is_soon_free_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "journal.db"
    assert written(file, 0, Fault("sql busy", "p", time_s=0.1, seconds=3.0)) == (list(range(ENTRIES)), set())


def test_a_lost_commit_has_taken_effect_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that takes each lost commit for one without effect breaks, and so does one that takes none for it."""
    file = tmp_path / "journal.db"
    committed = SqlJournal._committed

    def breaks(seed: int) -> bool:
        try:
            return written(file, seed, Fault("sql lost", "p", time_s=0.1, seconds=7.0))[0] != list(range(ENTRIES))
        except Exception:
            return True

    for start, planted in (
        (0, lambda journal, entry, *, is_retry: committed(journal, entry, is_retry=False)),
        (10, lambda journal, entry, *, is_retry: committed(journal, entry, is_retry=is_retry) or True),
    ):
        monkeypatch.setattr(SqlJournal, "_committed", planted)
        assert any(breaks(seed) for seed in range(start, start + 10))


@pytest.mark.parametrize(("synchronous", "loses"), [("FULL", False), ("NORMAL", True)])
def test_a_power_cut_costs_what_was_not_flushed(synchronous: str, loses: bool, tmp_path: Path) -> None:
    """The last entries are lost, as many as chance wants, and never one in the middle."""
    left = set[int]()
    for seed in range(10):
        file = tmp_path / f"{seed}.db"
        with seam.installed(host), World(seed) as world, simulated_engines(synchronous):
            database = Database(world, "sqlite:////j.db", str(file), disk("machine"), "/j.db")

            def program() -> None:
                journal = SqlJournal("sqlite:////j.db", {"id": "1"})
                for number in range(ENTRIES):
                    journal.take(number, {"is": "Due"})
                host.sleep(1e3)

            world.process("p", program)
            world.run(lambda: world.now > 1.0)
            world.cut_power(world.machine("machine"))
            database.close()
        numbers = list[int]()
        with closing(sqlite3.connect(file)) as at, suppress(sqlite3.OperationalError):  # not even the tables are left
            numbers = [number for (number,) in at.execute("SELECT number FROM entries ORDER BY number")]
        assert numbers == list(range(len(numbers)))
        left.add(len(numbers))
    assert (left != {ENTRIES}) == loses


def test_the_commit_of_a_dead_process_takes_effect_later_or_is_refused(tmp_path: Path) -> None:
    """Refused is one whose number another process has written meanwhile."""
    url = "sqlite://"

    def program() -> None:
        world, journal = running_world(), SqlJournal(url, {"id": "1"})
        journal.take(0, {"is": "Due"})
        host.sleep(3.0)
        journal.meanwhile = lambda: world.kill(world.running().process)
        journal.take(1, {"is": "Due"})

    def successor() -> None:
        host.sleep(6.0)
        with suppress(LateEntryError):
            SqlJournal(url, run_id="1").take(2, {"is": "Due"})
        host.sleep(LATE_S)

    outcomes, faults = set[str](), [Fault("sql late", "p", 2.0, None, 5.0)]
    for seed in range(20):
        with seam.installed(host), World(seed, faults) as world, simulated_engines("FULL"):
            Database(world, url, str(tmp_path / f"{seed}.db"))
            add_faults(world)
            world.process("p", program)
            world.process("q", successor)
            world.run()
            outcomes |= {step.operation for step in world.history if step.process == "database"}
    assert outcomes == {"a late commit takes effect", "a late commit is refused"}


@contextmanager
def simulated_engines(synchronous: str) -> Iterator[None]:
    """SQLAlchemy makes engines of simulated databases, whose connections flush as is said."""

    def prepare(connection: Any, record: object) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")

    with (
        mock.patch.object(sql, "create_engine", create_engine),
        mock.patch.object(tables, "_prepare", prepare),
    ):
        yield
