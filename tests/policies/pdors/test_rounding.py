"""The randomized rounding of PD-ORS: (27), (28), the gains (29), (30), and Lemmas 1 and 2 by seeded Monte Carlo."""

from __future__ import annotations

import math

import numpy as np
import pytest

from builders.thorough import thorough_after
from skedge.core.errors import PolicyError
from skedge.core.model.cluster import Floats, Ints
from skedge.policies.pdors.alg4 import cover_bound, cover_gain, packing_bound, packing_gain
from skedge.policies.pdors.rounding import round_each, split_parts

DRAWS = 20_000
DELTA = 0.3
"""A third of it is the probability that the Lemmas bound: wide enough to be seen in so many draws."""


def roundings(x: Floats, seed: int) -> Ints:
    """DRAWS roundings of x, one a row."""
    rng, of = np.random.default_rng(seed), split_parts(x)
    out = np.tile(of[0], (DRAWS, 1))
    for row in out:
        round_each(*of, rng, row)
    return out


def program(least: int, rows: int) -> tuple[Floats, Floats]:
    """A of `rows` rows and an x with A x = a, W = min a_i / A_ij = `least`, x in halves: the most that rounding varies.

    Row i has entries 1 on its own 2 * least of the variables, so that a = 1/2 * 2 * least.
    """
    a: Floats = np.kron(np.eye(rows), np.ones(2 * least))  # type: ignore[assignment]
    return a, np.full(a.shape[1], 0.5)


@pytest.mark.parametrize("x", [0.0, 3.0, 0.25, 2.5, 7.9])
def test_a_rounding_is_a_neighbour_and_right_on_average(x: float) -> None:
    """(27), (28): floor or ceil, with mean x; six standard errors."""
    got = roundings(np.array([x]), 1)[:, 0]
    assert set(got.tolist()) <= {math.floor(x), math.ceil(x)}
    assert abs(got.mean() - x) <= 6 * 0.5 / math.sqrt(DRAWS)


def test_whole_numbers_draw_nothing() -> None:
    """Also those that an LP solver leaves 1e-8 away."""
    rng = np.random.default_rng(1)
    low, part, fractional = split_parts(np.array([2.0, 3 - 1e-8, 4 + 1e-8]))
    round_each(low, part, fractional, rng, out := low.copy())
    assert out.tolist() == [2, 3, 4]
    assert rng.random() == np.random.default_rng(1).random()


@pytest.mark.parametrize("least", thorough_after(2, [50, 150, 500]))
@pytest.mark.parametrize("rows", [1, 4])
def test_lemma_1_on_instances_where_it_says_something(least: int, rows: int) -> None:
    """With G of (29): packing rows break, cover rows fall to the bound, each in at most delta/3 of the draws (P18).

    Packing and cover have the same rows here. Without the gain half of the draws break a row.
    """
    a, x = program(least, rows)
    gain = packing_gain(DELTA, rows, least)
    bound = cover_bound(gain, DELTA, rows, least)
    assert 0 < bound < gain < 1
    load = roundings(gain * x, least) @ a.T
    assert (load > least).any(axis=1).mean() <= DELTA / 3
    assert (load <= bound * least).any(axis=1).mean() <= DELTA / 3
    assert (load.sum(axis=1) <= 3 * gain / DELTA * x.sum()).mean() > 1 - DELTA
    plain = roundings(x, least) @ a.T
    assert (plain > least).any(axis=1).mean() > DELTA / 3


@pytest.mark.parametrize("least", thorough_after(2, [50, 150, 500]))
@pytest.mark.parametrize("rows", [1, 4])
def test_lemma_2_on_instances_where_it_says_something(least: int, rows: int) -> None:
    """With G of (30): cover rows break, packing rows exceed the bound, each in at most delta/3 of the draws (P18)."""
    a, x = program(least, rows)
    gain = cover_gain(DELTA, rows, least)
    bound = packing_bound(gain, DELTA, rows, least)
    assert 1 < gain < bound
    load = roundings(gain * x, least) @ a.T
    assert (load < least).any(axis=1).mean() <= DELTA / 3
    assert (load > bound * least).any(axis=1).mean() <= DELTA / 3
    assert (load.sum(axis=1) <= 3 * gain / DELTA * x.sum()).mean() > 1 - DELTA
    plain = roundings(x, least) @ a.T
    assert (plain < least).any(axis=1).mean() > DELTA / 3


@pytest.mark.parametrize(("delta", "rows", "least"), [(0.02, 401, 15), (0.1, 401, 15), (1.0, 2, 80), (0.5, 5, 300)])
def test_gains_solve_the_equations_that_they_come_from(delta: float, rows: int, least: float) -> None:
    """Chernoff with a load of exactly b: (1/G - 1)^2 G W / 3 = ln(3r/delta); with a cover of a: (1 - 1/G)^2 G W / 2.

    (29) and (30) are the roots on their side of 1.
    """
    packing, cover = packing_gain(delta, rows, least), cover_gain(delta, rows, least)
    assert packing < 1 < cover
    assert (1 / packing - 1) ** 2 * packing * least / 3 == pytest.approx(math.log(3 * rows / delta), rel=1e-9)
    assert (1 - 1 / cover) ** 2 * cover * least / 2 == pytest.approx(math.log(3 * rows / delta), rel=1e-9)


def test_the_gain_of_the_papers_own_example_is_tiny_and_its_bound_empty() -> None:
    """P16: W_2 = 15, RH + 1 = 401, delta = 0.02: G = 0.25, and with W_1 = 15 the cover bound is below 0."""
    gain = packing_gain(0.02, 401, 15)
    assert gain == pytest.approx(0.25, abs=0.005)
    assert cover_bound(gain, 0.02, 1, 15) < 0


@pytest.mark.parametrize(("delta", "least"), [(0, 10), (1.5, 10), (0.1, 0)])
def test_gains_refuse_what_has_no_meaning(delta: float, least: float) -> None:
    """Delta outside (0, 1], a row that holds nothing."""
    with pytest.raises(PolicyError):
        packing_gain(delta, 1, least)
    with pytest.raises(PolicyError):
        cover_gain(delta, 1, least)
