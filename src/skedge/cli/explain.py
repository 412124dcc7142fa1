"""``skedge explain``: why a job was placed where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from skedge.explanation.explain import Explanation
from skedge.explanation.explain import explain as explain_job
from skedge.recorded_run import load_complete

from .console import duration, out, print_json, print_table
from .options import JsonOption, RunArgument


def explain(
    folder: RunArgument,
    job: Annotated[str, typer.Argument(help="Id of a job.")],
    chunks: Annotated[int, typer.Option(help="Number of chunks to show; 0: all.", min=0)] = 3,
    at_s: Annotated[
        float | None, typer.Option("--at", help="Explain the first decision from this time on [s].", min=0)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain where and when a job runs: the decision with its terms, and the job's timeline."""
    explanation = explain_job(load_complete(folder), job, at_s)
    if as_json:
        print_json({**explanation.__dict__, "timeline": explanation.timeline.to_dicts()})
    else:
        print_explanation(explanation, chunks)


def print_explanation(explanation: Explanation, chunks: int) -> None:
    """Print the decision with its terms, for at most `chunks` chunks (0: all), and the job's timeline."""
    out.print(Text.assemble((f"job {explanation.job}", "bold"), f": {explanation.verb} at {explanation.time_s:.6g} s"))
    if explanation.reason:
        out.print(f"reason: {explanation.reason}")
    terms = explanation.terms
    if terms is None:
        out.print("the policy does not report the terms behind its decisions")
    elif "chunks" in terms:
        _print_chunks(terms, chunks)
    else:
        _print_terms(terms)
    _print_later(explanation.later_s)
    rows = (
        (f"{since:.6f}", "" if until is None else f"{until:.6f}", action, server or "", detail)
        for since, until, action, server, detail in explanation.timeline.iter_rows()
    )
    print_table(("from [s]", "until [s]", "what", "server", ""), rows, title="timeline")


def _print_later(times_s: Sequence[float]) -> None:
    if times_s:
        named = ", ".join(f"{time:.15g}" for time in times_s[:3])
        ellipsis = ", …" if len(times_s) > 3 else ""
        out.print(
            f"later decisions: {len(times_s)}, at {named}{ellipsis} s; --at {times_s[0]:.15g} explains the next",
            soft_wrap=True,
        )


def _print_chunks(terms: Mapping[str, Any], chunks: int) -> None:
    out.print(f"compared: {terms['compares']}, {terms['candidates']} qualified lanes; all in seconds, weighted by 1/D")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0)
    for name in ("chunk", "", "server", "lane"):
        table.add_column(name, no_wrap=name != "chunk")
    for name in ("Q", "delay", "waiting", "process", "others"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("delays job: chunks by", min_width=8)
    rows = terms["chunks"]
    first_rows = rows[: chunks or len(rows)]
    for row in first_rows:
        chunk = f"{row['chunk']}" + (" and all after" if row.get("and_all_after") else "")
        # the chosen lane, then the next best ones
        for i, option in enumerate([row["chosen"], *row["others"]]):
            table.add_row(chunk if i == 0 else "", "chosen" if i == 0 else "or", *_option(option))
        table.add_section()
    out.print(table)
    if len(first_rows) < len(rows):
        out.print(f"and {len(rows) - len(first_rows)} chunks more; --chunks 0 shows all")


def _option(option: Mapping[str, Any]) -> Sequence[str]:
    lane = "–" if option["lane"] is None else str(option["lane"])
    numbers = (option[k] for k in ("q_s", "delay_s", "waiting_s", "processing_s", "others_s"))
    # the most delayed first, as only three are named
    delayed = sorted(option["delays"], key=lambda d: -d["by_s"])
    whom = ", ".join(f"{d['job']}: {d['chunks']} by {duration(d['by_s'])}" for d in delayed[:3])
    suffix = f" and {len(delayed) - 3} more" if len(delayed) > 3 else ""
    return [option["server"], lane, *(f"{n:.5g}" for n in numbers), whom + suffix]


def _print_terms(terms: Mapping[str, Any]) -> None:
    for key, value in terms.items():
        if not isinstance(value, list):
            out.print(f"{key}: {value}", soft_wrap=True)
            continue
        rows = ([f"{v:.6g}" if isinstance(v, float) else str(v) for v in row.values()] for row in value[:20])
        print_table(list(value[0]) if value else ["nothing"], rows, title=f"{key} ({len(value)})")
        if len(value) > 20:
            out.print(f"and {len(value) - 20} more; --json shows all")
