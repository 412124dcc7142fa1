"""An fsspec file system on a simulated disk: ``disk://NAME/path`` is a file of the disk of the machine NAME."""

from __future__ import annotations

from typing import Any

import fsspec
from fsspec.spec import AbstractFileSystem

from .disks import Disk, OpenFile, disk


class DiskFileSystem(AbstractFileSystem):
    """Storage that keeps objects as an object store does: each is put as a whole, and is there to stay then."""

    protocol = "disk"
    cachable = False

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """The entries of a folder, or the file of that name."""
        store, inner = self._place(path)
        base = self._strip_protocol(path)
        if store.size(inner) is not None:
            entries = [self.info(path)]
        else:
            entries = [self.info(f"{base}/{name}") for name in store.names(inner)]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Name, size and type of a file or folder."""
        store, inner = self._place(path)
        size = store.size(inner)
        return {"name": self._strip_protocol(path), "size": size or 0, "type": "directory" if size is None else "file"}

    def exists(self, path: str, **_: Any) -> bool:
        """Whether there is a file or a folder."""
        store, inner = self._place(path)
        return store.exists(inner)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a folder, and those above it."""
        store, inner = self._place(path)
        if not exist_ok and store.exists(inner):
            raise FileExistsError(path)
        store.make_folder(inner)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Make a folder."""
        store, inner = self._place(path)
        if create_parents:
            self.makedirs(path)
        else:
            store.mkdir(inner)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Put an object."""
        store, inner = self._place(path)
        if mode == "create" and store.exists(inner):
            raise FileExistsError(path)
        store.make_folder(inner.rpartition("/")[0])
        store.write_whole(inner, bytes(value))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """The content of an object, or a slice of it."""
        store, inner = self._place(path)
        return store.read(inner)[start:end]

    def rm_file(self, path: str) -> None:
        """Remove an object."""
        store, inner = self._place(path)
        store.remove(inner)
        store.flush(inner.rpartition("/")[0] or "/")

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        self.rm_file(path)

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> OpenFile:
        store, inner = self._place(path)
        return store.open(inner, mode.replace("b", ""))

    def _place(self, path: str) -> tuple[Disk, str]:
        name, _, inner = str(self._strip_protocol(path)).partition("/")
        return disk(name), f"/{inner}"


fsspec.register_implementation("disk", DiskFileSystem, clobber=True)
