"""Gymnasium environments: scheduling decisions to learn, one at a time, in the simulator that runs every policy.

    import gymnasium, skedge.gym
    env = gymnasium.make("skedge/ChunkDispatch-v0")

- ``skedge/ChunkDispatch-v0`` (:mod:`.dispatch`): choose the lane of the next data chunk of the job that arrived.
- ``skedge/Admission-v0`` (:mod:`.admission`): reject the job that arrived, or place it on a server.

Both are episodes of :class:`.environment.SchedulingEnv`; the actions that are possible are in ``info["action_mask"]``
and ``env.unwrapped.action_masks()``. A trained function is a policy like any other: ``ChunkDispatcher(choose)``.
"""

from __future__ import annotations

from importlib.util import find_spec

from skedge.core.errors import InputError

if find_spec("gymnasium") is None:
    raise InputError("this needs the extra `gym`: pip install 'skedge[gym]' (there is no module gymnasium)")

import gymnasium

from .admission import JobAdmitter
from .dispatch import ChunkDispatcher
from .environment import SchedulingEnv
from .interactive import Question

__all__ = ["ChunkDispatcher", "JobAdmitter", "Question", "SchedulingEnv"]

_WHERE = "skedge.gym.environment"

gymnasium.register("skedge/ChunkDispatch-v0", f"{_WHERE}:chunk_dispatch", disable_env_checker=True)
gymnasium.register("skedge/Admission-v0", f"{_WHERE}:admission", disable_env_checker=True)
