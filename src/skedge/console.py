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

from .compare import Comparison, Estimate
from .core.events import Event
from .core.time import SECOND
from .explain import Explanation

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


def print_json(value: object) -> None:
    """Print `value` as JSON; NaN and infinities become null."""
    out.print_json(json.dumps(_finite(value)))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
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
    """Seconds in the largest unit that keeps it above 1."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if abs(seconds) >= length * 1.5:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def comparison_table(comparison: Comparison) -> Table:
    """One row per policy: means, and half widths of 95 % intervals where there are several seeds."""
    of_value = "utility_total" in comparison.columns
    shown = dict(_SHOWN_OF_VALUE if of_value else _SHOWN)
    if "cost_total" in comparison.columns:
        shown = dict(_SHOWN_OF_COST)
    if not of_value and any(row["rejected"] for rows in comparison.metrics.values() for row in rows):
        shown["rejected"] = "rejected"
    seeds = comparison.seeds
    title = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds, {seeds[0]} to {seeds[-1]}: mean ± 95 %"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column("policy", no_wrap=True)
    for column in shown.values():
        table.add_column(column, justify="right", no_wrap=True)
    for policy in comparison.policies:
        table.add_row(policy, *(_cell(column, comparison.estimate(policy, column)) for column in shown))
    return table


def _cell(column: str, value: Estimate | None) -> Text:
    if value is None:
        return Text("–")
    text = Text(amount(column, value.mean))
    if value.high is not None and value.low != value.high:
        text.append(f"\n±{amount(column, value.high - value.mean)}", "dim")
    return text


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
