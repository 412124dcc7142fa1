"""``skedge bench``: policies over the frozen suite, results checked again, and the leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperGroup

from skedge.bench.board import leaderboard
from skedge.bench.check import PolicyResult, check, read_result
from skedge.bench.result import measure, records_of
from skedge.bench.suite import SEEDS, SIZES, VERSION, tasks
from skedge.report.write import write_report

from .console import amount, out
from .lazy import command_group
from .progress import run_progress


class _RunFirst(TyperGroup):
    """A group whose command ``run`` need not be named: ``skedge bench aonline``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``run`` before policies and their options."""
        # `--help` alone is about the group; any other option belongs to `run`
        named = not args or args[0] in self.commands or args[0] == "--help"
        return super().parse_args(ctx, args if named else ["run", *args])


bench = command_group(
    "Run policies over a frozen suite of scenarios with proved bounds, check results, and make a leaderboard.",
    cls=_RunFirst,
)


@bench.command()
def run(
    policies: Annotated[list[str], typer.Argument(help="Policies, each as name or name:key=value,…")],
    size: Annotated[str, typer.Option(help=f"Size of the scenarios: {', '.join(SIZES)}.")] = "small",
    result: Annotated[
        Path, typer.Option("--out", help="New result file (.json); the records are beside it (.zip).")
    ] = Path("bench.json"),
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds of each scenario; default: all with proved bounds.", min=1)
    ] = None,
    processes: Annotated[int, typer.Option(help="Parallel runs; -1: one per core.")] = -1,
) -> None:
    """Run policies over the suite, verify every record, and write a result file. `run` may be left out."""
    seeds = SEEDS.get(size, 1) if seeds is None else seeds
    total = len(policies) * len(tasks(size, seeds))
    with run_progress(total, "running", quiet=False) as on_run:
        measure(policies, size, seeds, result, processes, on_run)
    for policy_result in read_result(result).policies:
        out.print(_table(policy_result, size))
    out.print(f"result file: {result}; records: {records_of(result)}, every rule verified", soft_wrap=True)


@bench.command("check")
def check_command(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULT...", help="Result files, their records beside them.")
    ],
) -> None:
    """Verify every record of result files again and recompute the scores from them."""
    for path in results:
        result = check(path)
        names = ", ".join(policy_result.policy for policy_result in result.policies)
        out.print(f"{path}: {names}: every record verified, every score is its record's", soft_wrap=True)


@bench.command()
def board(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULT...", help="Result files, their records beside them.")
    ],
    page: Annotated[Path, typer.Option("--out", help="The page, replacing an earlier one.")] = Path("leaderboard.html"),
) -> None:
    """Check result files and rank their policies in one HTML page that needs no network."""
    write_report(page, leaderboard([check(path) for path in results]))
    out.print(f"leaderboard: {page}", soft_wrap=True)


def _table(result: PolicyResult, size: str) -> Table:
    """The scores of a policy; the scenarios that it cannot run are named below."""
    # a set in order: the reason is the same at every seed
    not_run = dict.fromkeys(f"{s.scenario}: {s.why}" for s in result.scores if s.record is None)
    title, caption = f"{result.policy}: suite {VERSION}, {size}", "\n".join(["not run:", *not_run]) if not_run else None
    table = Table("scenario", "seed", "metric", "value", "score", title=title, caption=caption)
    for s in result.scores:
        if s.record is not None:
            score_text = s.why if s.score is None else f"{s.score:.3f}"
            table.add_row(s.scenario, str(s.seed), s.metric, amount(s.metric, s.value), score_text)
    return table
