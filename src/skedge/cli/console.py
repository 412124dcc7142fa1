"""What the command line shows: tables, units, progress."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from skedge.analysis.intervals import FEWEST, Estimate
from skedge.compare import HORIZON_COLUMN, Comparison
from skedge.core.events import Event
from skedge.core.time import SECOND
from skedge.explain import Explanation

out = Console(highlight=False, markup=False, emoji=False)
"""For results. Ids and paths of users stand in what is printed, so brackets and colons mean nothing in it."""

err = Console(stderr=True, highlight=False, markup=False, emoji=False)
"""For progress and errors."""

_EVERY_S = 30.0
"""Least time between two lines of progress in a log."""

_SHOWN = {
    "jct_mean_s": "JCT",
    "jct_rate": "rate",
    "bound_ratio": "bound",
    "jct_p99_s": "p99",
    "preemptions": "stops",
    "utilisation_mean": "busy",
    "cloud_share": "cloud",
}
"""Columns on the screen, of those of a comparison; the report and ``--json`` have all."""

_SHOWN_OF_VALUE = {
    "utility_total": "utility",
    "bound_ratio": "bound",
    "acceptance_share": "accepted",
    "training_time_p50_s": "median time",
    "jct_mean_s": "mean JCT",
    "preemptions": "preempted",
    "utilisation_mean": "busy",
}
"""The same where jobs say what they are worth."""

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
"""Column of the differences to the reference."""


def print_json(value: object) -> None:
    """Print `value` as JSON; NaN and infinities become null."""
    out.print_json(json.dumps(finite(value)))


def finite(value: Any) -> Any:
    """`value` with NaN and infinities as None, as JSON needs it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def amount(key: str, value: float | None) -> str:
    """A metric as a person reads it; the unit follows from the key."""
    if value is None:
        return "–"
    if key.endswith("_s"):
        return duration(value)
    if key.endswith("_mb"):
        return f"{value / 1e3:,.1f} GB"
    if key.endswith(("_share", "utilisation_mean")):
        return f"{value:.1%}"
    small = key.startswith("cost_") and not 1000 <= abs(value) < 1e9
    if small or key.startswith(("slowdown", "jct_rate", "bound_ratio")):
        return f"{value:.4g}" if small else f"{value:.2f}" if key == "bound_ratio" and value < 1e4 else f"{value:.3g}"
    return f"{value:,.1f}" if key == "utility_total" else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Seconds in the largest unit that keeps it above 1.5."""
    unit, length = _unit(seconds)
    return f"{seconds / length:.3g} {unit}"


def _unit(seconds: float) -> tuple[str, float]:
    units = (("d", 86400.0), ("h", 3600.0), ("min", 60.0))
    return next((unit for unit in units if abs(seconds) >= unit[1] * 1.5), ("s", 1.0))


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
    """The same jobs under several assumptions, side by side: a row per policy."""
    first = next(iter(comparisons.values()))
    columns = ("jct_mean_s", "jct_rate", "bound_ratio")
    titles = [f"{kind} JCT" if i == 0 else _SHOWN[c] for kind in comparisons for i, c in enumerate(columns)]
    table = _plain_table(f"seed {first.seeds[0]}", ["policy", *titles])
    for policy in first.policies:
        table.add_row(policy, *(_cell(c, one.estimate(policy, c)) for one in comparisons.values() for c in columns))
    return table


def demo_text(comparisons: Mapping[str, Comparison]) -> str:
    """What each kind of jobs of the demo assumes, and which policies are equal on them."""
    lines = [f"{kind}: {_ASSUMED[kind]}; {_equal(one)}" for kind, one in comparisons.items()]
    return "\n".join([*lines, *(f"{kind}: {one.verified_text}" for kind, one in comparisons.items())])


_ASSUMED = {
    "rigid": "a job trains on the GPUs that it asked for, never more; displaced work takes 30 s to be restored",
    "divisible": "the same work is cut into 27 to 115 chunks that as many workers can share, restored at no cost",
}
"""In a sentence."""

_ALIKE = 0.01
"""Mean JCTs that differ by no more than this are called equal on the screen."""


def _equal(comparison: Comparison) -> str:
    """Which policies have equal mean JCTs, within 1 % from the least to the greatest of a group."""
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
    """Columns of the screen by key; with intervals the second is the difference to the reference, not the rate."""
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
    """Ends of an interval in the unit of its mean, which stands above it."""
    ends = [end for end in (value.low, value.high) if end is not None]
    if column.endswith("_s"):
        return "–".join(f"{end / _unit(value.mean)[1]:.3g}" for end in ends)
    return "–".join(amount(column, end).partition(" ")[0] for end in ends)


def _difference(column: str, value: Estimate | None) -> Text:
    if value is None or value.high is None:
        return Text("–")
    half = f"±{amount(column, value.high - value.mean)}{'*' if value.sign else ''}"
    return Text(f"{amount(column, value.mean)}\n").append(half, "dim")


def source_text(source: Mapping[str, Any]) -> str:
    """Where the jobs of a scenario come from, what was left out and what was changed; empty where nothing is known."""
    if not source:
        return ""
    origin = source.get("trace") or source["synthetic"]
    rows = f"{source['rows']:,} rows of " if "rows" in source else ""
    parts = [f"{source['jobs']:,} {source['make']} jobs made of {rows}{origin}"]
    skipped = {**source.get("skipped", {}), "outside skip and first": source.get("outside skip and first", 0)}
    parts += [f"left out: {_counts(skipped)}"] if any(skipped.values()) else []
    parts += [f"changed: {_counts(source['changed'])}"] if source["changed"] else []
    hours = source.get("gpu_hours")
    parts += [f"GPU-hours of the trace {hours['trace']:,.0f}, of the jobs {hours['jobs']:,.0f}"] if hours else []
    return "; ".join(parts)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {what}" for what, n in counts.items() if n)


def metrics_table(metrics: Mapping[str, float | None], title: str) -> Table:
    """All metrics of a run, a row each: key, exact value, reading."""
    table = Table("metric", "value", "reading", title=title)
    for key, value in metrics.items():
        table.add_row(key, "–" if value is None else f"{value:.10g}", amount(key, value))
    return table


def print_explanation(explanation: Explanation, chunks: int) -> None:
    """The decision with its terms, of so many chunks (0: of all), and the job's timeline."""
    out.print(Text.assemble((f"job {explanation.job}", "bold"), f": {explanation.verb} at {explanation.time_s:.6g} s"))
    if explanation.reason:
        out.print(f"reason: {explanation.reason}")
    terms = explanation.terms
    if terms is None:
        out.print("the policy does not tell the terms behind its decisions")
    elif "chunks" in terms:
        _print_chunks(terms, chunks)
    else:
        _print_terms(terms)
    table = Table("from [s]", "until [s]", "what", "server", "", title="timeline")
    for since, until, what, server, detail in explanation.timeline.iter_rows():
        table.add_row(f"{since:.6f}", "" if until is None else f"{until:.6f}", what, server or "", detail)
    out.print(table)


def _print_chunks(terms: Mapping[str, Any], chunks: int) -> None:
    out.print(f"compared: {terms['compares']}, {terms['candidates']} qualified lanes; all in seconds, weighted by 1/D")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0)
    for name in ("chunk", "", "server", "lane"):
        table.add_column(name, no_wrap=name != "chunk")
    for name in ("Q", "delay", "waiting", "process", "others"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("delays job: chunks by", min_width=8)
    rows = terms["chunks"]
    shown = rows[: chunks or len(rows)]
    for row in shown:
        chunk = f"{row['chunk']}" + (" and all after" if row.get("and_all_after") else "")
        for i, option in enumerate([row["chosen"], *row["others"]]):
            table.add_row(chunk if i == 0 else "", "chosen" if i == 0 else "or", *_option(option))
        table.add_section()
    out.print(table)
    if len(shown) < len(rows):
        out.print(f"and {len(rows) - len(shown)} chunks more; --chunks 0 shows all")


def _option(option: Mapping[str, Any]) -> Sequence[str]:
    lane = "–" if option["lane"] is None else str(option["lane"])
    numbers = (option[k] for k in ("q_s", "delay_s", "waiting_s", "processing_s", "others_s"))
    delayed = sorted(option["delays"], key=lambda d: -d["by_s"])
    whom = ", ".join(f"{d['job']}: {d['chunks']} by {duration(d['by_s'])}" for d in delayed[:3])
    more = f" and {len(delayed) - 3} more" if len(delayed) > 3 else ""
    return [option["server"], lane, *(f"{n:.5g}" for n in numbers), whom + more]


def _print_terms(terms: Mapping[str, Any]) -> None:
    for key, value in terms.items():
        if not isinstance(value, list):
            out.print(f"{key}: {value}")
            continue
        table = Table(*(value[0] if value else ["nothing"]), title=f"{key} ({len(value)})")
        for row in value[:20]:
            table.add_row(*(f"{v:.6g}" if isinstance(v, float) else str(v) for v in row.values()))
        out.print(table)
        if len(value) > 20:
            out.print(f"and {len(value) - 20} more; --json shows all")


class JobProgress:
    """Follows a run: jobs arrived and finished."""

    def __init__(self, progress: Progress, jobs: int, label: str) -> None:
        self.progress, self.done = progress, 0
        self.task = progress.add_task(label, total=jobs, at="")

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        if event.finished:
            self.done += len(event.finished)
            self.progress.update(self.task, completed=self.done, at=duration(event.time / SECOND))


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Show what is being done, on a terminal with a sign of life; yields what takes the next thing that is done."""
    with err.status(what, spinner="line") as status:

        def say(now: str) -> None:
            if err.is_terminal:
                status.update(now)
            else:
                err.print(f"{now} …", soft_wrap=True)

        say(what)
        yield say


class _Lines(Progress):
    """Progress for a log: a line at most every half minute."""

    def __init__(self) -> None:
        super().__init__(console=err, disable=True)
        self.said_at = time.monotonic()

    def update(self, task_id: TaskID, **given: Any) -> None:
        """Take note, and say it now and then."""
        super().update(task_id, **given)
        if time.monotonic() - self.said_at >= _EVERY_S:
            self.said_at = time.monotonic()
            task = next(one for one in self.tasks if one.id == task_id)
            err.print(f"{task.description}: {task.completed:g} of {task.total or 0:g}, {task.fields.get('at', '')}")


@contextmanager
def progress(*, quiet: bool) -> Iterator[Progress]:
    """A progress display on stderr, gone when it is done; lines now and then where stderr is no terminal."""
    if not (quiet or err.is_terminal):
        yield _Lines()
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[at]}", justify="right"),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=quiet,
    )
    with bar:
        yield bar
