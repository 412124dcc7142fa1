"""Verdicts: by textbook numbers, and as often wrong as they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng
from scipy.stats import false_discovery_control, norm, ttest_rel

from skedge.studies.judge import (
    Judgement,
    Part,
    Verdict,
    by_ranks,
    holm,
    judge,
    over_looks,
    overall,
    seeds_to_decide,
)

HOLDS, FAILS, OPEN = Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN


def of(*values: float, **more: Any) -> Part:
    return Part("a part", values, "", **more)


def one(*values: float, **more: Any) -> Judgement:
    (judgement,) = judge([of(*values, **more)])
    return judgement


def test_holm_by_hand() -> None:
    """4 x 0.01; 3 x 0.02 = 0.06; 2 x 0.03 = 0.06; 1 x 0.04, but not below the ones before."""
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    smaller = false_discovery_control([0.01, 0.02, 0.03, 0.04])
    assert all(ours >= theirs for ours, theirs in zip(holm([0.01, 0.02, 0.03, 0.04]), smaller, strict=True))


def test_a_part_is_a_paired_t_test_with_effect_and_interval() -> None:
    """The two-sided p-value of scipy's paired test; d by hand."""
    ours, theirs = np.array([5.1, 4.9, 6.0, 5.5, 5.2, 5.8]), np.array([4.0, 4.5, 5.0, 5.1, 4.4, 4.6])
    found = one(*(ours - theirs))
    assert found.verdict is HOLDS
    assert found.p == pytest.approx(ttest_rel(ours, theirs).pvalue)
    differences = ours - theirs
    assert found.effect == pytest.approx(differences.mean() / differences.std(ddof=1))
    assert found.difference is not None
    assert found.difference.low is not None
    assert 0 < found.difference.low < found.difference.mean == pytest.approx(differences.mean())
    assert one(*(theirs - ours)).verdict is FAILS


def test_by_ranks_one_seed_does_not_outweigh_the_others() -> None:
    """Eight signs of eight are plus: 2 / 2^8. The t-test decides nothing."""
    values = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 50.0)
    assert one(*values).verdict is OPEN
    ranked = by_ranks(of(*values))
    assert ranked.numbers.endswith("what is tested 0.45")
    (found,) = judge([ranked])
    assert (found.verdict, found.p) == (HOLDS, pytest.approx(2 / 2**8))
    (negative,) = judge([by_ranks(of(*(-value for value in values)))])
    assert (negative.verdict, negative.p) == (FAILS, pytest.approx(2 / 2**8))
    assert judge([by_ranks(of(*values, within=1.0))])[0].verdict is OPEN
    assert judge([by_ranks(of(*values, 0.15, 0.25, 0.35, 0.45, within=1.0))])[0].verdict is HOLDS
    assert judge([by_ranks(of(0.0, 0.0, 0.0, 0.0, 0.0, 0.1))])[0].verdict is OPEN


def test_what_seeds_say_little_about_is_not_decided() -> None:
    assert one(1.0, -1.2, 0.8, -0.7, 0.3, -0.1).verdict is OPEN
    assert one(1.0, 1.1, 1.2, 1.1).verdict is OPEN, "fewer than five seeds decide nothing"


def test_where_nothing_varies_the_sign_decides() -> None:
    assert one(*[0.5] * 5).verdict is HOLDS
    assert one(*[0.0] * 5).verdict is FAILS, "a tie is not above"
    assert one(*[0.1] * 5, within=0.1).verdict is HOLDS
    assert one(*[0.1] * 5, within=0.09).verdict is FAILS
    assert [judge([Part("", given, "")])[0].verdict for given in (True, False)] == [HOLDS, FAILS]


def test_a_lead_that_does_not_matter_does_not_hold() -> None:
    """The mean is 0.001, with or without noise around 0: surely less than 1."""
    values = (0.02, -0.02, 0.03, -0.025, 0.01, -0.01)
    assert one(*values).verdict is OPEN
    assert one(*values, least=1.0).verdict is FAILS
    assert one(*(0.5 + value for value in values), least=1.0).verdict is HOLDS, "small, but surely above 0"


def test_within_a_margin_on_both_sides() -> None:
    near = (0.01, -0.01, 0.02, -0.02, 0.0, 0.01)
    assert one(*near, within=0.1).verdict is HOLDS
    assert one(*(1 + value for value in near), within=0.1).verdict is FAILS
    assert one(*(-1 - value for value in near), within=0.1).verdict is FAILS
    assert one(*(10 * value for value in near), within=0.1).verdict is OPEN


def test_the_claim_is_as_its_worst_part() -> None:
    assert overall(judge([of(*[1.0] * 5), of(*[1.0] * 5)])) is HOLDS
    assert overall(judge([of(*[1.0] * 5), of(1.0, -1.0, 1.0, -1.0, 0.5)])) is OPEN
    assert overall(judge([of(*[-1.0] * 5), of(1.0, -1.0, 1.0, -1.0, 0.5)])) is FAILS


def test_more_parts_and_more_looks_ask_for_more_evidence() -> None:
    """p = 0.03 alone decides; among five parts, or at one of four looks, it does not."""
    rng = default_rng(3)
    noise = rng.standard_normal(10)
    values = 0.735 + (noise - noise.mean()) / noise.std(ddof=1)
    part = of(*values)
    (alone,) = judge([part])
    assert alone.p == pytest.approx(0.045, abs=0.01)
    assert alone.verdict is HOLDS
    assert judge([part], looks=(10, 20, 40, 80))[0].verdict is OPEN
    assert {judgement.verdict for judgement in judge([part] * 5)} == {OPEN}


def test_an_open_part_says_how_many_seeds_would_decide_it() -> None:
    """With so many seeds of the same mean and spread it is decided, and with a tenth fewer it is not."""
    noise = default_rng(3).standard_normal(16)
    unit = (noise - noise.mean()) / noise.std(ddof=1)
    open_part = one(*(0.3 + unit))
    assert open_part.nearer is HOLDS
    assert open_part.seeds is not None

    def verdict(n: int) -> Verdict:
        values = norm.ppf((np.arange(n) + 0.5) / n)
        return one(*(0.3 + values / values.std(ddof=1))).verdict

    assert (verdict(round(1.1 * open_part.seeds)), verdict(round(0.9 * open_part.seeds))) == (HOLDS, OPEN)
    assert one(*(3 + unit)).seeds is None


def test_many_open_parts_and_looks_take_more_seeds() -> None:
    """By hand: of four open parts the last needs p = 0.05 / 4, a score of 2.50 and not 1.96: 1.62 times as many."""
    noise = default_rng(3).standard_normal(16)
    part = of(*(0.05 + (noise - noise.mean()) / noise.std(ddof=1)))
    alone, among_four, at_looks = (
        judge([part] * n, looks)[0].seeds for n, looks in [(1, (1,)), (4, (1,)), (1, (8, 16))]
    )
    assert alone is not None
    assert among_four == pytest.approx(1.62 * alone, rel=0.01)
    assert at_looks is not None
    assert at_looks > alone


def test_an_open_claim_is_decided_by_its_first_failing_part_or_by_all() -> None:
    noise = default_rng(3).standard_normal(16)
    unit = (noise - noise.mean()) / noise.std(ddof=1)
    near, far, failing = of(*(0.45 + unit)), of(*(0.2 + unit)), of(*(unit - 0.3))
    (near_alone, far_alone) = judge([near, far])
    assert near_alone.seeds is not None
    assert far_alone.seeds is not None
    assert near_alone.seeds < far_alone.seeds
    assert seeds_to_decide([near_alone, far_alone]) == far_alone.seeds
    judged = judge([near, far, failing])
    assert seeds_to_decide(judged) == judged[2].seeds
    assert seeds_to_decide(judge([of(*(3 + unit))])) is None


@pytest.mark.parametrize(("looks", "level"), [(1, 0.05), (2, 0.0294), (3, 0.0221), (4, 0.0182), (5, 0.0158)])
def test_equally_spaced_looks_have_the_published_levels(looks: int, level: float) -> None:
    """S. J. Pocock, Group sequential methods, Biometrika 64 (1977), Table 1: all looks together are wrong in 5 %."""
    assert over_looks(level, tuple(10 * (k + 1) for k in range(looks))) == pytest.approx(0.05, abs=2e-4)


def test_doubling_looks_by_chance() -> None:
    """Sums at 8, 16, 32 and 64 seeds are beyond the bounds of p = 0.01 at some look, of 200,000 draws."""
    looks = (8, 16, 32, 64)
    steps = default_rng(5).standard_normal((200_000, 4)) * np.sqrt(np.diff(looks, prepend=0))
    beyond = np.abs(steps.cumsum(axis=1)) / np.sqrt(looks) > norm.isf(0.01 / 2)
    assert over_looks(0.01, looks) == pytest.approx(beyond.any(axis=1).mean(), abs=0.001)
    assert [over_looks(p, looks) for p in (0.0, 1.0)] == [0.0, 1.0]
    assert 1e-18 <= over_looks(1e-18, looks) <= 4e-18


@pytest.mark.thorough
def test_verdicts_are_wrong_at_most_as_often_as_they_say() -> None:
    """Means of 0, three parts, looks after 8, 16 and 32 seeds: a verdict on 5 % of 100 studies, and two sigma."""
    rng, wrong = default_rng(7), 0
    for _ in range(100):
        values = rng.standard_normal((3, 32))
        for look in (8, 16, 32):
            verdicts = {found.verdict for found in judge([of(*row[:look]) for row in values], looks=(8, 16, 32))}
            if verdicts != {OPEN}:
                wrong += 1
                break
    assert wrong <= 0.05 * 100 + 2 * (0.05 * 0.95 * 100) ** 0.5
    assert wrong > 0, "otherwise the test would say nothing"
