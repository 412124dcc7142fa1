"""The state folder of a service: the names of its files, and the settings in it.

It contains ``settings.json`` (the options of ``skedge up``), ``cluster.yaml``, the journal, checkpoints, logs, and
while the service is up ``service.json``: its address and token, for every user who may read the folder.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from skedge.core.errors import InputError
from skedge.live.confinement.confinement import CONFINED, Confinement, confinement_of
from skedge.live.durable import read_text
from skedge.live.secret_files import write_aside

from .limits import Limits

SETTINGS, ADDRESS, LOG, SUPERVISOR = "settings.json", "service.json", "controller.log", "supervisor.pid"
STARTING = "starting"
"""Name of the file with the current step of a controller that does not answer yet."""
CLUSTER = "cluster.yaml"
TOKEN, SOCKET = "token", "api.sock"
"""Names of the file with the service's own token, and of the socket on which the API listens on this machine."""


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
    jobs
        What jobs' processes may see and use.
    tls_cert, tls_key
        Files of the certificate and its key with which the API is served; None: without encryption.
    device
        Where agents compute: ``cpu``, ``cuda`` or ``auto``.
    track
        Where the training of jobs is logged: ``tensorboard:FOLDER``, ``mlflow:URI``.
    id
        Identifies the run of this state in a shared journal, and its checkpoints under a shared URL.
    """

    policy: str
    ray: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    journal: str | None = None
    checkpoints: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    id: str = ""
    limits: Limits = field(default_factory=Limits)
    jobs: Confinement = CONFINED
    device: str = "cpu"
    track: tuple[str, ...] = ()

    def checkpoints_of(self, state: Path) -> str:
        """URL of the checkpoints of this state, whose folder is `state`."""
        return str(state / "checkpoints") if self.checkpoints is None else f"{self.checkpoints}/{self.id}"

    def jobs_of(self, state: Path) -> Confinement:
        """What jobs' processes may see and use, with the state, whose folder is `state`, hidden from them."""
        url = self.checkpoints_of(state)
        return replace(self.jobs, hidden=(str(state), *([] if "://" in url else [url])))

    def actors_of(self, state: Path) -> str:
        """Id of the Ray actors of this state, whose folder is `state`: a copy of it has others."""
        return f"{self.id}-{hashlib.sha256(str(state).encode()).hexdigest()[:8]}"


def tell_step(state: Path, step: str) -> None:
    """Write down the current step of a service that starts."""
    with suppress(OSError):  # a full disk costs only the message
        write_aside(state / STARTING, step)


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
        content = json.loads(read_text(state / SETTINGS))
        limits = content.get("limits", {})
        limits["allow"] = tuple(limits.get("allow", ()))
        jobs = {"jobs": confinement_of(content["jobs"])} if "jobs" in content else {}
        return Settings(**{**content, "limits": Limits(**limits), "track": tuple(content.get("track", ())), **jobs})
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{state}: holds no service's state ({SETTINGS}: {error})") from error
