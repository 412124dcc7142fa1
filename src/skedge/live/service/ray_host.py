"""The process that hosts a service's embedded Ray cluster, which so outlives the service's controllers.

``python -m skedge.live.service.ray_host STATE`` runs it until SIGTERM, until Ray's head ends, or until nobody needs it.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

from skedge.core.errors import SkedgeError
from skedge.live import host as machine
from skedge.live.cluster.embedded import EmbeddedCluster
from skedge.live.cluster.gpus import Gpus
from skedge.live.controller.settings import ADDRESS, CLUSTER, read_settings, tell_step
from skedge.live.durable import read_text
from skedge.scenario.file import load_cluster_file

_LOOK_S = 0.5
"""Interval at which the host checks whether the cluster is up and needed [s]."""


def host(state: Path) -> int:
    """Keep the embedded cluster of a state up; returns the exit status."""
    settings, cluster = read_settings(state), load_cluster_file(state / CLUSTER).cluster
    is_over, supervisor = threading.Event(), machine.getppid()

    def end(_signal: int, _frame: FrameType | None) -> None:
        is_over.set()

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the supervisor, which ends this process last
    up = EmbeddedCluster(cluster, state, Gpus(settings.device, cluster, embedded=True), partial(tell_step, state))
    try:
        up.start_head()
        up.start_servers()
        # not earlier: a signal ends a start at once
        signal.signal(signal.SIGTERM, end)
        while up.head_is_up() and not is_over.wait(_LOOK_S):
            if machine.getppid() != supervisor and not _has_controller(state):
                break
    finally:
        up.stop()
    return 0 if is_over.is_set() else 1


def _has_controller(state: Path) -> bool:
    """Whether a controller runs, although the supervisor has ended."""
    with suppress(OSError, ValueError):
        return machine.runs(int(json.loads(read_text(state / ADDRESS))["pid"]))
    return False


if __name__ == "__main__":
    try:
        sys.exit(host(Path(sys.argv[1])))
    except SkedgeError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
