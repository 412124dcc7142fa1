"""Where checkpoints are kept: one atomic write each, at an fsspec URL (a local folder, ``s3://…``, ``hdfs://…``).

A checkpoint is one object with its digest in front, so that a half-written or damaged one is never taken for whole.
On a local disk it is written aside, flushed, and renamed; an object store shows an object only when its upload is
complete. The last two of each job are kept.
"""

from __future__ import annotations

import os

import fsspec
from fsspec.implementations.local import LocalFileSystem

from skedge.core.errors import TrainingError

from .framing import framed, unframed

_KEPT = 2


class Checkpoints:
    """The checkpoints of all jobs under one URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files, self.base = fsspec.core.url_to_fs(url)

    def _folder(self, job: str) -> str:
        return f"{self.base}/{job}"

    def _versions(self, job: str) -> list[int]:
        folder = self._folder(job)
        if not self.files.exists(folder):
            return []
        names = (str(path).rsplit("/", 1)[-1] for path in self.files.ls(folder, detail=False))
        return sorted(int(name.removesuffix(".ckpt")) for name in names if name.removesuffix(".ckpt").isdigit())

    def write(self, job: str, version: int, content: bytes) -> None:
        """Keep `content` as the checkpoint of a version.

        Raises
        ------
        TrainingError
            If it cannot be written (a full disk); the checkpoints before it stay.
        """
        folder = self._folder(job)
        path = f"{folder}/{version:012d}.ckpt"
        try:
            self.files.makedirs(folder, exist_ok=True)
            if isinstance(self.files, LocalFileSystem):
                _write_local(path, framed(content))
            else:
                self.files.pipe_file(path, framed(content))
            for old in self._versions(job)[:-_KEPT]:
                self.files.rm_file(f"{folder}/{old:012d}.ckpt")
        except OSError as error:
            raise TrainingError(f"checkpoint {path}: cannot be written: {error.strerror or error}") from error

    def read(self, job: str) -> bytes | None:
        """The newest whole checkpoint of a job; None if there is none."""
        folder = self._folder(job)
        for version in reversed(self._versions(job)):
            content = unframed(self.files.cat_file(f"{folder}/{version:012d}.ckpt"))
            if content is not None:
                return content
        return None

    def forget(self, job: str) -> None:
        """Remove all checkpoints of a job."""
        if self.files.exists(self._folder(job)):
            self.files.rm(self._folder(job), recursive=True)


def _write_local(path: str, content: bytes) -> None:
    aside = f"{path}.{os.getpid()}.partial"
    try:
        with open(aside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        if os.path.exists(aside):
            os.remove(aside)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
