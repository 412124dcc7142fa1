"""Calls of the Linux kernel that Python 3.11 does not have, by libc.

Each raises :class:`RefusedError` with the call's name where the kernel refuses it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import socket
import struct
from typing import Any

from skedge.core.errors import SkedgeError

NEW_USER, NEW_MOUNT, NEW_PID, NEW_NET = 0x10000000, 0x20000, 0x20000000, 0x40000000
NEW_IPC, NEW_UTS, NEW_CGROUP = 0x8000000, 0x4000000, 0x2000000
"""Flags of :func:`unshare`."""

_RDONLY, _NOSUID, _NODEV, _BIND, _REC, _PRIVATE = 1, 2, 4, 0x1000, 0x4000, 1 << 18
_DETACH = 2
_SET_DEATH_SIGNAL, _SET_DUMPABLE, _SET_SECCOMP, _DROP_BOUND, _NO_NEW_PRIVILEGES, _SUBREAPER = 1, 4, 22, 24, 38, 36
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_CAPSET = {"x86_64": 126, "aarch64": 91}
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPABILITIES = 64
_CAPABILITY_VERSION = 0x20080522
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_SET_ADDRESS, _SET_NETMASK = 0x8916, 0x891C

MACHINE = platform.machine()


class RefusedError(SkedgeError):
    """The kernel refuses a call."""

    def __init__(self, call: str, number: int) -> None:
        super().__init__(f"{call}: {os.strerror(number)}")
        self.call, self.number = call, number


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any, description: str = "") -> int:
    """Call a function of libc."""
    result: int = getattr(_libc(), name)(*arguments)
    if result < 0:
        raise RefusedError(description or name, ctypes.get_errno())
    return result


def _system_call(description: str, number: int | None, *arguments: Any) -> None:
    if number is None:
        raise RefusedError(f"{description} on {MACHINE}", errno.ENOSYS)
    _call("syscall", ctypes.c_long(number), *arguments, description=description)


def unshare(flags: int) -> None:
    """Leave the namespaces of the parent."""
    _call("unshare", flags, description=f"unshare {flags:#x}")


def end_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    _call("prctl", _SET_DEATH_SIGNAL, number, 0, 0, 0, description="prctl PR_SET_PDEATHSIG")


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents end."""
    _call("prctl", _SUBREAPER, 1, 0, 0, 0, description="prctl PR_SET_CHILD_SUBREAPER")


def set_dumpable(*, dumpable: bool) -> None:
    """Whether processes of the same user may look into this one."""
    _call("prctl", _SET_DUMPABLE, int(dumpable), 0, 0, 0, description="prctl PR_SET_DUMPABLE")


def without_new_privileges() -> None:
    """Give up what programs with set-user-id bits would give."""
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0, description="prctl PR_SET_NO_NEW_PRIVS")


def filter_calls(program: bytes) -> None:
    """Have a BPF program decide about each system call from now on."""
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _call(
        "prctl", _SET_SECCOMP, 2, ctypes.create_string_buffer(head, len(head)), 0, 0, description="prctl PR_SET_SECCOMP"
    )


def drop_bounding_set() -> None:
    """Give up for good whatever capabilities a program could bring; needs the capability to do so."""
    for number in range(_CAPABILITIES):
        try:
            _call("prctl", _DROP_BOUND, number, 0, 0, 0, description="prctl PR_CAPBSET_DROP")
        except RefusedError as error:
            if error.number == errno.EINVAL:  # the last capability that this kernel knows was before
                return
            raise


def drop_capabilities() -> None:
    """Give up all capabilities."""
    head, no_capabilities = struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24)
    _system_call("capset", _CAPSET.get(MACHINE), ctypes.create_string_buffer(head, 8), ctypes.c_char_p(no_capabilities))


def mount_private() -> None:
    """Keep mounts of this namespace from all others."""
    _mount("none", "/", None, _REC | _PRIVATE)


def mount_memory(path: str, options: str) -> None:
    """Mount an empty file system that lies in memory."""
    _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, options)


def mount_processes(path: str) -> None:
    """Mount the processes of this pid namespace."""
    _mount("proc", path, "proc", _NOSUID | _NODEV | 8)


def bind(source: str, path: str, *, writable: bool = False, devices: bool = False) -> None:
    """Show a file or folder, with all that is mounted in it, at another path.

    Parameters
    ----------
    source, path
        Where it is, and where it is shown; `path` must exist and be of the same kind.
    writable, devices
        As in :func:`restrict`, for all mounts at `path` and below.
    """
    _mount(source, path, None, _BIND | _REC)
    restrict(path, recursive=True, writable=writable, devices=devices)


def restrict(path: str, *, recursive: bool, writable: bool = False, devices: bool = False) -> None:
    """Limit what a mount allows; set-user-id programs have no effect on it in any case.

    Parameters
    ----------
    path
        Where it is mounted.
    recursive
        True: the mounts below it are limited too.
    writable
        False: it is read-only.
    devices
        False: device files cannot be opened.
    """
    attributes = _NOSUID | (0 if writable else _RDONLY) | (0 if devices else _NODEV)
    settings = ctypes.create_string_buffer(struct.pack("QQQQ", attributes, 0, 0, 0), 32)
    flags = _AT_RECURSIVE if recursive else 0
    _system_call(
        f"mount_setattr {path}", _MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, settings, ctypes.c_size_t(32)
    )


def pivot_root(path: str, old: str) -> None:
    """Make a mount the root; the old root is mounted at `old` below it."""
    _system_call("pivot_root", _PIVOT_ROOT.get(MACHINE), path.encode(), old.encode())


def detach(path: str) -> None:
    """Unmount a tree of mounts."""
    _call("umount2", path.encode(), _DETACH, description=f"umount2 {path}")


def loopback_up() -> None:
    """Bring up the loopback device of this network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        request = struct.pack("16sh22x", b"lo", 0)
        _, flags = struct.unpack("16sh22x", fcntl.ioctl(device, _GET_FLAGS, request))
        fcntl.ioctl(device, _SET_FLAGS, struct.pack("16sh22x", b"lo", flags | _UP))


def add_loopback_address(address: str, number: int) -> None:
    """Give the loopback device of this network namespace one more IPv4 address; `number` tells them apart."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        for request, value in ((_SET_ADDRESS, address), (_SET_NETMASK, "255.255.255.255")):
            place = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(device, request, struct.pack("16s16s8x", f"lo:{number}".encode(), place))


def _mount(source: str, path: str, kind: str | None, flags: int, options: str | None = None) -> None:
    names = [None if name is None else name.encode() for name in (source, path, kind)]
    data = None if options is None else options.encode()
    _call("mount", *names, ctypes.c_ulong(flags), data, description=f"mount {source} at {path}")
