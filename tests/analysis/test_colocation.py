"""Zeta of dispatched jobs over time."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from skedge.analysis.colocation import Colocation


@pytest.mark.parametrize("seed", range(20))
def test_zeta_is_looked_at_between_the_ends_of_an_interval_too(seed: int) -> None:
    """A job that is wholly in the cloud for a moment of it is not "never there" (simulation, seed 526)."""
    random = Random(seed)  # noqa: S311 - no secret
    times = np.array(sorted(random.sample(range(1, 40), random.randint(1, 6))))
    zeta = np.array([random.randint(0, 1) for _ in times])
    colocation = Colocation.__new__(Colocation)
    colocation.last, colocation._changes = np.array([1, zeta[-1]]), {1: (times, zeta)}
    start = np.array([random.randrange(40) for _ in range(30)])
    end = start + np.array([random.randrange(15) for _ in range(30)])
    job, value = np.array([random.randint(0, 1) for _ in range(30)]), random.randint(0, 1)
    expected = [
        all(colocation.at(np.array([j]), np.array([time]))[0] == value for time in range(a, b + 1))
        for j, a, b in zip(job, start, end, strict=True)
    ]
    assert colocation.always(job, start, end, value).tolist() == expected
