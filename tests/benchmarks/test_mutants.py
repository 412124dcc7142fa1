"""Mutants are drawn from every module of core and policies, and their tests are chosen by the same names."""

from __future__ import annotations

import sys
import tomllib

import pytest

from builders.paths import ROOT
from skedge.core.kernel.kernel import Kernel

sys.path.insert(0, str(ROOT / "benchmarks"))

import calls
import mutants


def test_mutants_are_drawn_from_modules_in_folders_too() -> None:
    files = {path for name in ("core", "policies") for path in (mutants.ROOT / "src/skedge" / name).rglob("*.py")}
    assert len(mutants.parsed()) == len(files) - len(mutants.SKIPPED - {"platform/jit.py"})
    assert {"core/engine/checks.py", "policies/gangs/srtf.py"} <= set(mutants.parsed())


def test_a_function_that_a_test_calls_has_the_path_of_the_module_that_is_mutated() -> None:
    name = calls.function_name(Kernel.handle.__code__)
    assert name == "core/kernel/kernel.py:Kernel.handle"
    assert name.split(":")[0] in mutants.parsed()
    assert calls.function_name(test_mutants_are_drawn_from_modules_in_folders_too.__code__) is None


def test_equivalent_mutants_are_of_modules_that_are_there() -> None:
    keys = tomllib.loads(mutants.REASONS.read_text("utf-8"))["equivalent"]
    assert {key.split(":")[0] for key in keys} <= set(mutants.parsed())


def test_a_path_of_no_module_is_refused() -> None:
    with pytest.raises(SystemExit, match="no module of core and policies"):
        mutants.drawn(mutants.parsed(), 1, 0, "nowhere")
