"""The command line. Errors go to stderr as one sentence and exit with 1; ``--json`` gives machines the same numbers.

A command's module is imported when the command is called: `skedge --help` must not wait for numpy, polars and numba.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from skedge.core.errors import SkedgeError

COMMANDS = {
    "live": (
        "live:live",
        "Train the jobs of a scenario for real, verify the record, keep it in a run folder with a report.",
    ),
    "up": ("service:up", "Start the service; on a state that is there it goes on where it ended."),
    "submit": (
        "service:submit",
        "Give the service a job; an answer that does not come is asked for again, and the job is submitted once.",
    ),
    "queue": ("service:queue", "All jobs: state, progress, when they will be complete, and why they wait."),
    "describe": ("service:describe", "All about one job: why it waits, with numbers, and when it will be complete."),
    "logs": ("service:logs", "The log of a job: what was decided about it, and its losses."),
    "cancel": ("service:cancel", "End a job that is in the system."),
    "events": ("service:events", "What has happened and what was decided, in order; with --json a line each."),
    "servers": ("service:servers", "The servers: up, lost or cordoned, and whose work is there."),
    "cordon": (
        "service:cordon",
        "Take a server out of service: its work moves elsewhere, after the mini-batches under way.",
    ),
    "uncordon": ("service:uncordon", "Put a cordoned server back into service."),
    "down": ("service:down", "End the service and every process of it; jobs in the system go on when it is up again."),
    "record": (
        "service:record",
        "Write what a service has done as a run folder: each decision is taken again from its journal, and verified.",
    ),
    "fetch": (
        "service:fetch",
        "Get a job's trained parameters: a state dict for torch.load, from its newest checkpoint.",
    ),
    "quarantine": (
        "service:quarantine",
        "Put aside a submission that the controller dies of; the service must be down.",
    ),
    "demo": (
        "compare:demo",
        "A Philly-like trace, its jobs rigid and divisible, under six policies: a table and reports, in a minute.",
    ),
    "compare": (
        "compare:compare_command",
        "Policies side by side over several seeds, in parallel, every run verified, with 95 % confidence intervals.",
    ),
    "reproduce": (
        "study:reproduce",
        "Run a paper's figure again, simulated or with real training, check its claim, keep results and figure.",
    ),
    "profile": (
        "profile:profile",
        "Run a few mini-batches of every job on each server type: m, G, q, b of Eq. (1), and Okita's rho.",
    ),
    "export": ("export:export", "A run for Evalys (Batsim's files), or for Perfetto (Chrome-trace JSON)."),
    "optimum": (
        "optimum:optimum",
        "The best schedule found with all that is known in advance, the best bound, and the gap between them.",
    ),
    "run": ("run:run", "Simulate one policy, verify the record, keep it in a run folder."),
    "explain": (
        "explain:explain",
        "Why there, why then: the decision on a job with its terms, and the job's timeline.",
    ),
    "verify": ("verify:verify", "Check every rule of the model on a run's record; exit code 1 if one is broken."),
    "metrics": ("metrics:metrics", "The numbers of a run."),
    "policies": ("policies:policies", "The policies, what they need and what parameters they take."),
    "trace": ("trace:trace_app", "Real traces: what is in them, and scenarios made of them."),
    "deploy": ("deploy:deploy_app", "The live service on Kubernetes: manifests to apply."),
}
"""The commands in the order of the help: module and function (or group) of each, and its docstring."""


class LazyCommand(TyperCommand):
    """A command, or a group of commands, whose module is imported when it is called; until then it has only a help."""

    def __init__(self, name: str, target: str, about: str) -> None:
        super().__init__(name, help=about, rich_markup_mode=None)
        self.target = target

    @cached_property
    def command(self) -> Any:
        """The command itself."""
        module, _, attribute = self.target.partition(":")
        found = getattr(import_module(f"skedge.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            return typer.main.get_command(found)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(self.name)(found)
        return typer.main.get_command(alone)

    def make_context(self, *given: Any, **more: Any) -> Any:
        """Make the context of the command itself: whatever parses words or invokes the command begins with it."""
        return self.command.make_context(*given, **more)


class LazyGroup(TyperGroup):
    """The group of all of :data:`COMMANDS`."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = {name: LazyCommand(name, *of) for name, of in COMMANDS.items()}


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


_ENDED = {130: "interrupted", 143: "ended by SIGTERM"}
"""Exit codes of signals: 128 and the signal's number."""


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the command as Ctrl-C does, so that nothing half-written stays."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def app() -> None:
    """Entry point: one sentence for every error of ours or of the machine, 130 for Ctrl-C, 143 for SIGTERM."""
    try:
        with _ended_by_sigterm():
            commands()
    except SkedgeError as error:
        sentence = str(error)
    except OSError as error:
        sentence = f"{error.filename or 'input or output'}: {error.strerror or error}"
    except UnicodeEncodeError as error:
        sentence = f"the output cannot be written in {error.encoding}; set PYTHONIOENCODING=utf-8"
    except MemoryError:
        sentence = "there is not enough memory for this; take fewer jobs, or --processes 1"
    except SystemExit as done:
        if done.code in _ENDED:
            typer.echo(f"skedge: {_ENDED[done.code]}; nothing was written", err=True)
        raise
    else:
        return
    typer.echo(f"skedge: {sentence}", err=True)
    sys.exit(1)
