"""Studies of the ratio to the optimum: which optimum, and how the claims are judged."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest

from builders.studies import repeated, verdicts
from skedge.runs.result_cache import ResultCache
from skedge.runs.tasks import Executor
from skedge.studies.figure import svg
from skedge.studies.kinds.ratio import Ratio
from skedge.studies.simulate import compare_with_bounds, ratio_of

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
            {
                "seed": seed,
                "at": at,
                "epsilon": 0.0,
                "policy": "pdors",
                "value": value,
                "done": 1.0,
                "best": 1.0,
                "bound": 1.0,
            }
            for seed, at, value in ratios
        ]
    )


def test_a_ratio_rises_if_its_mean_slope_over_the_seeds_is_above_0() -> None:
    """Slopes of 0.2 and -0.05 for each job: 0.075 in the mean."""
    few = rows((0, 2, 1.0), (0, 4, 1.4), (1, 2, 1.2), (1, 4, 1.1))
    assert SMALL.outcome(few).parts[2].numbers == "0.07500 more for each of the jobs"
    assert verdicts(SMALL.outcome(repeated(few, 3))) == "yy?"
    assert verdicts(SMALL.outcome(repeated(few, 20))) == "yyy"


def test_a_ratio_that_falls_or_is_too_large_is_told() -> None:
    found = SMALL.outcome(rows(*((seed, jobs, ratio) for seed in range(5) for jobs, ratio in ((2, 1.7), (4, 1.6)))))
    assert verdicts(found) == "nnn"
    assert found.parts[0].numbers == "1.700 [1.700, 1.700]; 10 of 10 optima proved; largest gap 0.0%"


def found_up_to(best: float | None, *ratios: tuple[int, int, float]) -> pl.DataFrame:
    """As :func:`rows`, but of bounds 1 the best schedules found have cost `best`."""
    return rows(*ratios).with_columns(best=pl.lit(best, pl.Float64))


def test_where_no_optimum_is_proved_a_claim_fails_by_what_was_found_and_holds_by_the_bound() -> None:
    """Bounds of 1. Ratios of 1.7 and 1.8 to them are 1.36 and 1.44 to schedules of 1.25, which may be best."""
    larger = [(seed, jobs, ratio) for seed in range(5) for jobs, ratio in ((2, 1.7), (4, 1.8))]
    outcome = SMALL.outcome(found_up_to(1.25, *larger))
    assert verdicts(outcome) == "???"
    assert outcome.parts[1].numbers == "1.800 [1.800, 1.800] to the bound, 1.440 [1.440, 1.440] to the best found"
    assert verdicts(SMALL.outcome(found_up_to(1.1, *larger))) == "nn?", "1.55 and 1.64 are above 1.5"
    assert verdicts(SMALL.outcome(found_up_to(1.01, *larger))) == "nny", "1.70, then at least 1.78"
    assert verdicts(SMALL.outcome(found_up_to(None, *larger))) == "nny", "bounds alone: the claim is about them"
    smaller = [(seed, jobs, ratio) for seed in range(5) for jobs, ratio in ((2, 1.4), (4, 1.3))]
    assert verdicts(SMALL.outcome(found_up_to(1.25, *smaller))) == "yy?", "the optimum is not below the bound"
    some = pl.concat([found_up_to(1.0, *larger[:-1]), found_up_to(None, larger[-1])])
    assert verdicts(SMALL.outcome(some)) == "n??", "where nothing was found the run itself may be best"


def test_a_ratio_falls_with_eps_and_is_flat() -> None:
    """1.2 and 1.25 at 0, 1.1 and 1.1 at 0.5; they differ by 4 % of the mean at most."""
    study = SMALL.model_copy(update={"epsilons": [0.0, 0.5], "flat": 0.1, "rises": False})
    table = pl.concat(
        rows(*((seed, jobs, ratio) for seed in range(5) for jobs, ratio in zip((2, 4), of, strict=True))).with_columns(
            epsilon=pl.lit(epsilon)
        )
        for epsilon, of in ((0.0, (1.2, 1.25)), (0.5, (1.1, 1.1)))
    )
    assert verdicts(study.outcome(table)) == "yyyyyyy"
    assert verdicts(study.model_copy(update={"flat": 0.03}).outcome(table)) == "yyyyyny"
    other_way = table.with_columns(epsilon=0.5 - pl.col("epsilon"))
    assert verdicts(study.outcome(other_way)) == "yyyynyy"


def test_runs_are_set_against_the_problem_that_the_study_names() -> None:
    """Of gangs there is an optimum, which Batch cannot beat."""
    found = compare_with_bounds(list(SMALL.instances(0)), SMALL, lambda _label, broken: _holds(broken))
    assert [row["at"] for row in found] == [2, 4]
    for row in found:
        assert row["best"] == pytest.approx(row["bound"])
        assert row["value"] == pytest.approx(row["run"] / row["best"])
        assert row["value"] >= 1
    other = SMALL.model_copy(update={"problem": "work", "values": [2]})
    bounded = compare_with_bounds(list(other.instances(0)), other, lambda _label, broken: _holds(broken))
    assert [row["best"] for row in bounded] == [None], "work is only bounded"


def test_studies_of_the_same_instances_share_their_bounds(tmp_path: Path) -> None:
    """Two instances: their bounds and their runs; then other runs, and no bound."""
    kept, told = ResultCache(tmp_path), list[str]()
    first = compare_with_bounds(
        list(SMALL.instances(0)), SMALL, lambda label, _: told.append(label), Executor(1, None, kept)
    )
    assert len(list(tmp_path.iterdir())) == 4
    other = SMALL.model_copy(update={"policy": "fifo"})
    second = compare_with_bounds(list(other.instances(0)), other, lambda _label, _: None, Executor(1, None, kept))
    assert len(list(tmp_path.iterdir())) == 6
    assert [row["bound"] for row in first] == [row["bound"] for row in second]
    assert sorted(told) == ["2-seed0", "4-seed0", "the bound of 2-seed0", "the bound of 4-seed0"]


def _holds(broken: tuple[str, ...]) -> None:
    assert not broken


def test_where_a_policy_earns_nothing_its_ratio_is_infinite() -> None:
    """So is the mean over the seeds: the part does not hold, and the point is not drawn."""
    study = SMALL.model_copy(update={"rises": False})
    table = rows(*((seed, jobs, math.inf if (seed, jobs) == (3, 2) else 1.2) for seed in range(8) for jobs in (2, 4)))
    outcome = study.outcome(table)
    assert verdicts(outcome) == "ny"
    assert outcome.parts[0].numbers.startswith("infinite: batch earns nothing with 1 of 8 seeds; 16 of 16 optima")
    assert [row[2] for row in outcome.rows] == ["infinite", "1.200 [1.200, 1.200]"]
    assert outcome.figure.lines[0].x == (4.0,)
    nowhere = table.with_columns(value=pl.lit(math.inf))
    assert "<svg" in svg(study.outcome(nowhere).figure)


@pytest.mark.parametrize(
    ("value", "bound", "sense", "ratio"),
    [(6.0, 4.0, "lower", 1.5), (4.0, 6.0, "higher", 1.5), (0.0, 6.0, "higher", math.inf), (0.0, 0.0, "higher", 1.0)],
)
def test_a_ratio_is_at_least_1_in_either_direction(value: float, bound: float, sense: str, ratio: float) -> None:
    assert ratio_of(value, bound, sense) == ratio
