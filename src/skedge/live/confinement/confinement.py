"""What the processes of a job may see and use: the :class:`Confinement`."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from skedge.core.errors import InputError


@dataclass(frozen=True)
class Usage:
    """What all processes of a job may use on one server; None: no limit.

    Attributes
    ----------
    memory_mb
        Memory of its processes [MB], each shared page counted once.
    processes
        Processes and their threads.
    cpus
        CPUs.
    disk_mb
        Files that one of its processes writes [MB]; confined, they lie in memory and end with that process.
    memory_share
        Limit of its memory where `memory_mb` is None: share of the server's.
    """

    memory_mb: float | None = None
    processes: int | None = None
    cpus: int | None = None
    disk_mb: float | None = None
    memory_share: float | None = None

    @property
    def most_memory_mb(self) -> float | None:
        """Memory that the processes of a job may use on this machine [MB]."""
        if self.memory_mb is not None or self.memory_share is None:
            return self.memory_mb
        return self.memory_share * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e6


@dataclass(frozen=True)
class Confinement:
    """What the processes of a job may see and use.

    Attributes
    ----------
    trusted
        True: they see what the service's user sees, and have that user's network. Limits hold all the same.
    readable
        Files and folders that they may read, besides the system's programs and Python's.
    hidden
        Folders that stay empty for them although they lie in a readable one: the service's state.
    connect
        Addresses ``HOST:PORT`` that jobs may name; of one child: those that its own job names.
    usage
        Limits of a job on a server.
    group
        Server, and job: the processes of a job on a server are counted together.
    own
        What the job alone may read, in spite of `hidden`: its chunks, its packages.
    writable
        A folder that they may write; empty: none but a temporary one.
    started_in
        The operator's current folder: it is on Python's import path by chance, and shown only if it is `readable`.
    network
        True: they have the machine's network, as pip needs it, which runs without the job's code.
    """

    trusted: bool = True
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    usage: Usage = Usage()
    group: str = ""
    own: tuple[str, ...] = ()
    writable: str = ""
    started_in: str = ""
    network: bool = False

    def of(self, job: str, own: tuple[str, ...] = (), connect: tuple[str, ...] = ()) -> Confinement:
        """That of the processes of a job, which may read what is its own and connect to what it names."""
        return replace(self, group=f"{self.group}/{job}", own=own, connect=connect)

    def check_connect(self, addresses: Collection[str]) -> None:
        """Check that a job may name these addresses; trusted jobs have the network.

        Raises
        ------
        InputError
            Names the first that it may not.
        """
        for address in () if self.trusted else addresses:
            if address not in self.connect:
                raise InputError(
                    f"train.connect: {address}: is no address that `skedge up --allow-connect` names "
                    f"({', '.join(self.connect) or 'none'})"
                )

    def as_json(self) -> bytes:
        """Its JSON form."""
        return json.dumps(asdict(self)).encode()


TRUSTED = Confinement()
"""That of the user's own jobs: of ``skedge live`` and of studies."""

OF_SERVICE = Usage(processes=512, disk_mb=1000, memory_share=0.5)
"""Limits of a job of a service, where the operator states none."""

CONFINED = Confinement(trusted=False, usage=OF_SERVICE)
"""That of the jobs of a service, where the operator states nothing else."""


def from_json(content: bytes) -> Confinement:
    """The inverse of :meth:`Confinement.as_json`."""
    return confinement_of(json.loads(content))


def confinement_of(values: Mapping[str, Any]) -> Confinement:
    """A confinement from its fields."""
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    fields["usage"] = Usage(**values["usage"])
    return Confinement(**fields)
