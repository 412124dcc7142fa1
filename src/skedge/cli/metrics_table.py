"""The table of a run's metrics."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from skedge.comparison.columns import is_censored

from .console import amount


def metrics_table(metrics: Mapping[str, float | None], title: str) -> Table:
    """A table of all metrics of a run: key, exact value, readable value."""
    table = Table("metric", "value", "reading", title=title)
    for key, value in metrics.items():
        least = "≥ " if is_censored(key, metrics) else ""
        table.add_row(key, "–" if value is None else f"{value:.10g}", least + amount(key, value))
    return table
