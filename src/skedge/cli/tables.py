"""The tables of ``skedge compare`` and ``skedge demo``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from skedge.analysis.intervals import FEWEST, Estimate
from skedge.comparison.columns import FINISHED_COLUMN, HORIZON_COLUMN
from skedge.comparison.comparison import Comparison

from .console import amount, unit_of

_TITLES = {
    "jct_mean_s": "JCT",
    "jct_rate": "rate",
    "bound_ratio": "bound",
    "jct_p99_s": "p99",
    "preemptions": "stops",
    "migrations": "moves",
    "utilisation_mean": "busy",
}
"""Columns of a comparison shown on the screen, with their titles; the report and ``--json`` have all columns."""

_VALUE_TITLES = {
    "utility_total": "utility",
    "bound_ratio": "bound",
    "acceptance_share": "accepted",
    "training_time_p50_s": "median time",
    "jct_mean_s": "mean JCT",
    "preemptions": "preempted",
    "utilisation_mean": "busy",
}
"""The same for jobs with utilities."""

_COST_TITLES = {
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

_GAP = 2
"""Spaces between columns."""

_NAME_SHARE = 0.4
"""Share of the width that a policy's name may take; a longer one is folded."""


def comparison_tables(comparison: Comparison, width: int) -> list[Table]:
    """One row per policy: means; with enough seeds also the intervals of the leading metric and its differences.

    Columns that do not fit in `width` are in further tables; no value is cut.
    """
    c = comparison
    cells = {heading: [_column_cell(c, policy, key) for policy in c.policies] for key, heading in _columns(c).items()}
    return _fit_to_width(_title(c), c.policies, cells, width)


def demo_tables(comparisons: Mapping[str, Comparison], width: int) -> list[Table]:
    """The same jobs under several assumptions, side by side; one row per policy."""
    first = next(iter(comparisons.values()))
    cells: dict[str, list[Text]] = {}
    for kind, comparison in comparisons.items():
        for key in ("jct_mean_s", "jct_rate", "bound_ratio"):
            # spaces make the headings of the second scenario different keys; they are not shown
            heading = f"{kind}\nJCT" if key == "jct_mean_s" else f"{_TITLES[key]}{' ' * len(cells)}"
            spread = key == "jct_rate"
            cells[heading] = [_cell(key, comparison.estimate(policy, key), spread=spread) for policy in first.policies]
    return _fit_to_width(_title(first), first.policies, cells, width)


def _title(comparison: Comparison) -> str:
    seeds = comparison.seeds
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds, {seeds[0]} to {seeds[-1]}: means"


def _fit_to_width(title: str, names: Sequence[str], cells: Mapping[str, Sequence[Text]], width: int) -> list[Table]:
    """The table with these columns, or as many below each other as are needed for `width`."""
    # a long policy's name must leave room for numbers
    first = min(max(map(len, ("policy", *names))), int(_NAME_SHARE * width))
    return [
        _table("" if i else title, names, {heading: cells[heading] for heading in part}, first)
        for i, part in enumerate(_column_groups(cells, width - first))
    ]


def _column_groups(cells: Mapping[str, Sequence[Text]], width: int) -> Iterator[list[str]]:
    """The columns, as many at a time as fit in `width`, but at least one."""
    part, left = list[str](), width
    for heading, column in cells.items():
        lines = [line for text in (heading.rstrip(), *(cell.plain for cell in column)) for line in text.split("\n")]
        needs = _GAP + max(map(len, lines))
        # a column that is wider than the screen is alone in its table
        if part and needs > left:
            yield part
            part, left = [], width
        part.append(heading)
        left -= needs
    yield part


def _table(title: str, names: Sequence[str], cells: Mapping[str, Sequence[Text]], first: int) -> Table:
    """A table without vertical lines: names to the left, numbers to the right."""
    # the narrowest box of rich, as tables have many columns
    table = Table(title=title or None, box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=0)
    table.add_column("policy", width=first, overflow="fold")
    for heading in cells:
        table.add_column(heading.rstrip(), no_wrap=True, justify="right")
    for row, name in enumerate(names):
        table.add_row(name, *(column[row] for column in cells.values()))
    return table


def demo_text(comparisons: Mapping[str, Comparison]) -> str:
    """The assumptions of each kind of jobs in the demo, and the policies that are equal on them."""
    lines = [f"{kind}: {_ASSUMPTIONS[kind]}; {_equal_text(comparison)}" for kind, comparison in comparisons.items()]
    return "\n".join([*lines, *(f"{kind}: {comparison.verified_text}" for kind, comparison in comparisons.items())])


_ASSUMPTIONS = {
    "rigid": "a job trains on the GPUs that it asked for, never more; displaced work takes 30 s to be restored",
    "divisible": "the same work is cut into 27 to 115 chunks that as many workers can share, restored at no cost",
}
"""The assumption of each kind of jobs in the demo."""

_SIMILAR = 0.01
"""Relative difference up to which mean JCTs are shown as equal."""


def _equal_text(comparison: Comparison) -> str:
    """Policies of equal performance: by the intervals of their rates or, with few seeds, by mean JCT."""
    # fewer seeds give no interval worth the name
    if len(comparison.seeds) >= FEWEST:
        alike_to = [
            policy for policy in comparison.policies if _rate_holds_one(comparison.estimate(policy, "jct_rate"))
        ]
        return f"not told from {comparison.reference} by its rate: {', '.join(alike_to) or 'none'}"
    groups = [group for policies in comparison.groups for group in _similar_groups(comparison, policies)]
    if len(groups) == 1:
        return "every policy is equal within 1 %"
    alike = "; ".join(", ".join(group) for group in groups if len(group) > 1)
    return f"equal within 1 %: {alike}" if alike else "no two policies are equal within 1 %"


def _rate_holds_one(rate: Estimate | None) -> bool:
    """Whether the interval of a rate contains 1; the reference's has no width."""
    return (
        rate is not None and rate.low is not None and rate.high is not None and rate.low <= 1 <= rate.high != rate.low
    )


def _similar_groups(comparison: Comparison, policies: Sequence[str]) -> list[list[str]]:
    """The policies by mean JCTs that are within 1 % from the least to the greatest of a group."""
    # of the first seed
    jct = {policy: comparison.metrics[policy][0]["jct_mean_s"] for policy in policies}
    groups: list[list[str]] = []
    for policy in sorted(jct, key=lambda p: jct[p]):
        # against the least of the group: neighbours that are alike must not chain
        if groups and jct[policy] <= jct[groups[-1][0]] * (1 + _SIMILAR):
            groups[-1].append(policy)
        else:
            groups.append([policy])
    return groups


def _columns(comparison: Comparison) -> dict[str, str]:
    """Titles of the shown columns by key; with intervals the rate is replaced by the difference to the reference."""
    of_value, of_cost = ("utility_total" in comparison.columns, "cost_total" in comparison.columns)
    titles = dict(_COST_TITLES if of_cost else _VALUE_TITLES if of_value else _TITLES)
    if comparison.has_cloud:
        titles["cloud_share"] = "cloud"
    # a column of zeros would only take room
    if not of_value and any(row["rejected"] for rows in comparison.metrics.values() for row in rows):
        titles["rejected"] = "rejected"
    if HORIZON_COLUMN in comparison.columns:
        titles[HORIZON_COLUMN] = "after T"
    # the same jobs at every seed: the spread is not that of traces
    if len(comparison.seeds) < FEWEST or comparison.seeding == "same":
        return titles
    leading, *other_columns = (item for item in titles.items() if item[0] != "jct_rate")
    # without parameters, unless another policy has the same name
    family = comparison.reference.partition(":")[0]
    alone = sum(policy.partition(":")[0] == family for policy in comparison.policies) == 1
    return dict([leading, (_DIFFERENCE, f"- {family if alone else comparison.reference}"), *other_columns])


def _column_cell(comparison: Comparison, policy: str, column: str) -> Text:
    c, leading = comparison, comparison.leading_metric
    if column == _DIFFERENCE:
        return _difference(c, policy)
    least = "≥ " if c.is_censored(policy, column) else ""
    return _cell(column, c.estimate(policy, column), least, _count_suffix(c, policy, column), spread=column == leading)


def _count_suffix(comparison: Comparison, policy: str, column: str) -> str:
    """The number of jobs in a mean, if some policy did not finish all."""
    if column not in ("jct_mean_s", "cost_total") or FINISHED_COLUMN not in comparison.columns:
        return ""
    finished = comparison.estimate(policy, FINISHED_COLUMN)
    return "" if finished is None else f" of {finished.mean:.4g}"


def _cell(column: str, value: Estimate | None, before: str = "", after: str = "", *, spread: bool = False) -> Text:
    if value is None:
        return Text("–")
    text = Text(f"{before}{amount(column, value.mean)}{after}")
    if spread and value.low is not None:
        text.append(f"\n{_range(column, value)}", "dim")
    return text


def _range(column: str, value: Estimate) -> str:
    """Ends of an interval, in the unit of its mean, which is shown above it."""
    ends = [end for end in (value.low, value.high) if end is not None]
    if column.endswith("_s"):
        # the unit is left out: it stands with the mean above
        return "–".join(f"{end / unit_of(value.mean)[1]:.3g}" for end in ends)
    return "–".join(amount(column, end).partition(" ")[0] for end in ends)


def _difference(comparison: Comparison, policy: str) -> Text:
    """The difference to the reference: a mean with half its interval, or that it is none."""
    column, value = comparison.leading_metric, comparison.difference(policy, comparison.leading_metric)
    if value is None:
        return Text("–")
    if comparison.is_equal(policy, column):
        return Text("equal")
    text = Text(amount(column, value.mean))
    if value.high is not None:
        # decided, not only different in the mean
        star = "*" if comparison.sign(policy, column) else ""
        text.append(f"\n±{amount(column, value.high - value.mean)}{star}", "dim")
    return text
