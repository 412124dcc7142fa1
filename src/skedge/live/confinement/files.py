"""The files that a confined job sees: a root of its own, in memory, with what it may read mounted read-only."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from glob import glob
from pathlib import Path

from . import kernel
from .confinement import Confinement

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/sys")
_SETTINGS = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl", "ca-certificates", "pki", "crypto-policies", "localtime",
    "alternatives", "nsswitch.conf", "mime.types", "gai.conf", "protocols", "services", "OpenCL", "nvidia",
)  # fmt: skip
"""Of ``/etc``; the rest of it may hold a service's settings."""
_DEVICES = ("null", "zero", "full", "random", "urandom", "kfd", "nvidia*", "dri")
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
"""Links in ``/dev``."""
_TEMPORARY, _SHARED = "/tmp", "/dev/shm"  # noqa: S108 - the job's own
_OLD = "/.old"
_PACKAGE = Path(__file__).parents[2]
"""skedge itself."""

_FILES = 100_000
"""Most files in a temporary place: each takes memory of the kernel, even an empty one."""

_DISK_MB = 1000.0
_MEGABYTE = 10**6


def change_root(confinement: Confinement, uid: int, names: Sequence[tuple[str, str]]) -> None:
    """Leave the machine's files for those that a confined process may see: :func:`with_programs` has added to them.

    The caller has all capabilities in its namespace of mounts, and is the first process of its pid namespace.

    Parameters
    ----------
    confinement
        What the process may see.
    uid
        User of the job's process.
    names
        Addresses and names of hosts that the job may connect to.
    """
    readable, own = _real(confinement.readable), _real(confinement.own)
    hidden = sorted((os.path.realpath(path) for path in confinement.hidden), key=len)
    _leave_machine()
    disk_bytes = int((confinement.usage.disk_mb or _DISK_MB) * _MEGABYTE)
    size = f"mode=1777,size={disk_bytes},nr_inodes={_FILES}"
    for path, options in ((_TEMPORARY, size), ("/dev", "mode=755,size=1m"), (_SHARED, size)):
        os.makedirs(path, exist_ok=True)
        kernel.mount_memory(path, options)
    for path in ("/proc", "/etc"):
        os.mkdir(path)
    kernel.mount_processes("/proc")
    _fill_devices()
    _fill_settings(uid, names)
    _show_all(readable)
    masks = list[str]()
    for path in hidden:  # one that lies in another is gone with it
        if os.path.isdir(path):
            kernel.mount_memory(path, "mode=755,size=1m")
            masks.append(path)
    _show_all(own)
    if confinement.writable:
        _show(os.path.realpath(confinement.writable), writable=True)
    kernel.detach(_OLD)
    os.rmdir(_OLD)
    for path in (*masks, "/dev", "/"):
        kernel.restrict(path, recursive=False)
    os.chdir(_TEMPORARY)


def with_programs(confinement: Confinement) -> Confinement:
    """A confinement that names all that may be read: programs and Python with the import path, too.

    To be called before the process leaves its user namespace, in which it is another user, with another home.
    """
    return replace(confinement, readable=tuple(_readable(confinement)))


def _readable(confinement: Confinement) -> Iterator[str]:
    yield from _SYSTEM
    yield from (f"/etc/{name}" for name in (*_SETTINGS, *(["resolv.conf"] if confinement.network else [])))
    yield from (sys.prefix, sys.base_prefix, sys.exec_prefix, str(_PACKAGE))
    too_much = _too_much(confinement)
    yield from (entry for entry in sys.path if entry and Path(entry).resolve() not in too_much)
    yield from confinement.readable


def _too_much(confinement: Confinement) -> set[Path]:
    """Folders that may be on the import path by chance: a program's current folder is, and Ray adds its driver's."""
    inner = [Path(_TEMPORARY), Path.cwd(), *map(Path, filter(None, [confinement.started_in]))]
    with suppress(KeyError):  # a user whom the machine does not know, as in a container, has no home
        inner.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    places = [path.resolve() for path in inner]
    return {*places, *(parent for place in places for parent in place.parents)}


def _real(paths: Iterable[str]) -> list[tuple[str, str]]:
    """(path, place without links) of those that are there; outer places come first."""
    real_paths = {os.path.abspath(path): os.path.realpath(path) for path in paths if os.path.exists(path)}
    return sorted(real_paths.items(), key=lambda pair: (len(pair[1]), pair[0] != pair[1]))


def _show_all(pairs: Sequence[tuple[str, str]]) -> None:
    """Mount each outermost place read-only, and make links where there are some."""
    mounted = list[str]()
    for path, place in pairs:
        if not any(place == folder or place.startswith(f"{folder}/") for folder in mounted):
            _show(place)
            mounted.append(place)
        if path != place and not os.path.lexists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(place, path)


def _leave_machine() -> None:
    """Take an empty root; the machine's files are below `_OLD`."""
    kernel.mount_private()
    kernel.mount_memory(_TEMPORARY, "mode=755,size=16m")  # this covers nothing: the old root keeps its own
    os.mkdir(_TEMPORARY + _OLD)
    kernel.pivot_root(_TEMPORARY, _TEMPORARY + _OLD)
    os.chdir("/")


def _show(place: str, *, writable: bool = False, devices: bool = False) -> None:
    """Mount a place of the machine here."""
    if not os.path.lexists(place):
        _make_like(_OLD + place, place)
    kernel.bind(_OLD + place, place, writable=writable, devices=devices)


def _make_like(place: str, path: str) -> None:
    """An empty folder or file to mount at."""
    if os.path.isdir(place):
        os.makedirs(path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(path).touch()


def _fill_devices() -> None:
    for name in _DEVICES:
        for place in glob(f"{_OLD}/dev/{name}"):
            _show(place.removeprefix(_OLD), devices=True)
    for name, target in _LINKS.items():
        os.symlink(target, f"/dev/{name}")


def _fill_settings(uid: int, names: Sequence[tuple[str, str]]) -> None:
    """Users and hosts of this root."""
    hosts = ("127.0.0.1 localhost", "::1 localhost", *(f"{address} {name}" for address, name in names))
    for name, text in {
        "passwd": f"root:x:0:0::/:/bin/false\njob:x:{uid}:{uid}::{_TEMPORARY}:/bin/false\n",
        "group": f"root:x:0:\njob:x:{uid}:\n",
        "hosts": "".join(f"{line}\n" for line in hosts),
    }.items():
        Path("/etc", name).write_text(text, encoding="utf-8")
