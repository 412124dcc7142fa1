"""Jobs' own code in its own process: what it does to that process is told of its job alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from wire import state_bytes

from skedge.core.errors import TrainingError
from skedge.live.cluster.engine import Engine
from skedge.live.worker.chunk_format import packed
from skedge.live.worker.job_code_runner import JobCodeClient
from skedge.live.worker.program import Program
from skedge.live.worker.sgd import ParameterServer

GOOD = Program("skedge.live.examples:images", {"model": "lenet", "chunks": 2, "samples": 40, "size": 8}, 2, 1, 2)
ENDS = Program("os:_exit", {"status": 3}, 1, 1, 1)
HANGS = Program("signal:pause", {}, 1, 1, 1)


def test_chunks_are_made_as_the_job_makes_them(engine: Engine) -> None:
    made = engine.job_code.contents(GOOD, (1, 0))
    assert made == [(chunk, packed(GOOD.make().chunk(chunk), GOOD.module())) for chunk in (1, 0)]


def test_code_that_ends_its_process_fails_its_own_job_alone(engine: Engine) -> None:
    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(engine.job_code.contents, program, (0,)) for program in (GOOD, ENDS, GOOD, ENDS, GOOD)]
        errors = [call.exception() for call in calls]
    assert [error is None for error in errors] == [True, False, True, False, True]
    assert "has ended with status 3" in str(errors[1])
    assert "has ended with status 3" in str(errors[3])


def test_code_that_does_not_return_is_ended(engine: Engine) -> None:
    impatient = JobCodeClient(engine.job_code.actor, prepare_s=2.0)
    with pytest.raises(TrainingError, match=r"has not become ready .* after 2 s"):
        impatient.contents(HANGS, (0,))
    assert engine.job_code.contents(GOOD, (0,))[0][0] == 0


def test_a_test_that_fails_leaves_the_job_trained(engine: Engine) -> None:
    """The outcome says why there is no accuracy."""
    server = ParameterServer(GOOD)
    found = engine.job_code.outcome(ENDS, [(1, 0.5)], state_bytes(server))
    assert (found["accuracy"], found["losses"]) == (None, [(1, 0.5)])
    assert "has ended with status 3" in found["unmeasured"]
    right = engine.job_code.outcome_of(GOOD, server.dump())
    assert 0 <= right["accuracy"] <= 1
