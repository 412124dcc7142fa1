"""Tolerances stand in one place; the kind of a cluster is what its servers offer."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import skedge.policies
from skedge.core.model.cluster import Cluster, Server
from skedge.core.model.ties import better

HERE = Path(skedge.policies.__path__[0])
OF_THEIR_OWN = {
    "okita/osf.py": {4e-9},  # how far a bound may be above the best plan
    "pdors/parametric_lp.py": {1e-11, 1e-9, 1e-12},  # pivots and corners of the simplex
    "pdors/prices.py": {1e-12},  # the least L
    "pdors/rounding.py": {1e-10, 1e-7, 1e-300},  # HiGHS's tolerance and what it leaves
}


def small_numbers(source: str) -> set[float]:
    """Float constants between 0 and 1e-5, which are tolerances."""
    constants = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, float) and 0 < value < 1e-5}


def test_policies_take_their_tolerances_from_one_file() -> None:
    """Only a solver's own stand beside it."""
    found = {path.relative_to(HERE).as_posix(): small_numbers(path.read_text()) for path in HERE.rglob("*.py")}
    assert {name: numbers for name, numbers in found.items() if numbers} == OF_THEIR_OWN


def test_a_tolerance_in_a_policy_is_seen() -> None:
    assert small_numbers("def f(x):\n    return x * (1 + 1e-9)\n") == {1e-9}


@pytest.mark.parametrize(
    ("a", "b", "is_better"),
    [
        (1.0, 2.0, True),
        (2.0, 1.0, False),
        (1.0, 1.0 + 1e-10, False),
        (1.0, 1.0 + 1e-8, True),
        (-1.0 - 1e-10, -1.0, False),
        (5.0, np.inf, True),
        (np.inf, np.inf, False),
    ],
)
def test_better_takes_more_than_rounding(a: float, b: float, is_better: bool) -> None:
    assert better(a, b) is is_better


@pytest.mark.parametrize(
    ("servers", "cost", "kind"),
    [
        ([Server("a", capacity={"worker:gpu": 1, "ps:cpu": 1})], None, "slots"),
        ([Server("far", "cloud")], None, "slots"),
        ([Server("a", capacity={"gpu": 1.5})], None, "resources"),
        ([Server("a", capacity={"gpu": 1.5})], np.zeros((1, 1)), "sites"),
    ],
)
def test_the_kind_of_a_cluster(servers: list[Server], cost: np.ndarray | None, kind: str) -> None:
    assert Cluster(servers, cost).kind == kind
