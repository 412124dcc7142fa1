"""The file with the address of a controller, by which its users and the supervisor find it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from skedge.live import host
from skedge.live.durable import remove
from skedge.live.secret_files import write_aside

from .settings import ADDRESS

_AGAIN_S = 1.0
"""Pause before a file that could not be written is tried again [s]."""


class Address:
    """The address of one controller; while the disk is full or fails, writing it is tried again.

    Parameters
    ----------
    state
        Folder of the service's state.
    about
        What is in the file besides ``ready``.
    """

    def __init__(self, state: Path, about: Mapping[str, Any]) -> None:
        self.file, self.about = state / ADDRESS, about
        self._lock, self._ended, self._ready = host.Lock(), host.Event(), False

    def tell(self, *, is_ready: bool) -> None:
        """Write the file, now or as soon as that is possible; `is_ready`: the controller answers."""
        self._ready = is_ready
        if not self._told():
            host.Thread(target=self._tell_again, name="address", daemon=True).start()

    def remove(self) -> None:
        """Remove the file."""
        self._ended.set()
        with self._lock, suppress(OSError):  # it then names a process that has ended, which readers look for
            remove(self.file)

    def _told(self) -> bool:
        with self._lock, suppress(OSError):
            if not self._ended.is_set():
                write_aside(self.file, json.dumps({**self.about, "ready": self._ready}) + "\n")
            return True
        return False

    def _tell_again(self) -> None:
        while not self._ended.wait(_AGAIN_S) and not self._told():
            pass
