"""Total utility, acceptance, median training time and use by resource, by hand; the settings of S4; reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from builders.primal_dual import one, system
from builders.resource_scenarios import resource_scenario
from conftest import Said
from skedge.analysis.metrics.metrics import metrics, utilisation
from skedge.core.errors import ScenarioError, TraceError
from skedge.core.events import Event, Reject, Reserve
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.model.value import Sigmoid
from skedge.core.record.schedule import Schedule, schema
from skedge.explanation.wait_reason import wait_reason
from skedge.scenario.file import check_chunks, default_scenario, load_cluster_file, load_jobs, scenario_from_dict
from skedge.simulate import run
from skedge.traces.makers.synthetic import at_slots
from skedge.traces.makers.value_jobs import ValueRanges

SLOT = 3600 * SECOND


def record() -> tuple[Scenario, Schedule]:
    """Horizon 4 h, one server of 4 gpu and 2 memory. a: 0 to 2 h, 2 workers and a PS; b: 1 to 5 h, 1 and 1; c rejected.

    u_a = 8 / (1 + e^0) = 4 at 2 slots; b ends after the horizon.
    """
    cluster = Cluster([Server("m", capacity={"gpu": 4, "memory": 2})])
    same = {"epochs": 1, "chunks": 1, "minibatches": 1, "minibatch_s": 1.0, "batch": 4, "ratio": 2.0}
    needs = {"worker_needs": {"gpu": 1.0}, "ps_needs": {"memory": 0.5}}
    jobs = [
        Job(name, arrival, **same, **needs, utility=Sigmoid(8.0, 1.0, 2.0))  # type: ignore[arg-type]
        for name, arrival in (("a", 0.0), ("b", 3600.0), ("c", 3600.0))
    ]
    physics = Physics(slotted=True, colocation="one_server", horizon=4 * SLOT)
    scenario = Scenario(cluster, Jobs(job_table(jobs)[0], cluster), physics)
    held = [(0, 0, 2, 2, 1), (1, 1, 5, 1, 1)]
    types = schema(["m"])
    runs = [
        {"job": j, "server": "m", "workers": w, "start": s * SLOT, "compute_from": s * SLOT, "end": e * SLOT,
         "work": 1.0, "colocated": True, "preempted": False}
        for j, s, e, w, _ in held
    ]  # fmt: skip
    ps = [{"job": j, "server": "m", "count": n, "start": s * SLOT, "end": e * SLOT} for j, s, e, _, n in held]
    rows = [
        {"job": 0, "id": "a", "arrival": 0, "completion": 2 * SLOT, "jct": 2 * SLOT, "state": "finished"},
        {"job": 1, "id": "b", "arrival": SLOT, "completion": 5 * SLOT, "jct": 4 * SLOT, "state": "finished"},
        {"job": 2, "id": "c", "arrival": SLOT, "state": "rejected", "reason": "no"},
    ]
    tables = {"runs": runs, "ps": ps, "jobs": rows}
    frames = {name: pl.DataFrame(tables.get(name, []), schema=columns) for name, columns in types.items()}
    return scenario, Schedule(**frames)


def test_numbers_by_hand() -> None:
    """gpu: (2 x 2 + 1 x 3) / (4 x 4), memory: (0.5 x 2 + 0.5 x 3) / (2 x 4); training times 2 h, 4 h and 4 h."""
    found = metrics(*record(), {})
    assert found["utility_total"] == pytest.approx(4.0)
    assert found["acceptance_share"] == pytest.approx(2 / 3)
    assert found["training_time_p50_s"] == 4 * 3600
    assert found["utilisation_gpu_share"] == pytest.approx(7 / 16)
    assert found["utilisation_memory_share"] == pytest.approx(2.5 / 8)
    assert found["utilisation_mean"] == pytest.approx((7 / 16 + 2.5 / 8) / 2)


def test_without_a_horizon_every_job_that_is_complete_counts() -> None:
    """u_b = 8 / (1 + e^2) at 4 slots; the median of 2 h and 4 h is 3 h."""
    scenario, schedule = record()
    free = replace(scenario, physics=replace(scenario.physics, horizon=None))
    found = metrics(free, schedule, {})
    assert found["utility_total"] == pytest.approx(4 + 8 / (1 + math.e**2))
    assert found["training_time_p50_s"] == 3 * 3600


def test_a_policy_that_takes_the_index_of_the_last_slot_is_measured_by_it() -> None:
    """u_a = 8 / (1 + e^-1) at the index 1 instead of the end 2."""
    found = metrics(*record(), {"params": {"completion": "index"}})
    assert found["utility_total"] == pytest.approx(8 / (1 + math.exp(-1)))


@pytest.mark.parametrize("policy", ["pdors", "oasis"])
def test_the_total_utility_is_that_of_the_plans_whichever_completion_they_take(policy: str) -> None:
    """What the policy's decisions say of u: payoff and cost of every admitted plan, all done as planned."""
    for completion in ("end", "index"):
        done = run(resource_scenario(1), f"{policy}:completion={completion}")
        planned = 0.0
        for row in done.jobs.filter(pl.col("state") == "finished").iter_rows(named=True):
            utility = done.scenario.jobs.utility[row["job"]]
            last = (row["completion"] - row["arrival"]) // SLOT - (completion == "index")
            planned += utility(last) if utility is not None else 0.0
        assert done.metrics["finished"] > 0
        assert done.metrics["utility_total"] == pytest.approx(planned)


def test_jobs_that_finish_after_the_horizon_are_counted_apart() -> None:
    """b ends at 5 h, T is 4 h; a job that ends at T is within it; without a horizon there is no such number."""
    scenario, schedule = record()
    assert metrics(scenario, schedule, {})["finished_after_horizon"] == 1
    for slots, late in ((5, 0), (1, 2), (None, None)):
        horizon = None if slots is None else slots * SLOT
        other = replace(scenario, physics=replace(scenario.physics, horizon=horizon))
        assert metrics(other, schedule, {})["finished_after_horizon"] == late


def test_use_over_time_is_the_mean_over_resources() -> None:
    """At 1 h: 3 of 4 gpus and 1 of 2 memory; from 2 h on 1 of 4 and 0.5 of 2."""
    busy = utilisation(*record(), points=6)["busy_share"].to_list()
    assert busy[:5] == pytest.approx([0.375, 0.625, 0.25, 0.25, 0.25])


def test_where_a_job_does_not_say_what_it_is_worth_there_are_no_utilities() -> None:
    scenario, schedule = record()
    frame = scenario.jobs.frame.with_columns(
        pl.when(pl.col("id") == "c").then(None).otherwise(pl.col(name)).alias(name)
        for name in ("utility_height", "utility_steepness", "utility_target")
    )
    silent = replace(scenario, jobs=Jobs(frame, scenario.cluster))
    assert "utility_total" not in metrics(silent, schedule, {})


# -- S4 ----------------------------------------------------------------------------------------------------------------


def test_s4_is_the_papers_setting() -> None:
    """Ranges of PD-ORS Sec. V, ends included, over 20 seeds; the mix of utilities to 5 % of 1,000 jobs."""
    made = [default_scenario("s4", seed) for seed in range(20)]
    f = pl.concat([s.jobs.frame for s in made])
    assert {len(s.jobs) for s in made} == {50}
    assert {len(s.cluster.servers) for s in made} == {100}
    assert {s.physics.slots for s in made} == {20}
    ranges = {
        "epochs": (50, 200), "minibatches": (20_000, 500_000), "gradient_mb": (30, 575), "ratio": (1, 10),
        "batch": (1, 200), "bandwidth_mbps": (100, 5120), "utility_height": (1, 100), "utility_target": (1, 15),
        "worker_needs.gpu": (0, 4), "worker_needs.cpu": (1, 10), "worker_needs.memory": (2, 32),
        "worker_needs.storage": (5, 10), "ps_needs.cpu": (1, 10), "ps_needs.memory": (2, 32),
        "ps_needs.storage": (5, 10), "minibatch_s": (3600e-5, 3600e-4), "utility_steepness": (0, 6),
    }  # fmt: skip
    for name, (low, high) in ranges.items():
        span = high - low
        assert low <= f[name].min() <= low + 0.15 * span, name
        assert high - 0.15 * span <= f[name].max() <= high, name
    assert "ps_needs.gpu" not in f.columns
    assert (f["internal_mbps"] / f["bandwidth_mbps"]).to_numpy() == pytest.approx(20)
    theta2 = f["utility_steepness"].to_numpy()
    shares = [(theta2 == 0).mean(), ((theta2 >= 0.01) & (theta2 <= 1)).mean(), (theta2 >= 4).mean()]
    assert shares == pytest.approx([0.1, 0.55, 0.35], abs=0.05)
    assert sum(shares) == pytest.approx(1)


def test_alternating_arrivals_are_at_slots_twice_as_many_at_even_ones() -> None:
    frame = at_slots(3000, np.random.default_rng(0), slot_s=10.0, slots=6, kind="alternating")
    slot = frame["submit_s"].to_numpy() / 10
    assert set(slot) == {0, 1, 2, 3, 4, 5}
    assert (slot % 2 == 0).mean() == pytest.approx(2 / 3, abs=0.03)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workload": {"synthetic": {"jobs": 5, "arrivals": "alternating"}}}, "arrivals: alternating needs a span"),
        ({"workload": {"synthetic": {"jobs": 5}, "make": "pdors", "mix": [0.5, 0.5, 0.5]}}, "have a sum of 1"),
        (
            {"workload": {"synthetic": {"jobs": 5}, "make": "rigid", "mix": [0, 0, 1]}},
            "mix does not go with make",
        ),
        (
            {"cluster": {"draw": {"servers": 2, "cloud": True, "resources": {"gpu": 1}}}},
            "cloud does not go with",
        ),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    good = {
        "cluster": {"draw": {"servers": 2, "resources": {"gpu": 9, "cpu": 9, "memory": 99, "storage": 99}}},
        "workload": {"synthetic": {"jobs": 5, "span": "5h", "arrivals": "alternating"}, "make": "pdors"},
    }
    scenario_from_dict(good, "here", tmp_path)
    with pytest.raises((ScenarioError, TraceError), match=said):
        scenario_from_dict({**good, **changes}, "here", tmp_path)


def test_the_shares_of_the_mix_have_a_sum_of_one() -> None:
    with pytest.raises(TraceError, match="mix"):
        ValueRanges(mix=(0.1, 0.1, 0.1))


def test_jobs_of_a_file_must_fit_the_cluster(tmp_path: Path) -> None:
    default_scenario("s4").jobs.frame.write_parquet(tmp_path / "jobs.parquet")
    with pytest.raises(ScenarioError, match=r"worker_needs\.gpu = .*; it must be of a resource that .* \(tpu\)"):
        load_jobs(tmp_path / "jobs.parquet", Cluster([Server("m", capacity={"tpu": 1})]))
    with pytest.raises(ScenarioError, match=r"other\.csv: cannot be read"):
        load_jobs(tmp_path / "other.csv", Cluster([Server("m", capacity={"tpu": 1})]))


def test_a_cluster_file_of_resources_has_no_jobs_and_takes_those_that_come(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: {servers: [{id: m0, resources: {gpu: 12}}]}")
    empty = load_cluster_file(path)
    assert (len(empty.jobs), empty.cluster.resources) == (0, ("gpu",))
    first = empty.with_job(one())
    both = first.with_job(one(id="b", arrival_s=1.0, worker_needs={"gpu": 2}))
    assert both.jobs.worker_needs.tolist() == [[1], [2]]
    assert both.jobs.utility[1] == one().utility


def test_a_job_that_is_trained_needs_a_chunk_for_each_worker() -> None:
    check_chunks(system(one(chunks=4)).jobs)
    with pytest.raises(ScenarioError, match=r"job 'a': chunks = 3; .* it must be at least its batch, 4"):
        check_chunks(system(one(chunks=3)).jobs)


# -- what the other commands make of such runs -------------------------------------------------------------------------


def test_a_comparison_shows_utilities_and_a_report_is_made(skedge: Callable[..., Said], tmp_path: Path) -> None:
    page = tmp_path / "c.html"
    said = skedge("compare", "s4", "--policies", "pdors,oasis", "--seeds", 1, "--processes", 1, "--report", page)
    assert said.code == 0
    for column in ("utility", "accepted", "median time"):
        assert column in said.out
    assert "total utility" in page.read_text(encoding="utf-8")


def test_a_run_is_exported_to_perfetto_but_has_no_slots_for_batsim(skedge: Callable[..., Said], tmp_path: Path) -> None:
    folder = run(default_scenario("s4"), "pdors").save(tmp_path / "run")
    assert skedge("export", folder, "--format", "chrome", "--out", tmp_path / "t.json").code == 0
    assert '"cat": "ps"' in (tmp_path / "t.json").read_text()
    said = skedge("export", folder, "--format", "batsim", "--out", tmp_path / "b")
    assert said.code != 0
    assert "its servers have resources, but Batsim's files count worker slots" in said.words


def test_a_job_that_waits_says_why() -> None:
    """b is planned for later; c finds no server with 13 gpus; d was turned away."""
    from skedge.policies.fifo.policy import Fifo

    class Says(Fifo):
        def decide(self, event, view):  # type: ignore[no-untyped-def]
            yield Reserve(0, 0, 1, SLOT, 2 * SLOT)
            yield Reject(2, "too_dear")

    jobs = (one(), one(id="c", worker_needs={"gpu": 13}), one(id="d"))
    kernel = Kernel(system(*jobs), Says())
    kernel.handle(Event(0, arrived=(0, 1, 2)))
    assert [wait_reason(kernel, job).token for job in range(3)] == ["reserved", "no_room", "rejected"]
    assert (wait_reason(kernel, 1).need, wait_reason(kernel, 1).free) == (13, 12)
