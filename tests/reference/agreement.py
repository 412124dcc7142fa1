"""Every independent reference program beside the product, by policy and mode: a new one is a row of :data:`ROWS`.

A check draws an instance from a seed, gives it to both and asserts that they agree; it returns False where the instance
cannot decide (a choice closer than the tolerance of floats). ``benchmarks/agreement.py`` runs many instances,
``tests/policies/test_agreement.py`` a few.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis.errors import HypothesisDeprecationWarning, UnsatisfiedAssumption

from builders import aonline_property as aonline
from builders import batch, fairness, okita, optimum, pdors, site_baselines, site_optimum
from builders.aonline_instances import draw_instance
from builders.chunk_instances import plain, tiny_scenario
from builders.she_instances import small
from reference.aonline import a_online
from reference.aonline_model import Mode, Reading
from reference.batch import a_online as batch_online
from reference.drf import pooled_filling
from reference.optimum_of_chunks import least_total
from reference.optimum_of_gangs import least_total_of_gangs
from reference.optimum_of_sites import least_cost
from reference.optimum_of_utility import most_utility
from skedge.core.errors import InputError
from skedge.core.model.time import HOUR, SECOND
from skedge.optimum.chunks.problem import SOLVERS as CHUNK_SOLVERS
from skedge.optimum.chunks.problem import optimum_of_chunks
from skedge.optimum.gangs.problem import SOLVERS as GANG_SOLVERS
from skedge.optimum.gangs.problem import optimum_of_gangs
from skedge.optimum.sites.problem import SOLVERS as SITE_SOLVERS
from skedge.optimum.sites.problem import optimum_of_sites
from skedge.optimum.utility.problem import SOLVERS as UTILITY_SOLVERS
from skedge.optimum.utility.problem import optimum_of_utility
from skedge.policies.drf.progressive_filling import ONE_PS

Check = Callable[[int], bool | None]
"""Of a seed: None or True where both agree, False where the instance decides nothing; raises where they differ."""


@dataclass(frozen=True)
class Row:
    """A reference program for a policy in a mode."""

    policy: str
    mode: str
    check: Check
    most: int | None = None
    """Most instances that are worth their time, where the reference tries everything; None: as many as asked for."""


def agrees(row: Row, seed: int) -> bool:
    """Whether the instance was one that decides; raises AssertionError where the two programs differ."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HypothesisDeprecationWarning)  # `assume` outside of a property
        try:
            return row.check(seed) is not False
        except UnsatisfiedAssumption:
            return False


# -- the checks --------------------------------------------------------------------------------------------------------


def _aonline(mode: Mode, seed: int) -> bool:
    """Lanes, runs, PSs, completions and alphas of JSAC'22's A_online."""
    instance = draw_instance(aonline.seeded_pick(seed), aonline.ANY)
    result, run = a_online(instance, mode), aonline.product(instance, mode)
    if mode.q == "fractional" and aonline.is_near_tie(result):
        return False
    aonline.assert_same(instance, mode, result, run)
    return True


def _batch(options: str, seed: int) -> None:
    """Every offer of every batch of She et al.'s A_online: plan and utility."""
    run = batch.played(seed, options)
    plain, never = batch_online(run.scenario, batch.SETTINGS[options])
    assert batch.plain_to_compare(batch.decisions_of(run)) == batch.plain_terms(plain)
    rejected = run.schedule.jobs.filter(pl.col("state") == "rejected")["job"].to_list()
    assert set(rejected) == never


def _drf(seed: int) -> None:
    """Progressive filling in exact fractions."""
    rng = np.random.default_rng(seed)
    kinds = int(rng.integers(1, 4))
    jobs = []
    for _ in range(int(rng.integers(1, 6))):
        worker, ps = rng.integers(0, 5, kinds), rng.integers(0, 3, kinds)
        worker[rng.integers(kinds)] = rng.integers(1, 5)
        per_ps = int(rng.choice([1, 2, 3, int(ONE_PS)]))
        jobs.append((tuple(worker.tolist()), tuple(ps.tolist()), per_ps, int(rng.integers(0, 7))))
    left, total = rng.integers(0, 26, kinds).tolist(), rng.integers(1, 31, kinds).tolist()
    assert fairness.filled(jobs, left, total) == pooled_filling(jobs, left, total)


def _optimum_of_chunks(seed: int) -> None:
    scenario = tiny_scenario(seed, most_jobs=3)
    solution = optimum_of_chunks(scenario, 20, [next(iter(CHUNK_SOLVERS))], ["aonline"])
    assert solution.value == pytest.approx(least_total(plain(scenario)))


def _optimum_of_gangs(seed: int) -> bool:
    """Where some job can never run there is no optimum."""
    scenario = small(seed, jobs=2)
    try:
        solution = optimum_of_gangs(scenario, 20, [next(iter(GANG_SOLVERS))])
    except InputError:
        return False
    assert solution.value == pytest.approx(least_total_of_gangs(scenario) * HOUR / SECOND)
    return True


def _optimum_of_utility(seed: int) -> None:
    scenario = optimum.tiny_utility(seed)
    solution = optimum_of_utility(scenario, 20, [next(iter(UTILITY_SOLVERS))])
    assert solution.value == pytest.approx(most_utility(scenario))


def _optimum_of_sites(seed: int) -> None:
    scenario = site_optimum.tiny(seed)
    solution = optimum_of_sites(scenario, 20, [next(iter(SITE_SOLVERS))], ["okita"])
    assert solution.value == pytest.approx(least_cost(scenario), rel=1e-6)


# -- the table ---------------------------------------------------------------------------------------------------------

EXACT: tuple[Reading, ...] = "marginal", "eq5"
"""Readings of Q in whole numbers."""

AONLINE = [
    *(Mode(q, preempt, cloud) for q, preempt, cloud in product(EXACT, (True, False), (True, False))),
    *(Mode("fractional", cloud=cloud) for cloud in (True, False)),
]
"""The ten modes."""
OKITA: dict[str, dict[str, Any]] = {
    "default": {},
    "conflict=cheaper": {"conflict": "cheaper"},
    "fit=true": {"fit": True},
    "conflict=cheaper,fit=true": {"conflict": "cheaper", "fit": True},
    "colocate": {"colocate": True},
    "normalise": {"normalise": True},
    "late_last": {"late_last": True},
    "conflict=cheaper,release=latest": {"conflict": "cheaper", "release": "latest"},
    "all of these": {
        "conflict": "cheaper",
        "fit": True,
        "colocate": True,
        "normalise": True,
        "late_last": True,
        "release": "latest",
        "alpha1": 0.5,
    },
}


def _mode(mode: Mode) -> str:
    running, cloud = "" if mode.preempt_running else ",preempt_running=false", "" if mode.cloud else ",cloud=false"
    return f"q_mode={mode.q}{running}{cloud}"


ROWS: tuple[Row, ...] = (
    *(Row("aonline", _mode(mode), partial(_aonline, mode)) for mode in AONLINE),
    *(Row("batch", options.lstrip(":") or "default", partial(_batch, options)) for options in batch.SETTINGS),
    *(
        Row("okita", name, partial(okita.the_fast_path_decides_as_the_plain_one, chosen=chosen))
        for name, chosen in OKITA.items()
    ),
    *(Row("pdors", f"gain={gain}", partial(pdors.the_quick_path_is_the_plain_path, gain=gain))
      for gain in (0.7, 1.0, 1.3)),
    Row("pdors", "all jobs", pdors.all_jobs_are_offered_as_by_the_plain_path),
    Row("pdors", "repair=false", partial(pdors.the_quick_path_is_the_plain_path, gain=1.0, repair=False)),
    Row("pdors", "repair=false, all jobs", partial(pdors.all_jobs_are_offered_as_by_the_plain_path, repair=False)),
    Row("pdors", "theta=exact", pdors.theta_is_the_optimum_of_all_placements),
    Row("pdors", "theta=exact, payoff", pdors.the_payoff_is_the_best_of_all_completions),
    Row("oasis", "beside exact pdors", pdors.oasis_is_exact_pdors_where_nothing_can_share_a_machine),
    Row("oasis", "sites", partial(site_baselines.the_plan_is_the_cheapest_of_all, split=True)),
    Row("oasis", "sites, split_sites=false", partial(site_baselines.the_plan_is_the_cheapest_of_all, split=False)),
    Row("drf", "filling", _drf),
    Row("optimum", "chunks", _optimum_of_chunks, 100),
    Row("optimum", "gangs", _optimum_of_gangs, 25),
    Row("optimum", "utility", _optimum_of_utility, 25),
    Row("optimum", "sites", _optimum_of_sites, 50),
)  # fmt: skip
