"""A shipped scenario with some of its fields set."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from skedge.scenario.file import shipped


def scenario_fields(base: str, fields: dict[str, Any], seed: int) -> dict[str, Any]:
    """The fields of the shipped scenario `base` at `seed`, with `fields` set, by their dotted names."""
    data: dict[str, Any] = copy.deepcopy(yaml.safe_load(shipped(base).read_text(encoding="utf-8")))
    data["seed"] = seed
    for name, value in fields.items():
        *way, last = name.split(".")
        place = data
        for part in way:
            place = place.setdefault(part, {})
        # a copy, as the values of `fields` are shared by all scenarios of a study
        place[last] = copy.deepcopy(value)
    return data
