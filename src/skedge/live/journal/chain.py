"""The entries of a journal and their checksums, each of which continues that of the entry before.

A checksum is the CRC-32 of all entries so far: a changed byte, a missing entry and one that belongs elsewhere are
noticed where they are. The first entry continues the checksum of the run's description.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from skedge.core.errors import StateError

INPUT, DECISION, ASIDE = "input", "decision", "quarantined"
"""Kinds of entries; a quarantined one was an input, and has the checksum of that."""

MISSING, DAMAGED = "is missing", "is damaged: it does not match its checksum"
"""What is wrong with an entry."""


class DamagedError(StateError):
    """An entry of a journal is damaged or missing.

    Attributes
    ----------
    number
        The first such entry.
    why
        What is wrong with it.
    """

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"entry {number} {reason}")
        self.number, self.why = number, reason


class Entry(NamedTuple):
    """An entry as it is stored: `time` is that of the run [µs], `content` is JSON."""

    number: int
    time: int
    kind: str
    content: str
    checksum: int = 0

    def after(self, before: int) -> int:
        """The checksum that is right for it, if `before` is that of the entry before."""
        written_as = {ASIDE: INPUT}.get(self.kind, self.kind)
        return zlib.crc32(
            f"{self.number} {self.time} {written_as} {self.content}".encode(errors="surrogateescape"), before
        )

    def value(self) -> dict[str, Any]:
        """The content, as plain JSON types."""
        return dict(json.loads(self.content))


def start_of(about: dict[str, Any]) -> int:
    """What the first entry's checksum continues: that of the run's description."""
    return zlib.crc32(json.dumps(about, sort_keys=True).encode())


def checked(entries: Iterable[Entry], first: int, before: int) -> Iterator[Entry]:
    """The entries, as long as they are whole: numbered from `first` on, with checksums that continue `before`.

    Raises
    ------
    DamagedError
        At the first that is missing or differs from what was written.
    """
    for number, entry in enumerate(entries, first):
        if entry.number != number:
            raise DamagedError(number, MISSING)
        if entry.checksum != entry.after(before):
            raise DamagedError(number, DAMAGED)
        before = entry.checksum
        yield entry
