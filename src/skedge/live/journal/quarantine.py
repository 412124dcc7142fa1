"""Quarantine: a submission that ends every controller that takes it in is set aside."""

from __future__ import annotations

from skedge.core.errors import InputError

from .chain import ASIDE, DECISION, INPUT
from .journal import SqlJournal
from .tables import ENTRIES


def put_aside(journal: SqlJournal, job: str) -> None:
    """Quarantine the submission of a job: it is no longer replayed, as if it had never been made.

    This is possible only until a decision about the job was taken, as a replay would then miss it.

    Raises
    ------
    InputError
        If no job of that name was submitted, or a decision about it was taken.
    """
    entries = journal.entries(0, journal.number)
    came = [(entry.number, entry.value()) for entry in entries if entry.kind == INPUT]
    jobs = [(number, content["job"]["id"]) for number, content in came if content["is"] == "Submitted"]
    names = [name for _, name in jobs]
    if job not in names:
        raise InputError(f"job {job!r}: was not submitted; there are {', '.join(names[-5:]) or 'none'}")
    place = names.index(job)
    for content in (entry.value() for entry in entries if entry.kind == DECISION):
        if place in content["event"]["arrived"]:
            raise InputError(f"job {job!r}: has been taken in; `skedge cancel {job}` ends it")
    own = (ENTRIES.c.run == journal.run) & (ENTRIES.c.number == jobs[place][0])
    with journal.transaction() as connection:
        connection.execute(ENTRIES.update().where(own).values(kind=ASIDE))
