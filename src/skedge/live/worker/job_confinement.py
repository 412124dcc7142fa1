"""What the processes of one job may see besides what all may: its own chunks and packages, the addresses it names."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from skedge.core.errors import InputError, TrainingError
from skedge.live.confinement.confinement import Confinement

from .pip_packages import install_at, packages, settings_of_pip
from .program import Program

if TYPE_CHECKING:
    from .job_processes import ForkServerClient

_INSTALL_S = 600.0
"""Longest time for pip [s]."""

_END_S = 60.0
"""Longest time until its processes have ended [s]."""


def confined(fork_server: ForkServerClient, job: str, program: bytes, own: tuple[str, ...] = ()) -> Confinement:
    """The confinement of a new process of a job; its packages are installed first.

    Parameters
    ----------
    fork_server
        What starts the process; its confinement is that of all jobs.
    job
        What tells jobs apart there.
    program
        The job's program (:func:`.job_processes.sent`), which names its packages and addresses.
    own
        Paths that it may read besides what the processes of all jobs may.

    Raises
    ------
    TrainingError
        If its packages cannot be installed, or it may not connect to what it names.
    """
    base = fork_server.confinement
    if base.trusted:
        return base.of(job)
    job_program: Program = pickle.loads(program)  # noqa: S301 - of the controller
    try:
        base.check_connect(job_program.connect)
    except InputError as error:
        raise TrainingError(str(error)) from error
    places = (_packages_of(fork_server, tuple(job_program.pip)),) if job_program.pip else ()
    return base.of(job, (*own, *places), tuple(job_program.connect))


def _packages_of(fork_server: ForkServerClient, requirements: tuple[str, ...]) -> str:
    """The folder of a job's packages, installed if it is not there by a process without the job's code."""
    process = fork_server.fork(fork_server.confinement.of("packages"))
    try:
        name = str(process.ask("packages", requirements)[0]["folder"])
    finally:
        process.end()
    place = packages() / name
    install_at(place, lambda aside: _install(fork_server, requirements, aside))
    return str(place)


def _install(fork_server: ForkServerClient, requirements: tuple[str, ...], aside: Path) -> None:
    """Install packages in a confined process that has the network and may write that folder alone."""
    with_network = replace(fork_server.confinement.of(aside.name), writable=str(aside), network=True)
    child = fork_server.fork(with_network)
    try:
        child.ask("install", requirements, str(aside), settings_of_pip(os.environ), limit_s=_INSTALL_S)
    finally:
        child.end()
        child.wait(_END_S)
    for folder, folders, files in os.walk(aside):
        for name in (".", *folders, *files):  # its user has ended: another process may become that one
            os.chown(os.path.join(folder, name), os.geteuid(), os.getegid(), follow_symlinks=False)
    aside.chmod(0o755)  # for all users of jobs
