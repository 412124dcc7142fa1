"""What the program knows of its files, for readers and editors: tables of fields in the pages, and the JSON schemas.

``python docs/tools/fields.py`` writes them: the fields of a job (:mod:`skedge.core.model.job_fields`) into
``docs/scenarios.md``, the columns of the record (:mod:`skedge.core.record.record_fields`) into ``docs/run-folder.md``,
and the schemas into the package.
"""

from __future__ import annotations

import json
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import polars as pl

import skedge
from skedge.core.model.fields import Maybe, Number, Pair, Rule, ValuesOf, text
from skedge.core.model.job_fields import EVERY, JOB_FIELDS, JobField
from skedge.core.record.record_fields import RECORD
from skedge.core.record.schedule import schema
from skedge.scenario.schema import SCHEMAS

DOCS = Path(__file__).resolve().parents[1]
END = "<!-- end -->\n"


def fields_of_a_job() -> str:
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
        case ValuesOf():
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


def columns_of_the_record() -> str:
    """A table of Markdown for each table of the record."""
    parts = []
    for name, of in RECORD.items():
        types, lines = schema(["any"])[name], ["| column | type | unit | meaning |", "|---|---|---|---|"]
        lines += [
            f"| `{column}` | {_kind(types[column])} | {unit} | {about} |"
            for column, (unit, about) in of.columns.items()
        ]
        parts.append(f"### {name}\n\nA row is {of.row}.\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _kind(of: pl.DataType) -> str:
    return "text" if isinstance(of, pl.Enum | pl.Categorical | pl.String) else str(of).lower()


TABLES = {"scenarios.md": ("fields of a job", fields_of_a_job), "run-folder.md": ("columns", columns_of_the_record)}
"""What is made of each page, by what."""


def page(name: str) -> str:
    """The page with its table."""
    what, made = TABLES[name]
    begin = f"<!-- {what}: docs/tools/fields.py -->\n"
    before, _, rest = (DOCS / name).read_text(encoding="utf-8").partition(begin)
    return f"{before}{begin}\n{made()}\n{END}" + rest.partition(END)[2]


if __name__ == "__main__":
    for name in TABLES:
        (DOCS / name).write_text(page(name), encoding="utf-8")
    for name, made in SCHEMAS.items():
        text = json.dumps(made(), indent=2) + "\n"
        Path(skedge.__file__).with_name(name).write_text(text, encoding="utf-8")
