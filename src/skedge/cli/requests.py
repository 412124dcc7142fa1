"""Commands that ask a running service: ``skedge submit``, ``queue``, ``describe``, ``cancel`` and others."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from skedge.core.errors import InputError, SkedgeError
from skedge.core.model.escape import escaped
from skedge.live.control.local_socket import reaching
from skedge.live.control.states import STATES, WAITING
from skedge.live.control.tls import trusting
from skedge.live.training.code import digest, pack
from skedge.scenario.file import read_spec

from .console import duration, err, out, print_json
from .options import STATE, JobArgument, JsonOption, ServerArgument, StateOption

_LOOK_S = 0.5
"""Between two looks of what is followed [s]."""

_TRIES, _PAUSE_S = 4, 2.0
"""Most times that a submission is sent if no answer comes, and the pause before it is repeated [s]."""
_ANSWER_S = 90.0
"""Longest wait for an answer [s]."""

_LOCAL = "http://localhost/v1"

_USUAL, _IDLE_S = 10.0, 10.0
"""A job that trains is said to have had no mini-batch for so many times its usual time, and so long at least [s]."""

_BUSY = (429, 503)
"""HTTP statuses of a service that has been asked too often, or is too busy to answer."""


class NoAnswerError(SkedgeError):
    """The service does not answer, or is too busy: the request may or may not have been carried out."""


def address_in(state: Path) -> dict[str, Any] | None:
    """Address, token and process of the service of this state; None if it is not up."""
    try:
        found: dict[str, Any] = json.loads((state / "service.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{state / 'service.json'}: cannot be read: {error}") from error
    return found


def _address(state: Path) -> dict[str, Any]:
    """Where and with which token to ask: ``SKEDGE_URL`` and ``SKEDGE_TOKEN``, else what the service's state has."""
    url, token = os.environ.get("SKEDGE_URL"), os.environ.get("SKEDGE_TOKEN")
    if url:
        if not token:
            raise InputError("SKEDGE_URL is set without SKEDGE_TOKEN: set it to a token of that service")
        return {"url": url.rstrip("/"), "token": token}
    address = address_in(state)
    if address is None:
        raise InputError(f"{state}: no service is up there; start one with `skedge up CLUSTER --state {state}`")
    return {**address, "token": token or address["token"]}


def ask(state: Path, method: str, path: str, headers: Mapping[str, str] | None = None, **given: Any) -> Any:
    """The content of the service's answer; raises as :func:`answered` does."""
    answer = answered(state, method, path, headers, **given)
    return answer.json() if answer.headers["content-type"].startswith("application/json") else answer.text


def answered(state: Path, method: str, path: str, headers: Mapping[str, str] | None = None, **given: Any) -> Any:
    """The service's answer, with its headers.

    Raises
    ------
    InputError
        If there is no service, or it refuses; the message is the service's sentence.
    NoAnswerError
        If it does not answer, or is too busy.
    """
    try:
        import httpx  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise InputError(
            f"the service needs the extra `live`: pip install 'skedge[live]' (there is no module {error.name})"
        ) from error
    address = _address(state)
    sent = {"Authorization": f"Bearer {address['token']}", **(headers or {})}
    try:
        with _client(state, address) as client:
            answer = client.request(method, path.lstrip("/"), headers=sent, **given)
    except httpx.TransportError as error:
        raise NoAnswerError(
            f"the service does not answer at {address['url']} ({error}); one that has died is started again within a "
            f"minute: see controller.log in the folder of its state, {state} unless it is another machine's"
        ) from error
    if answer.is_success:
        return answer
    is_problem = answer.headers["content-type"].startswith("application/problem+json")
    sentence = answer.json()["detail"] if is_problem else f"the service answers {answer.status_code}"
    raise (NoAnswerError if answer.status_code in _BUSY else InputError)(sentence)


@contextmanager
def _client(state: Path, address: Mapping[str, Any]) -> Iterator[Any]:
    """A client of the service: by its socket on this machine, else by its address."""
    import httpx  # noqa: PLC0415 - an extra

    if "socket" in address and (state / address["socket"]).is_socket():
        with (
            reaching(state / address["socket"]) as path,
            httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url=_LOCAL, timeout=_ANSWER_S) as client,
        ):
            yield client
        return
    cert = address.get("certificate")
    with httpx.Client(base_url=address["url"], timeout=_ANSWER_S, verify=cert is None or trusting(cert)) as client:
        yield client


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
    key = key or key_of(fields)
    if "code" in fields["train"]:
        fields["train"] = {**fields["train"], "code": _send_code(state, Path(fields["train"]["code"]))}
    job = _once(state, "/jobs", key, "skedge submit SPEC", json=fields)
    print_answer({"job": job}, f"{job} submitted", as_json=as_json)


def key_of(fields: Mapping[str, Any]) -> str:
    """The key of a submission that was given none: of the spec and the time of the first try, for all its tries."""
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
    found = _once(state, f"/jobs/{job}/resubmit", key, f"skedge resubmit {job}")
    print_answer({"job": found}, f"{found} submitted", as_json=as_json)


def _once(state: Path, path: str, key: str, command: str, **given: Any) -> str:
    """Post a job, and repeat the request with the same key if no answer comes; returns the job's name."""
    for _ in range(_TRIES - 1):
        with suppress(NoAnswerError):
            return str(ask(state, "POST", path, {"Idempotency-Key": key}, **given))
        time.sleep(_PAUSE_S)
    try:
        return str(ask(state, "POST", path, {"Idempotency-Key": key}, **given))
    except NoAnswerError as error:
        again = f"the job may or may not be submitted: `{command} --key {key}` repeats the request safely"
        raise NoAnswerError(f"{error}; {again}") from error


def print_answer(found: dict[str, Any], sentence: str, *, as_json: bool) -> None:
    """Print an answer: a sentence, or with --json what it says."""
    if as_json:
        print_json(found)
    else:
        out.print(sentence)


def queue(
    state: StateOption = STATE,
    only: Annotated[str | None, typer.Option("--only", help="Jobs in this state, such as RUNNING or PENDING.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List all jobs: state, progress, expected completion, and why they wait."""
    if only is not None and only.upper() not in STATES:
        raise InputError(f"--only {only!r}: is no state of a job; the states are {', '.join(STATES)}")
    rows = _pages(state, "/jobs", {} if only is None else {"state": only})
    if as_json:
        print_json(rows)
        return
    shared = ["tenant", "class"] if rows and "tenant" in rows[0] else []
    state_column, why = Column("state", no_wrap=True), Column("reason", no_wrap=True)  # words that are looked for
    table = Table("job", *shared, state_column, "progress", "servers", "starts in", "completes in", why)
    for row in rows:
        starts = _until(row, "start_s") if row["state"] in WAITING else ""
        left = "never" if row["never_completes"] else _until(row, "forecast_s")
        reason = row["reason"]["token"] if row["state"] != "RUNNING" else _stalled(row)
        progress = f"{row['progress']:.0%}"
        of = [row["tenant"], str(row["priority"])] if shared else []
        table.add_row(row["job"], *of, row["state"], progress, ", ".join(row["servers"]), starts, left, reason)
    out.print(table)


def _pages(state: Path, path: str, params: Mapping[str, Any], since: int = 0) -> list[dict[str, Any]]:
    """All rows from number `since` on, page by page."""
    found: list[dict[str, Any]] = []
    while page := ask(state, "GET", path, params={**params, "since": since}):
        found += page
        since = page[-1]["n"] + 1
    return found


def _stalled(row: Mapping[str, Any]) -> str:
    """Since when a job that trains has had no mini-batch, if that is long; else nothing."""
    idle_s, usual_s = row["idle_s"], row["usual_s"] or 0.0
    if idle_s is None or idle_s < max(_USUAL * usual_s, _IDLE_S):
        return ""
    word = {"stalled": "stalled, "}.get(row["reason"]["token"], "")
    return f"{word}no mini-batch for {duration(idle_s)}"


def _until(row: Mapping[str, Any], name: str) -> str:
    """The time from now to a field of `row`, in words; nothing if there is none."""
    return "" if row[name] is None else duration(max(row[name] - row["now_s"], 0.0))


def describe(job: JobArgument, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Show one job: why it waits, with numbers, and its expected completion."""
    found = ask(state, "GET", f"/jobs/{job}")
    if as_json:
        print_json(found)
        return
    out.print(f"job {found['job']}: {found['state']}, {found['progress']:.1%} of its mini-batches")
    if "tenant" in found:
        out.print(f"tenant {found['tenant']}, class {found['priority']}")
    token, message = found["reason"]["token"], found["message"]
    out.print(f"reason: {token}" + (f": {message}" if message != token else ""), soft_wrap=True)
    _print_code(found["code"])
    _print_processes(found)
    if found["servers"]:
        out.print(f"on: {', '.join(found['servers'])}")
    if found["devices"]:
        on = (f"{server} {', '.join(devices)}" for server, devices in found["devices"].items())
        out.print(f"devices: {'; '.join(on)}", soft_wrap=True)
    if found["forecast_s"] is not None:
        at = f"{found['forecast_s']:.1f} s"
        out.print(f"forecast: complete in {_until(found, 'forecast_s')}, at {at}, if no other job comes")
    if found["never_completes"]:
        out.print("forecast: it never completes unless something changes")
    if found["forecast_from_s"] is not None:
        out.print(f"in 4 of 5 cases between {found['forecast_from_s']:.1f} and {found['forecast_to_s']:.1f} s")
    if found["start_s"] is not None:
        starts = f"starts in {_until(found, 'start_s')}," if found["state"] in WAITING else "started"
        out.print(f"{starts} at {found['start_s']:.1f} s")
    for one in found["help"]:
        out.print(f"{one['change']}: starts at {one['start_s']:.1f} s")
    if found["accuracy"] is not None:
        out.print(f"{found['metric'] or 'accuracy'}: {found['accuracy']:.3f}")
    elif found["unmeasured"]:
        out.print(found["unmeasured"], soft_wrap=True)
    _print_events(found["history"])


def _print_code(code: Mapping[str, Any]) -> None:
    """Print which code a job runs, and how it differs from that of the last job with its factory."""
    if code["sha256"] is None:
        return
    out.print(f"code: SHA-256 {code['sha256'][:12]}{' (sent with it)' if code['shipped'] else ' (installed)'}")
    if code["last"] is not None:
        out.print(f"code of {code['last']['job']}, the last before it: {_differs(code)}", soft_wrap=True)


def _differs(code: Mapping[str, Any]) -> str:
    """How the code differs from the last, in words."""
    last = code["last"]
    if last["sha256"] == code["sha256"]:
        return "the same"
    parts = (f"{what} {', '.join(last[what])}" for what in ("added", "removed", "changed") if last[what])
    return f"SHA-256 {last['sha256'][:12]}; " + ("; ".join(parts) or "which files differ is not known")


def _print_processes(found: Mapping[str, Any]) -> None:
    """Print what is known of a job's processes: since when there is no mini-batch, and who has printed something."""
    if late := _stalled(found):
        out.print(f"{late}; one usually takes {duration(found['usual_s'] or 0.0)}")
    if found["printed"]:
        show = f"`skedge logs {found['job']} --worker W` shows it"
        out.print(f"printed: {_sizes(found['printed'])}; {show}", soft_wrap=True)


def _print_events(rows: list[dict[str, Any]]) -> None:
    table = Table("time s", "what", "job", "")
    for row in rows:
        table.add_row(f"{row['time_s']:.3f}", row["what"], row["job"] or "", row["detail"])
    out.print(table)


def logs(
    job: JobArgument,
    state: StateOption = STATE,
    worker: Annotated[str | None, typer.Option(help="Print what this worker of the job has printed.")] = None,
    tail: Annotated[int | None, typer.Option(help="Number of lines to print, from the end.", min=1)] = None,
    follow: Annotated[bool, typer.Option(help="Keep running, and print new lines until the job has left.")] = False,
) -> None:
    """Print the log of a job, or what one of its workers printed."""
    of = {} if worker is None else {"worker": worker}
    text, at = _log(state, job, of, 0)
    sys.stdout.write("".join(text if tail is None else text[-tail:]))
    if worker is None and (printed := ask(state, "GET", f"/jobs/{job}/workers")):
        err.print(f"printed: {_sizes(printed)}; `skedge logs {job} --worker W` shows it", soft_wrap=True)
    while follow:
        sys.stdout.flush()
        # the state first: what is written before the job leaves is in the log that is read after
        left = ask(state, "GET", f"/jobs/{job}")["ended_s"] is not None
        more, at = _log(state, job, of, at)
        sys.stdout.write("".join(more))
        follow = not left
        if follow:
            time.sleep(_LOOK_S)


def _log(state: Path, job: str, of: Mapping[str, str], since: int) -> tuple[list[str], int]:
    """The lines of a log from byte `since` on, and the number of the byte after them."""
    found: list[str] = []
    while True:
        answer = answered(state, "GET", f"/jobs/{job}/logs", params={**of, "since": since})
        found += escaped(answer.text).splitlines(keepends=True)
        since, before = int(answer.headers["Skedge-Next"]), since
        if since == before:
            return found, since


def _sizes(printed: list[dict[str, Any]]) -> str:
    """Workers and how much they have printed, in words."""
    return ", ".join(f"{row['worker']} {row['bytes'] / 1e3:,.1f} kB" for row in printed)


def cancel(job: JobArgument, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Cancel a job that is in the system."""
    found = ask(state, "POST", f"/jobs/{job}/cancel") or {}
    print_answer({"job": job, **found}, found.get("waits", f"{job} cancelled"), as_json=as_json)


def events(
    state: StateOption = STATE,
    since: Annotated[int, typer.Option(help="Number of the first entry.", min=0)] = 0,
    follow: Annotated[bool, typer.Option(help="Keep running, and print new entries.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List events and decisions in order; with --json one line each."""
    while True:
        rows = _pages(state, "/events", {}, since)
        if as_json:
            for row in rows:
                sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()
        elif rows:
            _print_events(rows)
        if not follow:
            return
        since = rows[-1]["n"] + 1 if rows else since
        time.sleep(_LOOK_S)


def servers(state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """List the servers: up, lost or cordoned, and the jobs on them."""
    rows = ask(state, "GET", "/servers")
    if as_json:
        print_json(rows)
        return
    table = Table("server", "kind", "state", "slots", "jobs")
    for row in rows:
        slots = ", ".join(f"{n} {name}" for name, n in row["slots"].items())
        table.add_row(row["server"], row["kind"], row["state"], slots or "without limit", ", ".join(row["jobs"]))
    out.print(table)


def cordon(server: ServerArgument, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Take a server out of service: its work moves elsewhere after the mini-batches under way."""
    ask(state, "POST", f"/servers/{server}/cordon")
    print_answer({"server": server}, f"{server} cordoned", as_json=as_json)


def uncordon(server: ServerArgument, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Put a cordoned server back into service."""
    ask(state, "POST", f"/servers/{server}/uncordon")
    print_answer({"server": server}, f"{server} back in service", as_json=as_json)
