"""The service's process and its state: ``skedge up``, ``down``, ``record``, ``backup``, ``fetch``, ``quarantine``."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from skedge.core.errors import InputError, SkedgeError
from skedge.core.model.kinds import kind_of
from skedge.core.model.scenario import Scenario
from skedge.live.cluster.gpus import check_device
from skedge.live.cluster.loopback import token_by_file
from skedge.live.controller.limits import Limits
from skedge.live.controller.settings import (
    ADDRESS,
    CLUSTER,
    LOG,
    SETTINGS,
    STARTING,
    TOKEN,
    Settings,
    read_settings,
    save_settings,
)
from skedge.live.controller.tracking import tracked
from skedge.live.secret_files import secret_of, write_aside
from skedge.live.service.audit import AUDIT, Audit
from skedge.live.service.tls import certificate
from skedge.live.worker.code_archive import copy_codes
from skedge.prepare import prepare_for_service
from skedge.runs.cluster import check_answers
from skedge.runs.new_folder import new_folder
from skedge.scenario.file import check_name, load_cluster_file
from skedge.scenario.save import cluster_fields

from .client import address_in
from .console import err, print_answer
from .extra import check_live
from .job_options import JobOptions
from .options import STATE, JobArgument, JsonOption, StateOption, with_groups
from .progress import spinner
from .state_lock import is_alive, local_user, lock_state, lock_stopped, service_pid

_UP_S = 180.0
"""Longest time that a start may spend in one step [s]."""
_DOWN_S = 60.0


@dataclass(frozen=True)
class ServiceOptions:
    """The policy, Ray cluster, address and databases of a service; kept in its state."""

    policy: Annotated[str, typer.Option(help="name or name:key=value,…")] = "aonline"
    ray: Annotated[str | None, typer.Option(help="Address of a Ray cluster; default: one on this machine.")] = None
    device: Annotated[str, typer.Option(help="Where workers compute: cpu, cuda, or auto.")] = "cpu"
    host: Annotated[str, typer.Option(help="Address on which the API listens.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="Port of the API; 0: any free port.", min=0, max=65535)] = 0
    tls_cert: Annotated[str | None, typer.Option(help="Certificate (PEM) of the API; default: no encryption.")] = None
    tls_key: Annotated[str | None, typer.Option(help="Key (PEM) of that certificate.")] = None
    journal: Annotated[str | None, typer.Option(help="Database URL of the journal; default: SQLite.")] = None
    checkpoints: Annotated[str | None, typer.Option(help="fsspec URL of the checkpoints; default: the state.")] = None
    track: Annotated[
        list[str] | None, typer.Option(help="Log training to tensorboard:FOLDER or mlflow:URI; repeatable.")
    ] = None


@dataclass(frozen=True)
class LimitOptions:
    """Limits on jobs and requests: the fields of :class:`~skedge.live.controller.limits.Limits`."""

    chunks: Annotated[int, typer.Option("--max-chunks", help="Most data chunks of one job.", min=1)] = 10_000
    body_mb: Annotated[float, typer.Option("--max-body-mb", help="Largest body of a request (MB).", min=0.001)] = 1.0
    free_mb: Annotated[
        float, typer.Option("--min-free-mb", help="Least free disk space to accept jobs (MB).", min=0)
    ] = 100.0
    keep_days: Annotated[float, typer.Option(help="Time to keep checkpoints of past jobs (days).", min=0)] = 30.0
    per_minute: Annotated[
        int, typer.Option("--max-per-minute", help="Most requests with one token in a minute.", min=1)
    ] = 6000
    minibatches: Annotated[int, typer.Option("--max-minibatches", help="Most mini-batches of one job.", min=1)] = 10**9
    stall_s: Annotated[float, typer.Option(help="Time after which a mini-batch is stalled (s).", min=1)] = 60.0
    stall_restarts: Annotated[int, typer.Option(help="Restarts of a stalled process before its job fails.", min=0)] = 2
    prepare_s: Annotated[float, typer.Option(help="Longest time to import a job's code and packages (s).", min=1)] = 600
    output_mb: Annotated[float, typer.Option(help="Kept output of each worker of a job (MB).", min=0.1)] = 10.0
    allow_pip: Annotated[
        list[str] | None, typer.Option(help="What URLs, files, git+ of train.pip may begin with; repeatable.")
    ] = None
    allow: Annotated[
        list[str] | None, typer.Option(help="A module or package whose factories jobs may use; repeatable.")
    ] = None


@with_groups
def up(
    cluster: Annotated[Path, typer.Argument(help="A cluster file: the cluster of a scenario file.")],
    *,
    state: StateOption = STATE,
    service: ServiceOptions,
    limits: LimitOptions,
    jobs: JobOptions,
    foreground: Annotated[bool, typer.Option(help="Stay in the foreground, for containers.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Start the service; with an existing state it continues where it ended."""
    check_live()
    check_device(service.device)
    # checked before anything is written
    cert, key = certificate(service.tls_cert, service.tls_key)
    track = tuple(tracked(url) for url in service.track or ())
    service, confinement = replace(service, tls_cert=cert, tls_key=key), jobs.confinement()
    scenario = load_cluster_file(cluster)
    prepare_for_service(service.policy, scenario)
    kind_of(scenario.cluster).check_live(scenario)
    if service.ray is not None:
        check_answers(service.ray)
    # held until the service ends: of two starts at once only one goes on
    lock = lock_state(state)
    if lock is None:
        raise InputError(f"{state}: the service is up already; `skedge down --state {state}` ends it")
    _hide_secrets(state)
    # the mark ties a journal in a database to this state alone
    mark = _check_same_service(state, service.policy, scenario) or secrets.token_hex(8)
    # with all draws made: a later start must not draw another cluster
    write_aside(state / CLUSTER, yaml.safe_dump(cluster_fields(scenario), sort_keys=False))
    allowed = {"allow": tuple(limits.allow or ()), "allow_pip": tuple(limits.allow_pip or ())}
    service_limits = Limits(**{**asdict(limits), **allowed})
    save_settings(
        state, Settings(**{**asdict(service), "track": track}, id=mark, limits=service_limits, jobs=confinement)
    )
    for name in (ADDRESS, STARTING):
        # left by a service that was killed: they would look like an answer
        (state / name).unlink(missing_ok=True)
    # -P: the current folder is not searched, where a file may have the name of a module
    command = [sys.executable, "-P", "-m", "skedge.live.service.supervisor", str(lock), str(state.absolute())]
    if foreground:
        os.set_inheritable(lock, True)
        os.execv(sys.executable, command)  # noqa: S606 - this process becomes the supervisor
    with (state / LOG).open("ab") as log:
        # the log is appended to: only what follows is about this start
        log_start = log.tell()
        process = subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=[lock]
        )
    os.close(lock)
    address = _wait_up(process, state, log_start, quiet=as_json)
    sentence = f"up at {address['url']}, policy {service.policy}, state {state}"
    print_answer({"url": address["url"], "state": str(state)}, sentence, as_json=as_json, soft_wrap=True)


def _hide_secrets(state: Path) -> None:
    """Take the tokens of the API and of Ray from the environment into files of the state."""
    # the environment of a process can be read by others of the same user, and is inherited
    if "SKEDGE_TOKEN" in os.environ:
        secret_of(state / TOKEN, "SKEDGE_TOKEN")
    if "RAY_AUTH_TOKEN" in os.environ:
        token_by_file(state)


def _check_same_service(state: Path, policy: str, scenario: Scenario) -> str | None:
    """Check that an existing state has this policy and cluster; returns its id, or None for a new state."""
    if not (state / SETTINGS).exists():
        return None
    settings = read_settings(state)
    if settings.policy != policy:
        raise InputError(f"{state}: its service has the policy {settings.policy}, not {policy}; name a new --state")
    # the journal's decisions are replayed at a start: on another cluster they would be others
    if cluster_fields(load_cluster_file(state / CLUSTER)) != cluster_fields(scenario):
        raise InputError(f"{state}: its service has another cluster ({state / CLUSTER}); name a new --state")
    return settings.id


def _wait_up(process: subprocess.Popen[bytes], state: Path, log_start: int, *, quiet: bool) -> dict[str, Any]:
    """Wait until the service answers, as long as its start makes progress.

    An interrupt ends what was started.

    Raises
    ------
    SkedgeError
        If the service ends before it answers; the message says why.
    """
    try:
        with nullcontext(_ignore) if quiet else spinner("starting the service") as say:
            address = _wait_for_address(process, state, say)
    except KeyboardInterrupt:
        _terminate(process)
        err.print("skedge: interrupted; what was started of the service is ended, its state is kept")
        raise typer.Exit(130) from None
    if address is not None:
        return address
    step, alive = _start_step(state), process.poll() is None
    with (state / "controller.log").open("rb") as log:
        log.seek(log_start)
        lines = log.read().decode(errors="replace").strip().splitlines()
    _terminate(process)
    reason = f"nothing has changed for {_UP_S:g} s while {step}" if alive else _last_log_line(lines)
    raise SkedgeError(f"the service did not start: {reason} (see {state / 'controller.log'})")


def _wait_for_address(
    process: subprocess.Popen[bytes], state: Path, show: Callable[[str], None]
) -> dict[str, Any] | None:
    """The service's address once its controller says that it has taken its journal in again.

    None if it has ended, or one step of its start takes too long.
    """
    step, deadline = "", time.monotonic() + _UP_S
    while time.monotonic() < deadline and process.poll() is None:
        address, new_step = address_in(state), _start_step(state)
        if address is not None and address["ready"]:
            return address
        # each step may take its time: a long journal is read, Ray is started
        if new_step != step:
            step, deadline = new_step, time.monotonic() + _UP_S
            show(new_step)
        time.sleep(0.2)
    return None


def _ignore(_: str) -> None:
    """Ignores progress: with --json only the answer is printed."""


def _start_step(state: Path) -> str:
    """The current step of a controller that does not answer yet."""
    with suppress(OSError):
        return (state / "starting").read_text(encoding="utf-8")
    return "starting the controller"


_UNINFORMATIVE = re.compile(r"the (controller|host of Ray), process |(\x1b\[[\d;]*m)*(\[?\d{4}-\d\d-\d\d |\(\w+ pid=)")
"""The supervisor's lines about processes that have ended, and Ray's, which begin with the time or with a process."""


def _last_log_line(lines: list[str]) -> str:
    """The last informative line of a log: preferably neither the supervisor's about how a process ended, nor Ray's."""
    informative = [line for line in lines if not _UNINFORMATIVE.match(line)]
    return (informative or lines or ["its log is empty"])[-1]


def _terminate(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_DOWN_S)


def down(state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """End the service and all its processes; its jobs continue when it is started again."""
    running = service_pid(state)
    if running is None:
        raise InputError(f"{state}: no service is up there; start one with `skedge up CLUSTER --state {state}`")
    # the supervisor ends all others in order
    os.kill(running, signal.SIGTERM)
    deadline = time.monotonic() + _DOWN_S
    while is_alive(running) and time.monotonic() < deadline:
        time.sleep(0.1)
    if is_alive(running):
        raise SkedgeError(f"the service (process {running}) has not ended within {_DOWN_S:g} s")
    Audit(state / AUDIT, local_user).note("down", {}, "done")
    print_answer({"down": True}, "down", as_json=as_json)


def record(
    state: StateOption = STATE,
    folder: Annotated[Path, typer.Option("--out", help="New run folder.")] = Path("skedge-record"),
    as_json: JsonOption = False,
) -> None:
    """Write a service's record to a run folder: every decision is replayed from the journal and verified."""
    check_live()
    from skedge.live.controller.service import recorded  # noqa: PLC0415 - imports the extra

    settings = read_settings(state)
    with new_folder(folder) as temp_folder:
        checkpoints = settings.checkpoints_of(state)
        run = recorded(load_cluster_file(state / CLUSTER), state, settings.id, checkpoints, settings.journal)
        violations = run.verify()
        # also with violations: they are easier to find in the record
        run.write(temp_folder)
        copy_codes(state, temp_folder)
    summary = {"folder": str(folder), "jobs": len(run.jobs), "violations": [asdict(v) for v in violations]}
    print_answer(summary, f"{len(run.jobs)} jobs recorded in {folder}, {len(violations)} violations", as_json=as_json)
    for violation in violations if not as_json else ():
        err.print(f"{violation.rule} {violation.job}: {violation.message}", soft_wrap=True, highlight=False)
    if violations:
        raise typer.Exit(1)


def backup(
    state: StateOption = STATE,
    folder: Annotated[Path, typer.Option("--out", help="New folder.")] = Path("skedge-backup"),
    as_json: JsonOption = False,
) -> None:
    """Copy a service's state, while it is up or down; `skedge up` continues from the copy as after a crash."""
    check_live()
    from skedge.live.service.backup import copy_state  # noqa: PLC0415 - imports the extra

    settings = read_settings(state)
    with new_folder(folder) as temp_folder:
        copy_state(state, settings, temp_folder)
    print_answer({"folder": str(folder)}, f"{state} is copied to {folder}", as_json=as_json)


def fetch(
    job: JobArgument,
    state: StateOption = STATE,
    folder: Annotated[Path, typer.Option("--out", help="Folder for JOB.pt and JOB.json.")] = Path(),
    as_json: JsonOption = False,
) -> None:
    """Get a job's trained parameters: a state dict for torch.load, from its newest checkpoint."""
    check_live()
    from skedge.live.service import fetch as fetching  # noqa: PLC0415 - imports PyTorch

    check_name(job, "job")
    checkpoint = fetching.fetch(read_settings(state).checkpoints_of(state), job, folder)
    trained = f"{sum(checkpoint.progress)} mini-batches in {checkpoint.version} updates"
    print_answer(asdict(checkpoint), f"{checkpoint.file}: {trained}, sha256 {checkpoint.sha256}", as_json=as_json)


def quarantine(job: JobArgument, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Quarantine a submission that makes the controller crash; the service must be down."""
    check_live()
    from skedge.live.journal.journal import SqlJournal, journal_url  # noqa: PLC0415 - imports the extra
    from skedge.live.journal.quarantine import put_aside  # noqa: PLC0415

    settings = read_settings(state)
    lock = lock_stopped(state)
    journal = SqlJournal(journal_url(state, settings.journal), run_id=settings.id)
    try:
        put_aside(journal, job)
        Audit(state / AUDIT, local_user).note("quarantine", {"job": job}, "done")
    finally:
        journal.close()
        os.close(lock)
    print_answer({"quarantined": job}, f"{job} is quarantined; `skedge up` continues without it", as_json=as_json)
