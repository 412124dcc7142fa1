"""The table of a job's fields in ``docs/scenarios.md``, made of :mod:`skedge.core.job_fields`, and the JSON schema.

``python docs/tools/fields.py`` writes both.
"""

from __future__ import annotations

import json
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import skedge
from skedge.core.fields import Each, Maybe, Number, Pair, Rule, text
from skedge.core.job_fields import EVERY, JOB_FIELDS, JobField
from skedge.scenario.schema import json_schema

PAGE = Path(__file__).resolve().parents[1] / "scenarios.md"
BEGIN, END = "<!-- fields of a job: docs/tools/fields.py -->\n", "<!-- end -->\n"


def table() -> str:
    """A row of Markdown for each field."""
    lines = ["| field | type | unit | default | clusters | meaning |", "|---|---|---|---|---|---|"]
    return "\n".join([*lines, *map(_line, JOB_FIELDS)]) + "\n"


def _line(f: JobField) -> str:
    row, name = f.row, "upload" if f.name == "upload_s" else f.name
    kinds = "all" if row.kinds == EVERY else ", ".join(row.kinds)
    return f"| `{name}` | {_type(row.check, row.unit)} | {row.unit} | {_default(f.default)} | {kinds} | {row.about} |"


def _type(rule: Rule, unit: str) -> str:
    match rule:
        case Pair():
            return f"[low, high], each a {_type(rule.rule, unit)}"
        case Each():
            return f"{_type(rule.rule, unit)} by name"
        case Maybe():
            return _type(rule.rule, unit)
        case Number():
            return "duration" if unit == "s" else "whole number" if rule.whole else "number"
    return "text" if rule is text else "mapping"


def _default(value: Any) -> str:
    if value is MISSING:
        return "required"
    if value is None or value == {}:
        return "none"
    return str(list(value) if isinstance(value, tuple) else value)


def page() -> str:
    """The page with the table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}" + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    schema = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    Path(skedge.__file__).with_name("scenario.schema.json").write_text(schema, encoding="utf-8")
