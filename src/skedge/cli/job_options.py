"""Options of ``skedge up`` about what jobs' processes may see and use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from skedge.core.errors import InputError
from skedge.live.confinement.check import check_platform
from skedge.live.confinement.confinement import OF_SERVICE, Confinement
from skedge.live.confinement.forwarding import fault_of


@dataclass(frozen=True)
class JobOptions:
    """Confinement of the processes of each job on a server."""

    trust_jobs: Annotated[
        bool, typer.Option("--trust-jobs", help="Run jobs' code as the service's user, with its files and network.")
    ] = False
    readable: Annotated[list[Path] | None, typer.Option(help="What jobs may read, too; repeatable.")] = None
    allow_connect: Annotated[
        list[str] | None, typer.Option(help="HOST:PORT that jobs may name in train.connect; repeatable.")
    ] = None
    job_memory_mb: Annotated[
        float | None, typer.Option(help="Memory of a job on a server (MB); default: half of the server's.", min=1)
    ] = None
    job_processes: Annotated[int, typer.Option(help="Processes and threads of a job on a server.", min=1)] = (
        OF_SERVICE.processes or 0
    )
    job_cpus: Annotated[int | None, typer.Option(help="CPUs of a job on a server; default: all.", min=1)] = None
    job_disk_mb: Annotated[float, typer.Option(help="Files that a process of a job may write (MB).", min=0)] = (
        OF_SERVICE.disk_mb or 0
    )

    def confinement(self) -> Confinement:
        """The confinement of jobs that they state.

        Raises
        ------
        InputError
            If a path or an address is wrong, or this machine does not let jobs be confined.
        """
        for path in self.readable or ():
            if not path.exists():
                raise InputError(f"--readable {path}: there is no such file or folder")
        for address in self.allow_connect or ():
            _check_address(address)
        # only confinement needs anything of the platform
        if not self.trust_jobs:
            check_platform()
        return Confinement(
            trusted=self.trust_jobs,
            readable=tuple(str(path.absolute()) for path in self.readable or ()),
            connect=tuple(self.allow_connect or ()),
            started_in=str(Path.cwd()),
            usage=replace(
                OF_SERVICE,
                memory_mb=self.job_memory_mb,
                processes=self.job_processes,
                cpus=self.job_cpus,
                disk_mb=self.job_disk_mb,
            ),
        )


def _check_address(address: str) -> None:
    if fault := fault_of(address):
        raise InputError(f"--allow-connect {address}: {fault}")
