"""Results of tasks, cached in a folder."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from skedge.core.errors import InputError


class ResultCache:
    """A folder of results, created if needed.

    It belongs to the user: files of results are read with pickle, so a folder from elsewhere must be trusted.
    """

    def __init__(self, folder: Path, say: Callable[[str], None] | None = None) -> None:
        """`say` receives a sentence on the number of cached results.

        Raises
        ------
        InputError
            If `folder` is a file.
        """
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder}: finished points cannot be kept in it: it is not a folder")
        self.folder, self.say = folder, say

    def __len__(self) -> int:
        """Number of results in the folder, of all calls of :func:`~skedge.runs.tasks.run_tasks`."""
        return sum(1 for _ in self.folder.glob("[!.]*"))

    def get(self, key: str) -> tuple[Any] | None:
        """The cached result of `key` in a tuple; None if there is none that can be read."""
        with suppress(Exception):  # a damaged file can raise anything; its task is run again
            path = self.folder / key
            content = pickle.loads(path.read_bytes())  # noqa: S301 - the user's own files
            if isinstance(content, dict) and content.get("key") == key:
                return (content["result"],)
        return None

    def get_or_compute(self, key: str, compute: Callable[[], Any]) -> Any:
        """The cached result of `key`, or the result of `compute`, which is then cached."""
        result = self.get(key)
        if result is None:
            result = (compute(),)
            self.add(key, result[0])
        return result[0]

    def add(self, key: str, result: Any) -> None:
        """Cache a result, completely or not at all, even if the process is ended meanwhile.

        Raises
        ------
        InputError
            If the folder cannot be used.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # hidden, so that __len__ does not count it, and with the process's number: several may write the same key
            temp_file = self.folder / f".{key}.{os.getpid()}"
            temp_file.write_bytes(pickle.dumps({"key": key, "result": result}, protocol=5))
            temp_file.replace(self.folder / key)
        except OSError as error:
            raise InputError(f"{self.folder}: finished points cannot be kept in it: {error.strerror}") from error
