"""What ``skedge journal check`` and ``repair`` do: find the first bad entry of a state's journal, and cut it off.

A service needs the entries from its snapshot on, and without a usable snapshot all of them. A repair keeps the sound
ones, up to the first that is bad: the state is then that of a controller that was killed there. What is cut off, and
what was made from it, is moved to a folder beside, and nothing is deleted.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import sqlalchemy as sql

from skedge.core.errors import InputError, SkedgeError, StateError
from skedge.core.model.time import SECOND
from skedge.live.controller.record_parts import RECORD
from skedge.live.controller.settings import CLUSTER, Settings, read_settings
from skedge.live.controller.snapshot import SNAPSHOT, newest
from skedge.live.durable import flush, make_folder, put_in_place
from skedge.live.journal.archive import read_rows
from skedge.live.journal.chain import ASIDE, INPUT, DamagedError, Entry
from skedge.live.journal.database_file import DatabaseFile, LastEntry, last_written, tip_of
from skedge.live.journal.journal import JOURNAL, MOST, SqlJournal, journal_url
from skedge.live.journal.tables import ENTRIES, RUNS, connected
from skedge.live.journal.version import create_tables
from skedge.live.worker.checkpoint import Checkpoints
from skedge.live.world.inputs import Resumed, Submitted, to_json
from skedge.prepare import prepare_for_service
from skedge.scenario.file import load_cluster_file

_COLUMNS = "number, time, kind, content, checksum"
_READS = ("", "NOT INDEXED")
"""How a damaged table is read: by its index, and without."""


@dataclass(frozen=True)
class JournalCheck:
    """What a check has found.

    Attributes
    ----------
    entries
        Number of entries that were written, as far as that is known.
    first_bad, why
        The first entry that is damaged or missing, and what is wrong with it; None and empty if all are sound.
    from_snapshot
        Entry from which a snapshot lets the service continue; 0 without one.
    starts
        Whether the service can continue: every entry that it needs is sound.
    """

    entries: int
    first_bad: int | None
    why: str
    from_snapshot: int
    starts: bool


@dataclass(frozen=True)
class Cut:
    """What a repair has done.

    Attributes
    ----------
    first_bad, why
        As of :class:`JournalCheck`, of the entries that the service needs; None if nothing had to be cut off.
    lost
        Number of entries that are cut off, or missing; 0 if all were found at other places.
    until_s
        Time of the last entry that is left [s].
    jobs
        Jobs that were submitted in what is cut off, as far as it can be read.
    aside
        Folder of what is cut off; None if there is none.
    """

    first_bad: int | None
    why: str
    lost: int
    until_s: float
    jobs: list[str]
    aside: str | None


def check(state: Path) -> JournalCheck:
    """Check the journal of a state, of a service that is up or down.

    Raises
    ------
    StateError
        If no entry of its database can be read.
    """
    settings = read_settings(state)
    with closing(_opened(state, settings)) as journal:
        written, first = _written(journal, state, settings), _from_snapshot(journal, state, settings)[0]
        bad = _first_bad(journal, 0, written)
        needed = bad if first == 0 or bad is None else _first_bad(journal, first, written)
    return JournalCheck(
        written, None if bad is None else bad.number, "" if bad is None else bad.why, first, starts=needed is None
    )


def _opened(state: Path, settings: Settings) -> SqlJournal:
    if settings.journal is None and not (state / JOURNAL).exists():
        raise StateError(f"{state}: its journal, {JOURNAL}, is missing")
    return SqlJournal(journal_url(state, settings.journal), run_id=settings.id, reading=True, complete=False)


def _written(journal: SqlJournal, state: Path, settings: Settings) -> int:
    """Number of entries that were written, as far as that is known."""
    tip = last_written(state / JOURNAL) if settings.journal is None else None
    return max(journal.number, 0 if tip is None or tip.run != journal.run else tip.number + 1)


def _first_bad(journal: SqlJournal, first: int, end: int) -> DamagedError | None:
    try:
        journal.entries(first, end)
    except DamagedError as error:
        return error
    return None


def _from_snapshot(journal: SqlJournal, state: Path, settings: Settings) -> tuple[int, int | None]:
    """The entry from which a snapshot lets the service continue, and the checksum before it; (0, None) without one."""
    scenario = load_cluster_file(state / CLUSTER)
    with suppress(SkedgeError, sql.exc.SQLAlchemyError):
        snapshot = newest(state / SNAPSHOT, scenario, prepare_for_service(settings.policy, scenario), journal)
        if snapshot is not None:
            return snapshot.number, journal.before(snapshot.number)
    return 0, None


def repair(state: Path) -> Cut:
    """Cut the journal of a state, of a service that is down, to its last sound entry.

    Raises
    ------
    InputError
        If its journal is kept elsewhere.
    StateError
        If nothing sound is left of it: it then stays as it is.
    """
    settings = read_settings(state)
    if settings.journal is not None:
        raise InputError(f"{state}: its journal is kept elsewhere, by URL (`skedge up --journal`); repair it there")
    stored = defaultdict[int, list[Entry]](list)
    with closing(_opened(state, settings)) as journal:
        first, before = _from_snapshot(journal, state, settings)
        written = _written(journal, state, settings)
        bad = _first_bad(journal, first, written)
        for entry in chain(_in_database(state / JOURNAL, journal.run), _archived(journal)):
            stored[entry.number].append(entry)
    sound = _sound(stored, first, journal.before(0) if before is None else before, written)
    if bad is None:
        return Cut(None, "", 0, _time(sound), [], None)
    if not sound:
        raise StateError(f"{state}: {bad}, and no entry before it is sound; restore a backup")
    end = first + len(sound)
    jobs = sorted({*_submitted(chain.from_iterable(versions for number, versions in stored.items() if number >= end))})
    left = [*(stored[number][0] for number in sorted(stored) if number < first), *sound]
    aside = _cut(state, journal, left, end)
    checkpoints = Checkpoints(settings.checkpoints_of(state))
    # of what cannot be read the names are not known; without a snapshot all others are
    strange = {*jobs, *(() if first or end == written else checkpoints.jobs())} - {*_submitted(left)}
    _set_aside_jobs(checkpoints, strange, aside)
    _outnumber(state, settings, sound[-1].time)
    return Cut(bad.number, bad.why, written - end, _time(sound), jobs, str(aside))


def _time(sound: list[Entry]) -> float:
    return max((entry.time for entry in sound), default=0) / SECOND


def _files(journal: SqlJournal) -> list[tuple[int, int, Path]]:
    return [] if journal.archive is None else journal.archive.files()


def _archived(journal: SqlJournal, end: int = MOST) -> Iterator[Entry]:
    """The entries that can be read of the archive's files that end before entry `end`."""
    for _, last, path in _files(journal):
        with suppress(InputError):
            yield from (Entry(*row) for row in read_rows(path) if last < end and isinstance(row[0], int))


def _in_database(file: Path, run: int) -> list[Entry]:
    """The entries of a damaged database that can be read; some perhaps in two versions."""
    entries = list[Entry]()
    with closing(sqlite3.connect(file)) as connection:
        connection.text_factory = lambda stored: stored.decode(errors="surrogateescape")
        for hint in _READS:
            with suppress(sqlite3.DatabaseError):
                query = f"SELECT {_COLUMNS} FROM entries {hint} WHERE run = ? ORDER BY rowid"  # noqa: S608 - of ours
                for row in connection.execute(query, (run,)):
                    entries.append(Entry(*row))
    return [entry for entry in entries if isinstance(entry.number, int)]


def _sound(stored: Mapping[int, list[Entry]], first: int, before: int, end: int) -> list[Entry]:
    """The entries from `first` on up to the first of which no version continues those before."""
    sound = list[Entry]()
    for number in range(first, end):
        valid = next((entry for entry in stored.get(number, ()) if entry.checksum == entry.after(before)), None)
        if valid is None:
            break
        sound.append(valid)
        before = valid.checksum
    return sound


def _submitted(entries: Iterable[Entry]) -> Iterator[str]:
    """The names of the jobs that were submitted in entries, as far as they can be read."""
    for entry in entries:
        with suppress(ValueError, LookupError, TypeError):
            content = json.loads(entry.content)
            if entry.kind == INPUT and content["is"] == Submitted.__name__:
                yield str(content["job"]["id"])


# -- the files -------------------------------------------------------------------------------------------------------


def _cut(state: Path, journal: SqlJournal, entries: list[Entry], cut: int) -> Path:
    """Write a database of `entries` but what is archived; what was there, and is beyond the cut, is moved aside."""
    aside = _new_folder(state)
    archived = set(_archived(journal, cut))
    begins = min((entry.number for entry in entries if entry not in archived), default=entries[-1].number)
    beyond = [path for _, last, path in _files(journal) if last >= cut]
    fresh = state / f"{JOURNAL}.repaired"
    _write_database(fresh, journal, [entry for entry in entries if entry.number >= begins or entry.kind == ASIDE])
    os.link(state / JOURNAL, aside / JOURNAL)
    beyond += [state / f"{JOURNAL}{suffix}" for suffix in ("-wal", "-shm")]
    beyond += [tip_of(state / JOURNAL), *(path for path in [state / SNAPSHOT] if _number_of(path) >= cut)]
    beyond += [path for path in (state / RECORD).glob("[0-9]*") if int(path.name) > cut]
    for path in beyond:
        with suppress(FileNotFoundError):
            path.rename(aside / path.name)
    put_in_place(fresh, state / JOURNAL)
    DatabaseFile(state / JOURNAL).note(LastEntry(journal.run, entries[-1].number, entries[-1].checksum))
    return aside


def _new_folder(state: Path) -> Path:
    number = 1
    while (folder := state / f"journal.damaged-{number}").exists():
        number += 1
    make_folder(folder, 0o700)
    return folder


def _number_of(snapshot: Path) -> int:
    """The entry before which a snapshot was made; -1 if it cannot be read."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        return int(json.loads(snapshot.read_bytes().partition(b"\n")[0])["next"][0])
    return -1


def _write_database(file: Path, journal: SqlJournal, entries: list[Entry]) -> None:
    """Write a journal's database anew."""
    file.unlink(missing_ok=True)
    engine = connected(f"sqlite:///{file}")
    with engine.begin() as connection:
        create_tables(connection)
    with engine.begin() as connection:
        connection.execute(RUNS.insert(), {"id": journal.run, "about": journal.about})
        connection.execute(ENTRIES.insert(), [{"run": journal.run, **entry._asdict()} for entry in entries])
    engine.dispose()
    flush(file)


def _set_aside_jobs(checkpoints: Checkpoints, jobs: Iterable[str], aside: Path) -> None:
    """Move the checkpoints of jobs that are not in the journal any more: their names are free again."""
    for job in jobs:
        if checkpoints.files.exists(f"{checkpoints.base}/{job}"):
            checkpoints.files.mv(f"{checkpoints.base}/{job}", f"{checkpoints.base}.{aside.name}/{job}", recursive=True)


def _outnumber(state: Path, settings: Settings, time: int) -> None:
    """Let the next controller have a higher number than those that were cut off: checkpoints are ordered by it."""
    with closing(SqlJournal(journal_url(state, None), run_id=settings.id)) as journal:
        resumed = sum(content["is"] == Resumed.__name__ for _, content in journal.inputs)
        for _ in range(Checkpoints(settings.checkpoints_of(state)).controllers() - resumed):
            journal.take(time, to_json(Resumed()))
