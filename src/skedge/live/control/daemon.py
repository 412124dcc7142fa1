"""The processes behind ``skedge up``: a controller, and a supervisor that starts it again when it dies.

``python -m skedge.live.control.daemon --lock N STATE`` is the supervisor, with ``--controller`` the controller. The
state has ``settings.json`` (what ``skedge up`` was told), ``cluster.yaml``, the journal, checkpoints, logs, and
while the service is up ``service.json``: its address and token, for the commands of whoever may read the folder.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

import uvicorn

from skedge.core.errors import InputError, PolicyError, ScenarioError, SkedgeError, StateError
from skedge.live.engine import Engine, end_stale
from skedge.scenario.file import load_cluster_file

from .api import make_api
from .limits import Limits
from .service import JOURNAL, Service, open_journal

SETTINGS, ADDRESS, LOG, SUPERVISOR = "settings.json", "service.json", "controller.log", "supervisor.pid"
STARTING = "starting"
"""What a controller that does not answer yet is doing."""
CLUSTER = "cluster.yaml"

_TRIES = 5
"""A controller that dies so often in a row before it answers is given up."""

_LOOK_S, _END_S = 0.2, 30.0
"""How often it is looked whether the controller is to end, and how long it may take to."""

_WRONG = 2
"""Exit status of a controller that must not be started again: what it was told is wrong."""


class AddressError(InputError):
    """The API cannot listen where it was told to."""


@dataclass(frozen=True)
class Settings:
    """What ``skedge up`` was told.

    Attributes
    ----------
    ray
        Address of a Ray cluster; None: one on this machine.
    host, port
        Where the API listens; port 0: any free one.
    journal, checkpoints
        URLs; None: in the state folder.
    limits
        What the service takes at most.
    id
        Tells this state's run in a journal, and its checkpoints under a URL, from those of others.
    """

    policy: str
    ray: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    journal: str | None = None
    checkpoints: str | None = None
    id: str = ""
    limits: Limits = field(default_factory=Limits)

    def checkpoints_of(self, state: Path) -> str:
        """URL of the checkpoints of this state, which is kept in the folder `state`."""
        return str(state / "checkpoints") if self.checkpoints is None else f"{self.checkpoints}/{self.id}"


def write_aside(path: Path, content: str) -> None:
    """Write a file that only its owner may read; it appears whole or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        aside.unlink()
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(content)
    os.replace(aside, path)


def save_settings(state: Path, settings: Settings) -> None:
    """Keep what the service was told."""
    write_aside(state / SETTINGS, json.dumps(asdict(settings), indent=2) + "\n")


def read_settings(state: Path) -> Settings:
    """What the service of this state was told.

    Raises
    ------
    InputError
        If `state` is none.
    """
    try:
        kept = json.loads((state / SETTINGS).read_text(encoding="utf-8"))
        limits = kept.get("limits", {})
        limits["allow"] = tuple(limits.get("allow", ()))
        return Settings(**{**kept, "limits": Limits(**limits)})
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{state}: holds no service's state ({SETTINGS}: {error})") from error


def supervise(state: Path, lock: int) -> int:
    """Run the controller, and start it again when it dies; it goes on from the journal. Returns its exit status.

    `lock` is the open file that holds the state's lock: as long as one of the two lives no other service can begin.
    SIGTERM, or Ctrl-C in the foreground, ends both, whatever the controller is doing.
    """
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    write_aside(state / SUPERVISOR, f"{os.getpid()}\n")
    try:
        with (state / LOG).open("ab") as log:
            return _keep_up(state, log, ended, lock)
    finally:
        end_stale(state)
        for name in (ADDRESS, SUPERVISOR, STARTING):
            (state / name).unlink(missing_ok=True)


def _keep_up(state: Path, log: IO[bytes], ended: threading.Event, lock: int) -> int:
    quick = 0
    while True:
        child = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "skedge.live.control.daemon", "--controller", str(state)],
            stdout=log,
            stderr=log,
            pass_fds=[lock],
        )
        status = _wait(child, ended)
        if ended.is_set() or status in (0, _WRONG):
            return status
        quick = 0 if _served(state, child.pid) else quick + 1
        with suppress(OSError):  # a full disk takes the line, not the supervisor
            log.write(f"the controller, process {child.pid}, ended with status {status}\n".encode())
            log.flush()
        if quick >= _TRIES or ended.wait(1):
            return status


def _served(state: Path, pid: int) -> bool:
    """Whether a controller came so far that it answered."""
    with suppress(OSError, ValueError):
        return bool(json.loads((state / ADDRESS).read_text(encoding="utf-8"))["pid"] == pid)
    return False


def _wait(child: subprocess.Popen[bytes], ended: threading.Event) -> int:
    """Wait for the controller; where it is to end, ask it once, and after a while make it."""
    while child.poll() is None:
        if not ended.wait(_LOOK_S):
            continue
        child.terminate()
        try:
            child.wait(_END_S)
        except subprocess.TimeoutExpired:
            child.kill()
    return child.wait()


def control(state: Path) -> int:
    """Be the controller: engine, journal, service and API, until ``skedge down`` or SIGTERM."""
    settings = read_settings(state)
    scenario = load_cluster_file(state / CLUSTER)

    def say(what: str) -> None:
        with suppress(OSError):  # a full disk takes the line and nothing else
            write_aside(state / STARTING, what)

    say("opening the journal")
    listening = _listen(settings.host, settings.port)
    about = {
        "id": settings.id,
        "policy": settings.policy,
        "cluster": scenario.cluster.server_ids,
        "seed": scenario.seed,
    }
    journal = open_journal(settings.journal or f"sqlite:///{state / JOURNAL}", about)
    try:
        engine = Engine(scenario.cluster, state, settings.checkpoints_of(state), settings.ray, say=say)
        try:
            service = Service(scenario, settings.policy, state, engine, journal, settings.limits)
            _serve(service, settings, state, listening)
        finally:
            engine.stop()
    finally:
        journal.close()
    return 0


def _listen(host: str, port: int) -> socket.socket:
    """The API's socket: first of all, as it is soon said that it cannot be had."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise AddressError(f"the API cannot listen on {host}:{port}: {error.strerror}; give another --port") from error


def _serve(service: Service, settings: Settings, state: Path, listening: socket.socket) -> None:
    token = _token(state)
    port = listening.getsockname()[1]
    config = uvicorn.Config(make_api(service, token), log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="api", daemon=True)

    def end(_signal: int, _frame: FrameType | None) -> None:
        service.world.told.put(lambda: setattr(service.world, "ending", True))

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    thread.start()
    address = {"url": f"http://{settings.host}:{port}", "token": token, "pid": os.getpid()}
    write_aside(state / ADDRESS, json.dumps(address) + "\n")
    try:
        service.run()
    finally:
        with suppress(FileNotFoundError):
            (state / ADDRESS).unlink()
        server.should_exit = True
        thread.join(timeout=10)


def _token(state: Path) -> str:
    """The token of the service's first life, or from the environment (SKEDGE_TOKEN), or a new one."""
    path = state / "token"
    if "SKEDGE_TOKEN" in os.environ:
        return os.environ["SKEDGE_TOKEN"]
    if not path.exists():
        write_aside(path, secrets.token_hex(32))
    return path.read_text(encoding="utf-8").strip()


def main(arguments: list[str]) -> int:
    """Run the supervisor with ``--lock FILE_NUMBER``, or with ``--controller`` the controller, on a state folder."""
    option, *number, state = arguments
    if option == "--lock":
        return supervise(Path(state), int(number[0]))
    try:
        return control(Path(state))
    except SkedgeError as error:
        sys.stderr.write(f"{error}\n")
        return _WRONG if isinstance(error, StateError | PolicyError | ScenarioError | AddressError) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
