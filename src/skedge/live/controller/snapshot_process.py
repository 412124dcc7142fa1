"""The process that makes a snapshot of a service, and a part of its record.

``python -m skedge.live.controller.snapshot_process STATE`` runs it.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

from skedge.core.errors import SkedgeError
from skedge.live.journal.journal import SqlJournal, journal_url
from skedge.live.world.ray_world import NoEngine
from skedge.scenario.file import load_cluster_file

from .record_parts import RECORD, add_part
from .service import Service
from .settings import CLUSTER, read_settings
from .snapshot import SNAPSHOT, begin, save


def main(state: Path) -> int:
    """Make a snapshot of the service of a state folder, which may be up; returns the exit status."""
    os.nice(10)
    try:
        settings, scenario = read_settings(state), load_cluster_file(state / CLUSTER)
        journal = SqlJournal(journal_url(state, settings.journal), run_id=settings.id, reading=True)
        engine, path = NoEngine(len(scenario.cluster.servers)), state / SNAPSHOT
        if begin(journal):
            service = Service(scenario, settings.policy, state, engine, journal, settings.limits, path)
            save(service, path)
            add_part(service, state / RECORD, journal.span[1])
    except (SkedgeError, pickle.PickleError, TypeError, AttributeError) as error:  # the latter: a plugin's policy
        sys.stderr.write(f"snapshot: cannot be made: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
