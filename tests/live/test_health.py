"""The health of a server shares no thread with what jobs do there."""

from __future__ import annotations

import time

import unruly
from wire import state_bytes

from skedge.live.cluster.engine import Engine
from skedge.live.worker.chunk_format import packed
from skedge.live.worker.job_processes import sent
from skedge.live.worker.program import Program
from skedge.live.worker.sgd import ParameterServer

HANGS = Program("unruly:job", {"kind": "hang"}, 20, 1, 4)


def test_a_server_whose_threads_all_hang_in_mini_batches_answers_and_takes_uploads(engine: Engine) -> None:
    """More than the agent has threads; its process was then ended as frozen, after 20 s."""
    import ray  # not earlier: it reads its settings when it is imported

    agent, chunk = engine.agents[1], packed(unruly.points(0), HANGS.module())
    state = state_bytes(ParameterServer(Program("unruly:job", {}, 1, 1, 1)))
    ray.get([agent.store.remote("hangs", d, 0, chunk, last=True) for d in range(HANGS.chunks)], timeout=30)
    asked = [agent.gradient.options(num_returns=2).remote("hangs", sent(HANGS), d, 0, state)[0] for d in range(12)]
    try:
        assert ray.wait(asked, num_returns=1, timeout=3.0)[0] == [], "they hang"
        for _ in range(20):
            began = time.monotonic()
            ray.get(agent.pid.remote(), timeout=10)
            assert time.monotonic() - began < 2.0
        assert not engine._is_frozen(1, {})
        assert ray.get(agent.store.remote("hangs", 0, 0, chunk, last=True), timeout=10) == len(chunk)
    finally:
        while True:  # those that waited for a thread begin when others are ended
            agent.forget.remote("hangs")
            if len(ray.wait(asked, num_returns=len(asked), timeout=1.0)[0]) == len(asked):
                break
