"""Disks of simulated machines: files in two layers, as processes see them and as a power cut leaves them.

What was flushed outlives a power cut. Of what was not, each page of 4 KiB is there or not, a new length is or is not,
and of each folder the first few changes of names are there: a flushed file whose folder was not flushed may have no
name. A file that was cut and written again is as before, or new with pages of zeros where they were not written yet.
Operations are switch points (:mod:`simulated.scheduler`): before their effect, flushes and renames also after it, and a
write of several pages also within it.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from types import MappingProxyType
from typing import Any

from skedge.live.host.files import PathLike

from .faults import Fault
from .scheduler import World, running_world

_NUMBERS = count(1)

PAGE = 4096
"""Bytes that are on the disk together or not at all."""

SLOW_S = 0.5
"""Mean time of an operation of a slow disk [s]."""

DISK_KINDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"full": (0.5, 60.0), "broken": (0.1, 5.0), "slow": (1.0, 30.0), "flip": (0.0, 0.0)}
)
"""Kinds of fault of the disk of a process's machine, each with the range of its seconds: no space is left, operations
fail with EIO, they are slow; one bit of a file flips."""


@dataclass(eq=False)
class File:
    """A file: what processes see and what is on the disk; the pages that are seen and not there, and those cut off.

    Attributes
    ----------
    number
        No other file or folder has it.
    changes
        How often it was written.
    """

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    dirty: set[int] = field(default_factory=set)
    cut: set[int] = field(default_factory=set)
    number: int = field(default_factory=_NUMBERS.__next__)
    changes: int = 0

    def put(self, offset: int, data: bytes) -> None:
        """Write some bytes; a gap before them is filled with zeros."""
        if offset + len(data) > len(self.content):
            self.resize(offset + len(data))
        self.content[offset : offset + len(data)] = data
        self.dirty.update(_pages(offset, offset + len(data)))
        self.changes += 1

    def resize(self, size: int) -> None:
        """Cut the file, or fill it up with zeros."""
        low, high = sorted((size, len(self.content)))
        self.changes += 1
        self.dirty.update(_pages(low, high))
        if size < high:
            self.cut.update(_pages(low, high))
        del self.content[size:]
        self.content.extend(bytes(size - len(self.content)))

    def flush(self) -> None:
        """Bring everything onto the disk."""
        self._write_back(self.dirty, len(self.content))
        self.dirty, self.cut = set(), set()

    def tear(self, random: Random) -> None:
        """Leave what a power cut leaves: some of the pages that were not flushed, and the old length or the new one."""
        size, before = random.choice((len(self.durable), len(self.content))), random.random() < 0.5
        pages = [page for page in sorted(self.dirty) if random.random() < 0.5]
        if not self.cut:
            self._write_back(pages, size)
        elif not before:
            self._write_back(pages, len(self.content), self.cut - set(pages))
        self.content, self.dirty, self.cut = bytearray(self.durable), set(), set()

    def flip(self, position: int, bit: int) -> None:
        """Flip a bit at a position, as seen and on the disk."""
        self.content[position] ^= 1 << bit
        if position < len(self.durable):
            flipped = bytes([self.durable[position] ^ 1 << bit])
            self.durable = self.durable[:position] + flipped + self.durable[position + 1 :]

    def _write_back(self, pages: Iterable[int], size: int, zeros: Iterable[int] = ()) -> None:
        durable = bytearray(self.durable[:size].ljust(size, b"\0"))
        for page in pages:
            data = self.content[page * PAGE : min((page + 1) * PAGE, size)]
            durable[page * PAGE : page * PAGE + len(data)] = data
        for page in zeros:
            data = durable[page * PAGE : (page + 1) * PAGE]
            durable[page * PAGE : page * PAGE + len(data)] = bytes(len(data))
        self.durable = bytes(durable)


@dataclass(eq=False)
class Folder:
    """A folder: the entries that processes see, those on the disk, and the changes that have not got there."""

    entries: dict[str, File | Folder] = field(default_factory=dict)
    durable: dict[str, File | Folder] = field(default_factory=dict)
    changes: list[dict[str, File | Folder | None]] = field(default_factory=list)
    number: int = field(default_factory=_NUMBERS.__next__)

    def change(self, names: dict[str, File | Folder | None]) -> None:
        """Set entries, or remove them (None), in one step."""
        _update(self.entries, names)
        self.changes.append(names)

    def flush(self, n: int) -> None:
        """Bring the first `n` changes onto the disk."""
        for names in self.changes[:n]:
            _update(self.durable, names)
        del self.changes[:n]


class Disk:
    """The disk of a machine, as :class:`skedge.live.host.files.Disk` has it; paths are absolute.

    Parameters
    ----------
    world, name
        The world, and the name of the machine whose power cuts it suffers.
    capacity
        Its size [bytes].

    Attributes
    ----------
    root
        Its topmost folder.
    """

    def __init__(self, world: World, name: str, capacity: int = 2**40) -> None:
        self.world, self.name, self.capacity, self.root = world, name, capacity, Folder()
        self._random = world.random(f"disk {name}")
        self._until = dict.fromkeys(("full", "broken", "slow"), 0.0)
        world.machine(name).on_power_cut.append(self.cut_power)

    # --- as the operating system has it

    def open(self, path: PathLike, mode: str = "r", permissions: int = 0o666) -> OpenFile:
        """Open a file without a buffer: ``r``, ``r+``, ``w``, ``a`` or ``x``, always of bytes."""
        path = os.fspath(path)
        self.operate("open", path)
        folder, name = self._entry(path)
        file = folder.entries.get(name)
        if isinstance(file, Folder):
            raise _error(errno.EISDIR, path)
        if file is not None and mode == "x":
            raise _error(errno.EEXIST, path)
        if file is None:
            if mode in {"r", "r+"}:
                raise _error(errno.ENOENT, path)
            file = File()
            folder.change({name: file})
        if mode == "w":
            file.resize(0)
        return OpenFile(self, path, file, mode)

    def flush(self, path: PathLike) -> None:
        """Wait until a file, or the names in a folder, are on the disk.

        After an error what was to be flushed of a file is lost with the next power cut, also if a later flush succeeds.
        """
        node = self._node(path)
        try:
            self.operate("flush", path)
        except OSError:
            if isinstance(node, File):
                node.dirty, node.cut = set(), set()
            raise
        if isinstance(node, Folder):
            node.flush(len(node.changes))
        else:
            node.flush()
        self.world.point(f"flushed {path}")

    def replace(self, source: PathLike, target: PathLike) -> None:
        """Rename a file or folder within its folder; a file takes the place of a file of that name."""
        self.operate("replace", f"{source} {target}")
        (folder, name), (other, new_name) = self._entry(source), self._entry(target)
        if folder is not other:
            raise NotImplementedError("a rename from a folder to another")
        if name not in folder.entries:
            raise _error(errno.ENOENT, source)
        if isinstance(folder.entries.get(new_name), Folder):
            raise _error(errno.EISDIR, target)
        if name != new_name:
            folder.change({name: None, new_name: folder.entries[name]})
        self.world.point(f"replaced {target}")

    def remove(self, path: PathLike) -> None:
        """Remove a file or an empty folder."""
        self.operate("remove", path)
        folder, name = self._entry(path)
        node = folder.entries.get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, Folder) and node.entries:
            raise _error(errno.ENOTEMPTY, path)
        folder.change({name: None})

    def mkdir(self, path: PathLike, permissions: int = 0o777) -> None:
        """Make a folder."""
        self.operate("mkdir", path)
        folder, name = self._entry(path)
        if name in folder.entries:
            raise _error(errno.EEXIST, path)
        folder.change({name: Folder()})

    def names(self, path: PathLike) -> list[str]:
        """The names in a folder."""
        self.operate("names", path)
        node = self._node(path)
        if isinstance(node, File):
            raise _error(errno.ENOTDIR, path)
        return sorted(node.entries)

    def size(self, path: PathLike) -> int | None:
        """Size of a file [bytes]; None for a folder."""
        self.operate("size", path)
        node = self._node(path)
        return len(node.content) if isinstance(node, File) else None

    def exists(self, path: PathLike) -> bool:
        """Whether there is a file or a folder."""
        self.operate("exists", path)
        try:
            self._node(path)
        except OSError:
            return False
        return True

    def stamp(self, path: PathLike) -> tuple[int, int, int]:
        """What tells a file or folder from another of its name: 0, its number, and how often it was written."""
        self.operate("stamp", path)
        node = self._node(path)
        return 0, node.number, node.changes if isinstance(node, File) else 0

    def free(self, path: PathLike = "/") -> int:
        """Space that is left [bytes]."""
        self.operate("free", path)
        return self.space()

    # --- as an object store uses it

    def read(self, path: str) -> bytes:
        """The content of a file."""
        with self.open(path) as file:
            return file.readall()

    def write_whole(self, path: str, content: bytes) -> None:
        """Write a file as a whole; it is on the disk when this returns, and never seen in part."""
        folder, _, name = path.rpartition("/")
        aside = f"{folder}/.{name}.{self.world.running().number}.partial"
        try:
            with self.open(aside, "w") as file:
                file.write_all(content)
            self.flush(aside)
            self.replace(aside, path)
        finally:
            with suppress(FileNotFoundError):
                self.remove(aside)
        self.flush(folder or "/")

    def make_folder(self, path: str) -> None:
        """Make a folder, and those above it, that may be there already; they are on the disk when this returns."""
        parent = path.rstrip("/").rpartition("/")[0]
        if not self.exists(path):
            self.make_folder(parent)
            with suppress(FileExistsError):
                self.mkdir(path)
            self.flush(parent or "/")

    # --- faults

    def cut_power(self) -> None:
        """Leave what a power cut leaves."""
        self._cut(self.root)

    def suffer(self, kind: str, seconds: float) -> None:
        """A fault of :data:`DISK_KINDS`, for some time [s]."""
        if kind == "flip":
            self.flip()
        else:
            self._until[kind] = max(self._until[kind], self.world.now + seconds)

    def flip(self, path: str | None = None) -> None:
        """Flip one bit of a file at rest; None: of any that is not empty."""
        node = None if path is None else self._node(path)
        files = [node] if isinstance(node, File) else [file for file in _files(self.root) if file.content]
        if files:
            file = self._random.choice(files)
            file.flip(self._random.randrange(len(file.content)), self._random.randrange(8))

    # --- within

    def operate(self, operation: str, path: PathLike) -> None:
        """Switch point of an operation, which may be slow or fail."""
        self.world.point(f"{operation} {self.name}:{path}")
        self.dawdle()
        if self.is_broken():
            raise _error(errno.EIO, path)

    def dawdle(self) -> None:
        """Let the running thread wait, if the disk is slow."""
        if self.world.now < self._until["slow"]:
            self.world.sleepers.wait(self._random.expovariate(1 / SLOW_S))

    def is_broken(self) -> bool:
        """Whether operations fail; no operation."""
        return self.world.now < self._until["broken"]

    def space(self) -> int:
        """Space that is left [bytes]; no operation."""
        if self.world.now < self._until["full"]:
            return 0
        return max(self.capacity - sum(len(file.content) for file in _files(self.root)), 0)

    def pages(self, size: int) -> int:
        """Size of the part of a write that is done before another thread may run or the writer dies [bytes]."""
        return self._random.randint(0, size // PAGE) * PAGE

    def _cut(self, folder: Folder) -> None:
        folder.flush(self._random.randint(0, len(folder.changes)))
        folder.changes.clear()
        folder.entries = dict(folder.durable)
        for node in folder.entries.values():
            if isinstance(node, Folder):
                self._cut(node)
            else:
                node.tear(self._random)

    def _entry(self, path: PathLike) -> tuple[Folder, str]:
        """The folder of a path, and its name there."""
        parent, _, name = os.fspath(path).rstrip("/").rpartition("/")
        folder = self._node(parent)
        if isinstance(folder, File):
            raise _error(errno.ENOTDIR, path)
        return folder, name

    def _node(self, path: PathLike) -> File | Folder:
        node: File | Folder | None = self.root
        for name in filter(None, os.fspath(path).split("/")):
            if isinstance(node, File):
                raise _error(errno.ENOTDIR, path)
            node = node.entries.get(name) if node else None
            if node is None:
                raise _error(errno.ENOENT, path)
        assert node is not None
        return node


class OpenFile(io.RawIOBase):
    """An open file; it stays open on the same content when its name is changed or removed."""

    def __init__(self, disk: Disk, path: str, file: File, mode: str) -> None:
        super().__init__()
        self._disk, self._path, self._file, self._mode, self._position = disk, path, file, mode, 0

    def readable(self) -> bool:
        """Whether it may be read."""
        return self._mode in {"r", "r+"}

    def writable(self) -> bool:
        """Whether it may be written."""
        return self._mode != "r"

    def seekable(self) -> bool:
        """It has a position."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read up to the size of a buffer; 0 at the end."""
        self._operate("read", allowed=self.readable())
        data = self._file.content[self._position : self._position + len(buffer)]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def write(self, data: Any) -> int:
        """Write as many bytes as there is space for, and return their number."""
        self._operate("write", allowed=self.writable())
        position = len(self._file.content) if self._mode == "a" else self._position
        room = len(self._file.content) - position + self._disk.space()
        content = bytes(data)[: max(room, 0)]
        if not content:
            if len(data):
                raise _error(errno.ENOSPC, self._path)
            return 0
        split = self._disk.pages(len(content) - 1)
        if split:
            self._file.put(position, content[:split])
            self._disk.world.point(f"writes on {self._disk.name}:{self._path}")
        self._file.put(position + split, content[split:])
        self._position = position + len(content)
        return len(content)

    def write_all(self, data: bytes) -> None:
        """Write bytes, in several steps if need be."""
        written = 0
        while written < len(data):
            written += self.write(data[written:])

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position, and return it."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: len(self._file.content)}[whence]
        self._position = max(start + offset, 0)
        return self._position

    def truncate(self, size: int | None = None) -> int:
        """Cut the file at a size, or at the position, and return it."""
        self._operate("truncate", allowed=self.writable())
        length = self._position if size is None else size
        self._file.resize(length)
        return length

    def _operate(self, operation: str, *, allowed: bool) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not allowed:
            raise io.UnsupportedOperation(operation)
        self._disk.operate(operation, self._path)


def disk(name: str) -> Disk:
    """The disk of a machine of the running world, made at its first mention, when faults of disks are made known."""
    world = running_world()
    disks: dict[str, Disk] = world.extras.setdefault("disks", {})

    def strike(fault: Fault) -> None:
        for process in world.victims(fault):
            disk(process.machine.name).suffer(fault.kind, fault.seconds)

    if not disks:
        world.kinds.update(dict.fromkeys(DISK_KINDS, strike))
    if name not in disks:
        disks[name] = Disk(world, name)
    return disks[name]


def _pages(start: int, end: int) -> range:
    """The pages that hold the bytes from `start` to `end`."""
    return range(start // PAGE, (end + PAGE - 1) // PAGE)


def _files(folder: Folder) -> Iterator[File]:
    for node in folder.entries.values():
        if isinstance(node, Folder):
            yield from _files(node)
        else:
            yield node


def _update(entries: dict[str, File | Folder], names: Mapping[str, File | Folder | None]) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _error(number: int, path: PathLike) -> OSError:
    return OSError(number, os.strerror(number), os.fspath(path))
