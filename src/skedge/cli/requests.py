"""Commands that ask a running service: ``skedge submit``, ``queue``, ``describe``, ``cancel`` and others."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from skedge.core.errors import InputError
from skedge.core.model.escape import escaped
from skedge.live.controller.states import STATES, WAITING
from skedge.live.worker.code_archive import digest, pack
from skedge.scenario.file import read_spec

from .client import NoAnswerError, ask, send_request
from .console import duration, err, out, print_answer, print_json, print_table
from .options import STATE, JobArgument, JsonOption, ServerArgument, StateOption

_POLL_S = 0.5
"""Between two looks of what is followed [s]."""

_TRIES, _PAUSE_S = 4, 2.0
"""Most times that a submission is sent if no answer comes, and the pause before it is repeated [s]."""
_STALL_FACTOR, _IDLE_S = 10.0, 10.0
"""A job counts as idle without a mini-batch for this multiple of its usual time, and for at least this long [s]."""


def submit(
    spec: Annotated[Path, typer.Argument(help="A job spec (YAML), or a Python script that states one.")],
    state: StateOption = STATE,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: one spec with one key is one job. Default: a new key.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Submit a job to the service; without an answer the request is repeated, and the job is submitted only once."""
    fields = read_spec(spec)
    # one key for all tries, so that a repeated request is the same submission
    key = key or key_of(fields)
    if "code" in fields["train"]:
        # the path means nothing to the service: the code is sent and named by its digest
        fields["train"] = {**fields["train"], "code": _send_code(state, Path(fields["train"]["code"]))}
    job = _submit_once(state, "/jobs", key, "skedge submit SPEC", json=fields)
    print_answer({"job": job}, f"{job} submitted", as_json=as_json)


def key_of(fields: Mapping[str, Any]) -> str:
    """The key of a submission that was given none: of the spec and the time of the first try, for all its tries."""
    # the time is part of it: the same spec may be submitted twice on purpose
    text = json.dumps(fields, sort_keys=True, default=str)
    return f"{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}-{time.time_ns()}"


def _send_code(state: Path, path: Path) -> str:
    """Send a job's code to the service; returns its name."""
    code = pack(path)
    ask(state, "PUT", f"/code/{digest(code)}", content=code)
    return digest(code)


def resubmit(
    job: JobArgument,
    state: StateOption = STATE,
    key: Annotated[str | None, typer.Option(help="Idempotency key, as of `skedge submit`. Default: a new key.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Submit a job of the service again, as it was; it starts from the beginning, under a new name."""
    key = key or key_of({"again": job})
    new_job = _submit_once(state, f"/jobs/{job}/resubmit", key, f"skedge resubmit {job}")
    print_answer({"job": new_job}, f"{new_job} submitted", as_json=as_json)


def _submit_once(state: Path, path: str, key: str, command: str, **options: Any) -> str:
    """Post a job, and repeat the request with the same key if no answer comes; returns the job's name."""
    for _ in range(_TRIES - 1):
        # without an answer the job may be submitted already: the key makes repeating safe
        with suppress(NoAnswerError):
            return str(ask(state, "POST", path, {"Idempotency-Key": key}, **options))
        time.sleep(_PAUSE_S)
    try:
        return str(ask(state, "POST", path, {"Idempotency-Key": key}, **options))
    except NoAnswerError as error:
        advice = f"the job may or may not be submitted: `{command} --key {key}` repeats the request safely"
        raise NoAnswerError(f"{error}; {advice}") from error


def queue(
    state: StateOption = STATE,
    only: Annotated[str | None, typer.Option("--only", help="Jobs in this state, such as RUNNING or PENDING.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List all jobs: state, progress, expected completion, and why they wait."""
    if only is not None and only.upper() not in STATES:
        raise InputError(f"--only {only!r}: is no state of a job; the states are {', '.join(STATES)}")
    rows = _all_rows(state, "/jobs", {} if only is None else {"state": only})
    if as_json:
        print_json(rows)
        return
    # only on clusters with tenants
    sharing_columns = ["tenant", "class"] if rows and "tenant" in rows[0] else []
    # words that are looked for are not broken
    state_column, reason_column = (Column(heading, no_wrap=True) for heading in ("state", "reason"))
    table = Table(
        "job", *sharing_columns, state_column, "progress", "servers", "starts in", "completes in", reason_column
    )
    for row in rows:
        starts = _time_until(row, "start_s") if row["state"] in WAITING else ""
        completes = "never" if row["never_completes"] else _time_until(row, "forecast_s")
        # a running job waits for nothing, but its process may be stuck
        reason = row["reason"]["token"] if row["state"] != "RUNNING" else _stall_text(row)
        progress = f"{row['progress']:.0%}"
        sharing_cells = [row["tenant"], str(row["priority"])] if sharing_columns else []
        table.add_row(
            row["job"], *sharing_cells, row["state"], progress, ", ".join(row["servers"]), starts, completes, reason
        )
    out.print(table)


def _all_rows(state: Path, path: str, params: Mapping[str, Any], since: int = 0) -> list[dict[str, Any]]:
    """All rows from number `since` on, page by page."""
    rows: list[dict[str, Any]] = []
    while page := ask(state, "GET", path, params={**params, "since": since}):
        rows += page
        # rows are numbered, so none is missed or doubled if more come between pages
        since = page[-1]["n"] + 1
    return rows


def _stall_text(row: Mapping[str, Any]) -> str:
    """Since when a job that trains has had no mini-batch, if that is long; else nothing."""
    idle_s, usual_s = row["idle_s"], row["usual_s"] or 0.0
    # mini-batches vary: ten times the usual is long, but less than ten seconds never is
    if idle_s is None or idle_s < max(_STALL_FACTOR * usual_s, _IDLE_S):
        return ""
    word = {"stalled": "stalled, "}.get(row["reason"]["token"], "")
    return f"{word}no mini-batch for {duration(idle_s)}"


def _time_until(row: Mapping[str, Any], name: str) -> str:
    """The time from now to a field of `row`, in words; nothing if there is none."""
    return "" if row[name] is None else duration(max(row[name] - row["now_s"], 0.0))


def describe(job: JobArgument, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Show one job: why it waits, with numbers, and its expected completion."""
    status = ask(state, "GET", f"/jobs/{job}")
    if as_json:
        print_json(status)
        return
    out.print(f"job {status['job']}: {status['state']}, {status['progress']:.1%} of its mini-batches")
    if "tenant" in status:
        out.print(f"tenant {status['tenant']}, class {status['priority']}")
    token, message = status["reason"]["token"], status["message"]
    out.print(f"reason: {token}" + (f": {message}" if message != token else ""), soft_wrap=True)
    _print_code(status["code"])
    _print_processes(status)
    if status["servers"]:
        out.print(f"on: {', '.join(status['servers'])}")
    if status["devices"]:
        server_devices = (f"{server} {', '.join(devices)}" for server, devices in status["devices"].items())
        out.print(f"devices: {'; '.join(server_devices)}", soft_wrap=True)
    if status["forecast_s"] is not None:
        time_text = f"{status['forecast_s']:.1f} s"
        out.print(f"forecast: complete in {_time_until(status, 'forecast_s')}, at {time_text}, if no other job comes")
    if status["never_completes"]:
        out.print("forecast: it never completes unless something changes")
    if status["forecast_from_s"] is not None:
        out.print(f"in 4 of 5 cases between {status['forecast_from_s']:.1f} and {status['forecast_to_s']:.1f} s")
    if status["start_s"] is not None:
        starts = f"starts in {_time_until(status, 'start_s')}," if status["state"] in WAITING else "started"
        out.print(f"{starts} at {status['start_s']:.1f} s")
    # what the service has found by trying
    for remedy in status["help"]:
        out.print(f"{remedy['change']}: starts at {remedy['start_s']:.1f} s")
    if status["accuracy"] is not None:
        out.print(f"{status['metric'] or 'accuracy'}: {status['accuracy']:.3f}")
    # why there is no figure
    elif status["unmeasured"]:
        out.print(status["unmeasured"], soft_wrap=True)
    _print_events(status["history"])


def _print_code(code: Mapping[str, Any]) -> None:
    """Print which code a job runs, and how it differs from that of the last job with its factory."""
    if code["sha256"] is None:
        return
    out.print(f"code: SHA-256 {code['sha256'][:12]}{' (sent with it)' if code['shipped'] else ' (installed)'}")
    if code["last"] is not None:
        out.print(f"code of {code['last']['job']}, the last before it: {_code_difference(code)}", soft_wrap=True)


def _code_difference(code: Mapping[str, Any]) -> str:
    """The difference of the code from the last, in words."""
    last = code["last"]
    if last["sha256"] == code["sha256"]:
        return "the same"
    parts = (f"{kind} {', '.join(last[kind])}" for kind in ("added", "removed", "changed") if last[kind])
    return f"SHA-256 {last['sha256'][:12]}; " + ("; ".join(parts) or "which files differ is not known")


def _print_processes(status: Mapping[str, Any]) -> None:
    """Print what is known of a job's processes: since when there is no mini-batch, and who has printed something."""
    if stall_text := _stall_text(status):
        out.print(f"{stall_text}; one usually takes {duration(status['usual_s'] or 0.0)}")
    if status["printed"]:
        command = f"`skedge logs {status['job']} --worker W` shows it"
        out.print(f"printed: {_sizes(status['printed'])}; {command}", soft_wrap=True)


def _print_events(rows: list[dict[str, Any]]) -> None:
    cells = ((f"{row['time_s']:.3f}", row["what"], row["job"] or "", row["detail"]) for row in rows)
    print_table(("time s", "what", "job", ""), cells)


def logs(
    job: JobArgument,
    state: StateOption = STATE,
    worker: Annotated[str | None, typer.Option(help="Print what this worker of the job has printed.")] = None,
    tail: Annotated[int | None, typer.Option(help="Number of lines to print, from the end.", min=1)] = None,
    follow: Annotated[bool, typer.Option(help="Keep running, and print new lines until the job has left.")] = False,
) -> None:
    """Print the log of a job, or what one of its workers printed."""
    params = {} if worker is None else {"worker": worker}
    lines, offset = _read_log(state, job, params, 0)
    sys.stdout.write("".join(lines if tail is None else lines[-tail:]))
    # on stderr, so that the log itself can be piped
    if worker is None and (printed := ask(state, "GET", f"/jobs/{job}/workers")):
        err.print(f"printed: {_sizes(printed)}; `skedge logs {job} --worker W` shows it", soft_wrap=True)
    while follow:
        sys.stdout.flush()
        # the state first: what is written before the job leaves is in the log that is read after
        has_ended = ask(state, "GET", f"/jobs/{job}")["ended_s"] is not None
        new_lines, offset = _read_log(state, job, params, offset)
        sys.stdout.write("".join(new_lines))
        follow = not has_ended
        if follow:
            time.sleep(_POLL_S)


def _read_log(state: Path, job: str, params: Mapping[str, str], since: int) -> tuple[list[str], int]:
    """The lines of a log from byte `since` on, and the number of the byte after them."""
    lines: list[str] = []
    while True:
        answer = send_request(state, "GET", f"/jobs/{job}/logs", params={**params, "since": since})
        # a job's output may hold control characters of the terminal
        lines += escaped(answer.text).splitlines(keepends=True)
        since, before = int(answer.headers["Skedge-Next"]), since
        # the end of what is written so far
        if since == before:
            return lines, since


def _sizes(printed: list[dict[str, Any]]) -> str:
    """Workers and how much they have printed, in words."""
    return ", ".join(f"{row['worker']} {row['bytes'] / 1e3:,.1f} kB" for row in printed)


def cancel(job: JobArgument, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Cancel a job that is in the system."""
    answer = ask(state, "POST", f"/jobs/{job}/cancel") or {}
    print_answer({"job": job, **answer}, answer.get("waits", f"{job} cancelled"), as_json=as_json)


def events(
    state: StateOption = STATE,
    since: Annotated[int, typer.Option(help="Number of the first entry.", min=0)] = 0,
    follow: Annotated[bool, typer.Option(help="Keep running, and print new entries.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List events and decisions in order; with --json one line each."""
    while True:
        rows = _all_rows(state, "/events", {}, since)
        if as_json:
            for row in rows:
                # one line an entry, so that a program can follow
                sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()
        elif rows:
            _print_events(rows)
        if not follow:
            return
        since = rows[-1]["n"] + 1 if rows else since
        time.sleep(_POLL_S)


def servers(state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """List the servers: up, lost or cordoned, and the jobs on them."""
    rows = ask(state, "GET", "/servers")
    if as_json:
        print_json(rows)
    else:
        print_table(("server", "kind", "state", "slots", "jobs"), map(_server_cells, rows))


def _server_cells(row: Mapping[str, Any]) -> Sequence[str]:
    slots = ", ".join(f"{n} {name}" for name, n in row["slots"].items())
    return row["server"], row["kind"], row["state"], slots or "without limit", ", ".join(row["jobs"])


def cordon(server: ServerArgument, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Take a server out of service: its work moves elsewhere after the mini-batches under way."""
    answer = ask(state, "POST", f"/servers/{server}/cordon") or {}
    print_answer({"server": server, **answer}, answer.get("waits", f"{server} cordoned"), as_json=as_json)


def uncordon(server: ServerArgument, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Put a cordoned server back into service."""
    answer = ask(state, "POST", f"/servers/{server}/uncordon") or {}
    print_answer({"server": server, **answer}, answer.get("waits", f"{server} back in service"), as_json=as_json)
