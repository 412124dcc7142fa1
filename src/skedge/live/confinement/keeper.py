"""From a fork of the warmed process to a confined process of a job.

::

    process that children are forked from (trusted)
    └── keeper: waits for the job's process and for the client; what it ends is all that the job has started
        └── init, confined alone: the first process of the pid namespace, whose end is the end of all in it
            └── the job's process

A keeper is trusted code and outside of the job's namespaces of processes and files. In trusted mode it is the parent of
all that the job's process leaves behind.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

from . import kernel, syscall_filter
from .cgroups import JobGroup
from .confinement import Confinement
from .files import change_root, with_programs
from .forwarding import AllowedAddresses
from .limits import limit
from .processes import descendants

_FIRST_UID = 0x70000000
"""User of a job's process, as root: this and the process id of its keeper, which no two living ones share."""

_REAP_S, _PAUSE_S = 1.0, 0.01
"""Between two looks for orphans that have ended, and between two rounds of killing what is left [s]."""

ENDED = "its process has ended"
"""What a sentence begins with that says how a process of a job has ended."""

HINT = "`skedge up --trust-jobs` runs jobs' code as the service's user"


class ProcessFiles(NamedTuple):
    """Open files of a process of a job, whose other ends its client has.

    Attributes
    ----------
    connection
        The job's own; when the client closes its end, or the job's process ends, all that the job has started is
        ended.
    word
        Takes sentences of trusted code: that the job cannot be confined, or uses too much; how its process has ended.
    output
        Takes what the job prints.
    links
        Gives the job's process sockets by which it is connected to other processes of the job.
    """

    connection: int
    word: int
    output: int
    links: int

    def leave_to_job(self) -> None:
        """Close here what only the job's process uses: its end is then seen at the other end."""
        os.close(self.output)
        os.close(self.links)

    def say(self, sentence: str) -> None:
        """Send a sentence to the client, if it is still there."""
        if sentence:
            with suppress(OSError), socket.socket(fileno=os.dup(self.word)) as word:
                word.send(sentence.encode())


def keep(confinement: Confinement, ends: ProcessFiles, body: Callable[[], None]) -> NoReturn:
    """Be the keeper of a new process of a job; returns in no process. `body` is what the job's process does."""
    try:
        signal.signal(signal.SIGTERM, _end_once)
        kernel.end_with_parent(signal.SIGTERM)
        close_all_but(0, 1, 2, *ends)
        group = JobGroup(confinement)
        group.enter()
        if confinement.trusted:
            _keep_trusted(confinement, ends, body)
        else:
            _keep_confined(confinement, ends, body)
        ends.say(group.sentence())
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except Exception as error:  # whatever it is, the client is told
        _refuse(ends, error)
    finally:
        try:  # a signal may come before it is ignored: its exception must not leave what follows undone
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        finally:
            _end_descendants()
            os._exit(0)


def _end_once(_number: int, _frame: FrameType | None) -> None:
    """End the keeper by an exception; what it then ends is not interrupted by a second signal."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit


def _fork() -> int:
    """Fork; an end that is asked for meanwhile comes when it is done.

    Python calls hooks of its own at a fork, and what a signal raises in one of these is lost.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        return os.fork()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _refuse(ends: ProcessFiles, error: Exception) -> None:
    """Tell the client that the job cannot be confined."""
    ends.say(f"jobs cannot be confined here: {error or type(error).__name__}; {HINT}")


def _tell_end(ends: ProcessFiles, status: int) -> None:
    """Tell the client how the job's process has ended, as ``os.waitpid`` says."""
    code = os.waitstatus_to_exitcode(status)
    ends.say(f"{ENDED} with status {code}" if code >= 0 else f"{ENDED} by signal {-code}")


def close_all_but(*files: int) -> None:
    """Close all files of this process but these."""
    bounds = [-1, *sorted(files), os.sysconf("SC_OPEN_MAX")]
    for lower, upper in pairwise(bounds):
        if lower + 1 < upper:  # an empty range is taken for all files
            os.closerange(lower + 1, upper)


# -- trusted ---------------------------------------------------------------------------------------------------------


def _keep_trusted(confinement: Confinement, ends: ProcessFiles, body: Callable[[], None]) -> None:
    kernel.adopt_orphans()
    job = _fork()
    if job == 0:
        _be_job(confinement, ends, body)
    ends.leave_to_job()
    if _watch(job, ends.connection):
        _tell_end(ends, os.waitpid(job, 0)[1])


def _end_descendants() -> None:
    """Kill what the job has started, until nothing is left of it."""
    while True:
        for pid in descendants(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_PAUSE_S)


# -- confined --------------------------------------------------------------------------------------------------------


def _keep_confined(confinement: Confinement, ends: ProcessFiles, body: Callable[[], None]) -> None:
    filtering = syscall_filter.refusing()
    confinement = with_programs(confinement)
    uid = _FIRST_UID + os.getpid()
    as_root = os.geteuid() == 0 and _is_mapped(uid)
    forwards = AllowedAddresses(confinement.connect)
    _leave_namespaces(confinement, uid, as_root=as_root)
    forwards.listen()
    init = _fork()
    if init == 0:
        _be_init(confinement, uid, as_root, forwards.names, ends, _filtered(filtering, body))
    ends.leave_to_job()
    _watch(init, ends.connection)


def _is_mapped(uid: int) -> bool:
    """Whether this user namespace has a user of this number: that of a container may have few."""
    lines = [map(int, line.split()) for line in Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()]
    return any(first <= uid < first + count for first, _, count in lines)


def _leave_namespaces(confinement: Confinement, uid: int, *, as_root: bool) -> None:
    """Leave those of processes, network, IPC and host name; an ordinary user needs a user namespace for that."""
    ids = os.geteuid(), os.getegid()
    flags = kernel.NEW_PID | kernel.NEW_IPC | kernel.NEW_UTS | (0 if confinement.network else kernel.NEW_NET)
    kernel.unshare(flags if as_root else flags | kernel.NEW_USER)
    if not as_root:
        own = Path("/proc/self")
        (own / "setgroups").write_text("deny", encoding="ascii")
        (own / "uid_map").write_text(f"{uid} {ids[0]} 1", encoding="ascii")
        (own / "gid_map").write_text(f"{uid} {ids[1]} 1", encoding="ascii")
    socket.sethostname("job")
    if not confinement.network:
        kernel.loopback_up()


def _be_init(
    confinement: Confinement,
    uid: int,
    as_root: bool,
    names: Collection[tuple[str, str]],
    ends: ProcessFiles,
    body: Callable[[], None],
) -> NoReturn:
    status = 1
    try:
        kernel.unshare(kernel.NEW_MOUNT)
        if as_root and confinement.writable:
            os.chown(confinement.writable, uid, uid)
        change_root(confinement, uid, list(names))
        _give_up_rights(uid, as_root=as_root)
        kernel.end_with_parent(signal.SIGKILL)
        job = _fork()
        if job == 0:
            _be_job(confinement, ends, body)
        close_all_but(0, 1, 2, ends.word)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:  # as the first process of its namespace it is the parent of all orphans
            pid, wait_status = os.wait()
            if pid == job:
                _tell_end(ends, wait_status)
                status = 0
                break
    except Exception as error:  # whatever it is, the client is told
        _refuse(ends, error)
    finally:
        os._exit(status)


def _give_up_rights(uid: int, *, as_root: bool) -> None:
    """Become the job's user, without any capability; nobody of that user may look into this process."""
    kernel.drop_bounding_set()
    if as_root:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    kernel.drop_capabilities()
    kernel.without_new_privileges()
    kernel.set_dumpable(dumpable=False)


# -- both ------------------------------------------------------------------------------------------------------------


def _watch(pid: int, connection: int) -> bool:
    """Wait until a child ends, or the client closes its end of the connection; whether the child has ended."""
    process = os.pidfd_open(pid)
    waits = select.poll()
    waits.register(process, select.POLLIN)
    waits.register(connection, select.POLLRDHUP)
    while not (events := waits.poll(_REAP_S * 1000)):
        reap(pid)
    return process in dict(events)


def reap(*watched: int) -> None:
    """Reap orphans that have ended; `watched` children are waited for by their files."""
    with suppress(ChildProcessError):
        while (
            process := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        ) and process.si_pid not in watched:
            os.waitpid(process.si_pid, 0)


def _be_job(confinement: Confinement, ends: ProcessFiles, body: Callable[[], None]) -> NoReturn:
    status = 1
    try:
        _print_into(ends.output)
        close_all_but(0, 1, 2, ends.connection, ends.links)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        kernel.end_with_parent(signal.SIGKILL)
        kernel.set_dumpable(dumpable=True)
        limit(confinement.usage, confinement.group, alone=not confinement.trusted)
        body()
        status = 0
    finally:
        os._exit(status)


def _print_into(number: int) -> None:
    """Have what this process prints go into an open file, line by line."""
    for output in (1, 2):
        os.dup2(number, output)
    # new ones: those that there are may have been made for a file, and hold what was not written
    sys.stdout, sys.stderr = (
        os.fdopen(output, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
        for output in (1, 2)
    )


def _filtered(program: bytes, body: Callable[[], None]) -> Callable[[], None]:
    """`body`, without the system calls that a filter refuses."""

    def filtered() -> None:
        kernel.filter_calls(program)
        body()

    return filtered
