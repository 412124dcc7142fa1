"""The command line. An error is one sentence on stderr and exit code 1; ``--json`` prints the same numbers as JSON.

A command's module is imported only when the command is called, so that `skedge --help` does not wait for numpy, polars
and numba.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from skedge.core.errors import SkedgeError
from skedge.platform.signals import unwind_on_signals

from .lazy import LazyCommand

SECTIONS = {
    "Simulation": {
        "demo": "Run Philly-like traces, their jobs rigid and divisible, under six policies: a table and reports, in "
        "a minute.",
        "run": "Simulate one policy, verify the record, and write a run folder.",
        "compare": "Compare policies over several seeds, in parallel, every run verified, with 95 % confidence "
        "intervals.",
        "explain": "Explain where and when a job runs: the decision with its terms, and the job's timeline.",
        "view": "View recorded runs in the browser: lanes, jobs, decisions, servers and a comparison; until Ctrl-C.",
        "report": "Draw recorded runs: one HTML page with metrics, lanes and charts, and the charts as pictures.",
        "verify": "Check a run's record against every rule of the model; exit code 1 if one is broken.",
        "metrics": "Print the metrics of a run.",
        "policies": "List the policies, their needs and their parameters.",
        "replay": "Simulate a recorded run under another policy, and compare every job.",
        "trace": "Describe real traces, and make scenarios from them.",
        "export": "Export a run for Evalys (Batsim's files), or for Perfetto (Chrome-trace JSON).",
    },
    "Bounds and figures": {
        "optimum": "Find the best schedule given all arrivals in advance, the best bound, and the gap between them.",
        "bench": "Run policies over a frozen suite of scenarios with proved bounds, check results, and make a "
        "leaderboard.",
        "reproduce": "Reproduce a paper's figure, simulated or with real training: check its claim, write results and "
        "figure.",
    },
    "Real training": {
        "live": "Train the jobs of a scenario for real, verify the record, and write a run folder with a report.",
        "profile": "Measure a few mini-batches of every job on each server type: m, G, q, b of Eq. (1), and Okita's "
        "rho.",
    },
    "Service": {
        "up": "Start the service; with an existing state it continues where it ended.",
        "submit": "Submit a job to the service; without an answer the request is repeated, and the job is submitted "
        "only once.",
        "resubmit": "Submit a job of the service again, as it was; it starts from the beginning, under a new name.",
        "queue": "List all jobs: state, progress, expected completion, and why they wait.",
        "describe": "Show one job: why it waits, with numbers, and its expected completion.",
        "whatif": "What a submission, a drained or added server, or another policy would do to every job.",
        "token": "Add, list and revoke named tokens of a service, each with a role.",
        "notify": "Send messages to mail, chat or a web address when jobs complete, fail or are preempted.",
        "logs": "Print the log of a job, or what one of its workers printed.",
        "cancel": "Cancel a job that is in the system.",
        "events": "List events and decisions in order; with --json one line each.",
        "servers": "List the servers: up, lost or cordoned, and the jobs on them.",
        "cordon": "Take a server out of service: its work moves elsewhere after the mini-batches under way.",
        "uncordon": "Put a cordoned server back into service.",
        "down": "End the service and all its processes; its jobs continue when it is started again.",
        "record": "Write a service's record to a run folder: every decision is replayed from the journal and verified.",
        "backup": "Copy a service's state, while it is up or down; `skedge up` continues from the copy as after a "
        "crash.",
        "fetch": "Get a job's trained parameters: a state dict for torch.load, from its newest checkpoint.",
        "journal": "Check the journal of a service, and repair it.",
        "quarantine": "Quarantine a submission that makes the controller crash; the service must be down.",
        "deploy": "The live service on Kubernetes: manifests to apply.",
    },
}
"""The help of each command by section, in the order of the help."""

_MODULES = {
    "replay": "whatif",
    "reproduce": "study",
    "token": "tokens",
    **dict.fromkeys(("up", "down", "record", "backup", "fetch", "quarantine"), "service"),
    **dict.fromkeys(("submit", "resubmit", "queue", "describe", "logs", "cancel", "events", "servers"), "requests"),
    **dict.fromkeys(("cordon", "uncordon"), "requests"),
}
"""Modules of the commands that have no module of their own name."""

COMMANDS = {
    name: (f"{_MODULES.get(name, name)}:{name}", about)
    for section in SECTIONS.values()
    for name, about in section.items()
}
"""All commands by name: module and function or group, and help."""


class LazyGroup(TyperGroup):
    """The group of all :data:`COMMANDS`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # instead of decorators, which would import every command's module
        self.commands = {name: LazyCommand(name, *entry) for name, entry in COMMANDS.items()}

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an option's wrong value is refused in our words, not in Pydantic's."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _readable_message(error)
            raise

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """Write the commands by section."""
        # one width for all sections, or each would align by itself
        longest = max(map(len, COMMANDS))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(longest), _first_clause(about)) for name, about in section.items()])


def _readable_message(error: typer.BadParameter) -> str:
    """The message of an error: where it is Pydantic's, the value and what would be right."""
    from pydantic import ValidationError  # noqa: PLC0415 - typer has imported it, but not before a value is read

    from skedge.core.model.wording import plain_message  # noqa: PLC0415 - only for errors

    # typer's own messages are readable
    if not isinstance(error.__cause__, ValidationError):
        return error.message
    details = error.__cause__.errors()[0]
    message = plain_message(details["msg"])
    return message if repr(details["input"]) in message else f"{details['input']!r}: {message}"


def _first_clause(sentence: str) -> str:
    """A sentence up to its first colon or semicolon."""
    return re.split("[:;.]", sentence)[0]


commands = typer.Typer(
    cls=LazyGroup,
    help="Schedulers for distributed machine-learning training over edge servers and a cloud.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # brackets in help are units
)


@commands.callback(invoke_without_command=True)
def version_option(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    """Schedulers for distributed machine-learning training over edge servers and a cloud."""
    if version:
        from importlib.metadata import version as installed  # noqa: PLC0415 - a third of the time of `skedge --help`

        typer.echo(f"skedge {installed('skedge')}")
        raise typer.Exit


_SIGNAL_EXITS = {129: "ended by SIGHUP", 130: "interrupted", 143: "ended by SIGTERM"}
"""Exit codes of signals (128 + the signal's number), with their texts."""


def _notes(error: BaseException | None) -> Iterator[str]:
    """The notes of an error and of those that led to it."""
    while error is not None:
        yield from getattr(error, "__notes__", ())
        # notes may be on what led to the error
        error = error.__cause__ or error.__context__


def app() -> None:
    """Entry point: one sentence for every error of skedge or of the machine; exit codes of signals are 128 + number."""
    try:
        with unwind_on_signals():
            commands()
    except SkedgeError as error:
        sentence = "; ".join([str(error), *_notes(error)])
    # the machine's errors are the user's to solve: a sentence, no traceback
    except OSError as error:
        sentence = f"{error.filename or 'input or output'}: {error.strerror or error}"
    except UnicodeEncodeError as error:
        sentence = f"the output cannot be written in {error.encoding}; set PYTHONIOENCODING=utf-8"
    except MemoryError:
        sentence = "out of memory; take fewer jobs, or --processes 1"
    except SystemExit as done:
        if done.code in _SIGNAL_EXITS:
            left = ", ".join(_notes(done)) or "nothing was written"
            typer.echo(f"skedge: {_SIGNAL_EXITS[done.code]}; {left}", err=True)
        raise
    else:
        return
    typer.echo(f"skedge: {sentence}", err=True)
    sys.exit(1)
