"""What run.json claims: a record is held to it, and it cannot switch rules off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

from conftest import Said
from skedge.core.errors import OrderError, ScenarioError
from skedge.core.events import Event, Order, WakeAt
from skedge.core.kernel import kernel
from skedge.core.model import cluster as model
from skedge.core.model.cluster import Physics
from skedge.core.policy import BasePolicy, View
from skedge.recorded_run import Run
from skedge.simulate import run
from skedge.testing import resource_scenarios, site_scenario, small_scenario


def broken(of: Run, **said: Any) -> list[str]:
    """Rules that the record breaks when its run.json says this too."""
    return list(dict.fromkeys(v.rule for v in replace(of, meta={**of.meta, **said}).verify(limit=3)))


def later(of: Run, by: int) -> Run:
    """Every job completes `by` later."""
    jobs = of.schedule.jobs.with_columns(pl.col("completion") + by, pl.col("jct") + by)
    return replace(of, schedule=replace(of.schedule, jobs=jobs))


def live(of: Run, **said: Any) -> dict[str, Any]:
    """What a live run of the same jobs would say."""
    jobs = of.scenario.jobs
    trained = {name: [int(jobs.minibatches[j])] * int(jobs.chunks[j]) for j, name in enumerate(jobs.ids)}
    return {"world": "ray", "trained": trained, **said}


def test_a_world_that_there_is_not_gives_no_tolerance() -> None:
    """Completions 500 s late within a tolerance of 30 years: the mean JCT would be any number."""
    forged = later(run(small_scenario(0), "srtf"), 500_000_000)
    assert "M37" in broken(forged, world="x", tolerance=10**15)


@pytest.mark.parametrize(
    ("said", "rules"),
    [
        ({"tolerance": 1_500_000}, []),
        ({"tolerance": 4_500_000, "resumed": 1}, []),
        ({"tolerance": 3_500_000, "recovery_s": 2.0}, []),
        ({"tolerance": 1_500_001}, ["M37"]),
        ({"tolerance": 10**15}, ["M37"]),
        ({"tolerance": 1_000_001_500_000, "recovery_s": 1e6}, ["M37"]),
        ({"tolerance": 1_000_001_500_000, "recovery_s": 1e6, "slot_overrun_s": 1e6}, ["M37"]),
    ],
)
def test_the_tolerance_of_a_live_run_follows_from_what_it_lost(said: dict[str, Any], rules: list[str]) -> None:
    """1.5 s, 3 s for each lost controller, and the lost rounds, which are shorter than the run."""
    record = run(small_scenario(0), "srtf")
    assert broken(record, **live(record), **said) == rules


def test_time_that_slots_overran_counts_at_sites() -> None:
    record = run(site_scenario(0), "okita")
    end_s = record.schedule.runs["end"].max() / 1e6  # type: ignore[operator]
    lost = end_s + 5.0
    said = {**live(record), "tolerance": int((1.5 + lost) * 1e6), "recovery_s": lost}
    assert broken(record, **said, slot_overrun_s=6.0) == []
    assert broken(record, **said, slot_overrun_s=4.0) == ["M37"]


def test_at_sites_time_in_which_no_controller_was_there_counts_as_well() -> None:
    """It has the overrun before a controller that took over; on slots no time stands still while rounds are lost."""
    for scenario, policy, rules in ((site_scenario(0), "okita", []), (small_scenario(0), "srtf", ["M37"])):
        record = run(scenario, policy)
        lost = record.schedule.runs["end"].max() / 1e6 + 5.0  # type: ignore[operator]
        said = {**live(record), "tolerance": int((1.5 + lost) * 1e6), "recovery_s": lost}
        assert broken(record, **said, away_s=6.0) == rules


def test_a_limit_of_time_may_be_dealt_with_late_while_no_controller_decides() -> None:
    """By as much as the run says, and not by more than it lasted."""
    scenario = small_scenario(0)
    table = scenario.jobs.frame.with_columns(max_run_time_s=pl.lit(1e-3))
    record = run(scenario, "srtf")
    limited = replace(record, scenario=scenario.of_rows(table, scenario.jobs.fixed_delays))
    end_s = record.schedule.runs["end"].max() / 1e6  # type: ignore[operator]
    said = {**live(record), "tolerance": 1_500_000}
    assert broken(limited, **said) == ["M43"]
    assert broken(limited, **said, decided_late_s=end_s) == []
    assert broken(limited, **said, decided_late_s=2 * end_s) == ["M37"]


def test_promises_that_are_left_out_are_missed() -> None:
    record = run(small_scenario(0), "aonline")
    meta = {key: value for key, value in record.meta.items() if key != "promises"}
    assert [v.rule for v in replace(record, meta=meta).verify()] == ["M37"]


def test_verify_says_that_a_policy_is_not_installed(skedge: Callable[..., Said], tmp_path: Path) -> None:
    """Its record is held to the rules for all, and to what it says itself."""
    record = run(small_scenario(0), "srtf")
    replace(record, meta={**record.meta, "policy": "sfrt"}).save(tmp_path / "r")
    printed = skedge("verify", tmp_path / "r")
    assert (printed.code, "policy 'sfrt' is not installed" in printed.out) == (0, True)


@pytest.mark.parametrize("policy", ["pdors", "oasis"])
def test_prices_without_their_constants_are_refused(policy: str) -> None:
    """Rules M29 and M30 start from them: a record that leaves them out would be held to neither."""
    record = run(resource_scenarios()[0], policy)
    assert record.verify() == []
    free = replace(record, schedule=replace(record.schedule, prices=record.schedule.prices.clear()))
    params = {**record.meta["params"], "low": None, "high": None, "mu": None}
    assert "M37" in broken(free, policy=policy, params=params)


def test_what_a_stranger_calls_completion_changes_no_utility() -> None:
    record = run(resource_scenarios()[0], "drf")
    forged = replace(record, meta={**record.meta, "policy": "mine", "params": {"completion": "index"}})
    assert forged.metrics["utility_total"] == record.metrics["utility_total"]


def test_a_record_without_plans_is_not_one_of_pdors() -> None:
    """It would be worth more: PD-ORS may take the utility at the index of the last slot."""
    scenario = resource_scenarios()[0]
    drf, pdors = run(scenario, "drf"), run(scenario, "pdors:completion=index")
    said = {key: pdors.meta[key] for key in ("policy", "params", "lanes", "promises")}
    assert "M19" in broken(drf, **said)


def test_the_work_of_a_rejected_job_is_its_own() -> None:
    """It was never done, so no run tells of it."""
    record = run(resource_scenarios()[0], "oasis")
    jobs = record.schedule.jobs
    turned_away = pl.col("state").cast(pl.String) == "rejected"
    other = jobs.with_columns(pl.when(turned_away).then(pl.col("work") + 1).otherwise("work").alias("work"))
    assert "M8" in {v.rule for v in replace(record, schedule=replace(record.schedule, jobs=other)).verify()}


@pytest.mark.parametrize("data", ["nonsense", 3, None])
def test_where_data_are_kept_is_one_of_two_words(data: Any) -> None:
    with pytest.raises(ScenarioError, match=r"physics\.data = .*; it must be 'kept' or 'last_place'"):
        Physics(data=data)


def test_every_field_of_the_physics_is_checked() -> None:
    assert {one.name for one in fields(Physics)} == set(model._PHYSICS)


class Wakeful(BasePolicy):
    """Asks for one wake-up after the other and does nothing."""

    name: ClassVar[str] = "wakeful"
    needs: ClassVar[frozenset[str]] = frozenset()

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        yield WakeAt(view.now + 1)


def test_a_policy_that_only_wakes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hang the run; the bound is a million wake-ups with nothing between."""
    monkeypatch.setattr(kernel, "LONGEST_IDLE", 500)
    with pytest.raises(OrderError, match="'wakeful' was woken 501 times in a row, and ordered nothing"):
        run(small_scenario(0), Wakeful())
