"""Random instances of A_online for both programs, the product's run of one, and how two results are compared."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from builders.aonline_instances import Kind, Pick
from builders.product import (
    Run,
    alphas_of_run,
    chunks_of_plain,
    chunks_of_run,
    completions_of_plain,
    completions_of_run,
    play,
    ps_of_plain,
    ps_of_run,
    runs_of_plain,
    runs_of_run,
    scenario_of,
)
from reference.aonline_model import Instance, Mode, Result
from skedge.core.model.time import SECOND
from skedge.policies.aonline.policy import AOnline

F = Fraction


ANY = Kind()


def seeded_pick(seed: int) -> Pick:
    rng = np.random.default_rng(seed)
    return lambda lo, hi: int(rng.integers(lo, hi + 1))


def product(instance: Instance, mode: Mode, **options: Any) -> Run:
    policy = AOnline(q_mode=mode.q, preempt_running=mode.preempt_running, cloud=mode.cloud)
    return play(scenario_of(instance, **options), policy)


def assert_same(instance: Instance, mode: Mode, result: Result, run: Run) -> None:
    """Lanes, postponed chunks, runs, PSs and completions are equal; alphas to the last bits of a float."""
    assert chunks_of_run(run) == chunks_of_plain(result)
    assert runs_of_run(run) == runs_of_plain(result)
    assert completions_of_run(run) == completions_of_plain(instance, result)
    assert ps_of_run(run) == ps_of_plain(result)
    exact = [float(cost.q) / SECOND for cost in result.costs]
    assert alphas_of_run(run) == pytest.approx(exact, rel=1e-9 if mode.q == "fractional" else 1e-13)


def is_near_tie(result: Result) -> bool:
    """Whether a choice was closer than the product's tolerance, and so may be another there."""
    scale = max((cost.q for cost in result.costs), default=F(1))
    return any(gap < scale * F(1, 10**8) for gap in result.gaps)
