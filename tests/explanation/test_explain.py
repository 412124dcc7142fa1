"""Explanations: the decision on record, its terms, the timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from builders.gang_policies import job as gang
from builders.gang_policies import scenario as of_gangs
from builders.thorough import thorough_except
from skedge.core.errors import InputError
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.registry import make_policy
from skedge.explanation.explain import explain
from skedge.recorded_run import Run
from skedge.simulate import run
from skedge.testing import small_scenario


def dense() -> Scenario:
    """40 jobs in 75 s whose data take 5 min to the cloud: queues, and chunks that delay others."""
    scenario = small_scenario(0, jobs=40)
    frame = scenario.jobs.frame.with_columns(
        pl.col("arrival_s") / 4, upload_cloud_lo_s=pl.lit(300.0), upload_cloud_hi_s=pl.lit(300.0)
    )
    return Scenario(scenario.cluster, Jobs(frame, scenario.cluster), scenario.physics, 0, "dense")


def short_of_storage() -> Scenario:
    """Without a cloud, six chunks to a server: jobs have to wait until others are done."""
    scenario = small_scenario(0)
    cluster = Cluster([Server(s.id, s.kind, s.capacity, 60.0) for s in scenario.cluster.servers if s.kind == "edge"])
    return Scenario(cluster, Jobs(scenario.jobs.frame, cluster), scenario.physics, 0, "short of storage")


SCENARIOS = {
    "cloud": lambda: small_scenario(0),
    "slotted": lambda: small_scenario(2, physics=Physics(slotted=True, slot=10 * SECOND)),
    "errors": lambda: small_scenario(3, physics=Physics(estimate_error=1.0, checkpoint_overhead=SECOND // 2)),
    "dense": dense,
    "storage": short_of_storage,
}
MODES = ["marginal", "eq5", "fractional"]
OTHERS = ["aonline:preempt_running=false", "aonline:cloud=false"]
CELLS = list(product([f"aonline:q_mode={mode}" for mode in MODES] + OTHERS, SCENARIOS))


def explained(result: Run) -> list[tuple[int, Mapping[str, Any], pl.DataFrame]]:
    """Job, terms and the dispatch on record of every job that was dispatched."""
    dispatches = result.schedule.decisions.filter(pl.col("verb") == "dispatch")
    found = []
    for job, name in enumerate(result.scenario.jobs.ids):
        said = explain(result, name)
        if said.verb == "dispatch":
            assert said.terms is not None
            found.append((job, said.terms, dispatches.filter(pl.col("job") == job).sort("chunk")))
    return found


@pytest.mark.parametrize(("policy", "scenario"), thorough_except(CELLS[::3], CELLS))
def test_the_chosen_q_is_the_alpha_on_record_and_its_lane_the_one_on_record(policy: str, scenario: str) -> None:
    """For every chunk; from a chunk sent to the cloud on, all have its alpha and the cloud."""
    dispatched = 0
    for _, terms, record in explained(run(SCENARIOS[scenario](), policy)):
        for row in terms["chunks"]:
            chosen, last = row["chosen"], row.get("and_all_after", False)
            for of_record in record.rows(named=True)[row["chunk"] : None if last else row["chunk"] + 1]:
                assert of_record["value"] == pytest.approx(chosen["q_s"], rel=1e-12)
                # fractional costs are floats: lanes within 1e-9 of each other may change places
                assert "fractional" in policy or of_record["lane"] == chosen["lane"]
                dispatched += 1
    assert dispatched > 60


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scenario", ["cloud", "slotted", "dense"])
def test_delay_waiting_processing_and_others_sum_to_q(scenario: str, mode: str) -> None:
    """Of every option shown; none is negative, and delay and processing are what the scenario says, by hand."""
    result = run(SCENARIOS[scenario](), f"aonline:q_mode={mode}")
    jobs, slots = result.scenario.jobs, result.scenario.cluster.lane_server
    shown = 0
    for job, terms, record in explained(result):
        count, p = int(jobs.chunks[job]), result.scenario.chunk_time[job] / SECOND
        since = (int(record["time"][0]) - int(jobs.arrival[job])) / SECOND
        for option in (o for row in terms["chunks"] for o in [row["chosen"], *row["others"]]):
            parts = [option[name] for name in ("delay_s", "waiting_s", "processing_s", "others_s")]
            assert sum(parts) == pytest.approx(option["q_s"], rel=1e-9)
            assert min(parts) >= 0
            server = result.scenario.cluster.cloud if option["lane"] is None else int(slots[option["lane"]])
            delay = upload_s(result, job, server)
            assert option["delay_s"] == pytest.approx((since + delay) / count)
            half = 2 if mode == "fractional" else 1
            assert option["processing_s"] == pytest.approx(p[option.get("zeta", 0)] / count / half)
            shown += 1
    assert shown > 200


def upload_s(result: Run, job: int, server: int | None) -> float:
    from skedge.core.model.network import upload_delay

    return int(upload_delay(result.scenario.delays, job, server)) / SECOND  # type: ignore[arg-type]


@pytest.mark.parametrize("scenario", ["cloud", "dense", "storage"])
def test_the_cost_to_others_is_that_of_the_jobs_named(scenario: str) -> None:
    """It lies between one chunk of each delayed by `by_s`, and all of them, each over the D of its job."""
    result = run(SCENARIOS[scenario](), "aonline")
    chunks = dict(zip(result.scenario.jobs.ids, result.scenario.jobs.chunks.tolist(), strict=True))
    delayed = 0
    for _, terms, _ in explained(result):
        for option in (o for row in terms["chunks"] for o in [row["chosen"], *row["others"]]):
            low = sum(d["by_s"] / chunks[d["job"]] for d in option["delays"])
            high = sum(d["chunks"] * d["by_s"] / chunks[d["job"]] for d in option["delays"])
            assert low - 1e-6 <= option["others_s"] <= high + 1e-6
            delayed += len(option["delays"])
    assert delayed > 50


def test_a_decision_on_an_empty_lane_is_explained_as_a_hand_computes_it() -> None:
    """D = 2, p = 10 s, upload 4 s: the first chunk costs (4 + 10) / 2, the second waits for it: 10 / 2 more."""
    cluster = Cluster([Server("e", capacity={"worker:gpu": 1, "ps:cpu": 1})])
    job = Job("j", 1.0, epochs=1, chunks=2, minibatches=10, minibatch_s=1.0, upload_s={"e": 4.0})
    table, given = job_table([job])
    said = explain(run(Scenario(cluster, Jobs(table, cluster, given)), "aonline"), "j")
    assert (said.job, said.verb, said.time_s, said.reason) == ("j", "dispatch", 1.0, "least_marginal_increase")
    assert said.terms is not None
    first, second = (row["chosen"] for row in said.terms["chunks"])
    names = ("delay_s", "waiting_s", "processing_s", "others_s", "q_s")
    assert [first[name] for name in names] == [2.0, 0.0, 5.0, 0.0, 7.0]
    assert [second[name] for name in names] == [2.0, 5.0, 5.0, 0.0, 12.0]
    what = said.timeline.select("time_s", "until_s", "what", "server", "detail").rows()
    # both chunks begin after the upload, one behind the other; the PS serves from the first start to the end
    assert what == [
        (1.0, None, "arrives", None, ""),
        (1.0, 5.0, "uploads", "e", "2 chunks, 0 MB"),
        (5.0, 15.0, "runs", "e", "1 chunk, done"),
        (5.0, 25.0, "has its PS", "e", "slot 0"),
        (15.0, 25.0, "runs", "e", "1 chunk, done"),
        (25.0, None, "completes", None, "JCT 24 s"),
    ]


@pytest.mark.parametrize(
    "policy", ["srtf", "tiresias", "tiresias:knob=inf,limit_s=50", "fifo", "fifo:rule=earliest_server"]
)
def test_the_first_decision_of_a_gang_policy_on_each_job_is_explained(policy: str) -> None:
    """Verb, time and reason are those of the first such decision on record; the demand is the job's."""
    result = run(small_scenario(0), policy)
    decided = result.schedule.decisions.filter(pl.col("verb").cast(pl.String).is_in(["allocate", "reserve", "reject"]))
    for job, name in enumerate(result.scenario.jobs.ids[:8]):
        said, first = explain(result, name), decided.filter(pl.col("job") == job).row(0, named=True)
        assert (said.verb, said.time_s * SECOND) == (first["verb"], pytest.approx(first["time"]))  # type: ignore[comparison-overlap]
        assert said.reason == first["reason"]
        assert said.terms is not None
        assert said.terms["needs_workers"] == result.scenario.jobs.workers[job]


def test_every_later_decision_on_a_job_is_named_and_can_be_explained() -> None:
    """From one decision to the next by the time that is named, until there is none."""
    result = run(small_scenario(0), "srtf")
    verbs = pl.col("verb").cast(pl.String).is_in(["allocate", "suspend"])
    decided = result.schedule.decisions.filter(verbs).group_by("job").agg(pl.col("time").unique().sort())
    job, times = decided.sort(pl.col("time").list.len()).row(-1)
    assert len(times) > 1
    said = explain(result, result.scenario.jobs.ids[job])
    for time in times:
        assert said.time_s * SECOND == pytest.approx(time)
        assert said.later_s == [later / SECOND for later in times if later > time]
        said = explain(result, said.job, said.later_s[0]) if said.later_s else said


def test_what_others_have_left_is_explained_in_seconds_of_the_gang() -> None:
    """Two chunks of 8 s on a gang of 2 are 8 s of work, 2 s done when a job of 4 s comes and displaces it."""
    cluster = Cluster([Server("e", capacity={"worker:slow": 2, "ps:cpu": 2})])
    table, given = job_table(
        [
            Job(name, arrival, epochs, 2, 4, 1.0, worker_type="slow", ps_type="cpu", workers=2)
            for name, arrival, epochs in (("long", 0.0, 2), ("short", 2.0, 1))
        ]
    )
    said = explain(run(Scenario(cluster, Jobs(table, cluster, given)), "srtf"), "short")
    assert said.terms is not None
    left = [(row["job"], row["workers"], row["remaining_s"]) for row in said.terms["in_system"]]
    assert left == [("long", 0, pytest.approx(6.0))], "its workers are taken first"


def test_a_job_that_was_rejected_is_explained() -> None:
    """Without a worker of its type on the edge and without the cloud there is no place for it."""
    cluster = Cluster([Server("e", capacity={"worker:slow": 1, "ps:cpu": 1}), Server("c", "cloud")])
    table, given = job_table(
        [Job(name, 0.0, 1, 1, 1, 1.0, worker_type="slow", workers=1, chunk_mb=9.0) for name in ("j",)]
    )
    small = Cluster([Server("e", capacity={"worker:slow": 1, "ps:cpu": 1}, storage_mb=1.0), cluster.servers[1]])
    said = explain(run(Scenario(small, Jobs(table, small, given)), "aonline:cloud=false"), "j")
    assert said.verb == "reject"
    assert said.reason.startswith("never_fits")
    assert said.timeline["what"].to_list() == ["arrives", "is rejected"]


def test_an_unknown_job_is_refused_with_jobs_that_there_are() -> None:
    """The message names the id given, a few that exist, and how many there are."""
    with pytest.raises(InputError, match=r"job 'nobody' is not in this run; its jobs are .*\(25 in all\)"):
        explain(run(small_scenario(0), "srtf"), "nobody")


@pytest.mark.parametrize("mode", MODES)
def test_the_command_prints_the_same_explanation_as_the_api(
    mode: str, skedge: Callable[..., Any], busy: Path, tmp_path: Path
) -> None:
    """--json holds every field of it; the table names the server chosen."""
    folder = tmp_path / "r"
    assert skedge("run", busy, "--policy", f"aonline:q_mode={mode}", "--out", folder).code == 0
    said = explain(Run.load(folder), "20")
    told = skedge("explain", folder, "20", "--json").json
    assert told == {**said.__dict__, "timeline": said.timeline.to_dicts()}
    printed = skedge("explain", folder, "20").out
    assert said.terms is not None
    assert str(said.terms["chunks"][0]["chosen"]["server"]) in printed
    assert "job 20: dispatch at" in printed
    assert "…" not in printed.split("timeline")[0]  # no number is cut off at 80 columns


@pytest.mark.parametrize("policy", ["srtf", "tiresias", "aonline:cloud=false"])
def test_the_timeline_names_who_displaced_a_job(policy: str) -> None:
    """Each displaced run names a job that takes its place, on its lane or server, at that instant."""
    result = run(dense(), policy)
    runs = result.schedule.runs
    lost = runs.filter(pl.col("preempted"))
    assert len(lost)
    checked = 0
    for job in lost["job"].unique().to_list():
        lines = explain(result, result.scenario.jobs.ids[job]).timeline["detail"].to_list()
        for row in lost.filter(pl.col("job") == job).iter_rows(named=True):
            same = (pl.col("start") == row["end"]) & (pl.col("server") == row["server"]) & (pl.col("job") != job)
            lane = pl.lit(value=True) if row["lane"] is None else pl.col("lane") == row["lane"]
            takers = {result.scenario.jobs.ids[other] for other in runs.filter(same & lane)["job"].to_list()}
            named = {name.strip() for line in lines if "ed by " in line for name in line.split("by ")[1].split(",")}
            assert not takers or takers & named
            checked += bool(takers)
    assert checked


def test_the_timeline_tells_a_move_from_a_displacement() -> None:
    """b takes the worker of a, which goes on at once on s1: literally a is moved, with one server it is displaced."""
    near_s0 = {"s0": 1.0, "s1": 2.0}
    jobs = [gang("a", 0, 1, 20, upload_s=near_s0), gang("b", 5, 1, 3, upload_s=near_s0)]
    literal = make_policy("srtf:placement=literal")
    ends = {
        len(servers): explain(run(of_gangs(jobs, servers), literal), "a").timeline["detail"].to_list()
        for servers in ([(1, 1), (1, 1)], [(1, 1)])
    }
    assert "1 worker, moved by b" in ends[2]
    assert "1 worker, displaced by b" in ends[1]
