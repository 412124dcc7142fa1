"""Users and GPU types of jobs: numbers that policies see, with their texts, and nothing of later jobs."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
import pytest

from skedge.core.errors import ScenarioError
from skedge.core.events import Event, Order, OrderBatch
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.policy import View
from skedge.policies.fifo.policy import Fifo
from skedge.scenario.file import load_scenario
from skedge.scenario.save import digest_of, save_scenario
from skedge.simulate import run

CLUSTER = Cluster([Server("s", capacity={"worker:gpu": 2, "ps:cpu": 2})])


def job(name: str, at: float, user: str | None = None, gpu_type: str | None = None) -> Job:
    return Job(name, at, epochs=1, chunks=1, minibatches=10, minibatch_s=1.0, user=user, gpu_type=gpu_type)


def scenario(*jobs: Job) -> Scenario:
    table, given = job_table(jobs)
    return Scenario(CLUSTER, Jobs(table, CLUSTER, given))


SHARED = (job("a", 0, "ben", "T4"), job("b", 5, "ana"), job("c", 9, "ben", "A100"), job("d", 12))


def test_labels_are_numbered_by_first_appearance_and_keep_their_texts() -> None:
    jobs = scenario(*SHARED).jobs
    assert (jobs.user.tolist(), jobs.names["user"]) == ([0, 1, 0, 2], ("ben", "ana", ""))
    assert (jobs.gpu_type.tolist(), jobs.names["gpu_type"]) == ([0, 1, 2, 1], ("T4", "", "A100"))


def test_jobs_that_come_later_do_not_change_the_numbers() -> None:
    """However the jobs are put together: one by one, or all at once."""
    whole, grown = scenario(*SHARED), scenario(SHARED[0])
    for one in SHARED[1:]:
        grown = grown.with_job(one)
    for name in ("user", "gpu_type"):
        assert getattr(grown.jobs, name).tolist() == getattr(whole.jobs, name).tolist()
    assert grown.jobs.names == whole.jobs.names
    assert grown.jobs.frame.equals(whole.jobs.frame)
    assert whole.only(slice(0, 2)).jobs.user.tolist() == [0, 1]


def test_a_policy_sees_users_and_gpu_types_of_the_jobs_that_have_arrived() -> None:
    seen: list[tuple[list[int], list[str], str]] = []

    class Watching(Fifo):
        def decide(self, event: Event, view: View) -> Iterable[Order | OrderBatch]:
            if event.arrived:
                users = [view.user(one) for one in range(view.arrived)]
                seen.append((view.jobs.user.tolist(), users, view.gpu_type(view.arrived - 1)))
                with pytest.raises(IndexError, match="has not arrived"):
                    view.user(view.arrived)
            return super().decide(event, view)

    run(scenario(*SHARED), Watching())
    assert seen == [
        ([0], ["ben"], "T4"),
        ([0, 1], ["ben", "ana"], ""),
        ([0, 1, 0], ["ben", "ana", "ben"], "A100"),
        ([0, 1, 0, 2], ["ben", "ana", "ben", ""], ""),
    ]


def test_labels_are_saved_and_read_again(tmp_path) -> None:
    first = scenario(*SHARED)
    again = load_scenario(save_scenario(first, tmp_path))
    assert again.jobs.frame.equals(first.jobs.frame)
    assert again.jobs.names == first.jobs.names


def test_a_scenario_without_labels_is_written_as_before(tmp_path) -> None:
    """No column, the same bytes, and the same run as with labels: they decide nothing."""
    plain = scenario(*(job(one.id, one.arrival_s) for one in SHARED))
    assert not {"user", "gpu_type"} & set(plain.jobs.frame.columns)
    nulls = plain.jobs.frame.with_columns(user=pl.lit(None, pl.String), gpu_type=pl.lit(None, pl.String))
    assert digest_of(Scenario(CLUSTER, Jobs(nulls, CLUSTER))) == digest_of(plain)
    records = [run(one, "srtf").schedule.tables() for one in (plain, scenario(*SHARED))]
    assert all(records[0][name].equals(records[1][name]) for name in records[0])


def test_a_label_must_be_text() -> None:
    with pytest.raises(ScenarioError, match="user = ''; it must be text, not empty"):
        job("a", 0, "")


def test_repairs_without_failures_are_refused(tmp_path) -> None:
    path = tmp_path / "s.yaml"
    text = (
        "physics: {mttr: 2h}\ncluster: {servers: [{id: s, workers: {gpu: 1}, ps: {cpu: 1}}]}\n"
        "workload: {jobs: [{id: a, arrival_s: 0, epochs: 1, chunks: 1, minibatches: 1, minibatch_s: 1}]}\n"
    )
    path.write_text(text)
    with pytest.raises(ScenarioError, match="physics: mttr 7200 s does not go without mtbf"):
        load_scenario(path)
    path.write_text(text.replace("mttr: 2h", "mttr: 2h, mtbf: 9h"))
    assert load_scenario(path).physics.mttr == Physics(mttr=7_200_000_000).mttr
