"""Policies of other packages: a broken one is an error of its own, and of no other policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skedge.core.errors import PolicyError
from skedge.core.registry import make_policy
from skedge.simulate import run
from skedge.testing import small_scenario

BROKEN = {
    "gone": ("", "No module named 'gone_plugin'"),
    "misspelt": ("Polcy = 1", "module 'misspelt_plugin' has no attribute 'Policy'"),
    "unfinished": ("class Policy(", "'(' was never closed (unfinished_plugin.py, line 1)"),
    "confused": ("1 / 0", "division by zero"),
    "talkative": ("raise ValueError('no licence\\nsee the manual')", "no licence"),
    "silent": ("raise RuntimeError", "RuntimeError"),
    "quitting": ("raise SystemExit(3)", "3"),
}


@pytest.fixture(autouse=True)
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with an entry point for each."""
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    points = "".join(f"{name} = {name}_plugin:Policy\n" for name in BROKEN)
    info.joinpath("entry_points.txt").write_text(f"[skedge.policies]\n{points}odd = odd_plugin:Policy\n")
    for name, (source, _) in BROKEN.items():
        if source:
            (tmp_path / f"{name}_plugin.py").write_text(source + "\n")
    (tmp_path / "odd_plugin.py").write_text("class Policy:\n    Parameters = 7\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plug_in_says_so_in_one_sentence_when_it_is_asked_for(name: str) -> None:
    """Whatever its module raises when it is imported."""
    with pytest.raises(PolicyError) as refused:
        make_policy(name)
    reason = BROKEN[name][1]
    assert str(refused.value) == f"policy '{name}' cannot be loaded from '{name}_plugin:Policy': {reason}"


def test_a_broken_plug_in_does_not_hide_that_another_policy_does_not_fit() -> None:
    """pdors needs resources; the policies that fit a cluster of slots are named, the broken ones left out."""
    with pytest.raises(PolicyError) as refused:
        run(small_scenario(0, jobs=3), "pdors")
    message = str(refused.value)
    assert message.startswith("policy 'pdors' needs a horizon, a utility of every job, resources")
    fit = message.partition("policies that fit it: ")[2].split(", ")
    assert {"aonline", "srtf", "fifo"} <= set(fit)
    assert not {*BROKEN, "odd"} & set(fit)


def test_a_broken_plug_in_does_not_hide_a_wrong_parameter_or_name_of_another_policy() -> None:
    """Neither is looked up in the plug-ins."""
    with pytest.raises(PolicyError, match="cloud = 'perhaps'"):
        make_policy("aonline:cloud=perhaps")
    with pytest.raises(
        PolicyError, match=r"policy 'aonlin' is unknown \(did you mean aonline\?\); known are aonline, batch"
    ):
        make_policy("aonlin")


def test_the_list_of_policies_says_what_is_wrong_with_each_broken_one(skedge: Callable[..., Any]) -> None:
    """One sentence each; ours are there."""
    listed = skedge("policies", "--json")
    about = {row["name"]: row["about"] for row in listed.json}
    assert listed.code == 0
    assert {name: about[name] for name in BROKEN} == {
        name: f"cannot be loaded: {reason}" for name, (_, reason) in BROKEN.items()
    }
    assert about["odd"].startswith("cannot be loaded: ")
    assert not about["aonline"].startswith("cannot")
