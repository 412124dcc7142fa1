"""A played service that hostile jobs attack, on a root's or on an ordinary user's installation.

``python attacked.py root|user|trusted`` makes every attempt of :mod:`intruder` in a process of its own, and prints the
outcomes as JSON. It needs no Ray: what is attacked is a state folder, sockets and a process with the service's secrets.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NOBODY = 65534
MEMORY_MB, PROCESSES, DISK_MB = 400, 24, 8
OUTLIVER = "outliver"


def become(uid: int) -> None:
    """Be another user, who can read Python and this checkout wherever they lie."""
    from skedge.live.confinement import kernel

    kernel.unshare(kernel.NEW_MOUNT)
    kernel.mount_private()
    needed = {Path(path).resolve() for path in (sys.prefix, sys.base_prefix, *filter(None, sys.path))}
    for closed in {closed for path in needed for closed in path.parents if not closed.stat().st_mode & 0o001}:
        below = (path for path in needed if path.is_relative_to(closed) and path.exists())
        _open_way(closed, sorted(below, key=lambda path: len(path.parts)))
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _open_way(closed: Path, below: list[Path]) -> None:
    """Replace a folder, in this namespace, by one that all may enter, with nothing in it but these."""
    from skedge.live.confinement import kernel

    aside = Path(tempfile.mkdtemp(prefix="aside-"))
    for number, path in enumerate(below):
        place = aside / str(number)
        place.mkdir() if path.is_dir() else place.touch()
        kernel.bind(str(path), str(place))
    kernel.mount_memory(str(closed), "mode=755")
    for number, path in enumerate(below):
        if not path.exists():
            path.mkdir(parents=True) if (aside / str(number)).is_dir() else path.touch()
            kernel.bind(str(aside / str(number)), str(path))


class Service:
    """What is attacked; all of its secrets are `secret`."""

    def __init__(self, folder: Path) -> None:
        self.secret = f"{'sec'}ret-{secrets.token_hex(16)}"
        self.state = folder / "state"
        self.state.mkdir(mode=0o700)
        for job in ("own", "other"):
            (self.state / "servers" / "edge" / job).mkdir(parents=True)
            (self.state / "servers" / "edge" / job / "000000.pt").write_text(self.secret)
        (self.state / "logs").mkdir()
        for name in ("token", "journal.db", "settings.json", "logs/other.log"):
            (self.state / name).write_text(self.secret)
        self.public = folder / "public"
        self.public.write_text(self.secret)
        self.packages = folder / "packages"
        self.packages.mkdir()
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(f"{self.state}/api.sock")
        self.unix.listen()
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0skedge-attacked-{os.getpid()}")
        self.abstract.listen()
        command = [sys.executable, "-c", "import time; time.sleep(600)", self.secret]
        self.process = subprocess.Popen(command, env={**os.environ, "SKEDGE_TOKEN": self.secret})

    def known(self) -> dict[str, Any]:
        """What an intruder knows of it."""
        from skedge.live.secret_files import private_folder

        servers = self.state / "servers" / "edge"
        return {
            "state": str(self.state), "public": str(self.public), "packages": str(self.packages),
            "own_chunks": str(servers / "own"), "other_chunks": str(servers / "other"),
            "service": self.process.pid, "port": self.tcp.getsockname()[1], "free_port": _free_port(),
            "abstract": f"skedge-attacked-{os.getpid()}", "private": str(private_folder()), "named_host": "data.test",
            "name": OUTLIVER, "cpus": os.cpu_count(), "processes": PROCESSES, "memory_mb": MEMORY_MB,
            "disk_mb": DISK_MB,
        }  # fmt: skip

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


@contextmanager
def knocking(port: int) -> Iterator[None]:
    """Somebody on the machine who tries to connect to a port."""
    ended = threading.Event()

    def knock() -> None:
        while not ended.wait(0.1):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return

    thread = threading.Thread(target=knock)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def processes_named(name: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            if path.read_text().strip() == name:
                found.append(path.parent.name)
    return found


def outcomes(names: list[str], *, trusted: bool, folder: Path) -> dict[str, str]:
    """What each attempt got, by its own word and by what is seen from outside."""
    os.environ["SKEDGE_TOKEN"] = os.environ["RAY_AUTH_TOKEN"] = "unset"  # of this process, which starts the others
    service = Service(folder)
    os.environ["SKEDGE_TOKEN"] = os.environ["RAY_AUTH_TOKEN"] = service.secret
    try:
        return {name: _outcome(name, service, trusted=trusted) for name in names}
    finally:
        service.end()


def _outcome(name: str, service: Service, *, trusted: bool) -> str:
    known = service.known()
    try:
        with knocking(known["free_port"]):
            said = _attempt(name, known, service, trusted=trusted)
    finally:
        left = _left_behind()
    if service.process.poll() is not None:
        return "got: the service's process has ended"
    return f"got: {left} outlives its job" if left else said


def _left_behind() -> list[str]:
    """Processes that outlive their job; what ends with it is given a moment to end."""
    deadline = time.monotonic() + 2
    while (left := processes_named(OUTLIVER)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _attempt(name: str, known: dict[str, Any], service: Service, *, trusted: bool) -> str:
    from skedge.core.errors import TrainingError
    from skedge.live.confinement.confinement import Confinement, Usage
    from skedge.live.worker.code_archive import pack
    from skedge.live.worker.job_process import EndedError
    from skedge.live.worker.job_processes import sent
    from skedge.live.worker.program import Program

    of = Program(
        "intruder:job", {"attempt": name, **known}, 1, 1, 1, code=pack(HERE / "intruder.py"), connect=("data.test:9",)
    )
    usage = Usage(memory_mb=MEMORY_MB, processes=PROCESSES, cpus=1, disk_mb=DISK_MB)
    confinement = Confinement(
        trusted=trusted, hidden=(str(service.state),), usage=usage, group=name, own=(known["own_chunks"],),
        connect=of.connect,
    )  # fmt: skip
    child = FORK_SERVERS[trusted].fork(confinement)
    try:
        child.ask("load", sent(of), None, limit_s=60)
    except TrainingError as error:
        ended = f"held: {error}" if "that a job may" in str(error) else f"broken: {error}"
        return str(error).partition("RuntimeError: ")[2] or ended
    except EndedError as error:
        return f"broken: {error}"
    finally:
        child.end()
    return "broken: it is a parameter server"


FORK_SERVERS: dict[bool, Any] = {}


def main(installation: str, names: list[str]) -> None:
    from skedge.live.confinement.confinement import Confinement
    from skedge.live.worker.job_processes import ForkServerClient

    if installation == "user" and os.geteuid() == 0:
        become(NOBODY)
    trusted = installation == "trusted"
    folder = Path(tempfile.mkdtemp(prefix="attacked-"))
    folder.chmod(0o755)
    os.environ["HOME"] = str(folder)
    FORK_SERVERS[trusted] = ForkServerClient(Confinement(trusted=trusted))
    try:
        print(json.dumps(outcomes(names, trusted=trusted, folder=folder)))  # noqa: T201 - read by the test
    finally:
        FORK_SERVERS[trusted].end()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
