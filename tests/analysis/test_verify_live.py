"""Rule M38: what a live run calls finished is in its last checkpoint."""

from __future__ import annotations

from typing import Any

import pytest

from skedge.recorded_run import Run
from skedge.simulate import run
from skedge.testing import small_scenarios


@pytest.fixture(scope="module")
def trained() -> Run:
    """A run whose record says that it was live, and that the last checkpoints hold everything."""
    done = run(small_scenarios()[0], "aonline")
    jobs = done.scenario.jobs
    done.meta["world"] = "ray"
    done.meta["trained"] = {name: [int(jobs.minibatches[j])] * int(jobs.chunks[j]) for j, name in enumerate(jobs.ids)}
    return done


def broken(of: Run, **trained: Any) -> list[str]:
    meta = {**of.meta, "trained": {**of.meta["trained"], **trained}}
    return [v.rule for v in Run(of.scenario, meta, of.schedule).verify()]


def test_a_record_whose_last_checkpoints_are_complete_keeps_the_rules(trained: Run) -> None:
    assert trained.verify() == []


def test_an_epoch_that_a_checkpoint_lacks_breaks_m38(trained: Run) -> None:
    name = trained.scenario.jobs.ids[0]
    done = trained.meta["trained"][name]
    assert broken(trained, **{name: [done[0] - 1, *done[1:]]}) == ["M38"]


@pytest.mark.parametrize("said", [None, [], "whole", [1]])
def test_a_checkpoint_that_says_nothing_breaks_m38(trained: Run, said: Any) -> None:
    assert broken(trained, **{trained.scenario.jobs.ids[0]: said})[:1] == ["M38"]
