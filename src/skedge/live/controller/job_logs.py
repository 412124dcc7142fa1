"""The logs of jobs: what was decided about each, and what each of its workers has printed; bounded, and rotated.

The log of job J is ``J.log``; that of a worker W ``J.workers/W.log``. A file that is half as long as a log may be is
set aside under its name and the number of its first byte, in place of the one set aside before. Bytes keep their
numbers, so that a reader can go on where it has ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from skedge.core.errors import InputError
from skedge.core.model.escape import escaped
from skedge.live import host
from skedge.live.durable import append, make_folder, names_in

PIECE = 2**20
"""Most bytes of one answer."""

_PART, _LONGEST = re.compile(r"[^\w-]"), 100
"""What the name of a worker's file does not have, and its most characters."""

_FURTHER = "\n    | "
"""What begins the second and further lines of an entry, which could else be taken for entries."""


class LogPiece(NamedTuple):
    """A part of a log, and the number of the byte after it."""

    text: str
    next: int


class JobLogs:
    """The logs of a service's jobs; any thread may write and read.

    Parameters
    ----------
    folder
        Folder of the logs; created if it does not exist.
    most_mb
        Most that is kept of each log [MB].
    silent
        Returns whether nothing is written now, as a rebuild repeats what is there.
    """

    def __init__(self, folder: Path, most_mb: float, silent: Callable[[], bool]) -> None:
        self.folder, self.most, self.silent = folder, int(most_mb * 1e6), silent
        self._lock = host.Lock()
        make_folder(folder)

    def line(self, job: str, text: str) -> None:
        """Write an entry to the log of a job, with the time."""
        stamp = host.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._write(self._path(job), f"{stamp} {_FURTHER.join(escaped(text).splitlines() or [''])}\n")

    def printed(self, job: str, worker: str, text: str) -> None:
        """Write what a worker of a job has printed to its log."""
        self._write(self._path(job, worker), escaped(text))

    def _write(self, path: Path, text: str) -> None:
        content = text.encode("utf-8", "replace")
        if self.silent():
            return
        with suppress(OSError), self._lock:  # a full disk costs only the entry
            with suppress(FileExistsError):
                host.disk.mkdir(path.parent)
            if host.disk.exists(path) and _size(path) + len(content) > self.most // 2:
                _set_aside(path)
            append(path, content)

    def workers(self, job: str) -> list[dict[str, Any]]:
        """The workers of a job that have printed something, and how much is kept of each."""
        folder = self._folder(job)
        logs = [folder / name for name in names_in(folder) if name.endswith(".log")]
        return [{"worker": path.stem, "bytes": sum(_size(part) for part, _ in _parts(path))} for path in logs]

    def read(self, job: str, worker: str = "", since: int = 0) -> LogPiece:
        """A piece of a log from byte `since` on; what is not kept any more is left out, and that is said.

        Raises
        ------
        InputError
            If the job has no such worker, or it has printed nothing.
        """
        workers = [row["worker"] for row in self.workers(job)]
        if worker and worker not in workers:
            have = ", ".join(map(str, workers)) or "none"
            raise InputError(f"worker {worker!r}: has printed nothing for job {job!r}; workers that have: {have}")
        with self._lock:
            return _piece(_parts(self._path(job, worker)), since)

    def _folder(self, job: str) -> Path:
        return self.folder / f"{job}.workers"

    def _path(self, job: str, worker: str = "") -> Path:
        return self._folder(job) / f"{_plain(worker)}.log" if worker else self.folder / f"{job}.log"


def _plain(worker: str) -> str:
    """A worker's name as that of a file: a part of a path is none."""
    return _PART.sub("_", worker)[:_LONGEST] or "_"


def _parts(path: Path) -> list[tuple[Path, int]]:
    """The files of a log, in order, with the number of the first byte of each."""
    parts = [path.with_name(name) for name in names_in(path.parent) if name.startswith(f"{path.name}.")]
    aside = [(part, int(part.suffix[1:])) for part in parts if part.suffix[1:].isdigit()]
    end = max((first + _size(part) for part, first in aside), default=0)
    return [*aside, (path, end)] if host.disk.exists(path) else aside


def _size(path: Path) -> int:
    return host.disk.size(path) or 0


def _set_aside(path: Path) -> None:
    """Begin a new file of a log, and remove the one before."""
    *earlier, (_, first) = _parts(path)
    host.disk.replace(path, path.with_name(f"{path.name}.{first}"))
    for part, _ in earlier:
        host.disk.remove(part)


def _piece(parts: list[tuple[Path, int]], since: int) -> LogPiece:
    first = min((number for _, number in parts), default=0)
    left_out = f"… {first - since:,} bytes left out …\n" if since < first else ""
    offset, content = max(since, first), b""
    for part, number in parts:
        if offset + len(content) >= number:
            with host.disk.open(part) as file:
                file.seek(offset + len(content) - number)
                content += file.read(PIECE - len(content))
    complete = content if len(content) < PIECE else content[: content.rfind(b"\n") + 1] or content
    return LogPiece(left_out + complete.decode("utf-8", "replace"), offset + len(complete))
