"""The public dataclasses: a wrong value is one sentence, what is taken runs and verifies; one row for a job's field."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.fields import (
    FIELDS,
    HOSTILE,
    KINDS,
    attempted,
    on_slots,
    scenario,
)
from builders.paths import ROOT
from skedge.core.errors import ScenarioError
from skedge.core.model.cluster import Cluster, Job, Physics, Server, job_table
from skedge.core.model.job_fields import JOB_FIELDS, JobColumns, JobField
from skedge.core.model.latency import Exponential, Linear, Piecewise
from skedge.core.model.scenario import Jobs
from skedge.core.model.value import Sigmoid
from skedge.scenario.file import job_of, load_scenario
from skedge.scenario.save import save_scenario
from skedge.scenario.schema import JobForm
from skedge.simulate import run

FIELDS += [
    ("scenario", "seed"),
    ("scenario", "name"),
    ("scenario", "cluster"),
    ("scenario", "jobs"),
    ("cluster", "cost"),
]


@settings(max_examples=120, deadline=None, derandomize=True, database=None)
@given(st.sampled_from(KINDS), st.sampled_from(FIELDS), st.sampled_from(HOSTILE))
def test_any_value_of_any_field_is_refused_in_a_sentence_or_runs(
    kind: Callable[[], dict[str, Any]], place: tuple[str, str], value: Any
) -> None:
    """Never another exception, never a record that breaks a rule; benchmarks/fields.py tries all."""
    said = attempted(kind, *place, value)
    assert said == "ran" or ("\n" not in said and len(said) < 400), said


@pytest.mark.parametrize("made", [Sigmoid(2.0, 0.5, 3.0), Exponential(1.0), Linear(1.0), Piecewise(1.0, 2.0, 3.0)])
def test_utilities_and_latency_costs_take_numbers_alone(made: Any) -> None:
    """Every field with every hostile value: refused in a sentence, or a float."""
    assert is_dataclass(made)
    for field in fields(made):
        for value in HOSTILE:
            with suppress(ScenarioError):
                taken = getattr(replace(made, **{field.name: value}), field.name)
                assert type(taken) is float
                assert np.isfinite(taken)


@pytest.mark.parametrize(("storage_mb", "chunk_mb", "chunks"), [(100, 10.6, 5), (1, 0.2, 5), (np.int32(2), 1, 2)])
def test_a_whole_number_of_mb_is_as_good_as_a_float(storage_mb: Any, chunk_mb: float, chunks: int) -> None:
    """Without a cloud: two jobs, each of which needs up to all the storage, run and verify."""
    parts = on_slots()
    parts["server"] = Server("e", capacity={"worker:gpu": 2, "ps:cpu": 2}, storage_mb=storage_mb)
    parts["job"] = replace(parts["job"], chunks=chunks, chunk_mb=chunk_mb)
    result = run(scenario(parts), "aonline")
    assert result.jobs["state"].to_list() == ["finished"] * 2
    assert result.verify() == []


WRONG: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: Server("e", storage_mb=-1),
        "server 'e'.storage_mb = -1; it must be None (no limit) or a number from 0 to",
    ),
    (lambda: Server("e", storage_mb=True), "server 'e'.storage_mb = True; it must be"),
    (lambda: Server("e", storage_mb=np.float64("nan")), "server 'e'.storage_mb = nan; it must be"),
    (lambda: Server("e", capacity={"worker:gpu": 1.5}), "capacity[worker:gpu] = 1.5; it must be a whole number from 0"),
    (lambda: Server("a", capacity={"gpu": -1}), "server 'a'.capacity[gpu] = -1; it must be a number from 0 to 1e+15"),
    (lambda: Server("e", kind="fog"), "server 'e'.kind = 'fog'; it must be 'edge' or 'cloud'"),  # type: ignore[arg-type]
    (lambda: Server(7), "server 7.id = 7; it must be text"),  # type: ignore[arg-type]
    (lambda: Job("a", "0", 1, 1, 1, 1.0), "job 'a'.arrival_s = '0'; it must be a number from 0"),  # type: ignore[arg-type]
    (lambda: Job("a", 0, 1, 2.5, 1, 1.0), "job 'a'.chunks = 2.5; it must be a whole number"),  # type: ignore[arg-type]
    (lambda: Job("a", 0, 1, 1, 1, None), "job 'a'.minibatch_s = None; it must be"),  # type: ignore[arg-type]
    (lambda: Job("a", 10**400, 1, 1, 1, 1.0), "job 'a'.arrival_s = 1000"),
    (lambda: Job("a", 0, 1, 1, 1, 1.0, upload_edge_s=(1, -2)), "upload_edge_s[1] = -2; it must be a number from 0"),
    (lambda: Job("a", 0, 1, 1, 1, 1.0, utility=3), "job 'a'.utility = 3; it must be Sigmoid"),  # type: ignore[arg-type]
    (lambda: Physics(slot=0), "physics.slot = 0; it must be a whole number of µs from 1"),
    (lambda: Physics(slotted=1), "physics.slotted = 1; it must be True or False"),  # type: ignore[arg-type]
    (lambda: Physics(speedup=float("inf")), "physics.speedup = inf; it must be a number from 1e-09"),
    (lambda: Sigmoid(0, 1, 1), "utility: theta1 = 0; it must be above 0"),
    (lambda: Cluster(["e"]), "cluster.servers[0] = 'e'; it must be Server"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_a_wrong_value_names_class_field_value_and_what_is_right(make: Callable[[], Any], message: str) -> None:
    """When the object is made, not when it is used."""
    with pytest.raises(ScenarioError) as refused:
        make()
    assert message in str(refused.value)
    assert len(str(refused.value)) < 200


def test_numpy_scalars_are_kept_as_python_numbers(tmp_path: Any) -> None:
    """So that a scenario made of them is saved and read back equal, its seed too."""
    parts = on_slots()
    parts["server"] = replace(parts["server"], capacity={"worker:gpu": np.int64(2), "ps:cpu": np.float64(2)})
    parts["job"] = replace(parts["job"], chunks=np.int32(3), arrival_s=np.float32(1), upload_edge_s=(np.int8(1), 2))
    made = scenario(parts, seed=np.int64(5))
    assert [type(value) for value in parts["server"].capacity.values()] == [int, int]
    assert (type(parts["job"].chunks), type(parts["job"].arrival_s), type(made.seed)) == (int, float, int)
    again = load_scenario(save_scenario(made, tmp_path))
    assert again.jobs.frame.equals(made.jobs.frame)
    assert (again.seed, again.cluster.servers) == (5, made.cluster.servers)


# --- the rows of a job's fields

NEEDED: dict[str, Any] = {
    "id": "a",
    "arrival_s": 0.0,
    "epochs": 1,
    "chunks": 1,
    "minibatches": 1,
    "minibatch_s": 1.0,
}


def test_the_pages_have_the_tables_of_the_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python docs/tools/fields.py` changes nothing."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "tools")
    from fields import TABLES, page

    for name in TABLES:
        assert page(name) == (ROOT / "docs" / name).read_text(encoding="utf-8")
    sys.modules.pop("fields")


@pytest.mark.parametrize("of", JOB_FIELDS, ids=lambda of: of.name)
def test_a_field_has_one_default_in_python_in_a_file_and_in_a_table(of: JobField) -> None:
    """A job with required fields alone, by each way in."""
    by_hand = Job(**NEEDED)
    if of.default is not MISSING:
        assert getattr(by_hand, of.name) == of.default
    assert getattr(job_of(JobForm(**NEEDED)), of.name) == getattr(by_hand, of.name)
    cluster = Cluster([Server("e", capacity={"worker:gpu": 1, "ps:cpu": 1})])
    jobs = Jobs(job_table([by_hand])[0], cluster)
    if of.name in {f.name for f in fields(JobColumns)} and isinstance(of.default, int | float):
        assert getattr(jobs, of.name)[0] == of.default


def test_an_optional_field_is_refused_where_it_does_not_apply() -> None:
    """On slots, by a jobs table: the needs, and what is of sites alone."""
    cluster = Cluster([Server("e", capacity={"worker:gpu": 1, "ps:cpu": 1})])
    given: dict[str, Any] = {
        "worker_needs": {"gpu": 1.0},
        "ps_needs": {"gpu": 1.0},
        "data": {"e": 1},
        "exchange_mb": 1.0,
        "latency": Linear(1.0),
    }
    optional = {f.name for f in JOB_FIELDS if f.row.table == "optional" and "slots" not in f.row.kinds}
    assert set(given) == optional
    for name, value in given.items():
        with pytest.raises(ScenarioError, match=rf"{name}.* = .*; it must be left out: it goes with "):
            Jobs(job_table([Job(**NEEDED, **{name: value})])[0], cluster)
