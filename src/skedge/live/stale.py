"""The processes of Ray that a killed controller has left."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

PIDS = "ray-pids.json"
"""Name of the file with their process ids, in the state folder."""


def end_stale(folder: Path) -> None:
    """Kill the processes of Ray left by a killed controller, by the process ids in its state folder."""
    path = folder / PIDS
    for pid in json.loads(path.read_text(encoding="utf-8")) if path.exists() else ():
        with suppress(OSError):  # the process has ended meanwhile
            command = Path(f"/proc/{pid}/cmdline")
            if command.exists() and b"ray" in command.read_bytes():
                os.kill(pid, signal.SIGKILL)
