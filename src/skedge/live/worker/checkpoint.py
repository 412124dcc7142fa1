"""Storage of checkpoints, one atomic write each, at an fsspec URL (a local folder, ``s3://…``, ``hdfs://…``).

A checkpoint is one object preceded by its digest, so that a partial or damaged one is detected. On a local disk it is
written aside, flushed, and renamed; an object store shows an object only when its upload is complete. The last two of
each job are kept.

Checkpoints are ordered by their names: by the life that wrote them (:class:`Life`), then by version. No clock is used:
one that was set back would make the newest checkpoint the oldest. None is written that is older than one that is there.
"""

from __future__ import annotations

import errno
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import fsspec
from fsspec.implementations.local import LocalFileSystem

from skedge.core.errors import TrainingError
from skedge.live.durable import make_folder, write_whole

from .framing import framed, unframed

_KEPT, _LISTS = 2, 5
"""Checkpoints of a job that are kept, and how often they are listed anew as one was removed before it was read."""

_IN_THE_WAY = (FileExistsError, NotADirectoryError, IsADirectoryError)
"""Errors of a job's own folder, which waiting does not mend."""

_NAME = re.compile(r"(?:(\d+)-(\d+)-)?(\d+)\.ckpt")
"""``controller-load-version.ckpt``; an older format has the version only, and sorts before all others."""

_ASIDE = re.compile(rf"\.({_NAME.pattern})\.[\d-]+\.partial")
"""A checkpoint that is being written on a local disk, or was when its writer was killed."""


class Life(NamedTuple):
    """One period in which a process serves a job; lives are ordered as tuples.

    Attributes
    ----------
    controller
        Number of controllers that the run had before the current one, by its journal.
    load
        Number of loads of parameter servers by the coordinator so far, those of other jobs included, from 1.
    """

    controller: int = 0
    load: int = 0


class UnwrittenError(TrainingError):
    """A checkpoint cannot be written."""


class StorageAwayError(UnwrittenError):
    """A checkpoint cannot be written now, as the storage is full or does not answer."""


class UnreadError(Exception):
    """The checkpoints of a job cannot be read now."""


class OutlivedError(UnwrittenError):
    """A checkpoint is older than one that is there: another process has loaded the job since."""


class Checkpoints:
    """The checkpoints of all jobs under one URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files, self.base = fsspec.core.url_to_fs(url)

    def _folder(self, job: str) -> str:
        return f"{self.base}/{job}"

    def _paths(self, job: str) -> list[str]:
        """The job's checkpoints, newest last."""
        return [path for _, path in self._dated(job, _NAME)]

    def _dated(self, job: str, pattern: re.Pattern[str]) -> list[tuple[_Age, str]]:
        """(age, path) of the job's files whose names have a pattern, newest last."""
        folder = self._folder(job)
        if not self.files.exists(folder):
            return []
        # storage may list a folder as it was before other processes have written there
        names = (str(path).rsplit("/", 1)[-1] for path in self.files.ls(folder, detail=False, refresh=True))
        matches = (match for match in map(pattern.fullmatch, names) if match)
        return sorted((_age(match), f"{folder}/{match.string}") for match in matches)

    def write(self, job: str, life: Life, version: int, content: bytes) -> None:
        """Write `content` as the checkpoint of a version in a life.

        Parameters
        ----------
        job
            Id of the job.
        life
            That of the process that made it.
        version
            Number of updates of the parameters in it.
        content
            The checkpoint, without its digest.

        Raises
        ------
        OutlivedError
            If a later one is there.
        UnwrittenError
            If it cannot be written; earlier checkpoints stay. :class:`StorageAwayError` if that may pass.
        """
        folder, age = self._folder(job), (*life, version)
        path = f"{folder}/{life.controller:06d}-{life.load:06d}-{version:012d}.ckpt"
        try:
            later = [later_path for other_age, later_path in self._dated(job, _NAME) if other_age > age]
            if later:
                raise OutlivedError(f"checkpoint {path}: is not written, as there is a later one, {later[-1]}")
            # object stores replace a file as a whole; a local file has to be written aside and renamed
            if isinstance(self.files, LocalFileSystem):
                make_folder(Path(folder))
                write_whole(Path(path), framed(content))
            else:
                self.files.makedirs(folder, exist_ok=True)
                self.files.pipe_file(path, framed(content))
            # the older ones go only when the new one is there
            for old in self._paths(job)[:-_KEPT]:
                self._remove(old)
            self._tidy(job, age)
        except OSError as error:
            kind = UnwrittenError if isinstance(error, _IN_THE_WAY) else StorageAwayError
            raise kind(f"checkpoint {path}: cannot be written: {error.strerror or error}") from error

    def read(self, job: str) -> bytes | None:
        """The newest whole checkpoint of a job; None if there is none."""
        newest = self._newest(job)
        return None if newest is None else newest[1]

    def _newest(self, job: str) -> tuple[str, bytes] | None:
        """Path and content of the newest whole checkpoint."""
        for _ in range(_LISTS):
            with suppress(FileNotFoundError):  # its writer has removed it since, as there are newer ones
                return self._newest_listed(job)
        return self._newest_listed(job)

    def _newest_listed(self, job: str) -> tuple[str, bytes] | None:
        for path in reversed(self._paths(job)):
            content = unframed(self.files.cat_file(path))
            if content is not None:
                return path, content
        return None

    def thin(self, job: str) -> None:
        """Remove all checkpoints of a job but the newest whole one; if none is whole, all stay."""
        if (newest := self._newest(job)) is not None:
            for path in self._paths(job):
                if path != newest[0]:
                    self._remove(path)
        self._tidy(job)

    def _tidy(self, job: str, until: _Age | None = None) -> None:
        """Remove what killed writers have left: all of a job that has left, or what is older than a checkpoint."""
        for age, path in self._dated(job, _ASIDE):
            if until is None or age < until:
                self._remove(path)

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):  # another process has removed it
            self.files.rm_file(path)

    def jobs(self) -> list[str]:
        """The jobs that have checkpoints."""
        if not self.files.exists(self.base):
            return []
        return sorted(str(path).rstrip("/").rsplit("/", 1)[-1] for path in self.files.ls(self.base, detail=False))

    def controllers(self) -> int:
        """The highest number of a controller that a checkpoint was written under; 0 if there is none."""
        return max((age[0] for job in self.jobs() for age, _ in self._dated(job, _NAME)), default=0)

    def forget(self, job: str) -> None:
        """Remove all checkpoints of a job."""
        if self.files.exists(self._folder(job)):
            self.files.rm(self._folder(job), recursive=True)


def is_full(error: BaseException) -> bool:
    """Whether an error says that there is no space left."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


_Age = tuple[int, int, int]
"""Controller, load and version of a checkpoint."""


def _age(name: re.Match[str]) -> _Age:
    controller, load, version = name.groups()[-3:]
    return (-1, -1, int(version)) if controller is None else (int(controller), int(load), int(version))
