"""The command line. Errors go to stderr as one sentence and exit with 1; ``--json`` gives machines the same numbers."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import polars as pl
import typer
from rich.text import Text

from skedge.analysis.verify.rules import Violation
from skedge.compare import folder_name, scenario_of
from skedge.core.errors import SkedgeError
from skedge.core.policy import in_a_line, registered
from skedge.explain import explain as explain_job
from skedge.run import Run, load_whole, new_folder, prepared
from skedge.run import run as run_policy
from skedge.runs.meta import is_installed
from skedge.testing.rerun import difference

from .compare import compare_command, demo
from .console import JobProgress, err, metrics_table, out, print_explanation, print_json, progress, source_text
from .deploy import deploy_app
from .export import export
from .live import live
from .optimum import optimum
from .profile import profile
from .service import COMMANDS as SERVICE_COMMANDS
from .study import reproduce
from .trace import trace_app

commands = typer.Typer(
    help="Schedulers for distributed machine-learning training over edge servers and a cloud.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # brackets in help are units
)
commands.add_typer(trace_app, name="trace")
commands.add_typer(deploy_app, name="deploy")
commands.command()(live)
for service_command in SERVICE_COMMANDS:
    commands.command()(service_command)
commands.command()(demo)
commands.command(name="compare")(compare_command)
commands.command()(reproduce)
commands.command()(profile)
commands.command()(export)
commands.command()(optimum)


@commands.callback(invoke_without_command=True)
def version_option(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    """Schedulers for distributed machine-learning training over edge servers and a cloud."""
    if version:
        out.print(f"skedge {installed_version('skedge')}")
        raise typer.Exit


ScenarioArgument = Annotated[str, typer.Argument(help="A scenario file (YAML), or a shipped one: demo, s1 to s4.")]
RunArgument = Annotated[Path, typer.Argument(help="A run folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SeedOption = Annotated[int | None, typer.Option(help="Seed instead of the scenario's.", min=0)]


@commands.command()
def run(
    scenario: ScenarioArgument,
    policy: Annotated[str, typer.Option(help="name or name:key=value,…; see `skedge policies`.")] = "aonline",
    folder: Annotated[Path | None, typer.Option("--out", help="Run folder to make; default runs/….")] = None,
    seed: SeedOption = None,
    verify: Annotated[bool, typer.Option(help="Check every rule of the model on the record.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Simulate one policy, verify the record, keep it in a run folder."""
    loaded = scenario_of(scenario, seed)
    made = prepared(policy, loaded)
    target = folder or Path("runs") / folder_name(f"{loaded.name}-{policy}-seed{loaded.seed}")
    with new_folder(target) as inside:
        with progress(quiet=as_json) as bar:
            result = run_policy(loaded, made, progress=JobProgress(bar, len(loaded.jobs), made.name))
        violations = result.verify() if verify else []
        result.write(inside)
    if as_json:
        found = [asdict(one) for one in violations]
        numbers = {"violations": found, "metrics": result.metrics, "decisions_s": result.decisions_s}
        print_json({"folder": str(target), "source": loaded.source, **numbers})
    else:
        out.print(metrics_table(result.metrics, f"{policy} on {loaded.name}, seed {loaded.seed}"))
        if loaded.source:
            out.print(source_text(loaded.source), soft_wrap=True)
        left = result.jobs.filter(pl.col("state").cast(pl.String) != "finished")
        if len(left):
            first = f"the first, {left['id'][0]}: {left['reason'][0]}"
            out.print(f"{len(left)} of {len(loaded.jobs)} jobs did not finish; {first}", soft_wrap=True)
        verified = ", every rule verified" if verify and not violations else ""
        took = "" if result.decisions_s is None else f"; decisions took {result.decisions_s:.2f} s of CPU"
        out.print(f"run folder: {target}{verified}{took}", soft_wrap=True)
    _fail_on(violations, quiet=as_json)


@commands.command()
def explain(
    folder: RunArgument,
    job: Annotated[str, typer.Argument(help="Id of a job.")],
    chunks: Annotated[int, typer.Option(help="Show so many chunks; 0: all.", min=0)] = 3,
    at: Annotated[float | None, typer.Option(help="The first decision from then on [s].", min=0)] = None,
    as_json: JsonOption = False,
) -> None:
    """Why there, why then: the decision on a job with its terms, and the job's timeline."""
    explanation = explain_job(load_whole(folder), job, at)
    if as_json:
        print_json({**explanation.__dict__, "timeline": explanation.timeline.to_dicts()})
    else:
        print_explanation(explanation, chunks)


@commands.command()
def verify(
    folder: RunArgument,
    replay: Annotated[
        bool, typer.Option("--replay", help="Also run the policy again, and compare every table.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check every rule of the model on a run's record; exit code 1 if one is broken."""
    kept = Run.load(folder)
    violations = kept.verify()
    if replay and (differs := difference(kept)) is not None:
        violations.append(Violation("M37", "definition", None, None, differs))
    if as_json:
        print_json([asdict(v) for v in violations])
    elif not violations:
        live = f" (a live run: times to within {kept.tolerance / 1e6:g} s)" if kept.live else ""
        out.print(f"{folder}: every rule holds{live}" + (", and the policy gives this record again" if replay else ""))
        if not is_installed(kept.meta):
            out.print(
                f"policy {kept.policy!r} is not installed: its parameters, lanes and promises are taken as run.json "
                "has them"
            )
    _fail_on(violations, quiet=as_json)


@commands.command()
def metrics(folder: RunArgument, as_json: JsonOption = False) -> None:
    """The numbers of a run."""
    result = load_whole(folder)
    if as_json:
        print_json(result.metrics)
    else:
        out.print(metrics_table(result.metrics, result.policy))


@commands.command()
def policies(as_json: JsonOption = False) -> None:
    """The policies, what they need and what parameters they take."""
    rows = [_policy_row(name, point) for name, point in registered().items()]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        needs = f"  (needs {', '.join(row['needs'])})" if row["needs"] else ""
        out.print(Text.assemble((row["name"], "bold"), f": {row['about']}{needs}"))
        for parameter in row["parameters"]:
            out.print(Text.assemble(f"    {parameter['name']}={parameter['default']}  ", (parameter["type"], "dim")))


def _policy_row(name: str, point: Any) -> dict[str, Any]:
    try:
        return _described(name, point.load())
    except (Exception, SystemExit) as error:  # a package not ours can raise anything; the others are shown all the same
        return {"name": name, "about": f"cannot be loaded: {in_a_line(error)}", "needs": [], "parameters": []}


def _described(name: str, factory: Any) -> dict[str, Any]:
    fields = factory.Parameters.model_fields.items() if hasattr(factory, "Parameters") else ()
    parameters = [{"name": key, "default": _text(f.default), "type": _kind(f.annotation)} for key, f in fields]
    about = next(iter((factory.__doc__ or "").strip().splitlines()), "")
    return {"name": name, "about": about, "needs": sorted(getattr(factory, "needs", ())), "parameters": parameters}


def _text(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _kind(annotation: Any) -> str:
    """What a parameter takes, in words."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(parts[0])
    if origin is Literal:
        return " | ".join(map(str, parts))
    if origin is tuple:
        return "numbers with semicolons between"
    if parts:
        return " | ".join(map(_kind, parts))
    return _KINDS.get(annotation, str(annotation))


_KINDS = {int: "whole number", float: "number", bool: "true | false", str: "text", type(None): "none"}


def _fail_on(violations: list[Any], *, quiet: bool) -> None:
    if not violations:
        return
    if not quiet:
        for v in violations:
            time = "" if v.time is None else f" at {v.time} µs"
            err.print(f"{v.rule} {v.constraint}: job {v.job}{time}: {v.message}", soft_wrap=True)
    raise typer.Exit(1)


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
            err.print(f"skedge: {_ENDED[done.code]}; nothing was written")
        raise
    else:
        return
    err.print(f"skedge: {sentence}", soft_wrap=True)
    sys.exit(1)
