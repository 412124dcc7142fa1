"""Ends the Ray actors of a service whose last controller could not.

``python -m skedge.live.service.end_orphaned_actors STATE`` runs it. Only on a cluster at an
address: an embedded one ends with its host.
"""

from __future__ import annotations

import sys
from pathlib import Path

from skedge.core.errors import SkedgeError
from skedge.live.cluster.engine import end_actors
from skedge.live.controller.settings import read_settings


def end_orphaned_actors(state: Path) -> int:
    """End the actors of the service of a state folder; returns the exit status."""
    try:
        settings = read_settings(state)
        if settings.ray is not None:
            end_actors(settings.ray, settings.actors_of(state))
    except (SkedgeError, ConnectionError) as error:
        sys.stderr.write(f"the service's Ray actors cannot be ended: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(end_orphaned_actors(Path(sys.argv[1])))
