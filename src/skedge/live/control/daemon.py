"""The processes behind ``skedge up``: a controller, and a supervisor that restarts it when it dies.

``python -m skedge.live.control.daemon --lock N STATE`` is the supervisor; with ``--controller`` it is the controller.
The state folder contains ``settings.json`` (the options of ``skedge up``), ``cluster.yaml``, the journal, checkpoints,
logs, and while the service is up ``service.json``: its address and token, for every user who may read the folder.
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
"""Name of the file with the current step of a controller that does not answer yet."""
CLUSTER = "cluster.yaml"

_TRIES = 5
"""Consecutive deaths of a controller before it answers, after which the supervisor gives up."""

_LOOK_S, _END_S = 0.2, 30.0
"""How often the supervisor checks whether the controller has to end, and how long that may take [s]."""

_WRONG = 2
"""Exit status of a controller that must not be restarted: its settings are wrong."""


class AddressError(InputError):
    """The API cannot listen on the given address."""


@dataclass(frozen=True)
class Settings:
    """The options of ``skedge up``.

    Attributes
    ----------
    ray
        Address of a Ray cluster; None: one on this machine.
    host, port
        Address on which the API listens; port 0: any free port.
    journal, checkpoints
        URLs; None: in the state folder.
    limits
        Limits on jobs and requests.
    device
        Where agents compute: ``cpu``, ``cuda`` or ``auto``.
    id
        Identifies the run of this state in a shared journal, and its checkpoints under a shared URL.
    """

    policy: str
    ray: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    journal: str | None = None
    checkpoints: str | None = None
    id: str = ""
    limits: Limits = field(default_factory=Limits)
    device: str = "cpu"

    def checkpoints_of(self, state: Path) -> str:
        """URL of the checkpoints of this state, whose folder is `state`."""
        return str(state / "checkpoints") if self.checkpoints is None else f"{self.checkpoints}/{self.id}"


def write_aside(path: Path, content: str) -> None:
    """Write a file atomically; only its owner may read it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        aside.unlink()
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(content)
    os.replace(aside, path)


def save_settings(state: Path, settings: Settings) -> None:
    """Save the service's settings."""
    write_aside(state / SETTINGS, json.dumps(asdict(settings), indent=2) + "\n")


def read_settings(state: Path) -> Settings:
    """The settings of the service of this state.

    Raises
    ------
    InputError
        If `state` holds no service's state.
    """
    try:
        kept = json.loads((state / SETTINGS).read_text(encoding="utf-8"))
        limits = kept.get("limits", {})
        limits["allow"] = tuple(limits.get("allow", ()))
        return Settings(**{**kept, "limits": Limits(**limits)})
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{state}: holds no service's state ({SETTINGS}: {error})") from error


def supervise(state: Path, lock: int) -> int:
    """Run the controller, and restart it from the journal when it dies. Returns its exit status.

    `lock` is the open file that holds the state's lock: no other service can start while the supervisor or the
    controller runs. SIGTERM, or Ctrl-C in the foreground, ends both, whatever the controller is doing.
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
        with suppress(OSError):  # a full disk costs the line, not the supervisor
            log.write(f"the controller, process {child.pid}, ended with status {status}\n".encode())
            log.flush()
        if quick >= _TRIES or ended.wait(1):
            return status


def _served(state: Path, pid: int) -> bool:
    """Whether a controller got far enough to answer."""
    with suppress(OSError, ValueError):
        return bool(json.loads((state / ADDRESS).read_text(encoding="utf-8"))["pid"] == pid)
    return False


def _wait(child: subprocess.Popen[bytes], ended: threading.Event) -> int:
    """Wait for the controller; if it has to end, terminate it, and kill it after a while."""
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
    """Run the controller (engine, journal, service and API) until ``skedge down`` or SIGTERM."""
    settings = read_settings(state)
    scenario = load_cluster_file(state / CLUSTER)

    def say(what: str) -> None:
        with suppress(OSError):  # a full disk costs only the message
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
        checkpoints = settings.checkpoints_of(state)
        engine = Engine(scenario.cluster, state, checkpoints, settings.ray, device=settings.device, say=say)
        try:
            service = Service(scenario, settings.policy, state, engine, journal, settings.limits)
            _serve(service, settings, state, listening)
        finally:
            engine.stop()
    finally:
        journal.close()
    return 0


def _listen(host: str, port: int) -> socket.socket:
    """The API's socket, opened first so that a port in use is reported at once."""
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
        service.world.inbox.told.put(lambda: setattr(service.world.inbox, "ending", True))

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
    """The token: from the environment (SKEDGE_TOKEN), or that of the service's first life, or a new one."""
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
