"""A hostile job: each function tries one thing that a job must not be able to do, and says what it got.

It returns None, or raises an OSError, where it got nothing. What it knows of the service is in `of`: paths, ports and
process ids, as a user of the machine may know them. Sent to the job's process as its code.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

SECRET = re.compile(rb"sec" + rb"ret-[0-9a-f]{32}")
"""Of the service; written so that this file does not have one."""

_LIBC = ctypes.CDLL(None, use_errno=True)
Target = dict[str, Any]


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _stolen(content: bytes) -> str | None:
    found = SECRET.search(content)
    return None if found is None else found[0].decode()


# -- read ------------------------------------------------------------------------------------------------------------


def read_token(of: Target) -> str | None:
    return _stolen(Path(of["state"], "token").read_bytes())


def read_journal(of: Target) -> str | None:
    return _stolen(Path(of["state"], "journal.db").read_bytes())


def list_the_state(of: Target) -> str | None:
    """All but the way to its own chunks."""
    paths = [str(path) for path in Path(of["state"]).rglob("*") if not of["own_chunks"].startswith(str(path))]
    return " ".join(path for path in paths if not path.startswith(of["own_chunks"])) or None


def read_chunks_of_another_job(of: Target) -> str | None:
    return _stolen(Path(of["other_chunks"], "000000.pt").read_bytes())


def read_a_file_that_everybody_may_read(of: Target) -> str | None:
    return _stolen(Path(of["public"]).read_bytes())


def read_passwords(of: Target) -> str | None:
    return Path("/etc/shadow").read_text(encoding="utf-8")


def walk_out_of_the_root(of: Target) -> str | None:
    return _stolen(Path("/proc/1/root", of["state"].lstrip("/"), "token").read_bytes())


def steal_the_token_from_environments(of: Target) -> str | None:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found = _stolen(Path(f"/proc/{pid}/environ").read_bytes())
        except OSError:
            continue
        if found:
            return found
    return None


def steal_the_token_from_command_lines(of: Target) -> str | None:
    lines = b""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            lines += Path(f"/proc/{pid}/cmdline").read_bytes()
    return _stolen(lines)


def steal_the_token_from_own_memory(of: Target) -> str | None:
    """What the process that this one was forked from has had."""
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            bounds, rights, *_ = line.split()
            first, last = (int(bound, 16) for bound in bounds.split("-"))
            if "rw" in rights and last - first < 1 << 30:
                memory.seek(first)
                if found := _stolen(memory.read(last - first)):
                    return found
    return None


def use_open_files(of: Target) -> str | None:
    """Files that were open in the process that this one was forked from."""
    links = {
        fd: os.readlink(f"/proc/self/fd/{fd}") for fd in map(int, os.listdir("/proc/self/fd")) if fd > 2 and _open(fd)
    }
    mine = [fd for fd, link in links.items() if not link.startswith("/proc/")]
    return None if len(mine) <= 2 else str(links)  # its connection, and where it is given others


def _open(fd: int) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


# -- write -----------------------------------------------------------------------------------------------------------


def write_the_settings(of: Target) -> str | None:
    return _written(Path(of["state"], "settings.json"), "r+b")


def write_its_own_chunks(of: Target) -> str | None:
    return _written(Path(of["own_chunks"], "000000.pt"))


def forge_the_log_of_another_job(of: Target) -> str | None:
    return _written(Path(of["state"], "logs", "other.log"), "r+b")


def write_the_programs_of_the_service(of: Target) -> str | None:
    return _written(Path(json.__file__))


def write_the_packages_of_other_jobs(of: Target) -> str | None:
    return _written(Path(of["packages"], "planted.py"))


def write_to_the_system(of: Target) -> str | None:
    return _written(Path("/usr/local/planted"))


def _written(path: Path, mode: str = "ab") -> str:
    with path.open(mode) as file:
        file.write(b"2026-01-01T00:00:00+0000 finished: a forged line\n")
    return f"{path} is written"


# -- signal and look into --------------------------------------------------------------------------------------------


def signal_the_service(of: Target) -> str | None:
    os.kill(of["service"], signal.SIGTERM)
    return "signalled"


def signal_everybody(of: Target) -> str | None:
    """Whether the service lives is looked at from outside."""
    os.kill(-1, signal.SIGKILL)
    return None


def look_into_the_service(of: Target) -> str | None:
    _checked(_LIBC.ptrace(16, of["service"], 0, 0))
    return "attached"


def look_into_the_first_process(of: Target) -> str | None:
    _checked(_LIBC.ptrace(16, 1, 0, 0))
    return "attached"


def read_the_memory_of_the_first_process(of: Target) -> str | None:
    return str(len(Path("/proc/1/maps").read_bytes()) or "") or None


# -- connect and listen ----------------------------------------------------------------------------------------------


def connect_to_the_api(of: Target) -> str | None:
    with socket.create_connection(("127.0.0.1", of["port"]), timeout=5):
        return "connected"


def connect_to_the_socket_of_the_api(of: Target) -> str | None:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(f"{of['state']}/api.sock")
        return "connected"


def connect_to_an_abstract_socket(of: Target) -> str | None:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(f"\0{of['abstract']}")
        return "connected"


def ask_the_process_that_it_was_forked_from(of: Target) -> str | None:
    for path in Path(of["private"]).glob("*.sock"):
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(path))
            return "connected"
    return None


def connect_to_another_machine(of: Target) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"x", ("192.0.2.1", 9))
        return "sent"


def connect_to_what_it_has_not_named(of: Target) -> str | None:
    with socket.create_connection((of["named_host"], of["port"]), timeout=5):
        return "connected"


def listen_for_the_machine(of: Target) -> str | None:
    """Whether anybody outside can connect is tried from outside."""
    with socket.create_server(("0.0.0.0", of["free_port"])) as listening:  # noqa: S104 - that is the attempt
        listening.settimeout(1.5)
        listening.accept()
        return "somebody connected"


def listen_to_packets(of: Target) -> str | None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300):
        return "listening"


# -- more rights -----------------------------------------------------------------------------------------------------


def become_root(of: Target) -> str | None:
    os.setuid(0)
    return "root"


def become_root_by_a_program(of: Target) -> str | None:
    done = subprocess.run(["su", "-c", "id -u"], capture_output=True, text=True, timeout=10, check=False)  # noqa: S607
    return "root" if done.stdout.strip() == "0" else None


def take_a_user_namespace(of: Target) -> str | None:
    _checked(_LIBC.unshare(0x10000000))
    return "all capabilities in it"


def mount_a_disk(of: Target) -> str | None:
    _checked(_LIBC.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None))
    return "mounted"


def make_a_device(of: Target) -> str | None:
    os.mknod("/tmp/disk", 0o600 | 0o060000, os.makedev(254, 0))  # noqa: S108
    with open("/tmp/disk", "rb") as disk:  # noqa: S108
        return str(len(disk.read(1)))


def open_the_machines_memory(of: Target) -> str | None:
    for name in ("mem", "kmsg", "port", "vda", "sda", "kvm"):
        if os.path.exists(f"/dev/{name}"):
            return name
    return None


def set_the_kernel(of: Target) -> str | None:
    Path("/proc/sys/kernel/core_pattern").write_text("|/tmp/x", encoding="ascii")
    return "set"


def rename_the_machine(of: Target) -> str | None:
    socket.sethostname("mine")
    return "renamed"


# -- use more --------------------------------------------------------------------------------------------------------


def raise_its_limits(of: Target) -> str | None:
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NPROC, (hard + 1, hard + 1))
    except ValueError as error:  # so Python says that it may not
        raise PermissionError(error) from error
    return "raised"


def use_all_cpus(of: Target) -> str | None:
    os.sched_setaffinity(0, range(of["cpus"]))
    return "all" if len(os.sched_getaffinity(0)) > 1 else None


def fork_without_end(of: Target) -> str | None:
    """Its count is compared with the limit by whoever reads it, as long as it lives."""
    count = 0
    while count < 4 * of["processes"]:
        if os.fork() == 0:
            time.sleep(600)
        time.sleep(0.02)  # it is counted four times a second
        count += 1
    return f"{count} processes"


def outlive_its_job(of: Target) -> str | None:
    """Whether it does is looked at from outside."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _LIBC.prctl(15, of["name"].encode(), 0, 0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        os._exit(0)
    time.sleep(0.1)
    return None


def fill_the_memory(of: Target) -> str | None:
    pieces: list[bytearray] = []
    while len(pieces) < 4 * of["memory_mb"]:
        pieces.append(bytearray(os.urandom(1 << 10) * (1 << 10)))
        time.sleep(0.005)  # no faster than its memory can be counted
    return f"{len(pieces)} MB"


def fill_the_memory_at_once(of: Target) -> str | None:
    return f"{len(mmap.mmap(-1, 64 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))} B"


def keep_memory_in_no_process(of: Target) -> str | None:
    return str(os.memfd_create("hidden"))


def fill_the_disk_with_a_file(of: Target) -> str | None:
    return _filled("/tmp", 1, 4 * of["disk_mb"])  # noqa: S108


def fill_the_disk_with_files(of: Target) -> str | None:
    return _filled("/tmp", of["disk_mb"], 2)  # noqa: S108


def fill_shared_memory(of: Target) -> str | None:
    return _filled("/dev/shm", of["disk_mb"], 2)  # noqa: S108


def _filled(folder: str, files: int, size_mb: int) -> str:
    for number in range(files):
        Path(folder, f"filling-{number}").write_bytes(bytes(size_mb << 20))
    return f"{files} files of {size_mb} MB"


ATTEMPTS: dict[str, Callable[[Target], str | None]] = {
    name: one
    for name, one in list(globals().items())
    if callable(one) and not name.startswith("_") and getattr(one, "__module__", "") == __name__ and name != "job"
}


def job(attempt: str, **of: Any) -> Any:
    """The factory: makes the attempt, and ends in an error that tells the outcome."""
    try:
        got = ATTEMPTS[attempt](of)
    except OSError as error:
        raise RuntimeError(f"held: {error}") from None
    except Exception as error:  # it is not what it was meant to be
        raise RuntimeError(f"broken: {type(error).__name__}: {error}") from None
    raise RuntimeError("held: it got nothing" if got is None else f"got: {got}")
