"""A_ps, Alg. 5 of JSAC'22, compiled: the PS slot for a job that begins to run."""

from __future__ import annotations

from skedge.core.model.cluster import Ints
from skedge.platform.jit import lean

CLOUD = -1


@lean
def first_free(slots: Ints, ps_job: Ints) -> int:
    """The first of the PS slots `slots` that is free; CLOUD if there is none. ``ps_job[slot]`` is -1 if it is free."""
    for slot in slots:
        if ps_job[slot] < 0:
            return slot
    return CLOUD
