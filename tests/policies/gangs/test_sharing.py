"""Tenants and classes: a case by hand, what weights, quotas and bounds do, and the rules that see when they do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.random import default_rng

from skedge.analysis.verify.verify import verify
from skedge.core.errors import PolicyError, ScenarioError
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.sharing import Sharing, Tenant
from skedge.core.model.time import SECOND
from skedge.recorded_run import Run
from skedge.scenario.file import load_scenario
from skedge.scenario.save import save_scenario
from skedge.simulate import run

POLICIES = ("srtf", "srtf:placement=literal", "tiresias:limit_s=400,knob=2", "fifo", "fifo:backfill=true")
SHARED = Path(__file__).parents[3] / "docs" / "examples" / "shared.yaml"


def job(name: str, arrival_s: float, workers: int, length_s: float, **more: Any) -> Job:
    """A gang that takes `length_s` with its workers, without communication."""
    return Job(name, arrival_s, 1, workers, 10, length_s / 10, workers=workers, ps_type="cpu", **more)


def scenario(jobs: list[Job], sharing: Sharing | None, workers: int = 4, physics: Physics | None = None) -> Scenario:
    servers = [Server(f"e{i}", capacity={"worker:gpu": workers // 2, "ps:cpu": 20}) for i in range(2)]
    cluster = Cluster(servers, sharing=sharing)
    table, given = job_table(jobs)
    return Scenario(cluster, Jobs(table, cluster, given), physics or Physics(), 0, "shared")


def drawn(seed: int, sharing: Sharing, physics: Physics | None = None) -> Scenario:
    """Forty jobs of three tenants and three classes on twelve workers, more than they can hold."""
    rng, names = default_rng(seed), sharing.names
    jobs = [
        job(
            str(i), float(rng.uniform(0, 400)), int(rng.integers(1, 6)), float(rng.integers(10, 200)),
            tenant=names[rng.integers(len(names))], priority=int(rng.integers(3)),
        )
        for i in range(40)
    ]  # fmt: skip
    return scenario(jobs, sharing, 12, physics)


def begins(made: Run) -> dict[str, list[float]]:
    """When each job is given workers [s]."""
    given = made.schedule.decisions.filter(pl.col("verb").is_in(["allocate", "allocate_each"]))
    found = dict[str, list[float]]()
    for number, time in given.select("job", "time").unique(maintain_order=True).iter_rows():
        found.setdefault(made.scenario.jobs.ids[number], []).append(time / SECOND)
    return found


def rules(made: Run, sharing: Sharing | None = None, tolerance: int = 0, **cells: Any) -> set[str]:
    """Rules that a record breaks within a tolerance [µs] under another sharing, or with `cells` of its jobs changed."""
    where = made.scenario
    frame = where.jobs.frame.with_columns(**cells)
    cluster = Cluster(where.cluster.servers, sharing=sharing or where.cluster.sharing)
    changed = replace(where, cluster=cluster, jobs=Jobs(frame, cluster, where.jobs.fixed_delays))
    return {violation.rule for violation in verify(changed, made.schedule, made.meta, tolerance=tolerance)}


def test_the_example_of_the_page() -> None:
    """Worked in ``docs/sharing.md``: preempted after ten minutes, and speech has half of the workers."""
    made = run(load_scenario(SHARED), "srtf")
    assert begins(made) == {"v1": [0, 600], "v2": [0, 3600], "s1": [600], "s2": [2400]}
    assert made.verify() == []
    assert rules(made, Sharing({"vision": Tenant(), "speech": Tenant(quota=0.25)})) == {"M40"}
    tenants = {"vision": Tenant(2), "speech": Tenant(quota=0.5)}
    assert rules(made, Sharing(tenants, 601)) == {"M41"}, "v2 is preempted after 600 s"
    assert rules(made, Sharing(tenants, 600, 0)) == {"M41"}, "v2 is preempted once"
    assert rules(made, Sharing(tenants, 600, 1)) == set()
    raised = pl.Series([0, 3, 1, 1])
    assert rules(made, priority=raised) == {"M42"}, "v2 of class 3 waits when s2 of class 1 begins"


def test_bounds_of_preemption_are_checked_within_a_tolerance() -> None:
    """As for live records: M41 allows for what a time may be off, and counts a preemption all the same."""
    made, tenants = run(load_scenario(SHARED), "srtf"), {"vision": Tenant(2), "speech": Tenant(quota=0.5)}
    assert rules(made, Sharing(tenants, 602), 2 * SECOND) == set(), "v2 is preempted after 600 s"
    assert rules(made, Sharing(tenants, 603), 2 * SECOND) == {"M41"}
    assert rules(made, Sharing(tenants, 600, 1), 2 * SECOND) == set()
    assert rules(made, Sharing(tenants, 600, 0), 2 * SECOND) == {"M41"}, "v2 is preempted once"


def test_quotas_allow_for_breaks_within_the_tolerance() -> None:
    """M40: two jobs take turns of three seconds, so that a tolerance of five would see no breaks."""
    sharing = Sharing({"a": Tenant(quota=0.5)})
    made = run(scenario([job("long", 0, 2, 60, tenant="a"), job("short", 10, 2, 3, tenant="a")], sharing), "srtf")
    assert begins(made) == {"long": [0, 13], "short": [10]}
    turns = [(0, 0, 10), (1, 10, 13), (0, 13, 16), (1, 16, 19), (0, 19, 63)]
    rows = [
        made.schedule.runs.filter(pl.col("job") == number)[:1].with_columns(
            start=pl.lit(begin * SECOND), compute_from=pl.lit(begin * SECOND), end=pl.lit(end * SECOND)
        )
        for number, begin, end in turns
    ]
    taking_turns = replace(made, schedule=replace(made.schedule, runs=pl.concat(rows)))
    assert "M40" not in rules(taking_turns, sharing, 5 * SECOND)
    assert "M40" in rules(taking_turns, Sharing({"a": Tenant(quota=0.25)}), SECOND)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(6))
def test_every_rule_holds_whatever_is_shared_how(policy: str, seed: int) -> None:
    sharing = Sharing(
        {"a": Tenant(2, 0.5), "b": Tenant(1, 0.75), "c": Tenant(3)},
        min_runtime_s=(0, 15, 40)[seed % 3],
        most_preemptions=(None, 0, 1, 3)[seed % 4],
        ageing_s=(None, 30)[seed % 2],
    )
    made = run(drawn(seed, sharing, Physics(checkpoint_overhead=500_000 * (seed % 2))), policy)
    assert made.verify() == []
    assert set(made.jobs["state"]) <= {"finished", "rejected"}


def with_scarce_ps(seed: int, sharing: Sharing) -> Scenario:
    """The drawn jobs with PSs of two types, of which all servers together have 1 to 3 each."""
    of, rng = drawn(seed, sharing), default_rng([seed, 1])
    kinds = pl.Series([str(kind) for kind in rng.choice(["cpu", "ssd"], len(of.jobs))])
    few = [{"worker:gpu": 6, f"ps:{kind}": int(rng.integers(1, 4))} for kind in ("cpu", "ssd")]
    cluster = Cluster([Server(f"e{i}", capacity=amounts) for i, amounts in enumerate(few)], sharing=sharing)
    return replace(of, cluster=cluster, jobs=Jobs(of.jobs.frame.with_columns(ps_type=kinds), cluster))


@pytest.mark.parametrize("policy", [*POLICIES, "srtf:sticky=true", "tiresias:limit_s=400,sticky=true"])
@pytest.mark.parametrize("seed", range(4))
def test_every_rule_holds_where_ps_are_scarce(policy: str, seed: int) -> None:
    """M11 among them: nobody is preempted for a job that then lacks a PS, or its last place."""
    sharing = Sharing(
        {"a": Tenant(2, 0.5), "b": Tenant(1), "c": Tenant(3)},
        min_runtime_s=(20, 5)[seed % 2],
        most_preemptions=(None, 2)[seed // 2],
    )
    made = run(with_scarce_ps(seed, sharing), policy)
    assert made.verify() == []
    assert set(made.jobs["state"]) <= {"finished", "rejected"}


def test_a_job_without_a_ps_displaces_nobody() -> None:
    """`lacks` is shorter than `runs`, but `held` has the only PS of its type until 9 s: `runs` runs on to 10 s.

    `held` may not be preempted before 11 s. At 9 s the two others have a second left, and the earlier goes first.
    """
    servers = [Server("e", capacity={"worker:gpu": 6, "ps:cpu": 1, "ps:ssd": 1})]
    cluster = Cluster(servers, sharing=Sharing(min_runtime_s=6))
    jobs = [job("runs", 0, 4, 10), job("held", 5, 2, 4), job("lacks", 6, 4, 1)]
    table, given = job_table([replace(jobs[0], ps_type="ssd"), *jobs[1:]])
    made = run(Scenario(cluster, Jobs(table, cluster, given), Physics(), 0, "lacks"), "srtf")
    assert made.verify() == []
    assert begins(made) == {"runs": [0], "held": [5], "lacks": [10]}
    assert made.metrics["jct_mean_s"] == (10 + 4 + 5) / 3


@pytest.mark.parametrize("policy", POLICIES)
def test_sharing_that_says_nothing_changes_no_decision(policy: str) -> None:
    """One tenant without a quota, one class, no bound: as if there were no sharing."""
    shared = drawn(3, Sharing())
    frame = shared.jobs.frame.drop("priority", strict=False)
    same = [replace(shared, cluster=Cluster(shared.cluster.servers, sharing=s)) for s in (None, Sharing())]
    alone, layered = (run(replace(one, jobs=Jobs(frame, one.cluster)), policy) for one in same)
    assert layered.schedule.decisions.equals(alone.schedule.decisions)
    assert layered.schedule.runs.equals(alone.schedule.runs)


def test_weights_divide_what_all_want() -> None:
    """Both tenants always have jobs that wait: two of three workers for the one with twice the weight."""
    jobs = [job(f"{of}{i}", 0, 1, 10, tenant=of) for i in range(40) for of in "ab"]
    made = run(scenario(jobs, Sharing({"a": Tenant(2), "b": Tenant(1)}), 6), "srtf")
    first = [name for name, at in begins(made).items() if at[0] < 95]
    assert {of: sum(name.startswith(of) for name in first) for of in "ab"} == {"a": 40, "b": 20}


def test_a_quota_leaves_others_their_workers() -> None:
    """Of four workers the greedy tenant has two, even while nobody else is there; the other begins at once."""
    jobs = [job(f"greedy{i}", 0, 1, 100, tenant="greedy") for i in range(8)] + [job("late", 50, 2, 10)]
    made = run(scenario(jobs, Sharing({"greedy": Tenant(quota=0.5)})), "fifo")
    at = begins(made)
    assert sorted(time for name, (time, *_) in at.items() if name != "late") == [0, 0, 100, 100, 200, 200, 300, 300]
    assert at["late"] == [50]


def test_a_job_above_its_tenants_quota_is_rejected_or_goes_to_the_cloud() -> None:
    jobs = [job("large", 0, 3, 10, tenant="a"), job("small", 0, 2, 10, tenant="a")]
    alone = scenario(jobs, Sharing({"a": Tenant(quota=0.5)}, ageing_s=1))
    made = run(alone, "srtf")
    assert made.jobs["state"].to_list() == ["rejected", "finished"]
    assert made.jobs["reason"][0] == "never_fits: it asks for 3 workers; the quota of its tenant is 2"
    cluster = Cluster([*alone.cluster.servers, Server("cloud", "cloud")], sharing=alone.cluster.sharing)
    made = run(replace(alone, cluster=cluster, jobs=Jobs(alone.jobs.frame, cluster)), "srtf")
    assert made.jobs["state"].to_list() == ["finished", "finished"]
    assert made.verify() == []


@pytest.mark.parametrize("policy", ["srtf", "tiresias:limit_s=1000"])
def test_nothing_starves_where_jobs_age(policy: str) -> None:
    """An urgent job every 50 s, each for 60 s on all workers: one that can wait waits for ever, or for its age."""
    urgent = [job(f"u{i}", 50.0 * i, 4, 60, priority=2) for i in range(20)]
    patient = job("patient", 10, 4, 30)
    never = run(scenario([*urgent, patient], Sharing()), policy)
    assert begins(never)["patient"][0] == 1200, "after all the others"
    ages = run(scenario([*urgent, patient], Sharing(min_runtime_s=30, ageing_s=100)), policy)
    assert begins(ages)["patient"][0] <= 310, "class 2, like the others, after 200 s, and 3 after 300 s"
    assert ages.verify() == []


@pytest.mark.parametrize("policy", ["srtf", "tiresias:limit_s=1000", "fifo:backfill=true"])
def test_a_large_urgent_job_is_not_starved_by_small_ones(policy: str) -> None:
    """Small jobs keep coming, each safe for 30 s: they make room one by one, and none takes it but the urgent job."""
    small = [job(f"s{i}", 7.0 * i, 1, 40) for i in range(60)]
    made = run(scenario([*small, job("urgent", 100, 4, 10, priority=1)], Sharing(min_runtime_s=30)), policy)
    (urgent,) = begins(made)["urgent"]
    assert urgent <= 140, "at most as long as a small one lasts"
    assert made.verify() == []


def test_who_was_preempted_often_enough_runs_to_the_end() -> None:
    """Shorter jobs come every 20 s. Two of them go first, and then none."""
    jobs = [job("long", 0, 4, 100), *(job(f"s{i}", 10.0 + 20 * i, 4, 5) for i in range(5))]
    made = {most: run(scenario(jobs, Sharing(most_preemptions=most)), "srtf") for most in (None, 2, 0)}
    counts = {most: len(begins(one)["long"]) - 1 for most, one in made.items()}
    assert counts == {None: 5, 2: 2, 0: 0}


def test_a_shared_scenario_is_saved_and_read_again(tmp_path: Path) -> None:
    shared = drawn(1, Sharing({"a": Tenant(2, 0.5), "b": Tenant()}, 30, 2, 60))
    again = load_scenario(save_scenario(shared, tmp_path))
    assert again.cluster.sharing == shared.cluster.sharing
    assert (again.jobs.tenant == shared.jobs.tenant).all()
    assert (again.jobs.priority == shared.jobs.priority).all()


def test_quotas_are_whole_workers() -> None:
    limits = Sharing({"a": Tenant(quota=0.29), "b": Tenant(quota=0.5)}).limits(np.array([100, 3]))
    assert limits.tolist() == [[29, 0], [50, 1], [100, 3]]


def test_a_policy_that_cannot_share_says_so() -> None:
    with pytest.raises(
        PolicyError, match=r"'aonline' does not keep to tenants.*policies that do: fifo, srtf, tiresias"
    ):
        run(drawn(0, Sharing()), "aonline")
    with pytest.raises(PolicyError, match="'fifo' does not keep to tenants"):
        run(drawn(0, Sharing()), "fifo:rule=earliest_server")


@pytest.mark.parametrize(
    ("fields", "sharing", "words"),
    [
        (
            {"tenant": "x"},
            Sharing({"a": Tenant()}),
            r"tenant = 'x'; it must be a tenant of cluster.sharing \(a, default\)",
        ),
        ({"tenant": "x"}, None, "tenant = 'x'; it must be left out: it goes with cluster.sharing"),
        ({"priority": 2}, None, "priority = 2; it must be left out: it goes with cluster.sharing"),
        ({"priority": -1}, Sharing(), "priority = -1; it must be a whole number from 0"),
    ],
)
def test_a_wrong_tenant_or_class_is_told(fields: dict[str, Any], sharing: Sharing | None, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        scenario([job("one", 0, 1, 10, **fields)], sharing)


def test_wrong_sharing_is_told(tmp_path: Path) -> None:
    text = SHARED.read_text()
    for old, new, words in (
        ("quota: 0.5", "quota: 1.5", "cluster.sharing.tenants.speech.quota"),
        ("weight: 2", "weight: 0", "cluster.sharing.tenants.vision.weight"),
        ("ageing: 2h", "ageing: 0", "cluster.sharing.ageing"),
        ("most_preemptions: 2", "most_preemptions: -1", "cluster.sharing.most_preemptions"),
    ):
        file = tmp_path / "wrong.yaml"
        file.write_text(text.replace(old, new))
        with pytest.raises(ScenarioError, match=words):
            load_scenario(file)
    cluster = Cluster([Server("m", capacity={"gpu": 4.0})], sharing=Sharing())
    table, _ = job_table([Job("one", 0, 1, 1, 1, 1.0, worker_needs={"gpu": 1})])
    with pytest.raises(ScenarioError, match="sharing: goes with servers that have slots"):
        Jobs(table, cluster)
