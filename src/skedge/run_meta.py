"""``run.json``: what a run was made of, and whether that can be."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .core.errors import PolicyError, RunFolderError
from .core.policy import Policy, make_policy
from .core.scenario import Scenario

FORMAT = 2
"""Version of the run folder's form."""

_LIBRARIES = ("numpy", "numba", "polars")

_META = {"policy": str, "params": dict, "lanes": dict, "seed": int, "versions": dict}
"""What ``run.json`` must have."""


_MAY_HAVE = {"promises": dict, "scenario": str, "world": str, "tolerance": int, "late_s": dict, "trained": dict}
"""What it may have besides; the last four of a live run."""


def read_meta(path: Path) -> dict[str, Any]:
    """Read ``run.json``.

    Raises
    ------
    RunFolderError
        If it is not one of this format, or damaged; names the file and the key.
    """
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"{path}: the run folder is damaged: {error}") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise RunFolderError(f"{path}: format is not {FORMAT}; this skedge reads format {FORMAT}")
    wrong = next(_wrong(meta), None)
    if wrong is not None:
        raise RunFolderError(f"{path}: the run folder is damaged: {wrong!r} is missing or of a wrong type")
    return meta


def _wrong(meta: Mapping[str, Any]) -> Iterator[str]:
    """Keys that are missing, or have what they cannot."""
    yield from (key for key, kind in _META.items() if not isinstance(meta.get(key), kind))
    yield from (key for key, kind in _MAY_HAVE.items() if key in meta and not isinstance(meta[key], kind))
    late = meta.get("late_s", {}).values()
    if any(isinstance(s, bool) or not isinstance(s, int | float) or not 0 <= s < math.inf for s in late):
        yield "late_s"
    if not 0 <= meta.get("tolerance", 0) < 2**61:
        yield "tolerance"
    if not isinstance(meta["lanes"].get("preemptive", True), bool):
        yield "lanes"


def meta_of(scenario: Scenario, policy: Policy) -> dict[str, Any]:
    """Content of ``run.json``: what a run was made of."""
    params = policy.params.model_dump(mode="json")
    default = type(policy.params)().model_dump(mode="json")
    changed = ",".join(f"{key}={_written(value)}" for key, value in params.items() if value != default.get(key))
    return {
        "format": FORMAT,
        "policy": f"{policy.name}:{changed}" if changed else policy.name,
        "params": {key: _in_json(value) for key, value in params.items()},
        "lanes": policy.lanes,
        "promises": getattr(policy, "promises", {}),
        "seed": scenario.seed,
        "scenario": scenario.name,
        "versions": {"skedge": version("skedge"), **{name: version(name) for name in _LIBRARIES}},
    }


def _in_json(value: object) -> object:
    """JSON has no infinity: it is written as text, which parameters read again."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def registered_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """`meta` with what the registered policy says of its lanes, parameters and promises; as it is for a stranger."""
    own = _of_policy(meta)
    return {**meta, **(own or {})}


def broken_meta(meta: Mapping[str, Any], scenario: Scenario) -> Iterator[str]:
    """M37: what ``run.json`` says that cannot be: not the seed or name of the scenario, or not the policy's own."""
    for key, right in (("seed", scenario.seed), ("scenario", scenario.name)):
        if key in meta and meta[key] != right:
            yield f"run.json: {key} is {meta[key]!r}; that of the scenario is {right!r}"
    for key, own in (_of_policy(meta) or {}).items():
        if key in meta and meta[key] != own:
            yield f"run.json: {key} is {meta[key]!r}; that of policy {meta['policy']} is {own!r}"


def _of_policy(meta: Mapping[str, Any]) -> dict[str, Any] | None:
    """Lanes, parameters and promises of the policy that `meta` names; None where no such policy is registered."""
    return _of_registered(str(meta.get("policy")))


@lru_cache(maxsize=64)
def _of_registered(spec: str) -> dict[str, Any] | None:
    try:
        policy = make_policy(spec)
    except PolicyError:
        return None
    params = {key: _in_json(value) for key, value in policy.params.model_dump(mode="json").items()}
    return {"lanes": policy.lanes, "params": params, "promises": getattr(policy, "promises", {})}
