"""A_ps, Alg. 5 of JSAC'22, compiled: the PS for a job that begins to run.

A job has a PS only while one of its chunks is in service, so those that run on keep theirs, the first pass of Alg. 5,
and those that have paused must have returned theirs before others choose. The event loops do the rest, one job after
the other.
"""

from __future__ import annotations

from skedge.core.engine.ledger import NO_PS
from skedge.core.model.cluster import Ints
from skedge.platform.jit import lean

CLOUD = -1


@lean
def choose_ps(slots: Ints, ps_job: Ints, wholly_in_cloud: bool, has_cloud: bool) -> int:
    """The first free slot of `slots`, else CLOUD; NO_PS if there is neither.

    o_jsp = 1 alone, as printed, may name a slot in use (J9).

    Parameters
    ----------
    slots
        The PS slots of the job's type, in order of (server, slot).
    ps_job
        The job that each slot serves, -1 if it is free.
    wholly_in_cloud
        zeta_j = 1: then the PS is in the cloud, too (J11).
    has_cloud
        Whether there is a cloud, and it is in service.
    """
    if not (wholly_in_cloud and has_cloud):
        for slot in slots:
            if ps_job[slot] < 0:
                return slot
    return CLOUD if has_cloud else NO_PS
