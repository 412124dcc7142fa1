"""Snapshots: the state of a service up to an entry of its journal, so that a restart replays only what follows.

A snapshot is a cache of the journal, which stays whole and authoritative (older entries move into its archive):
a snapshot can be deleted at any time, and is not in backups. It is made by a replay, in a process of its own
(:mod:`.snapshot_process`) that begins at the snapshot before. So the controller is not interrupted, and nothing of its
threads and clocks gets into it.

A snapshot ends right before an input: all decisions that earlier inputs led to are in the journal by then. It is used
if the same code made it, for the same cluster, from the same journal; otherwise the whole journal is replayed.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import pickle
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import sqlalchemy as sql

import skedge
from skedge.core.model.scenario import Scenario
from skedge.core.policy import Policy
from skedge.live import host
from skedge.live.durable import read
from skedge.live.journal.chain import DamagedError, Entry
from skedge.live.journal.journal import SqlJournal
from skedge.live.secret_files import write_aside

if TYPE_CHECKING:
    from .service import Service

SNAPSHOT = "snapshot"

_PROCESS = "skedge.live.controller.snapshot_process"
"""What makes a snapshot."""

_EVERY = 5000
"""Journal entries between two snapshots."""

_LOOK_S = 1.0
"""Pause between two looks at the journal's length, or at the process that makes a snapshot [s]."""

_END_S = 30.0
"""How long the process that makes a snapshot may take to end [s]."""

_NO_STATE: Mapping[str, frozenset[str]] = {
    "kernel": frozenset({"_columns"}),
    "inbox": frozenset({"waiting", "rebuilding", "ending", "joined", "_later", "_began"}),
    "trainers": frozenset({"found", "_coordinator", "_seen", "_noted", "_losses", "_link", "_measuring", "_closed"}),
    "submissions": frozenset({"folder", "limits", "codes", "_waiting", "_promised", "_before", "_checked_jobs"}),
    "retention": frozenset({"checkpoints", "keep", "sweep_servers", "ended", "thread"}),
}
"""Attributes that are not saved, by part of the service: they belong to its process."""


@dataclass(frozen=True)
class Snapshot:
    """The pickled state of a service before entry `number` of its journal."""

    number: int
    state: bytes

    def restore(self, service: Service) -> None:
        """Put a new service, which has replayed nothing yet, into this state."""
        states, assignments = _Unpickler(self.state, service).load()
        for name, part in _parts(service).items():
            vars(part).update(states[name])
        service.world.trainers.restore(assignments)


def begin(journal: SqlJournal) -> bool:
    """Let a journal end before its last input, as a service that a snapshot is made of must; False if it has none."""
    last = journal.input_before(journal.number)
    journal.span = journal.span[0], 0 if last is None else last.number
    return last is not None


def save(service: Service, path: Path) -> None:
    """Have a service that only rebuilds replay its journal, which must end before an input, and save its state."""
    service.run()
    states = {name: _state(name, part) for name, part in _parts(service).items()}
    pickled = _pickled((states, service.world.trainers.assignments()), service)
    kernel, journal = service.kernel, service.journal
    key, following = _key(kernel.scenario, kernel.policy, journal), journal.input_before(journal.span[1] + 1)
    before = journal.before(journal.span[1])
    head = {"key": key, "next": following, "before": before, "sha256": _sha(pickled)}
    write_aside(path, json.dumps(head).encode() + b"\n" + pickled)


def newest(path: Path, scenario: Scenario, policy: Policy, journal: SqlJournal) -> Snapshot | None:
    """The snapshot at `path`, whose entries the journal then skips; None, and why in the log, if it cannot be used.

    Parameters
    ----------
    path
        The snapshot's file; it may be missing.
    scenario, policy
        Those of the service: a snapshot made with another cluster, or with other source code, is not used.
    journal
        The service's journal, before it is replayed.
    """
    if not host.disk.exists(path):
        return None
    try:
        head, _, state = read(path).partition(b"\n")
        header = json.loads(head)
        wrong = _wrong(header, state, _key(scenario, policy, journal), journal)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        wrong = f"it cannot be read: {error}"
    if wrong:
        sys.stderr.write(f"snapshot {path}: {wrong}; the whole journal is taken in\n")
        return None
    journal.skip(header["next"][0], header["before"])
    return Snapshot(header["next"][0], state)


def _wrong(header: dict[str, Any], state: bytes, key: dict[str, Any], journal: SqlJournal) -> str:
    """Why a snapshot cannot be used; empty if it can."""
    differs = [name for name in key if header["key"].get(name) != key[name]]
    if differs:
        return f"it was made with another {differs[0]}"
    if header["sha256"] != _sha(state):
        return "it is damaged"
    last, following = journal.input_before(header["next"][0] + 1), Entry(*header["next"])
    is_so = last == following and following.checksum == following.after(header["before"])
    if not is_so:
        return "it is not of this journal"
    # a process that makes a snapshot may be overtaken by that of the next controller
    return "it has later entries than are taken in" if following.number > journal.span[1] else ""


def _key(scenario: Scenario, policy: Policy, journal: SqlJournal) -> dict[str, Any]:
    """What a snapshot depends on besides the journal's entries, as plain JSON types."""
    cluster = scenario.cluster
    return {
        "Python, NumPy or Polars": [platform.python_version(), np.__version__, pl.__version__],
        "source code": _source(policy),
        "cluster": _sha(repr((cluster.servers, scenario.physics)).encode() + cluster.site_cost.tobytes()),
        "run": [journal.run, journal.about, journal.aside],
    }


def _source(policy: Policy) -> str:
    """SHA-256 of the package's source files and of the policy's."""
    package = Path(skedge.__file__).parent
    files = {*package.rglob("*.py"), Path(inspect.getfile(type(policy)))}
    return _sha(b"".join(file.read_bytes() for file in sorted(files)))


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# -- the parts of a service ------------------------------------------------------------------------------------------


def _parts(service: Service) -> dict[str, Any]:
    """The objects whose attributes are the state, by name."""
    world = service.world
    parts = {
        "kernel": service.kernel,
        "world": world,
        "inbox": world.inbox,
        "trainers": world.trainers,
        "lanes": world.lanes,
        "gangs": world.gangs,
        "submissions": service.submissions,
        "status": service.status,
        "retention": service.retention,
    }
    return parts | ({"sites": world.sites} if hasattr(world, "sites") else {})


def _state(name: str, part: object) -> dict[str, Any]:
    return {key: value for key, value in vars(part).items() if key not in _NO_STATE.get(name, ())}


def _fixed(service: Service) -> dict[str, Any]:
    """What a new service has of its own, and the state refers to: saved by name."""
    kernel, world = service.kernel, service.world
    own = {"service": service, "engine": service.engine, "journal": service.journal, "view": kernel.view}
    told = {"took": kernel.took, "submit": world.submit, "logs": service.logs, "metrics": service.metrics}
    return {**_parts(service), **own, **told}


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, service: Service) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.names = {id(part): name for name, part in _fixed(service).items()}

    def persistent_id(self, part: object) -> str | None:
        return self.names.get(id(part))


class _Unpickler(pickle.Unpickler):
    def __init__(self, state: bytes, service: Service) -> None:
        super().__init__(io.BytesIO(state))
        self.fixed = _fixed(service)

    def persistent_load(self, name: str) -> object:
        return self.fixed[name]


def _pickled(state: object, service: Service) -> bytes:
    file = io.BytesIO()
    _Pickler(file, service).dump(state)
    return file.getvalue()


# -- in a process of its own -----------------------------------------------------------------------------------------


class Snapshots(host.Thread):
    """Has a snapshot made, by a process of its own, whenever the journal has grown; older entries are then archived."""

    def __init__(self, state: Path, journal: SqlJournal) -> None:
        super().__init__(name="snapshots", daemon=True)
        self.state, self.journal, self.ended = state, journal, host.Event()
        self.at = journal.span[0]

    def run(self) -> None:
        """Look at the journal's length until `ended` is set; a snapshot that is being made then is given up."""
        while not self.ended.wait(_LOOK_S):
            if self.journal.number - self.at >= _EVERY:
                self.at = self.journal.number
                self._make()

    def _make(self) -> None:
        process = host.Process(_PROCESS, str(self.state))
        while (status := process.poll()) is None:
            if self.ended.wait(_LOOK_S):
                process.end(_END_S)
        if status == 0:
            self._shrink()

    def _shrink(self) -> None:
        """Archive what is before the snapshot; what hinders that now is tried again with the next one."""
        try:
            head = read(self.state / SNAPSHOT).partition(b"\n")[0]
            self.journal.shrink(json.loads(head)["next"][0])
        except DamagedError as error:
            self.journal.damage = f"the journal: {error}"
        except (sql.exc.DBAPIError, OSError) as error:
            sys.stderr.write(f"journal: entries cannot be archived now: {error}\n")
