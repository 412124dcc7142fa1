"""The command line. Errors go to stderr as one sentence and exit with 1; ``--json`` gives machines the same numbers."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import asdict
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import polars as pl
import typer
from rich.text import Text

from .analysis.rules import Violation
from .compare import Comparison, compare, scenario_of
from .console import (
    JobProgress,
    comparison_table,
    err,
    metrics_table,
    out,
    print_explanation,
    print_json,
    progress,
)
from .core.errors import InputError, RunFolderError, SkedgeError
from .core.policy import registered
from .deploy_commands import deploy_app
from .explain import explain as explain_job
from .export_commands import export
from .live_commands import live
from .optimum_commands import optimum
from .profile_commands import profile
from .replay import difference
from .report.build import ReportRun, ReportTable, build_report, write_report
from .run import Run, load_whole, new_folder, prepared
from .run import run as run_policy
from .service_commands import COMMANDS as SERVICE_COMMANDS
from .study_commands import reproduce
from .trace_commands import trace_app

DEMO_POLICIES = ("aonline", "aonline:cloud=false", "srtf", "tiresias", "fifo", "fifo:rule=earliest_server")
"""What ``skedge demo`` and ``skedge compare`` set side by side unless told otherwise."""

commands = typer.Typer(
    help="Schedulers for distributed machine-learning training over edge servers and a cloud.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
commands.add_typer(trace_app, name="trace")
commands.add_typer(deploy_app, name="deploy")
commands.command()(live)
for service_command in SERVICE_COMMANDS:
    commands.command()(service_command)
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
def demo(
    folder: Annotated[Path, typer.Option("--out", help="Where the runs and report.html go.")] = Path("skedge-demo"),
    seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """A Philly-like trace, six policies side by side, a table and report.html, in a minute."""
    if os.path.lexists(folder) and not _is_demo(folder):
        raise RunFolderError(f"{folder}: exists and is not an earlier demo; name another folder with --out")
    with new_folder(folder, replacing=True) as inside:
        comparison = _compared("demo", DEMO_POLICIES, [seed], quiet=as_json)
        for policy, result in zip(comparison.policies, comparison.first, strict=True):
            made = inside / _folder_name(policy)
            made.mkdir()
            result.write(made)
        write_report(inside / "report.html", _report(comparison, "skedge demo", "skedge demo"))
    _show(comparison, as_json=as_json)
    if not as_json:
        a_run = folder / _folder_name(comparison.policies[0])
        out.print(f"the picture:  {folder / 'report.html'}", soft_wrap=True)
        out.print(
            f"why a job is where it is:  {_program()} explain {a_run} {_interesting(comparison.first[0])}",
            soft_wrap=True,
        )


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
    target = folder or Path("runs") / _folder_name(f"{loaded.name}-{policy}-seed{loaded.seed}")
    with new_folder(target) as inside:
        with progress(quiet=as_json) as bar:
            result = run_policy(loaded, made, progress=JobProgress(bar, len(loaded.jobs), made.name))
        violations = result.verify() if verify else []
        result.write(inside)
    if as_json:
        found = [asdict(one) for one in violations]
        numbers = {"violations": found, "metrics": result.metrics, "decisions_s": result.decisions_s}
        print_json({"folder": str(target), **numbers})
    else:
        out.print(metrics_table(result.metrics, f"{policy} on {loaded.name}, seed {loaded.seed}"))
        left = result.jobs.filter(pl.col("state").cast(pl.String) != "finished")
        if len(left):
            first = f"the first, {left['id'][0]}: {left['reason'][0]}"
            out.print(f"{len(left)} of {len(loaded.jobs)} jobs did not finish; {first}", soft_wrap=True)
        verified = ", every rule verified" if verify and not violations else ""
        took = "" if result.decisions_s is None else f"; decisions took {result.decisions_s:.2f} s of CPU"
        out.print(f"run folder: {target}{verified}{took}", soft_wrap=True)
    _fail_on(violations, quiet=as_json)


@commands.command(name="compare")
def compare_command(
    scenario: ScenarioArgument,
    policies: Annotated[str, typer.Option(help="Policies, separated by commas.")] = ",".join(DEMO_POLICIES),
    seeds: Annotated[int, typer.Option(help="How many seeds, from the scenario's on.", min=1)] = 5,
    processes: Annotated[int, typer.Option(help="Runs at a time; -1: one per core.")] = -1,
    report: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("comparison.html"),
    as_json: JsonOption = False,
) -> None:
    """Policies side by side over several seeds, in parallel, with 95 % confidence intervals."""
    _check_report(report)
    first = scenario_of(scenario).seed
    names = split_policies(policies)
    comparison = _compared(scenario, names, [first + i for i in range(seeds)], processes, quiet=as_json)
    command = f"skedge compare {scenario} --policies {policies} --seeds {seeds}"
    try:
        write_report(report, _report(comparison, f"skedge: {scenario}", command))
    except OSError as error:
        raise InputError(f"{report}: the report cannot be written: {error.strerror}") from error
    _show(comparison, as_json=as_json)
    if not as_json:
        out.print(f"the picture (first seed):  {report}")


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
        factory = point.load()
    except Exception as error:  # a stranger's package; the other policies are shown all the same
        return {"name": name, "about": f"cannot be loaded: {error}", "needs": [], "parameters": []}
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


def split_policies(text: str) -> list[str]:
    """Policies of a comma-separated list; ``key=value`` after a comma goes on the policy before it."""
    specs: list[str] = []
    for part in text.split(","):
        if specs and "=" in part and ":" not in part.split("=")[0]:
            specs[-1] += "," + part
        else:
            specs.append(part.strip())
    return specs


def _is_demo(folder: Path) -> bool:
    """Whether `folder` holds what a demo makes and nothing else, so that it may be replaced."""
    if not (folder / "report.html").is_file():
        return False
    return all(entry.name == "report.html" or (entry / "run.json").is_file() for entry in folder.iterdir())


def _check_report(path: Path) -> None:
    """Find out before a long comparison that its report cannot be written."""
    wrong = None if os.path.isdir(path.parent) else f"{path.parent} is not a folder"
    if os.path.isdir(path):
        wrong = "it is a folder"
    if wrong is None and not os.access(path.parent, os.W_OK):
        wrong = f"{path.parent} does not let files be made in it"
    if wrong is not None:
        raise InputError(f"{path}: the report cannot be written: {wrong}; name a file in a folder that is there")


def _compared(
    scenario: str,
    names: tuple[str, ...] | list[str],
    seeds: list[int | None] | list[int],
    processes: int = -1,
    *,
    quiet: bool,
) -> Comparison:
    with progress(quiet=quiet) as bar:
        task = bar.add_task("comparing", total=len(names) * len(seeds), at="")

        def done(policy: str, seed: int) -> None:
            bar.update(task, advance=1, at=f"{policy}, seed {seed}")

        return compare(scenario, names, seeds, processes=processes, progress=done)


def _show(comparison: Comparison, *, as_json: bool) -> None:
    if as_json:
        references = [None if r is None else asdict(r) for r in comparison.references]
        print_json({"seeds": comparison.seeds, "metrics": comparison.metrics, "bounds": references})
    else:
        out.print(comparison_table(comparison))
        for text in filter(None, (comparison.bound_text, comparison.unfinished_text)):
            out.print(text, soft_wrap=True)


def _report(comparison: Comparison, title: str, command: str) -> str:
    runs = [
        ReportRun(policy, r.scenario, r.schedule, r.metrics, r.utilisation)
        for policy, r in zip(comparison.policies, comparison.first, strict=True)
    ]
    rows = []
    for policy in comparison.policies:
        estimates = (comparison.estimate(policy, column) for column in comparison.columns)
        rows.append([policy, *(None if e is None else dict(e.__dict__) for e in estimates)])
    notes = ["means over seeds with 95 % confidence intervals (Student's t)"] if len(comparison.seeds) > 1 else []
    note = "; ".join([*notes, *filter(None, (comparison.bound_text, comparison.unfinished_text))])
    scenario = comparison.first[0].scenario
    versions = comparison.first[0].meta["versions"]
    settings = {
        "compared seeds": ", ".join(map(str, comparison.seeds)),
        "chunks": str(int(scenario.jobs.chunks.sum())),
        "versions": ", ".join(f"{k} {v}" for k, v in versions.items()),
        "command": command,
    }
    return build_report(runs, ReportTable(["policy", *comparison.columns], rows, note=note), title, settings)


def _program() -> str:
    """How the user called skedge: by its path where the name alone would not find it."""
    return "skedge" if shutil.which("skedge") else sys.argv[0]


def _folder_name(policy: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in policy)


def _interesting(result: Run) -> str:
    """The job that postponed the most chunks of others: there is something to explain."""
    harm = result.schedule.decisions.group_by("job").agg(pl.col("postponed").sum()).sort("postponed", "job")
    return str(result.scenario.jobs.ids[int(harm["job"][-1]) if len(harm) else 0])


def _fail_on(violations: list[Any], *, quiet: bool) -> None:
    if not violations:
        return
    if not quiet:
        for v in violations:
            time = "" if v.time is None else f" at {v.time} µs"
            err.print(f"{v.rule} {v.constraint}: job {v.job}{time}: {v.message}", soft_wrap=True)
    raise typer.Exit(1)


def app() -> None:
    """Entry point: one sentence for every error of ours or of the machine, 130 for Ctrl-C."""
    try:
        commands()
    except SkedgeError as error:
        sentence = str(error)
    except OSError as error:
        sentence = f"{error.filename or 'input or output'}: {error.strerror or error}"
    except MemoryError:
        sentence = "there is not enough memory for this; take fewer jobs, or --processes 1"
    except SystemExit as done:
        if done.code == 130:
            err.print("skedge: interrupted; nothing was written")
        raise
    else:
        return
    err.print(f"skedge: {sentence}", soft_wrap=True)
    sys.exit(1)
