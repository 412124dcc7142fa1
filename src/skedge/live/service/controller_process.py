"""The controller of a service: engine, journal, service and API in one process.

``python -m skedge.live.service.controller_process STATE`` runs it on the state of
:mod:`skedge.live.controller.settings`. It first imports what it needs, and waits, as a standby, for
a line on its standard input.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from skedge.core.errors import InputError, PolicyError, ScenarioError, SkedgeError, StateError
from skedge.live import host as machine
from skedge.live.cluster.embedded_state import found_in
from skedge.live.cluster.engine import Engine, Hosting
from skedge.live.controller.address import Address
from skedge.live.controller.service import Service, open_journal
from skedge.live.controller.settings import CLUSTER, SOCKET, TOKEN, Settings, read_settings, tell_step
from skedge.live.controller.snapshot import SNAPSHOT, Snapshots
from skedge.live.controller.state_watch import StateWatch
from skedge.live.controller.tracking import tracking
from skedge.live.durable import remove
from skedge.live.journal.chain import DamagedError
from skedge.live.journal.journal import SqlJournal, UnreachableError, journal_url
from skedge.live.journal.version import VersionError
from skedge.live.secret_files import secret_of
from skedge.prepare import prepare_for_service
from skedge.scenario.file import load_cluster_file

from .api import V1, make_api
from .keeping import WRONG
from .local_socket import listen_at
from .supervisor import GO

_CLUSTER_S = 300.0
"""How long the embedded Ray cluster may take to start [s]."""

_DATABASE_S = 300.0
"""How long the journal's database may be away when a controller begins [s]."""

_TELL_S = 2.0
"""Interval at which a controller tells how much of its journal is left to be taken in again [s]."""


class AddressError(InputError):
    """The API cannot listen on the given address."""


def control(state: Path) -> int:
    """Run the controller (engine, journal, service and API) until ``skedge down`` or SIGTERM."""
    settings = read_settings(state)
    scenario = load_cluster_file(state / CLUSTER)
    say = partial(tell_step, state)
    say("opening the journal")
    listening = _listen(settings.host, settings.port)
    about = {
        "id": settings.id,
        "policy": settings.policy,
        "cluster": scenario.cluster.server_ids,
        "seed": scenario.seed,
    }
    journal = _journal(settings, state, about, say)
    try:
        checkpoints = settings.checkpoints_of(state)
        embedded = settings.ray is None
        address = _embedded_address(state) if embedded else settings.ray
        engine = Engine(
            scenario.cluster,
            state,
            checkpoints,
            address,
            device=settings.device,
            say=say,
            hosting=Hosting(embedded, settings.actors_of(state), settings.limits.watch(), settings.jobs_of(state)),
        )
        is_over = False
        try:
            service = Service(scenario, settings.policy, state, engine, journal, settings.limits, state / SNAPSHOT)
            threads = Snapshots(state, journal), StateWatch(state, journal)
            for thread in threads:
                thread.start()
            try:
                _serve(service, settings, state, listening, say)
                is_over = True
            finally:
                for thread in threads:
                    thread.ended.set()
        finally:
            (engine.stop if is_over else engine.leave)()
    finally:
        journal.close()
    return 0


def _journal(settings: Settings, state: Path, about: dict[str, Any], say: Callable[[str], None]) -> SqlJournal:
    """The service's journal; waits for a database that is away."""
    deadline = machine.monotonic() + _DATABASE_S
    while True:
        try:
            return open_journal(journal_url(state, settings.journal), about, own=settings.journal is None)
        except UnreachableError as error:
            if machine.monotonic() > deadline:
                raise
            say(f"the database is away: {error}")
            machine.sleep(1.0)


def _embedded_address(state: Path) -> str:
    """Address of the service's embedded Ray cluster; waits until its host has started it."""
    deadline = machine.monotonic() + _CLUSTER_S
    while machine.monotonic() < deadline:
        cluster = found_in(state)
        if cluster is not None and cluster.address and machine.runs(cluster.host):
            return cluster.address
        machine.sleep(0.05)
    raise SkedgeError(f"Ray has not started within {_CLUSTER_S:g} s")


def _warm(state: Path) -> None:
    """Import what is imported late, and compile or load the policy's kernels."""
    import ray  # noqa: F401, PLC0415 - Ray is an extra

    with suppress(SkedgeError):  # the controller itself reports what is wrong
        prepare_for_service(read_settings(state).policy, load_cluster_file(state / CLUSTER))


def _listen(host: str, port: int) -> socket.socket:
    """The API's socket, opened first so that a port in use is reported at once."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise AddressError(f"the API cannot listen on {host}:{port}: {error.strerror}; give another --port") from error


def _serve(
    service: Service, settings: Settings, state: Path, listening: socket.socket, say: Callable[[str], None]
) -> None:
    token = secret_of(state / TOKEN, "SKEDGE_TOKEN")
    api, port = make_api(service, token), listening.getsockname()[1]
    files = {"ssl_certfile": settings.tls_cert, "ssl_keyfile": settings.tls_key}
    local = listen_at(state / SOCKET)
    servers = [_ApiServer(api, listening, **files), _ApiServer(api, local)]

    def end(_signal: int, _frame: FrameType | None) -> None:
        service.world.inbox.end()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    for server in servers:
        server.thread.start()
    scheme = "http" if settings.tls_cert is None else "https"
    url = f"{scheme}://{settings.host}:{port}{V1}"
    about = {"url": url, "token": token, "pid": os.getpid(), "certificate": settings.tls_cert, "socket": SOCKET}
    address, ready_event = Address(state, about), threading.Event()

    def begin() -> None:
        ready_event.set()
        address.tell(is_ready=True)

    address.tell(is_ready=False)
    service.world.inbox.waiting.put(begin)  # which is read when the journal has been taken in again
    threading.Thread(
        target=_tell_progress, args=(service.journal, ready_event, say), name="progress", daemon=True
    ).start()
    try:
        with tracking(service, settings.track, settings.id):
            service.run()
    finally:
        ready_event.set()
        address.remove()
        remove(state / SOCKET)
        for server in servers:
            server.end()


def _tell_progress(journal: SqlJournal, ready_event: threading.Event, say: Callable[[str], None]) -> None:
    """Tell how much of the journal is left, until the controller is ready."""
    while not ready_event.wait(_TELL_S):
        say(f"taking the journal in again, {len(journal.inputs)} inputs are left")


class _ApiServer:
    """The API on one socket, in a thread."""

    def __init__(self, api: FastAPI, listening: socket.socket, **files: str | None) -> None:
        self.server = uvicorn.Server(uvicorn.Config(api, log_level="warning", access_log=False, **files))
        sockets = {"sockets": [listening]}
        self.thread = threading.Thread(target=self.server.run, kwargs=sockets, name="api", daemon=True)

    def end(self) -> None:
        self.server.should_exit = True
        self.thread.join(timeout=10)


def main(state: Path) -> int:
    """Run the controller on a state folder; returns its exit status."""
    _warm(state)
    if sys.stdin.buffer.readline() != GO:
        return 0  # the supervisor has ended: no controller is needed
    return controlled(state)


def controlled(state: Path) -> int:
    """Run the controller; returns the exit status, which tells the supervisor whether to start another one."""
    try:
        return control(state)
    except SkedgeError as error:
        hint = f"; `skedge journal check {state}` says more" if isinstance(error, DamagedError) else ""
        sys.stderr.write(f"{error}{hint}\n")
        return WRONG if isinstance(error, StateError | PolicyError | ScenarioError | AddressError | VersionError) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
