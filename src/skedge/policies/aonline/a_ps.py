"""A_ps, Alg. 5 of JSAC'22, compiled: the PS slot for a job that begins to run.

The rest of Alg. 5 (who begins, who keeps a PS) is in ``policy.py``; the compiled simulation shares this search with it.
"""

from __future__ import annotations

from skedge.core.model.cluster import Ints
from skedge.platform.jit import lean

CLOUD = -1


@lean
def first_free(slots: Ints, ps_job: Ints) -> int:
    """The first free slot of `slots`, CLOUD if there is none: o_jsp = 1 alone, as printed, may name one in use (J9).

    ``ps_job[slot]`` is the job that a slot serves, -1 if it is free.
    """
    for slot in slots:
        if ps_job[slot] < 0:
            return slot
    return CLOUD
