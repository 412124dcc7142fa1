"""``run.json``: the inputs of a run, and checks of their consistency."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from skedge.core.errors import PolicyError, RunFolderError
from skedge.core.model.kinds import kind_of
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.core.policy import Policy
from skedge.core.registry import make_policy, spec_of

FORMAT = 2
"""Version of the run folder's format."""

_LIBRARIES = ("numpy", "numba", "polars")

_REQUIRED = {"policy": str, "params": dict, "lanes": dict, "seed": int, "versions": dict}
"""Required keys of ``run.json`` and their types."""


_OPTIONAL: dict[str, Any] = {
    "promises": dict, "scenario": str, "world": str, "tolerance": int, "resumed": int, "recovery_s": float | int,
    "slot_overrun_s": float | int, "away_s": float | int, "decided_late_s": float | int, "late_s": dict,
    "trained": dict, "training": dict, "devices": dict, "device_free_s": list,
}  # fmt: skip
"""Optional keys; those from the third on belong to live runs."""


def read_meta(path: Path) -> dict[str, Any]:
    """Read ``run.json``.

    Raises
    ------
    RunFolderError
        If it has another format or is damaged; names the file and the key.
    """
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"{path}: the run folder is damaged: {error}") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise RunFolderError(f"{path}: format is not {FORMAT}; this skedge reads format {FORMAT}")
    key = next(_wrong_keys(meta), None)
    if key is not None:
        raise RunFolderError(f"{path}: the run folder is damaged: {key!r} is missing or of a wrong type")
    return meta


def _wrong_keys(meta: Mapping[str, Any]) -> Iterator[str]:
    """Keys that are missing or have impossible values."""
    yield from (key for key, kind in _REQUIRED.items() if not isinstance(meta.get(key), kind))
    yield from (key for key, kind in _OPTIONAL.items() if key in meta and not isinstance(meta[key], kind))
    for key in ("recovery_s", "slot_overrun_s", "away_s", "decided_late_s"):
        if not 0 <= meta.get(key, 0) < math.inf:
            yield key
    delays = meta.get("late_s", {}).values()
    # JSON's true is a bool, which Python counts as an int
    if any(isinstance(s, bool) or not isinstance(s, int | float) or not 0 <= s < math.inf for s in delays):
        yield "late_s"
    # far below the end of int64, so that a time and a tolerance can be added
    if not 0 <= meta.get("tolerance", 0) < 2**61:
        yield "tolerance"
    if not isinstance(meta["lanes"].get("preemptive", True), bool):
        yield "lanes"


LIVE = "ray"
"""The `world` of a live run; a simulation has no such key."""

TOLERANCE_S, REDONE_S = 1.5, 3.0
"""Tolerance of a live run's times for clocks, messages and one mini-batch [s], and the addition for each lost
controller: work after the last checkpoint is repeated, and loading the checkpoint takes time."""


def live_tolerance(resumed: int, recovery_s: float) -> int:
    """Tolerance of a live run [µs], from how often all training was lost, and the time of lost rounds."""
    return int((TOLERANCE_S + resumed * REDONE_S + recovery_s) * SECOND)


def meta_of(scenario: Scenario, policy: Policy) -> dict[str, Any]:
    """Content of ``run.json``: the inputs of a run."""
    return {
        "format": FORMAT,
        "policy": spec_of(policy),
        **_policy_fields(policy),
        "seed": scenario.seed,
        "scenario": scenario.name,
        "versions": {name: _version(name) for name in ("skedge", *_LIBRARIES)},
    }


def _policy_fields(policy: Policy) -> dict[str, Any]:
    """Parameters, lanes and promises of a policy."""
    params = {key: _in_json(value) for key, value in policy.params.model_dump(mode="json").items()}
    return {"params": params, "lanes": asdict(policy.lanes), "promises": policy.guarantees.recorded()}


_version = cache(version)
"""The installed version of a package, which is read from its files."""


def _in_json(value: object) -> object:
    """`value` for JSON, which has no infinity: it is written as text, which parameters accept."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def registered_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """`meta` with the lanes, parameters and promises that the registered policy declares.

    A third-party policy may give ``completion`` any meaning, so the utility of its jobs is taken at their ends.
    """
    registered = _registered_fields(meta)
    if registered is None:
        registered = {"params": {key: value for key, value in meta.get("params", {}).items() if key != "completion"}}
    return {**meta, **registered}


def is_installed(meta: Mapping[str, Any]) -> bool:
    """Whether the policy of a run is installed here."""
    return _registered_fields(meta) is not None


def broken_meta(meta: Mapping[str, Any], scenario: Scenario, end: int) -> Iterator[str]:
    """Violations of M37: contradictions in ``run.json``.

    Its seed or name differs from the scenario's, its policy data differ from the policy's, or its tolerance does not
    follow from what a live run has lost. `end` is the last instant on record [µs].
    """
    for key, right in (("seed", scenario.seed), ("scenario", scenario.name)):
        if key in meta and meta[key] != right:
            yield f"run.json: {key} is {meta[key]!r}; that of the scenario is {right!r}"
    for key, registered in (_registered_fields(meta) or {}).items():
        if meta.get(key) != registered:
            yield f"run.json: {key} is {meta.get(key)!r}; that of policy {meta['policy']} is {registered!r}"
    if "world" in meta:
        yield from _broken_live(meta, scenario, end)


def _broken_live(meta: Mapping[str, Any], scenario: Scenario, end: int) -> Iterator[str]:
    """Contradictions in the keys of a live run."""
    if meta["world"] != LIVE:
        yield f"run.json: world is {meta['world']!r}; a live run's is {LIVE!r}, and a simulation has none"
    resumed, recovery = meta.get("resumed", 0), meta.get("recovery_s", 0.0)
    right = live_tolerance(resumed, recovery)
    if meta.get("tolerance", right) != right:
        lost = f"{resumed} lost controllers and {recovery:g} s of lost rounds"
        yield f"run.json: tolerance is {meta['tolerance']} µs; with {lost} it is {right} µs"
    overrun = meta.get("slot_overrun_s", 0.0)
    fault = kind_of(scenario.cluster).overrun_problem(overrun)
    if fault:
        yield f"run.json: {fault}"
        overrun = 0.0
    elif scenario.physics.slotted:  # a controller that has taken over knows the overrun before it as time away alone
        overrun = max(overrun, meta.get("away_s", 0.0))
    duration = end / SECOND + overrun
    for key, value in (("recovery_s", recovery), ("decided_late_s", meta.get("decided_late_s", 0.0))):
        if value > duration:
            yield f"run.json: {key} is {value:g} s; the run itself ends after {duration:g} s"


def _registered_fields(meta: Mapping[str, Any]) -> dict[str, Any] | None:
    """Parameters, lanes and promises of the policy that `meta` names; None if it is not registered."""
    return _fields_of_spec(str(meta.get("policy")))


@lru_cache(maxsize=64)
def _fields_of_spec(spec: str) -> dict[str, Any] | None:
    try:
        return _policy_fields(make_policy(spec))
    except PolicyError:
        return None


def folder_name(text: str) -> str:
    """`text` as a folder name."""
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in text)
