"""System calls that the code of a confined job must not make, as a filter of the kernel (seccomp, BPF).

What they would give: mounts and namespaces of its own (a file system in memory without a limit), memory that belongs to
no process and so is not counted, another process's memory, keys of the kernel, sockets that are not of the job's
network, more of the kernel to attack.
"""

from __future__ import annotations

import errno
import socket
import struct

from . import kernel

_CALLS: dict[str, dict[str, int]] = {
    "x86_64": {
        "clone": 56, "clone3": 435, "socket": 41, "socketpair": 53,
        "shmget": 29, "msgget": 68, "ptrace": 101, "pivot_root": 155, "mount": 165,
        "umount2": 166, "sched_setaffinity": 203, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272,
        "perf_event_open": 298, "name_to_handle_at": 303, "open_by_handle_at": 304, "setns": 308,
        "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "memfd_create": 319, "bpf": 321,
        "userfaultfd": 323,
    },
    "aarch64": {
        "clone": 220, "clone3": 435, "socket": 198, "socketpair": 199,
        "shmget": 194, "msgget": 186, "ptrace": 117, "pivot_root": 41, "mount": 40,
        "umount2": 39, "sched_setaffinity": 122, "add_key": 217, "request_key": 218, "keyctl": 219, "unshare": 97,
        "perf_event_open": 241, "name_to_handle_at": 264, "open_by_handle_at": 265, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "memfd_create": 279, "bpf": 280,
        "userfaultfd": 282,
    },
}  # fmt: skip
_NEWER = {
    "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsmount": 432, "pidfd_getfd": 438,
    "mount_setattr": 442, "memfd_secret": 447,
}  # fmt: skip
"""Calls that have one number on all machines."""

_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NAMESPACES = (
    kernel.NEW_USER | kernel.NEW_MOUNT | kernel.NEW_PID | kernel.NEW_NET | kernel.NEW_IPC | kernel.NEW_UTS
    | kernel.NEW_CGROUP
)  # fmt: skip
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
"""Of sockets; those of others reach the host of a virtual machine (AF_VSOCK), or the kernel itself."""

_OTHER_ABI = 0x40000000
"""First number of the calls of x32."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _MACHINE, _FIRST = 0, 4, 16
"""Offsets of the call's number, of the machine, and of the low half of the first argument."""


def refusing() -> bytes:
    """The filter.

    Raises
    ------
    RefusedError
        On a machine whose numbers of calls are not known.
    """
    if kernel.MACHINE not in _CALLS:
        raise kernel.RefusedError(f"a filter of system calls on {kernel.MACHINE}", errno.ENOSYS)
    calls = dict(_CALLS[kernel.MACHINE])
    clone, clone3, one_socket, two_sockets = (calls.pop(name) for name in ("clone", "clone3", "socket", "socketpair"))
    program = [
        _step(_LOAD, _MACHINE),
        _step(_EQUAL, _ARCHITECTURE[kernel.MACHINE], yes=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _OTHER_ABI, no=1),
        _step(_RETURN, _ERROR | errno.ENOSYS),
        # its flags lie in memory, where a filter cannot see them: without it libc takes clone
        _step(_EQUAL, clone3, no=1),
        _step(_RETURN, _ERROR | errno.ENOSYS),
    ]
    for number in (*calls.values(), *_NEWER.values()):
        program += [_step(_EQUAL, number, no=1), _step(_RETURN, _ERROR | errno.EPERM)]
    program += [
        _step(_EQUAL, one_socket, yes=1),
        _step(_EQUAL, two_sockets, no=len(_FAMILIES) + 3),
        _step(_LOAD, _FIRST),
        *(_step(_EQUAL, family, yes=len(_FAMILIES) - place) for place, family in enumerate(_FAMILIES)),
        _step(_RETURN, _ERROR | errno.EAFNOSUPPORT),
        _step(_RETURN, _ALLOW),
        _step(_EQUAL, clone, no=3),
        _step(_LOAD, _FIRST),
        _step(_ANY_BIT, _NAMESPACES, no=1),
        _step(_RETURN, _ERROR | errno.EPERM),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)
