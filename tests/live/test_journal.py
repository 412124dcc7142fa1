"""The journal: what was decided is there before it is done, and is decided again by replay."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sql

from skedge.core.errors import InputError, StateError
from skedge.core.events import Event, LaneFacts
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.scenario import Scenario
from skedge.live import host
from skedge.live.controller.service import open_journal
from skedge.live.journal.chain import DamagedError, Entry
from skedge.live.journal.journal import LateEntryError, SqlJournal, encode
from skedge.live.journal.tables import ENTRIES as _ENTRIES
from skedge.live.journal.tables import META as _META
from skedge.live.journal.version import VERSION, version_of
from skedge.prepare import prepare_policy
from skedge.sim.world import SimulatedWorld
from skedge.testing import small_scenario

POSTGRES = os.environ.get("SKEDGE_TEST_POSTGRES")
POLICIES = ["aonline", "srtf", "tiresias", "fifo", "fifo:rule=earliest_server"]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/journal.db"
    elif POSTGRES is None:
        pytest.skip("SKEDGE_TEST_POSTGRES names no PostgreSQL database")
    else:
        yield POSTGRES


def fresh(scenario: Scenario, policy: str, journal: SqlJournal | None = None) -> Kernel:
    return Kernel(scenario, prepare_policy(policy, scenario), journal)


@pytest.mark.parametrize("policy", POLICIES)
def test_replay_decides_as_it_was_decided(url: str, policy: str) -> None:
    scenario = small_scenario(1)
    kernel = fresh(scenario, policy, SqlJournal(url, {"policy": policy}))
    drive_to_end(kernel, SimulatedWorld(kernel))
    found = SqlJournal(url)
    assert found.about == {"policy": policy}
    assert len(found.decided) > 0
    again = fresh(scenario, policy, found)
    drive_to_end(again, SimulatedWorld(again))
    assert len(found.decided) == 0
    again.validate_state()
    assert again.record.decisions_table().equals(kernel.record.decisions_table())


def test_replay_with_another_policy_is_refused(url: str) -> None:
    scenario = small_scenario(1)
    kernel = fresh(scenario, "fifo", SqlJournal(url, {}))
    drive_to_end(kernel, SimulatedWorld(kernel))
    with pytest.raises(StateError, match="not the one in the journal"):
        drive_to_end(kernel := fresh(scenario, "fifo:rule=earliest_server", SqlJournal(url)), SimulatedWorld(kernel))


def test_orders_are_in_the_journal_before_they_are_carried_out(url: str) -> None:
    scenario = small_scenario(1)
    journal = SqlJournal(url, {})

    class Watching(SimulatedWorld):
        def perform(self, order: object) -> None:
            written = [{**one, "order": None} for one in SqlJournal(url).decided[-1]["orders"]]
            assert {**encode(order), "order": None} in written
            super().perform(order)  # type: ignore[arg-type]

    drive_to_end(kernel := fresh(scenario, "aonline", journal), Watching(kernel))


def test_what_an_event_nests_is_written_as_lists_and_mappings() -> None:
    facts = LaneFacts(*(np.array([n]) for n in (5, 0, 1)))
    written = encode(Event(5, trained=((1, ((0, 2),)),), chunks=facts))
    assert written["trained"] == [[1, [[0, 2]]]]
    assert written["chunks"] == {"time": [5], "lane": [0], "job": [1]}


def test_a_database_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unable to open database file"):
        SqlJournal(f"sqlite:///{tmp_path}/no/such/folder/journal.db", {})
    with pytest.raises(InputError, match="no run to continue"):
        SqlJournal(f"sqlite:///{tmp_path}/empty.db")


def test_no_password_is_in_an_error() -> None:
    with pytest.raises(InputError, match=r"journal postgresql\+psycopg://me:\*\*\*@127.0.0.1:1/no") as found:
        SqlJournal("postgresql+psycopg://me:secret@127.0.0.1:1/no", {})
    assert "secret" not in str(found.value)


def test_who_only_reads_writes_nothing(url: str) -> None:
    """A record is made while the controller may be writing: past the end of the journal it adds nothing."""
    scenario = small_scenario(1)
    journal = SqlJournal(url, {})
    drive_to_end(kernel := fresh(scenario, "fifo", journal), SimulatedWorld(kernel))
    reader = SqlJournal(url, reading=True)
    count = reader.number
    reader.decided.clear()
    drive_to_end(kernel := fresh(scenario, "fifo", reader), SimulatedWorld(kernel))
    assert SqlJournal(url).number == count


def test_the_run_of_a_state_is_found_by_its_id(url: str) -> None:
    """Another service's run in the same database is newer."""
    SqlJournal(url, {"id": "mine", "policy": "fifo"})
    SqlJournal(url, {"id": "another", "policy": "srtf"})
    assert SqlJournal(url, run_id="mine").about["policy"] == "fifo"
    with pytest.raises(InputError, match="no run to continue"):
        SqlJournal(url, run_id="nobody's")


FULL = """
CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER disk_full BEFORE INSERT ON entries EXECUTE FUNCTION disk_full();
"""


@pytest.mark.skipif(POSTGRES is None, reason="SKEDGE_TEST_POSTGRES names no PostgreSQL database")
def test_an_entry_waits_while_the_disk_of_a_postgresql_server_is_full() -> None:
    """The server refuses as it does without space, until there is some: the entry is then written, once."""
    journal = SqlJournal(str(POSTGRES), {"id": "full"})
    journal.take(1, {"what": "before"})
    with journal.engine.begin() as at:
        at.execute(sql.text(FULL))
    said = list[str]()

    def space() -> None:
        said.append(journal.blocked)
        with journal.engine.begin() as at:
            at.execute(sql.text("DROP FUNCTION disk_full CASCADE"))

    journal.meanwhile = space
    journal.take(2, {"what": "after"})
    assert len(said) == 1
    assert "the journal cannot be written: could not extend file" in said[0]
    assert journal.blocked == ""
    assert [content["what"] for _, content in SqlJournal(str(POSTGRES)).inputs] == ["before", "after"]


def test_another_error_of_the_database_is_raised(tmp_path: Path) -> None:
    journal = SqlJournal(f"sqlite:///{tmp_path}/journal.db", {})
    with journal.engine.begin() as at:
        at.execute(sql.text("DROP TABLE entries"))
    with pytest.raises(sql.exc.OperationalError, match="no such table"):
        journal.take(1, {})


# -- the archive ------------------------------------------------------------------------------------------------------


def all_of(url: str) -> list[object]:
    journal = SqlJournal(url)
    try:
        return [*journal.inputs, *journal.decided]
    finally:
        journal.close()


def in_database(url: str) -> list[int]:
    with opened(url) as at:
        return list(at.execute(sql.select(_ENTRIES.c.number).order_by(_ENTRIES.c.number)).scalars())


@pytest.fixture
def filled(own: str) -> str:
    """A journal with 3,000 inputs and decisions."""
    journal = SqlJournal(own, {"policy": "fifo"})
    event = Event(5, arrived=(0,))
    with journal.engine.begin() as at:
        content = {"event": encode(event), "orders": []}
        kinds = [("input", {"x": 0.1}), ("decision", content)]
        checksum, rows = journal.checksum, []
        for number in range(3000):
            kind, of = kinds[number % 2]
            entry = Entry(number, number, kind, json.dumps(of))
            checksum = entry.after(checksum)
            rows.append({"run": journal.run, **entry._replace(checksum=checksum)._asdict()})
        at.execute(_ENTRIES.insert(), rows)
    journal.close()
    return own


def test_archived_entries_leave_the_database_and_are_replayed_as_before(filled: str, tmp_path: Path) -> None:
    before = all_of(filled)
    for end in (1000, 1000, 2401):
        journal = SqlJournal(filled)
        journal.shrink(end)
        journal.close()
        assert in_database(filled) == list(range(end, 3000))
        assert all_of(filled) == before
    names = sorted(path.name for path in (tmp_path / "journal.archive").iterdir())
    assert names == ["1-000000000000-000000000999.parquet", "1-000000001000-000000002400.parquet"]
    journal = SqlJournal(filled)
    last = journal.input_before(2000)
    assert last is not None
    assert (journal.number, last.number, last.time, last.value()) == (3000, 1998, 1998, {"x": 0.1})
    journal.span = (1500, 2500)
    assert [time for time, _ in journal.inputs] == list(range(1500, 2500, 2))


def test_a_death_between_the_file_and_the_deletion_loses_and_doubles_nothing(
    filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next archive begins where the database does, so its file and the first one overlap."""
    before = all_of(filled)
    with monkeypatch.context() as patch:
        patch.setattr("skedge.live.journal.journal._AT_ONCE", 0)
        with pytest.raises(ValueError, match="range"):
            SqlJournal(filled).shrink(1200)
    assert in_database(filled) == list(range(3000))
    assert all_of(filled) == before
    SqlJournal(filled).shrink(2000)
    assert all_of(filled) == before


def test_a_quarantined_input_stays_known_after_it_is_archived(filled: str) -> None:
    with opened(filled) as at:
        at.execute(_ENTRIES.update().where(_ENTRIES.c.number == 10).values(kind="quarantined"))
    SqlJournal(filled).shrink(100)
    assert in_database(filled)[:2] == [10, 100]
    assert SqlJournal(filled).aside == [{"x": 0.1}]
    assert len(SqlJournal(filled).inputs) == 1499


def test_an_archive_that_lacks_a_file_or_is_damaged_is_one_sentence(filled: str, tmp_path: Path) -> None:
    for end in (1000, 2000):
        SqlJournal(filled).shrink(end)
    first, second = sorted((tmp_path / "journal.archive").iterdir())
    content = first.read_bytes()
    first.write_bytes(content[:100])
    with pytest.raises(DamagedError, match=r"entry 0 is damaged: .*0999.parquet cannot be read: "):
        all_of(filled)
    first.unlink()
    with pytest.raises(DamagedError, match=r"entry 0 is missing: the file with it is not in .*journal.archive"):
        all_of(filled)
    first.write_bytes(content)
    second.unlink()
    with pytest.raises(DamagedError, match=r"entry 1000 is missing: the file with it is not in .*journal.archive"):
        all_of(filled)


# -- versions of the tables -------------------------------------------------------------------------------------------


@contextmanager
def opened(url: str) -> Iterator[sql.Connection]:
    """A connection of its own to a database."""
    engine = sql.create_engine(url)
    with engine.begin() as at:
        yield at
    engine.dispose()


@pytest.fixture
def own(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/journal.db"


def written(url: str) -> dict[str, object]:
    """Write a run to a journal; returns what it is about."""
    scenario, about = small_scenario(1), dict[str, object](policy="fifo")
    journal = SqlJournal(url, about)
    drive_to_end(kernel := fresh(scenario, "fifo", journal), SimulatedWorld(kernel))
    journal.close()
    return about


def without_version(url: str) -> None:
    """Take the stated version from a journal."""
    with opened(url) as at:
        at.execute(sql.text("DROP TABLE schema_version"))


def test_a_journal_states_its_version_and_has_the_tables_that_are_declared(url: str) -> None:
    SqlJournal(url, {}).close()
    with opened(url) as at:
        assert version_of(at) == VERSION
        columns = {name: [c["name"] for c in sql.inspect(at).get_columns(name)] for name in _META.tables}
    assert columns == {name: list(table.columns.keys()) for name, table in _META.tables.items()}


@pytest.mark.parametrize("reading", [False, True])
def test_a_journal_that_states_no_version_is_refused_and_not_changed(own: str, reading: bool) -> None:
    written(own)
    without_version(own)
    with pytest.raises(InputError, match=r"journal .*: its tables state no version, and this skedge reads version 2"):
        SqlJournal(own, reading=reading)
    with opened(own) as at:
        assert version_of(at) is None


@pytest.mark.parametrize("reading", [False, True])
def test_a_journal_of_another_version_is_refused(own: str, reading: bool) -> None:
    written(own)
    with opened(own) as at:
        at.execute(sql.text("UPDATE schema_version SET version = 99"))
    with pytest.raises(InputError, match=r"its tables are of version 99, .*: continue it with the skedge that wrote"):
        SqlJournal(own, reading=reading)


def test_of_two_controllers_that_write_one_journal_one_ends(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    one = SqlJournal(url, {"id": "a"})
    other = SqlJournal(url, run_id="a")
    one.take(1, {"is": "Resumed"})
    with pytest.raises(StateError, match="another controller writes this run's journal"):
        other.take(2, {"is": "Due"})
    assert [time for time, _ in SqlJournal(url, run_id="a").inputs] == [1]


def test_a_late_entry_of_the_controller_before_ends_this_controller_only(tmp_path: Path) -> None:
    """The next one reads it: no other controller has begun."""
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    killed = SqlJournal(url, {"id": "a"})
    following = SqlJournal(url, run_id="a")
    killed.take(1, {"is": "Due"})
    with pytest.raises(LateEntryError, match="entry 0 of the journal was committed late") as found:
        following.take(2, {"is": "Resumed"})
    assert not isinstance(found.value, StateError)
    last = SqlJournal(url, run_id="a")
    last.take(3, {"is": "Resumed"})
    with pytest.raises(StateError, match="another controller writes this run's journal"):
        following.take(2, {"is": "Due"})


def test_a_controller_that_finds_the_late_beginning_of_one_that_is_dead_may_begin_anew(tmp_path: Path) -> None:
    """If that one lives after all, it ends at its next entry: one of two goes on."""
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    earlier = SqlJournal(url, {"id": "a"})
    following = SqlJournal(url, run_id="a")
    earlier.take(1, {"is": "Resumed"})
    with pytest.raises(LateEntryError, match="entry 0 of the journal was committed late"):
        following.take(2, {"is": "Resumed"})
    anew = SqlJournal(url, run_id="a")
    anew.take(3, {"is": "Resumed"})
    with pytest.raises(StateError, match="another controller writes this run's journal"):
        earlier.take(4, {"is": "Due"})
    anew.take(5, {"is": "Due"})


def hindering(monkeypatch: pytest.MonkeyPatch, error: Exception, *, after: bool) -> None:
    """Let the next commit fail, before or `after` it has taken effect."""
    left = [error]

    @contextmanager
    def transaction(engine: sql.Engine) -> Iterator[sql.Connection]:
        with engine.begin() as at:
            yield at
            if left and not after:
                raise left.pop()
        if left:
            raise left.pop()

    monkeypatch.setattr(host, "transaction", transaction)


class RefusalError(Exception):
    """An error of a database's driver."""

    def __init__(self, sqlstate: str | None = None, sqlite_errorcode: int | None = None) -> None:
        super().__init__("it is away")
        self.sqlstate = sqlstate
        if sqlite_errorcode is not None:
            self.sqlite_errorcode = sqlite_errorcode


REFUSALS = {
    "PostgreSQL ends": RefusalError("57P01"),
    "PostgreSQL cannot be reached": RefusalError(),
    "a full disk at PostgreSQL": RefusalError("53100"),
    "SQLite is busy": RefusalError(sqlite_errorcode=sqlite3.SQLITE_BUSY),
    "SQLite is busy with a snapshot": RefusalError(sqlite_errorcode=sqlite3.SQLITE_BUSY_SNAPSHOT),
    "a disk that fails": RefusalError(sqlite_errorcode=sqlite3.SQLITE_IOERR_FSYNC),
}


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
@pytest.mark.parametrize("what", REFUSALS)
def test_an_entry_waits_until_the_database_is_there_again_and_is_written_once(
    url: str, what: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{what}, {after}"  # the runs of other tests stay in a database of PostgreSQL
    journal = SqlJournal(url, {"id": name})
    said = list[str]()
    journal.meanwhile = lambda: said.append(journal.blocked)
    hindering(monkeypatch, sql.exc.OperationalError("INSERT", {}, REFUSALS[what]), after=after)
    journal.take(1, {"is": "Due"})
    journal.take(2, {"is": "Due"})
    assert said == ["the journal cannot be written: it is away"]
    assert journal.blocked == ""
    assert [time for time, _ in SqlJournal(url, run_id=name).inputs] == [1, 2]


def test_a_question_is_never_answered_in_the_middle_of_an_event(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The books have the orders of a decision that waits to be written, the world has not."""
    journal = SqlJournal(own, {})
    assert not journal.decided
    waited = list[str]()
    journal.meanwhile = lambda: waited.append("asked")
    monkeypatch.setattr("skedge.live.journal.journal._pause", lambda: waited.append("paused"))
    for write in (lambda: journal.append(Event(5), []), lambda: journal.take(6, {"is": "Due"})):
        hindering(monkeypatch, sql.exc.OperationalError("INSERT", {}, REFUSALS["SQLite is busy"]), after=False)
        write()
    assert waited == ["paused", "asked"]


def test_nothing_is_acknowledged_once_the_file_is_gone(own: str, tmp_path: Path) -> None:
    """Not even what was committed to the file that nobody finds any more."""
    journal = SqlJournal(own, {})
    journal.take(1, {"is": "Due"})
    file, said = tmp_path / "journal.db", list[str]()

    def back() -> None:
        said.append(journal.blocked)
        (tmp_path / "away").rename(file)

    file.rename(tmp_path / "away")
    journal.meanwhile = back
    journal.take(2, {"is": "Due"})
    assert said == [f"the journal cannot be written: {file} is gone or was replaced while the service was up"]
    assert [time for time, _ in SqlJournal(own).inputs] == [1, 2]


def test_of_controllers_that_begin_a_service_at_once_one_makes_its_run(
    own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was frozen after it had looked for the run finds that of the other, also if it has entries."""
    about, begun = {"id": "mine", "policy": "fifo"}, list[SqlJournal]()

    class Frozen(SqlJournal):
        """A journal that another process begins after the first look, before this one does."""

        def __init__(self, url: str, about: dict[str, Any] | None = None, **options: Any) -> None:
            if about is not None:
                begun.append(SqlJournal(url, about))
                begun[0].take(1, {"is": "Due"})
            super().__init__(url, about, **options)

    monkeypatch.setattr("skedge.live.controller.service.SqlJournal", Frozen)
    journal = open_journal(own, about, own=True)
    assert (journal.run, journal.number, list(journal.inputs)) == (begun[0].run, 1, [(1, {"is": "Due"})])
    with journal.engine.begin() as at:
        assert at.execute(sql.select(sql.func.count()).select_from(_META.tables["runs"])).scalar_one() == 1


def test_a_controller_that_was_replaced_cannot_write_a_number_that_has_been_archived(tmp_path: Path) -> None:
    """Its own number is free again in the database, so that no key refuses it."""
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    first = SqlJournal(url, {"id": "s"})
    frozen = SqlJournal(url, run_id="s")
    first.take(0, {"is": "Resumed"})
    late = SqlJournal(url, run_id="s")
    for time in range(1, 6):
        first.take(time, {"is": "Due"})
    first.shrink(5)
    for other in (frozen, late):
        with pytest.raises(StateError, match="another controller"):
            other.take(9, {"is": "Due"})
        other.close()
    again = SqlJournal(url, run_id="s")
    assert [time for time, _ in again.inputs] == list(range(6))
    first.close()
    again.close()


def test_two_controllers_that_begin_at_once_have_one_run(tmp_path: Path) -> None:
    """The one that comes later, as it was frozen before it began the run, takes that of the other."""
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    first, second = SqlJournal(url, {"id": "s", "began": 1.0}), SqlJournal(url, {"id": "s", "began": 2.0})
    assert (first.run, second.about) == (second.run, first.about)
    other = SqlJournal(url, {"id": "t", "began": 2.0})
    assert other.run != first.run
    for journal in (first, second, other):
        journal.close()
