"""Files of the state with entries that have names: commands add, replace and remove them while the service runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

from skedge.core.errors import InputError
from skedge.live.durable import read_text
from skedge.live.secret_files import write_aside

Entry = TypeVar("Entry", bound=Any)
"""A dataclass of JSON types with a `name`."""


class NamedEntries(Generic[Entry]):
    """The entries of such a file, a list in JSON.

    Parameters
    ----------
    file
        Name of the file in a state folder.
    kind
        What an entry is called in messages.
    entry_of
        Makes an entry of its fields.
    """

    def __init__(self, file: str, kind: str, entry_of: Callable[[Mapping[str, Any]], Entry]) -> None:
        self.file, self.kind, self.entry_of = file, kind, entry_of

    def read(self, state: Path) -> list[Entry]:
        """The entries of a state.

        Raises
        ------
        InputError
            If the file is damaged.
        """
        path = state / self.file
        try:
            return [self.entry_of(row) for row in json.loads(read_text(path))]
        except FileNotFoundError:
            return []
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: holds no {self.kind}s; remove it and add them again") from error

    def of(self, state: Path, name: str) -> Entry:
        """The entry of this name.

        Raises
        ------
        InputError
            If there is none.
        """
        entries = {entry.name: entry for entry in self.read(state)}
        if name not in entries:
            raise InputError(f"{self.kind} {name!r} is not there; there are {', '.join(entries) or 'none'}")
        return entries[name]

    def put(self, state: Path, entry: Entry) -> None:
        """Add an entry, or replace that of the same name.

        Raises
        ------
        InputError
            If `state` is no folder.
        """
        self._write(state, [*self._others(state, entry.name), entry])

    def remove(self, state: Path, name: str) -> None:
        """Remove an entry.

        Raises
        ------
        InputError
            If there is none of that name.
        """
        self.of(state, name)
        self._write(state, self._others(state, name))

    def _others(self, state: Path, name: str) -> list[Entry]:
        return [entry for entry in self.read(state) if entry.name != name]

    def _write(self, state: Path, entries: list[Entry]) -> None:
        if not state.is_dir():
            raise InputError(f"{state}: is no folder of a service's state")
        write_aside(state / self.file, json.dumps([asdict(entry) for entry in entries], indent=2) + "\n")
