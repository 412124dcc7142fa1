"""``skedge whatif`` and ``skedge replay``: effects on every job, of a running service or of a recorded run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from skedge.core.errors import InputError
from skedge.explanation.what_if import answer_fields, replay_run, state_at, what_if
from skedge.recorded_run import load_complete
from skedge.scenario.yaml import read_yaml

from .client import ask
from .console import duration, out, print_json, print_table
from .lazy import command_group
from .options import STATE, JsonOption, RunArgument, ServerArgument, StateOption

_MAX_ROWS = 20
"""Most jobs that a table lists; --json has all."""

_MAX_NAMES = 5
"""Most jobs that a sentence names."""

RunOption = Annotated[Path | None, typer.Option("--run", help="A run folder, instead of the service.")]
AtOption = Annotated[float | None, typer.Option("--at", help="With --run: the moment of the question [s].", min=0)]

whatif = command_group("What a submission, a drained or added server, or another policy would do to every job.")


@whatif.command()
def submit(
    spec: Annotated[Path, typer.Argument(help="A job spec (YAML).")],
    state: StateOption = STATE,
    folder: RunOption = None,
    at_s: AtOption = None,
    as_json: JsonOption = False,
) -> None:
    """What if this job were submitted now."""
    _answer({"submit": read_yaml(spec)}, state, folder, at_s, as_json=as_json)


@whatif.command()
def drain(
    server: ServerArgument,
    state: StateOption = STATE,
    folder: RunOption = None,
    at_s: AtOption = None,
    as_json: JsonOption = False,
) -> None:
    """What if this server were taken out of service now."""
    _answer({"drain": server}, state, folder, at_s, as_json=as_json)


@whatif.command()
def add(
    server: Annotated[Path, typer.Argument(help="A server (YAML), as in the servers of a cluster file.")],
    state: StateOption = STATE,
    folder: RunOption = None,
    at_s: AtOption = None,
    as_json: JsonOption = False,
) -> None:
    """What if there were this server, too; both sides begin anew with what is left to train."""
    _answer({"add": read_yaml(server)}, state, folder, at_s, as_json=as_json)


@whatif.command()
def policy(
    name: Annotated[str, typer.Argument(metavar="POLICY", help="name or name:key=value,…")],
    state: StateOption = STATE,
    folder: RunOption = None,
    at_s: AtOption = None,
    as_json: JsonOption = False,
) -> None:
    """What if this were the policy; both sides begin anew with what is left to train."""
    _answer({"policy": name}, state, folder, at_s, as_json=as_json)


def _answer(question: dict[str, Any], state: Path, folder: Path | None, at_s: float | None, *, as_json: bool) -> None:
    # a running service is asked about now, a recorded run about some time
    if (folder is None) != (at_s is None):
        raise InputError("--run and --at go together: a run folder, and a moment in it")
    if folder is None or at_s is None:
        answer = ask(state, "POST", "/whatif", json=question)
    else:
        run = load_complete(folder)
        answer = answer_fields(what_if(state_at(run.scenario, run.policy, at_s), question))
    # these two cannot be tried on the running state
    _print(answer, _RESTART_NOTE if question.keys() & {"policy", "add"} else "", as_json=as_json)


def replay(
    folder: RunArgument,
    name: Annotated[str, typer.Option("--policy", help="name or name:key=value,…")],
    save: Annotated[Path | None, typer.Option("--out", help="New run folder for the run.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate a recorded run under another policy, and compare every job."""
    recorded = load_complete(folder)
    answer, new_run = replay_run(recorded, name)
    if save is not None:
        new_run.save(save)
    _print(answer_fields(answer), _SIMULATION_NOTE if recorded.live else "", as_json=as_json)


_RESTART_NOTE = (
    "Both sides begin anew with what is left to train, and upload its data again: "
    "they compare with each other, not with what the queue says."
)
_SIMULATION_NOTE = (
    "The record is a service's: both sides are simulated, with announced times and without the jobs' failures and "
    "cancellations, so that they compare with each other, not with what happened."
)


def _print(answer: Mapping[str, Any], note: str, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    jobs = answer["jobs"]
    if not jobs:
        out.print(f"no job is in the system at {answer['now_s']:.0f} s: nothing would change")
        return
    headings = ("job", "runs from", "would run from", "completes at", "would complete at", "change")
    # ranked: those that change most come first
    print_table(headings, ([row["job"], *_cells(row, answer["now_s"])] for row in jobs[:_MAX_ROWS]))
    if len(jobs) > _MAX_ROWS:
        out.print(f"and {len(jobs) - _MAX_ROWS} jobs more, which change no more than the last; --json shows all")
    for sentence in _sentences(answer):
        out.print(sentence, soft_wrap=True)
    if note:
        out.print(note)


_UNSUMMED = {
    "stranded": "would never complete",
    "freed": "would complete, and never do as things are",
    "never": "never complete, with the change or without it",
}
"""Text for the jobs that are not in the sum, by outcome."""


def _sentences(answer: Mapping[str, Any]) -> Iterator[str]:
    """The jobs that never complete, then the numbers of the others and the sum of their changes."""
    counts = answer["counts"]
    # a job that never completes has no time to add to the sum
    for outcome, words in _UNSUMMED.items():
        names = [row["job"] for row in answer["jobs"] if row["outcome"] == outcome]
        if names:
            yield f"{words}: {len(names)} ({', '.join(names[:_MAX_NAMES])}{', …' if len(names) > _MAX_NAMES else ''})"
    if answer["out_of_service"]:
        yield f"out of service now, and in both forecasts: {', '.join(answer['out_of_service'])}"
    if answer["later_s"] is None:
        yield "no job completes both with the change and without it, so there is no sum"
    else:
        yield f"complete sooner: {counts['sooner']}, later: {counts['later']}; in sum {_change_text(answer['later_s'])}"


def _cells(row: Mapping[str, Any], now: float) -> Sequence[str]:
    """The times of a job: "now" where it runs at the moment of the question, "never", or a dash without the job."""
    sides = ("before", not row["submitted"]), ("after", True)
    times = [
        _time_text(row[f"{event}_{side}_s"], now, has_job)
        for event in ("start", "completion")
        for side, has_job in sides
    ]
    return [*times, _change_text(row["later_s"])]


def _time_text(time: float | None, now: float, has_job: bool) -> str:
    if time is None:
        return "never" if has_job else "–"
    # a replay is asked about 0 s, when nothing runs yet
    return "now" if time <= now > 0 else f"{time:.1f} s"


def _change_text(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{duration(abs(seconds))} {'sooner' if seconds < 0 else 'later'}" if seconds else "0 s"
