"""Verdicts on a study's claim: tests of paired differences over seeds, corrected for their number.

A part of a claim states that a mean over seeds is above 0, or within a margin of 0. Each is tested by Student's t; by
Wilcoxon's signed-rank test, which is about the pseudo-median, where a few seeds outweigh all others: Okita's latency
cost grows exponentially with a job's wait, so that even the mean of logarithms is that of the worst seeds.
Where seeds are added until the claim is decided, a p-value is corrected for the number of looks at them (S. J. Pocock,
1977), and where a claim has several parts, by Holm's method for their number; below 5 % a part is decided.
Three verdicts are possible: the claim *holds*, it *does not hold*, or these seeds have *not decided* it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial
from itertools import pairwise

import numpy as np

from skedge.analysis.intervals import FEWEST, Estimate, bounded
from skedge.core.model.cluster import Floats

LEVEL = 0.05
"""Probability that any verdict of a study is wrong."""

MOST_SEEDS = 100_000
"""More seeds than this are not said to decide anything: differences so small are not measured well enough to say so."""


class Verdict(StrEnum):
    """The verdict of the seeds on a claim."""

    HOLDS = "holds"
    EASIER = "holds by an easier metric"
    FAILS = "does not hold"
    OPEN = "not decided"


@dataclass(frozen=True)
class Part:
    """A part of a claim that can be checked.

    Attributes
    ----------
    text
        The part in words.
    values
        A number for each seed: the part states that their mean is above 0 or, with `within`, that it is not further
        from 0 than that. Instead, True or False where nothing is random.
    numbers
        What was measured, for readers.
    within
        The margin, in the unit of the values.
    least
        The smallest mean above 0 that matters: the part does not hold if the mean is surely smaller.
    ranked
        True: the pseudo-median takes the place of the mean.
    highest
        What each value is at most, where `values` are what it is at least: the part holds by the one, and does not hold
        by the other. None: the values are known, as they are in a part with `within`.
    """

    text: str
    values: tuple[float, ...] | bool
    numbers: str
    within: float | None = None
    least: float = 0.0
    ranked: bool = False
    highest: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Judgement:
    """The verdict on a part.

    Attributes
    ----------
    p
        The p-value, corrected for the number of looks and parts; None where nothing was tested.
    effect
        Cohen's d of the paired differences: their mean divided by their standard deviation; None if they are equal.
    difference
        The mean of the values with its 95 % BCa bootstrap interval; None where nothing is random.
    nearer
        The verdict that the values of an open part are nearer to; None if it is decided, or has too few seeds.
    seeds
        About how many seeds would decide an open part, if its values stay as they are; None if no number up to
        `MOST_SEEDS` would.
    """

    part: Part
    verdict: Verdict
    p: float | None = None
    effect: float | None = None
    difference: Estimate | None = None
    nearer: Verdict | None = None
    seeds: int | None = None


def judge(parts: Sequence[Part], looks: Sequence[int] = (1,)) -> list[Judgement]:
    """The verdict on each part at one of the looks at the seeds; `looks`: the number of seeds at each."""
    tests = [_test_part(part) for part in parts]
    # looks first, then parts: Holm's method needs p-values that hold for each part by itself
    corrected = holm([over_looks(p, tuple(looks)) for _, p in tests if p is not None])
    needed_p = _needed_p(sum(p >= LEVEL for p in corrected), tuple(looks))
    corrected_p = iter(corrected)
    return [
        Judgement(part, verdict, None, *_effect_size(part))
        if p is None
        else _judgement(part, verdict, p, next(corrected_p), needed_p)
        for part, (verdict, p) in zip(parts, tests, strict=True)
    ]


def by_ranks(part: Part) -> Part:
    """The part about the pseudo-median of its values instead of their mean; its numbers state it."""
    if isinstance(part.values, bool):
        return part
    numbers = f"{part.numbers}; pseudo-median of what is tested {pseudo_median(part.values):.3g}"
    return replace(part, ranked=True, numbers=numbers)


def pseudo_median(values: Iterable[float]) -> float:
    """The median of the means of all pairs, those of a value with itself included (Hodges and Lehmann, 1963)."""
    array = np.array(list(values), float)
    row, column = np.triu_indices(len(array))
    # i <= j: each pair once, and each value with itself
    return float(np.median((array[row] + array[column]) / 2))


def overall(judgements: Sequence[Judgement]) -> Verdict:
    """The verdict on the claim: it holds if all its parts do, and does not if one of them does not."""
    verdicts = {judgement.verdict for judgement in judgements}
    return next((verdict for verdict in (Verdict.FAILS, Verdict.OPEN) if verdict in verdicts), Verdict.HOLDS)


def seeds_to_decide(judgements: Sequence[Judgement]) -> int | None:
    """About how many seeds would decide an open claim; None if it is decided, or no number up to `MOST_SEEDS` would.

    One part that does not hold decides it, so that of those that are nearer to that the first one counts; without
    one, all parts are needed.
    """
    if overall(judgements) is not Verdict.OPEN:
        return None
    open_parts = [judgement for judgement in judgements if judgement.verdict is Verdict.OPEN]
    failing = [part.seeds for part in open_parts if part.nearer is Verdict.FAILS and part.seeds is not None]
    if failing:
        return min(failing)
    seeds = [part.seeds for part in open_parts if part.seeds is not None]
    return max(seeds) if len(seeds) == len(open_parts) else None


def holm(p: Sequence[float]) -> list[float]:
    """P-values corrected for their number (S. Holm, 1979): the chance of any false rejection stays at the level."""
    corrected, largest = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        # a larger p-value must not end up below a smaller one, so the running maximum counts
        largest = corrected[i] = max(largest, min((len(p) - rank) * p[i], 1.0))
    return corrected


@cache
def over_looks(p: float, looks: tuple[int, ...]) -> float:
    """The probability of a two-sided p-value of at most `p` at any of several looks, with no effect.

    After n seeds the sum of n independent values is looked at. Sums with no drift stay within the bounds of `p` at all
    looks with a probability that is integrated from look to look (P. Armitage, C. K. McPherson, B. C. Rowe, 1969).
    Less than `p` times the looks, as a sum that is large at one look is likely to be so at the next.

    Parameters
    ----------
    p
        In [0, 1].
    looks
        Numbers of seeds, increasing.
    """
    from scipy.stats import norm  # noqa: PLC0415 - takes a second to import

    # Gauss-Legendre on [-1, 1], scaled to the bounds of each look
    nodes, weights = np.polynomial.legendre.leggauss(100)
    # the sum has n times the variance of a value; only ratios matter
    variances = np.array(looks, float) / looks[-1]
    thresholds = norm.isf(p / 2) * variances**0.5
    # p = 0: no sum is beyond the bounds
    if not np.isfinite(thresholds[0]):
        return p
    # mass at each node of the sums that have stayed within all bounds so far
    density = thresholds[0] * weights * norm.pdf(thresholds[0] * nodes, scale=variances[0] ** 0.5)
    for (variance, next_variance), (threshold, next_threshold) in zip(
        pairwise(variances), pairwise(thresholds), strict=True
    ):
        # from each old node to each new one: independent increments, normal
        steps = next_threshold * nodes[:, None] - threshold * nodes
        density = next_threshold * weights * (norm.pdf(steps, scale=(next_variance - variance) ** 0.5) @ density)
    return float(np.clip(1.0 - density.sum(), p, min(len(looks) * p, 1.0)))  # rounding matters below 1e-14


def _judgement(part: Part, verdict: Verdict, p: float, corrected_p: float, needed_p: float) -> Judgement:
    judgement = Judgement(part, verdict, corrected_p, *_effect_size(part))
    if corrected_p < LEVEL or isinstance(part.values, bool):
        return judgement
    seeds = _seeds_to_decide(len(part.values), p, needed_p)
    return replace(judgement, verdict=Verdict.OPEN, nearer=verdict, seeds=seeds)


def _needed_p(n_open: int, looks: tuple[int, ...]) -> float:
    """The p-value at one look that decides the last of the open parts, about: corrected for looks and for parts."""
    p = LEVEL / max(n_open, 1)
    return p * p / over_looks(p, looks)


def _seeds_to_decide(n_seeds: int, p: float, needed_p: float) -> int | None:
    """The number of seeds at which a mean that stays as it is in units of its standard deviation is decided.

    The standard score of the mean grows as the square root of their number.

    Parameters
    ----------
    n_seeds
        Number of seeds so far.
    p, needed_p
        Two-sided, uncorrected: now, and what is needed.
    """
    from scipy.stats import norm  # noqa: PLC0415 - takes a second to import

    score, needed_score = norm.isf(p / 2), norm.isf(needed_p / 2)
    # a score of 0 has no direction
    seeds = n_seeds * (needed_score / score) ** 2 if score > 0 else MOST_SEEDS + 1.0
    return math.ceil(seeds) if seeds <= MOST_SEEDS else None


def _test_part(part: Part) -> tuple[Verdict, float | None]:
    """The verdict that the values are nearer to, and its p-value; None where there is nothing to test."""
    if isinstance(part.values, bool):
        return (Verdict.HOLDS if part.values else Verdict.FAILS), None
    # too few seeds for any test
    values = np.array(part.values, float)
    if len(values) < FEWEST:
        return Verdict.OPEN, None
    highest = values if part.highest is None else np.array(part.highest, float)
    # equal differences have no spread to test against: the values decide
    if part.highest is None and (values == values[0]).all():
        holds = values[0] > 0 if part.within is None else abs(values[0]) <= part.within
        return (Verdict.HOLDS if holds else Verdict.FAILS), 0.0
    # two one-sided tests; the smaller p-value, doubled, is two-sided, so that neither verdict is favoured
    p_value = partial(_p_value, ranked=part.ranked)
    if part.within is None:
        holds, fails = p_value(values, 0.0), p_value(-highest, -part.least)
    else:
        # equivalence by two one-sided tests: above -margin and below it; the part fails if surely beyond one of them
        holds = max(p_value(values, -part.within), p_value(-values, -part.within))
        fails = min(p_value(values, part.within), p_value(-values, part.within))
    return (Verdict.HOLDS, min(2 * holds, 1.0)) if holds <= fails else (Verdict.FAILS, min(2 * fails, 1.0))


def _p_value(values: Floats, threshold: float, *, ranked: bool) -> float:
    """The one-sided p-value of the hypothesis that the mean is at most `threshold`; the pseudo-median, by ranks."""
    # no spread to test against
    if (values == values[0]).all():
        return 0.0 if values[0] > threshold else 1.0
    return _p_value_by_ranks(values, threshold) if ranked else _p_value_by_t(values, threshold)


def _p_value_by_t(values: Floats, threshold: float) -> float:
    """The one-sided p-value of the hypothesis that the mean is at most `threshold`."""
    from scipy.stats import ttest_1samp  # noqa: PLC0415 - takes a second to import

    return float(ttest_1samp(values, threshold, alternative="greater").pvalue)


def _p_value_by_ranks(values: Floats, threshold: float) -> float:
    """The one-sided p-value of the hypothesis that the pseudo-median is at most `threshold`; a zero's rank is split."""
    from scipy.stats import wilcoxon  # noqa: PLC0415 - takes a second to import

    # rounded, as ranks of differences that are equal but for rounding would be arbitrary
    differences = np.round(values - threshold, 12)
    return (
        float(wilcoxon(differences, zero_method="zsplit", alternative="greater").pvalue) if differences.any() else 1.0
    )


def _effect_size(part: Part) -> tuple[float | None, Estimate | None]:
    if isinstance(part.values, bool):
        return None, None
    values = np.array(part.values, float)
    # the standard deviation of the sample; one value has none
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return (float(values.mean()) / spread if spread > 0 else None), bounded(values)
