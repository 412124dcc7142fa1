"""The two papers of edge servers put together in docs/examples decide as the policies do, and run as scripts."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from collections.abc import Iterator

import numpy as np
import polars as pl
import pytest

from builders.paths import ROOT
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import HOUR, SECOND
from skedge.recorded_run import Run
from skedge.simulate import run
from skedge.testing import small_scenario

FOLDER = ROOT / "docs" / "examples"
NAMES = ("aonline", "batch")


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The examples, importable."""
    monkeypatch.syspath_prepend(FOLDER)
    yield
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("seed", range(6))
def test_a_greedy_and_a_ps_put_together_are_the_policy(seed: int) -> None:
    """Every decision, run and PS of the record is that of `aonline`, and the record keeps every rule."""
    from aonline import AOnline

    scenario = small_scenario(seed)
    ours, product = run(scenario, AOnline()), run(scenario, "aonline")
    assert ours.verify() == []
    assert ours.metrics["sum_alpha_s"] == pytest.approx(ours.metrics["sum_beta_s"])  # Lemma 4
    for name, table in product.schedule.tables().items():
        assert ours.schedule.tables()[name].equals(table), name


def draw(seed: int) -> Scenario:
    """Two edge servers and a cloud that is far away; eight jobs that compete for the edge."""
    rng, hour = np.random.default_rng(seed), HOUR / SECOND
    servers = [
        Server(name, capacity={"worker:gpu": int(rng.integers(1, 5)), "ps:cpu": int(rng.integers(1, 3))})
        for name in ("north", "south")
    ]
    cluster = Cluster([*servers, Server("cloud", "cloud")])
    jobs = [
        Job(
            str(i), float(rng.integers(0, 6)) * hour / 2, epochs=10, chunks=int(rng.integers(1, 7)),
            minibatches=int(rng.integers(2, 12)), minibatch_s=60.0, gradient_mb=500.0, bandwidth_mbps=400.0,
            worker_type="gpu", ps_type="cpu", upload_edge_s=(0.0, hour), upload_cloud_s=(10 * hour, 30 * hour),
        )
        for i in range(8)
    ]  # fmt: skip
    table, given = job_table(jobs)
    colocation = ("one_server", "cloud")[seed % 2]
    return Scenario(cluster, Jobs(table, cluster, given), Physics(slotted=True, colocation=colocation), seed)  # type: ignore[arg-type]


def accepted(result: Run) -> list[tuple[int, int, dict[int, int], float]]:
    """(tau, job, workers by server, eta) of the record, in order."""
    orders = result.schedule.decisions.filter(pl.col("verb") == "allocate")
    rows: dict[tuple[int, int], tuple[dict[int, int], float]] = {}
    for time, job, server, workers, eta in orders.select("time", "job", "server", "workers", "value").iter_rows():
        rows.setdefault((time // HOUR, job), ({}, eta))[0][result.scenario.cluster.server_ids.index(server)] = workers
    return [(tau, job, placement, eta) for (tau, job), (placement, eta) in rows.items()]


@pytest.mark.parametrize("seed", range(10))
def test_alg_1_and_2_of_she_et_al_put_together_are_the_policy(seed: int) -> None:
    """The same jobs are accepted in the same batches, on the same workers, with the same utilities."""
    from batch import a_online

    scenario = draw(seed)
    product = run(scenario, "batch")
    assert product.verify() == []
    ours = [(tau, job, workers, 1 - plan.cost) for tau, job, workers, plan in a_online(scenario)]
    theirs = accepted(product)
    assert [row[:3] for row in ours] == [row[:3] for row in theirs]
    assert [row[3] for row in ours] == pytest.approx([row[3] for row in theirs])


def test_the_example_of_a_online_prints_a_preemption_and_keeps_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FOLDER / "aonline.py"), run_name="__main__")
    out = capsys.readouterr().out
    jcts = [float(jct) for jct in re.findall(r"JCT ([\d.]+) s$", out, re.MULTILINE)]
    assert len(jcts) == 5
    assert float(re.search(r"total JCT ([\d.]+)", out)[1]) == pytest.approx(sum(jcts), abs=0.5)  # type: ignore[index]
    assert int(re.search(r"(\d+) preemptions", out)[1]) > 0  # type: ignore[index]
    assert "rules broken: 0" in out


def test_the_example_of_batches_prints_three_batches_and_prices(capsys: pytest.CaptureFixture[str]) -> None:
    """The first job of a batch is free of charge, eta = 1 (B13); a later one pays."""
    runpy.run_path(str(FOLDER / "batch.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert {int(tau) for tau in re.findall(r"tau = (\d+)", out)} == {2, 4, 8}
    etas = [float(eta) for eta in re.findall(r"eta ([\d.]+)", out)]
    assert etas[0] == 1.0
    assert 0 < min(etas) < 1


@pytest.mark.parametrize("name", NAMES)
def test_the_functions_of_a_paper_are_a_screenful(name: str) -> None:
    tree = ast.parse((FOLDER / f"{name}.py").read_text("utf-8"))
    lengths = [(n.end_lineno or 0) - n.lineno + 1 for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    assert max(lengths) <= 25
