"""Output shared by several commands: text, JSON, metrics with their units."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from skedge.core.model.escape import escaped
from skedge.core.model.wording import ELASTIC


class _Escaping(Console):
    """A console that shows control characters instead of sending them to the terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Text of any source, escaped."""
        return super().render_str(escaped(text), **options)


out = _Escaping(highlight=False, markup=False, emoji=False)
"""For results. The output contains users' ids and paths, so brackets and colons are not interpreted as markup."""

err = _Escaping(stderr=True, highlight=False, markup=False, emoji=False)
"""For progress and errors."""


def print_json(value: object) -> None:
    """Print `value` as JSON; NaN and infinities become null."""
    out.print_json(json.dumps(_escaped(finite(value))))


def print_answer(answer: object, sentence: str, *, as_json: bool, soft_wrap: bool = False) -> None:
    """Print an answer: a sentence, in one line with `soft_wrap`, or with --json what it says.

    Parameters
    ----------
    answer, sentence
        What it says, and the same in words.
    as_json
        Print JSON.
    soft_wrap
        Leave a sentence that is longer than a line to the terminal.
    """
    if as_json:
        print_json(answer)
    else:
        out.print(sentence, soft_wrap=soft_wrap)


def print_table(headings: Sequence[str | Column], rows: Iterable[Sequence[str]], **options: Any) -> None:
    """Print a table of `rows` under `headings`; `options` are those of ``rich.table.Table``."""
    table = Table(*headings, **options)
    for row in rows:
        table.add_row(*row)
    out.print(table)


def finite(value: Any) -> Any:
    """`value` with NaN and infinities replaced by None, as JSON requires."""
    if isinstance(value, float):
        # JSON has neither NaN nor infinities
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def _escaped(value: Any) -> Any:
    """`value` with what JSON does not escape itself: characters that change the direction of text, and the like."""
    if isinstance(value, str):
        # json.dumps escapes the control characters of ASCII itself
        return value if value.isascii() else escaped(value)
    if isinstance(value, Mapping):
        return {name: _escaped(item) for name, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value


def amount(key: str, value: float | None) -> str:
    """A metric in readable form; the unit follows from the key."""
    if value is None:
        return "–"
    if key.endswith("_s"):
        return duration(value)
    if key.endswith("_mb"):
        return f"{value / 1e3:,.1f} GB"
    if key.endswith(("_share", "utilisation_mean")):
        return f"{value:.1%}"
    # costs are in a unit of the scenario: of any size, so with four digits unless they are readable as they are
    small = key.startswith("cost_") and not 1000 <= abs(value) < 1e9
    if small or key.startswith(("slowdown", "jct_rate", "bound_ratio")):
        return f"{value:.4g}" if small else f"{value:.2f}" if key == "bound_ratio" and value < 1e4 else f"{value:.3g}"
    return f"{value:,.1f}" if key == "utility_total" else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """`seconds` in the largest unit in which the number is at least 1.5, else in seconds."""
    unit, length = unit_of(seconds)
    return f"{seconds / length:.3g} {unit}"


def unit_of(seconds: float) -> tuple[str, float]:
    """The unit in which :func:`duration` shows `seconds`, and its length [s]."""
    units = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))
    # from 1.5 on: 80 min are shown as 80 min, not as 1.33 h
    return next((unit for unit in units if abs(seconds) >= unit[1] * 1.5), ("s", 1.0))


def source_text(source: Mapping[str, Any]) -> str:
    """The source of a scenario's jobs, what was left out and what was changed; empty if the source is unknown."""
    resampling = source.get("resampled")
    resampled_text = (
        [f"resampled by seed {resampling['seed']} in blocks of {resampling['block']} jobs"] if resampling else []
    )
    if "jobs" not in source:
        return "".join(resampled_text)
    origin = source.get("trace") or source["synthetic"]
    rows = f"{source['rows']:,} rows of " if "rows" in source else ""
    parts = [f"{source['jobs']:,} {source['make']} jobs made of {rows}{origin}"]
    parts[0] += f", {source['merged']:,} of them merged into jobs of several" if source.get("merged") else ""
    skipped = {**source.get("skipped", {}), "outside skip and first": source.get("outside skip and first", 0)}
    parts += [f"left out: {_counts(skipped)}"] if any(skipped.values()) else []
    parts += [f"changed: {_counts(source['changed'])}"] if source["changed"] else []
    unit = source.get("unit", "GPU")
    hours = source.get(f"{unit.lower()}_hours")
    parts += [f"{unit}-hours of the trace {hours['trace']:,.0f}, of the jobs {hours['jobs']:,.0f}"] if hours else []
    parts += [source["note"]] if source.get("note") else []
    parts += [ELASTIC] if source.get("elastic") else []
    return "; ".join(parts + resampled_text)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {cause}" for cause, n in counts.items() if n)
