"""Runs and their folders: the same bytes for the same seed, everything kept, nothing drawn for two."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest
import yaml

import skedge
from skedge.core.errors import OrderError, PolicyError, RunFolderError, SkedgeError
from skedge.core.events import Event, ps_in
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.job_fields import JOB_SCHEMA
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.record.schedule import Schedule, schema
from skedge.platform import jit
from skedge.platform.jit import compiled
from skedge.prepare import prepare_policy
from skedge.recorded_run import Run
from skedge.runs.stopwatch import Stopwatch, compiled_s
from skedge.scenario.file import load_scenario, scenario_of
from skedge.simulate import run
from skedge.testing import resource_scenarios, site_scenario, small_scenario

POLICIES = ["aonline", "aonline:ps_choice=random", "srtf", "tiresias", "tiresias:knob=2", "fifo:rule=earliest_server"]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def equal(one: Schedule, other: Schedule) -> bool:
    return all(table.equals(other.tables()[name]) for name, table in one.tables().items())


# --- folders


@pytest.mark.parametrize("policy", POLICIES)
def test_two_runs_with_one_seed_give_byte_identical_folders(policy: str, tmp_path: Path) -> None:
    """Every file of them, and another seed gives other tables."""
    for name in "ab":
        run(small_scenario(0), policy).save(tmp_path / name)
    run(small_scenario(1), policy).save(tmp_path / "c")
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert a == b
    assert set(a) == {
        "jobs.parquet", "scenario.yaml", "run.json", *(f"tables/{name}.parquet" for name in Schedule.names())
    }  # fmt: skip
    assert a["tables/runs.parquet"] != c["tables/runs.parquet"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_loaded_run_is_the_run_that_was_saved_and_can_be_repeated_byte_for_byte(policy: str, tmp_path: Path) -> None:
    """Scenario, meta, tables, metrics and violations; saving it, and running its scenario, gives the same files."""
    physics = Physics(estimate_error=1.0, checkpoint_overhead=SECOND // 2)
    first = run(small_scenario(3, physics=physics), policy)
    loaded = Run.load(first.save(tmp_path / "first"))
    assert loaded.meta == first.meta
    assert equal(loaded.schedule, first.schedule)
    assert {n: t.schema for n, t in loaded.schedule.tables().items()} == {
        n: t.schema for n, t in first.schedule.tables().items()
    }
    assert loaded.metrics == first.metrics
    assert loaded.verify() == []
    loaded.save(tmp_path / "saved")
    run(loaded.scenario, loaded.policy).save(tmp_path / "again")
    assert contents(tmp_path / "first") == contents(tmp_path / "saved") == contents(tmp_path / "again")


def test_run_json_says_what_a_run_was_made_of_in_json_that_everything_reads(tmp_path: Path) -> None:
    """Policy, parameters, lanes, seed, versions; Tiresias' infinite knob is text, for JSON has no infinity."""

    def no_constant(name: str) -> None:
        raise AssertionError(name)

    run(small_scenario(4), "tiresias:sticky=true").save(tmp_path / "r")
    meta = json.loads((tmp_path / "r" / "run.json").read_text(), parse_constant=no_constant)
    assert meta["policy"] == "tiresias:sticky=true"
    assert {key: meta["params"][key] for key in ("allow_cloud", "sticky", "limit_s", "knob")} == {
        "allow_cloud": False, "sticky": True, "limit_s": None, "knob": "inf"
    }  # fmt: skip
    assert (meta["format"], meta["seed"], meta["scenario"]) == (2, 4, "small-4")
    assert meta["lanes"] == {"preemptive": True, "rank": "haprf"}
    assert set(meta["versions"]) == {"skedge", "numpy", "numba", "polars"}


def test_the_policy_on_record_is_what_makes_the_run_again() -> None:
    """Defaults are left out, whatever way they were given; the rest is written as it is read."""
    scenario = small_scenario(0, jobs=3)
    for given, kept in (
        ("aonline", "aonline"),
        ("aonline:cloud=true", "aonline"),
        ("aonline:cloud=off,q_mode=eq5", "aonline:q_mode=eq5,cloud=false"),
        ("tiresias:limit_s=1e2", "tiresias:limit_s=100.0"),
        ("tiresias:limit_s=5,knob=inf", "tiresias:limit_s=5.0"),
    ):
        assert run(scenario, given).policy == kept
        assert run(scenario, kept).policy == kept


def test_a_folder_is_found_again_whatever_its_name_is(tmp_path: Path) -> None:
    """Brackets and stars are no patterns, spaces no ends."""
    result = run(small_scenario(0, jobs=3), "srtf")
    for name in ("[a]", "a b", "*", "a,b=c", "ä"):
        assert equal(Run.load(result.save(tmp_path / name)).schedule, result.schedule)


def test_saving_over_a_folder_is_refused_and_leaves_it(tmp_path: Path) -> None:
    """Whatever it holds."""
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "mine").write_text("x")
    with pytest.raises(RunFolderError, match="exists already"):
        run(small_scenario(0, jobs=2), "srtf").save(tmp_path / "r")
    assert contents(tmp_path) == {"r/mine": b"x"}


def test_a_run_folder_has_the_tables_of_the_model_page(folder: Path) -> None:
    """Columns and types are those of skedge.core.record.schedule."""
    loaded = Run.load(folder)
    expected = schema(loaded.scenario.cluster.server_ids)
    assert {n: dict(t.schema) for n, t in loaded.schedule.tables().items()} == expected


def test_a_record_with_other_integer_types_is_read_and_judged(folder: Path, tmp_path: Path) -> None:
    """A stranger's record may have 64 bits where ours has 32, and text where ours has an enumeration."""
    import shutil

    other = Path(shutil.copytree(folder, tmp_path / "other"))
    for file in (other / "tables").glob("*.parquet"):
        table = pl.read_parquet(file)
        table.with_columns(
            pl.col(pl.Int32).cast(pl.Int64), pl.col(pl.Enum, pl.Categorical).cast(pl.String)
        ).write_parquet(file)
    loaded = Run.load(other)
    assert loaded.verify() == []
    assert loaded.metrics == Run.load(folder).metrics


def test_the_scenario_of_a_folder_is_a_scenario_file_with_nothing_left_to_draw(tmp_path: Path) -> None:
    """What was drawn for a demo is written out: servers one by one, jobs in a table."""
    result = run(skedge.default_scenario("demo", seed=5), "fifo")
    folder = result.save(tmp_path / "r")
    data = yaml.safe_load((folder / "scenario.yaml").read_text())
    assert set(data["cluster"]) == {"servers"}
    assert data["workload"] == {"table": "jobs.parquet"}
    assert pl.read_parquet(folder / "jobs.parquet").columns == list(JOB_SCHEMA)
    assert equal(run(load_scenario(folder / "scenario.yaml"), "fifo").schedule, result.schedule)


# --- runs


def test_the_package_offers_what_the_readme_uses() -> None:
    """import skedge is enough for a run, its numbers, its check, and its explanation."""
    result = skedge.run(small_scenario(0), "aonline")
    assert result.jobs.height == 25
    assert result.verify() == []
    assert result.metrics["finished"] == 25
    assert skedge.explain(result, "3").verb == "dispatch"
    assert set(skedge.__all__) <= set(dir(skedge))


def test_progress_is_told_every_event_with_every_completion_once() -> None:
    """In order of time, each job finishes once."""
    events: list[Event] = []
    run(small_scenario(0), "srtf", progress=events.append)
    assert [e.time for e in events] == sorted(e.time for e in events)
    assert sorted(job for e in events for job in e.finished) == list(range(25))


def test_a_policy_instance_can_be_run_twice() -> None:
    """All its state is made in start."""
    policy = skedge.make_policy("aonline")
    assert equal(run(small_scenario(0), policy).schedule, run(small_scenario(0), policy).schedule)


def test_calibration_does_not_touch_the_policy_given() -> None:
    """prepared returns another one with the constants; constants that were given stay."""
    policy, scenario = skedge.make_policy("pdors"), resource_scenarios()[0]
    made: Any = prepare_policy(policy, scenario)
    assert policy.params.mu is None  # type: ignore[attr-defined]
    assert made.params.mu is not None
    assert prepare_policy(made, scenario).params == made.params


def test_a_policy_that_breaks_a_rule_ends_the_run_with_the_rule() -> None:
    """Running jobs with one worker more than they have chunks is M5."""
    from skedge.core.events import CLOUD, Allocate
    from skedge.policies.gangs.srtf import Srtf

    class TooMany(Srtf):
        def decide(self, event: Event, view: Any) -> Any:
            for job in event.arrived:
                yield Allocate(job, ((view.cluster.cloud, int(view.jobs.chunks[job]) + 1),), ps_in(CLOUD))

    with pytest.raises(OrderError, match=r"job '\d+' has (\d+) chunks") as caught:
        run(small_scenario(0), TooMany())
    assert caught.value.rule == "M5"


def test_a_policy_that_never_answers_a_job_ends_the_run_with_its_name() -> None:
    """The first job that was left, and how many."""
    from skedge.policies.gangs.srtf import Srtf

    class Silent(Srtf):
        def decide(self, event: Event, view: Any) -> Any:
            return ()

    with pytest.raises(SkedgeError, match="left 25 jobs unanswered, the first is"):
        run(small_scenario(0), Silent())


def test_a_policy_is_told_what_a_scenario_lacks() -> None:
    """There is not one slot and no cloud."""
    cluster = Cluster([Server("e", capacity={"worker:gpu": 0, "ps:cpu": 0})])
    table, given = job_table([Job("x", 0.0, 1, 1, 1, 1.0)])
    with pytest.raises(PolicyError, match="needs typed slots, which the scenario does not have"):
        run(Scenario(cluster, Jobs(table, cluster, given)), "srtf")


# --- random numbers


def delays(scenario: Scenario) -> dict[str, list[int]]:
    """Upload delay of every job to every server, by job."""
    from skedge.core.model.network import upload_delay

    servers = range(len(scenario.cluster.servers))
    return {
        name: [int(upload_delay(scenario.delays, job, server)) for server in servers]
        for job, name in enumerate(scenario.jobs.ids)
    }


def with_jobs(scenario: Scenario, change: Callable[[pl.DataFrame], pl.DataFrame]) -> Scenario:
    jobs = Jobs(change(scenario.jobs.frame), scenario.cluster)
    return Scenario(scenario.cluster, jobs, scenario.physics, scenario.seed, scenario.name)


def test_one_more_job_changes_no_other_jobs_delays_or_true_duration() -> None:
    """Wherever in time it comes: they are drawn by seed and name, not in turn."""
    scenario = small_scenario(0, physics=Physics(estimate_error=1.0))
    new = scenario.jobs.frame[:1].with_columns(id=pl.lit("new"), arrival_s=pl.lit(30.0))
    more = with_jobs(scenario, lambda frame: pl.concat([new, frame]))
    before, after = delays(scenario), delays(more)
    assert {name: after[name] for name in before} == before
    factor = dict(zip(more.jobs.ids, more.true_factor, strict=True))
    assert [factor[name] for name in scenario.jobs.ids] == scenario.true_factor.tolist()
    assert len(set(scenario.true_factor)) == 25  # they are drawn, job by job


def test_one_more_server_changes_no_delay_to_the_others() -> None:
    """They are drawn by the server's name."""
    scenario = small_scenario(0)
    cluster = Cluster([Server("first", capacity={"worker:a": 1, "ps:p": 1}), *scenario.cluster.servers])
    more = Scenario(cluster, Jobs(scenario.jobs.frame, cluster), scenario.physics, 0)
    assert {name: row[1:] for name, row in delays(more).items()} == delays(scenario)


def test_delays_lie_in_the_jobs_range_and_depend_on_the_seed() -> None:
    """To the edge from 0 to 20 s, to the cloud from 30 to 60 s; two seeds share none."""
    scenario = small_scenario(0)
    other = Scenario(scenario.cluster, scenario.jobs, scenario.physics, 1)
    edge = [d for row in delays(scenario).values() for d in row[:-1]]
    cloud = [row[-1] for row in delays(scenario).values()]
    assert 0 <= min(edge) < max(edge) <= 20 * SECOND
    assert 30 * SECOND <= min(cloud) < max(cloud) <= 60 * SECOND
    assert not set(edge) & {d for row in delays(other).values() for d in row[:-1]}
    assert np.mean(edge) / SECOND == pytest.approx(10, abs=4 * 20 / 12**0.5 / len(edge) ** 0.5)


def test_a_job_that_comes_after_all_is_done_changes_nothing_that_was() -> None:
    """The same runs, uploads and PSs of all others, under every policy, also one that draws."""
    scenario = small_scenario(0)
    late = scenario.jobs.frame[:1].with_columns(id=pl.lit("9999"), arrival_s=pl.lit(1e6))
    more = with_jobs(scenario, lambda frame: pl.concat([frame, late]))
    for policy in ("aonline:ps_choice=random", "srtf", "tiresias:limit_s=100", "fifo"):
        before, after = run(scenario, policy).schedule, run(more, policy).schedule
        for name in ("runs", "ps", "uploads"):
            assert after.tables()[name].filter(pl.col("job") < 25).equals(before.tables()[name]), (policy, name)


def test_what_a_policy_draws_changes_nothing_but_its_own_choices() -> None:
    """Random PSs: the chunks run where and when they do with the lowest ones."""
    lowest, drawn = (run(small_scenario(0), f"aonline:ps_choice={choice}").schedule for choice in ("lowest", "random"))
    assert drawn.runs.equals(lowest.runs)
    assert not drawn.ps.equals(lowest.ps)


# --- compiled code


def test_without_a_place_for_numbas_cache_functions_are_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba refuses cache=True where it can write nowhere; then it is asked again without."""
    asked, sound = [], numba.njit

    def njit(*given: Any, **options: Any) -> Any:
        if given:
            return sound(*given, **options)  # of numba itself, whose typed containers are imported at first use
        asked.append(options.get("cache", False))
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available for file")
        return sound(**options)

    monkeypatch.setattr(numba, "njit", njit)
    double = jit.compiled(lambda x: 2 * x)
    assert double(21) == 42
    assert asked == [True, False]
    for make in (jit.lean, jit.inlined):
        assert make(lambda x: x + 1)(1) == 2


def _halved(x: int) -> float:
    return x / 2


def test_a_kernel_is_cached_once_it_has_been_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    halved = jit.CompiledFunction(_halved)
    assert not halved.cached
    assert halved(3) == 1.5
    assert halved.cached
    assert jit.CompiledFunction(_halved).cached, "another process's"


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize(("name", "policy"), [("demo", "srtf"), ("demo", "drf"), ("demo-divisible", "aonline")])
def test_a_small_run_takes_a_compiled_loop_only_from_the_cache(
    name: str, policy: str, cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skedge.simulate.SMALL", 0)
    monkeypatch.setattr(jit.CompiledFunction, "cached", cached)
    assert (run(scenario_of(name), policy).decisions_s is None) == cached


@pytest.mark.thorough
def test_without_a_place_for_numbas_cache_a_run_is_the_same(tmp_path: Path) -> None:
    """In a process of its own whose every cached function is refused its cache, as on a read-only installation.

    At sites a run has the fewest kernels.
    """
    import subprocess

    code = f"""
import numba
sound = numba.njit
def njit(*given, **options):
    if options.pop("cache", False):
        raise RuntimeError("cannot cache function: no locator available for file")
    return sound(*given, **options)
numba.njit = njit
from skedge.simulate import run
from skedge.testing import site_scenario
run(site_scenario(0), "okita").save({str(tmp_path / "uncached")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
    run(site_scenario(0), "okita").save(tmp_path / "cached")
    assert contents(tmp_path / "uncached") == contents(tmp_path / "cached")


def test_the_time_of_decisions_is_known_and_no_part_of_the_record(tmp_path: Path) -> None:
    done = run(small_scenario(0), "aonline")
    assert done.decisions_s is not None
    assert done.decisions_s > 0
    again = Run.load(done.save(tmp_path / "run"))
    assert again.decisions_s is None
    assert again.schedule.decisions.equals(done.schedule.decisions)


def test_every_moment_counts_for_one_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks that advance at each reading: the CPU's by 3 s, the wall's by 1 s; a stage ends also on an error."""
    cpu, wall = itertools.count(10.0, 3.0), itertools.count(0.0)
    monkeypatch.setattr("skedge.runs.stopwatch.time.process_time", lambda: next(cpu))
    monkeypatch.setattr("skedge.runs.stopwatch.time.perf_counter", lambda: next(wall))
    watch = Stopwatch(since=7.0)
    with pytest.raises(ValueError, match="wrong"), watch.counting("load"):  # start ends at 10
        raise ValueError("wrong")  # load ends at 13
    with watch.simulating("kernel"):  # start ends at 16
        assert watch.switch("decide") == "kernel"
        assert watch.switch("world") == "decide"
        assert watch.switch("kernel") == "world"
    assert watch.seconds["kernel"] == 1.5  # of 3 s of CPU, ended at 19, 2 of 4 s of the wall clock
    profile = watch.profile(16)  # start ends at 22
    spent = {stage: seconds for stage, seconds in profile["cpu_s"].items() if seconds}
    assert spent == {"start": 9.0, "load": 3.0, "kernel": 1.5, "decide": 0.75, "world": 0.75}
    assert (profile["total_cpu_s"], profile["jobs_per_cpu_s"]) == (15.0, 16 / 15)


def test_compiling_counts_for_no_stage_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the CPU's time nor of the wall clock's, by which the simulation is split."""
    now, spent = 10.0, 4.0
    monkeypatch.setattr("skedge.runs.stopwatch.time.process_time", lambda: now)
    monkeypatch.setattr("skedge.runs.stopwatch.time.perf_counter", lambda: now)
    monkeypatch.setattr("skedge.runs.stopwatch.compiled_s", lambda: spent)
    watch = Stopwatch()
    with watch.simulating("kernel"):
        watch.switch("decide")
        now, spent = now + 7.0, spent + 6.0
        watch.switch("kernel")
        now += 1.0
    with watch.counting("verify"):
        now, spent = now + 3.0, spent + 1.0
    found = {stage: seconds for stage, seconds in watch.profile(1)["cpu_s"].items() if seconds}
    assert found == {"compile": 7.0, "decide": 1.0, "kernel": 1.0, "verify": 2.0}


def test_the_time_of_compiling_is_counted() -> None:
    """Of a function without a file, of which nothing is kept."""
    made: dict[str, Any] = {}
    exec("def add(a, b):\n    return a + b\n", made)  # noqa: S102
    before, add = compiled_s(), compiled(made["add"])
    assert add(1, 2) == 3
    assert (first := compiled_s()) > before
    assert add(3, 4) == 7
    assert compiled_s() == first


def test_a_profiled_run_is_the_same_run() -> None:
    """Counting changes no record, and the world's time is counted only then."""
    watch = Stopwatch()
    plain, counted = run(small_scenario(0), "srtf"), run(small_scenario(0), "srtf", profile=watch)
    assert all(table.equals(plain.schedule.tables()[name]) for name, table in counted.schedule.tables().items())
    assert counted.decisions_s == watch.seconds["decide"] > 0
    assert watch.seconds["world"] > 0
