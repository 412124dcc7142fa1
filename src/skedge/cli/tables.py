"""The tables of ``skedge compare`` and ``skedge demo``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from skedge.analysis.intervals import FEWEST, Estimate
from skedge.compare import HORIZON_COLUMN, Comparison

from .console import amount, unit_of

_SHOWN = {
    "jct_mean_s": "JCT",
    "jct_rate": "rate",
    "bound_ratio": "bound",
    "jct_p99_s": "p99",
    "preemptions": "stops",
    "utilisation_mean": "busy",
    "cloud_share": "cloud",
}
"""Columns of a comparison shown on the screen, with their titles; the report and ``--json`` have all columns."""

_SHOWN_OF_VALUE = {
    "utility_total": "utility",
    "bound_ratio": "bound",
    "acceptance_share": "accepted",
    "training_time_p50_s": "median time",
    "jct_mean_s": "mean JCT",
    "preemptions": "preempted",
    "utilisation_mean": "busy",
}
"""The same for jobs with utilities."""

_SHOWN_OF_COST = {
    "cost_total": "total cost",
    "bound_ratio": "bound",
    "cost_latency": "latency",
    "cost_bandwidth": "bandwidth",
    "moved_mb": "moved",
    "jct_mean_s": "mean JCT",
    "preemptions": "preempted",
}
"""The same at sites."""

_DIFFERENCE = "difference"
"""Key of the column with the differences to the reference."""


def comparison_table(comparison: Comparison) -> Table:
    """One row per policy: means; with enough seeds also the intervals of the leading metric and its differences."""
    c = comparison
    shown = _columns(c)
    title = f"seed {c.seeds[0]}" if len(c.seeds) == 1 else f"{len(c.seeds)} seeds, {c.seeds[0]} to {c.seeds[-1]}: means"
    table = _plain_table(title, ["policy", *shown.values()])
    for policy in c.policies:
        table.add_row(policy, *(_shown_cell(c, policy, column) for column in shown))
    return table


def demo_table(comparisons: Mapping[str, Comparison]) -> Table:
    """The same jobs under several assumptions, side by side; one row per policy."""
    first = next(iter(comparisons.values()))
    columns = ("jct_mean_s", "jct_rate", "bound_ratio")
    titles = [f"{kind} JCT" if i == 0 else _SHOWN[c] for kind in comparisons for i, c in enumerate(columns)]
    table = _plain_table(f"seed {first.seeds[0]}", ["policy", *titles])
    for policy in first.policies:
        table.add_row(policy, *(_cell(c, one.estimate(policy, c)) for one in comparisons.values() for c in columns))
    return table


def demo_text(comparisons: Mapping[str, Comparison]) -> str:
    """The assumptions of each kind of jobs in the demo, and the policies that are equal on them."""
    lines = [f"{kind}: {_ASSUMED[kind]}; {_equal(one)}" for kind, one in comparisons.items()]
    return "\n".join([*lines, *(f"{kind}: {one.verified_text}" for kind, one in comparisons.items())])


_ASSUMED = {
    "rigid": "a job trains on the GPUs that it asked for, never more; displaced work takes 30 s to be restored",
    "divisible": "the same work is cut into 27 to 115 chunks that as many workers can share, restored at no cost",
}
"""The assumption of each kind of jobs in the demo."""

_ALIKE = 0.01
"""Relative difference up to which mean JCTs are shown as equal."""


def _equal(comparison: Comparison) -> str:
    """The groups of policies with equal mean JCTs: within 1 % from the least to the greatest of a group."""
    jct = {policy: rows[0]["jct_mean_s"] for policy, rows in comparison.metrics.items()}
    groups: list[list[str]] = []
    for policy in sorted(jct, key=lambda p: jct[p]):
        if groups and jct[policy] <= jct[groups[-1][0]] * (1 + _ALIKE):
            groups[-1].append(policy)
        else:
            groups.append([policy])
    if len(groups) == 1:
        return "every policy is equal within 1 %"
    alike = "; ".join(", ".join(group) for group in groups if len(group) > 1)
    return f"equal within 1 %: {alike}" if alike else "no two policies are equal within 1 %"


def _plain_table(title: str, columns: Sequence[str]) -> Table:
    """A table without vertical lines: names to the left, numbers to the right."""
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=0)
    for i, column in enumerate(columns):
        table.add_column(column, no_wrap=True, justify="right" if i else "left")
    return table


def _columns(comparison: Comparison) -> dict[str, str]:
    """Titles of the shown columns by key; with intervals the rate is replaced by the difference to the reference."""
    of_value, of_cost = ("utility_total" in comparison.columns, "cost_total" in comparison.columns)
    shown = dict(_SHOWN_OF_COST if of_cost else _SHOWN_OF_VALUE if of_value else _SHOWN)
    if not of_value and any(row["rejected"] for rows in comparison.metrics.values() for row in rows):
        shown["rejected"] = "rejected"
    if HORIZON_COLUMN in comparison.columns:
        shown[HORIZON_COLUMN] = "after T"
    if len(comparison.seeds) < FEWEST:
        return shown
    leading, *others = (item for item in shown.items() if item[0] != "jct_rate")
    return dict([leading, (_DIFFERENCE, f"- {comparison.reference}"), *others])


def _shown_cell(comparison: Comparison, policy: str, column: str) -> Text:
    leading = comparison.leading
    if column == _DIFFERENCE:
        return _difference(leading, comparison.difference(policy, leading))
    return _cell(column, comparison.estimate(policy, column), spread=column == leading)


def _cell(column: str, value: Estimate | None, *, spread: bool = False) -> Text:
    if value is None:
        return Text("–")
    text = Text(amount(column, value.mean))
    if spread and value.low is not None and value.low != value.high:
        text.append(f"\n{_range(column, value)}", "dim")
    return text


def _range(column: str, value: Estimate) -> str:
    """Ends of an interval, in the unit of its mean, which is shown above it."""
    ends = [end for end in (value.low, value.high) if end is not None]
    if column.endswith("_s"):
        return "–".join(f"{end / unit_of(value.mean)[1]:.3g}" for end in ends)
    return "–".join(amount(column, end).partition(" ")[0] for end in ends)


def _difference(column: str, value: Estimate | None) -> Text:
    if value is None or value.high is None:
        return Text("–")
    half = f"±{amount(column, value.high - value.mean)}{'*' if value.sign else ''}"
    return Text(f"{amount(column, value.mean)}\n").append(half, "dim")
