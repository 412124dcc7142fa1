"""Studies of the ratio to the optimum: which optimum, and how the claims are judged."""

from __future__ import annotations

import polars as pl
import pytest

from skedge.studies.kinds.ratio import Ratio
from skedge.studies.simulate import set_against_bounds

pytest.importorskip("ortools")

SMALL = Ratio(
    kind="ratio",
    base="s2",
    set={"cluster.draw.servers": 4},
    vary="workload.synthetic.jobs",
    values=[2, 4],
    axis="jobs",
    problem="gangs",
    policy="batch",
    epsilons=[0.0],
    solve_s=10,
    below=1.5,
    rises=True,
)


def rows(*ratios: tuple[int, int, float]) -> pl.DataFrame:
    """Of (seed, jobs, ratio); every optimum is proved."""
    return pl.DataFrame(
        [
            {"seed": seed, "at": at, "epsilon": 0.0, "value": value, "best": 1.0, "bound": 1.0}
            for seed, at, value in ratios
        ]
    )


def test_a_ratio_rises_if_its_mean_slope_over_the_seeds_is_above_0() -> None:
    """Slopes of 0.2 and -0.05 for each job: 0.075 in the mean."""
    parts = SMALL.outcome(rows((0, 2, 1.0), (0, 4, 1.4), (1, 2, 1.2), (1, 4, 1.1))).parts
    assert [part.holds for part in parts] == [True, True]
    assert parts[1].numbers.startswith("0.07500 ±")


def test_a_ratio_that_falls_or_is_too_large_is_told() -> None:
    parts = SMALL.outcome(rows((0, 2, 1.7), (0, 4, 1.6))).parts
    assert [part.holds for part in parts] == [False, False]
    assert parts[0].numbers == "at most 1.700; 2 of 2 optima proved; largest gap 0.0%"


def test_runs_are_set_against_the_problem_that_the_study_names() -> None:
    """Of gangs there is an optimum, which Batch cannot beat."""
    found = set_against_bounds(list(SMALL.instances(0)), SMALL, lambda _label, broken: _holds(broken))
    assert [row["at"] for row in found] == [2, 4]
    for row in found:
        assert row["best"] == pytest.approx(row["bound"])
        assert row["value"] == pytest.approx(row["run"] / row["best"])
        assert row["value"] >= 1
    other = SMALL.model_copy(update={"problem": "work", "values": [2]})
    bounded = set_against_bounds(list(other.instances(0)), other, lambda _label, broken: _holds(broken))
    assert [row["best"] for row in bounded] == [None], "work is only bounded"


def _holds(broken: tuple[str, ...]) -> None:
    assert not broken
