"""What a confined job can still do, what ends with it, and what is said where a machine cannot confine jobs."""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from wheels import wheel

from skedge.core.errors import InputError, TrainingError
from skedge.live.confinement import cgroups
from skedge.live.confinement.check import check_platform
from skedge.live.confinement.confinement import CONFINED, TRUSTED, Confinement, Usage, confinement_of, from_json
from skedge.live.confinement.fork_server import ForkServer
from skedge.live.confinement.limits import cpus_of
from skedge.live.controller.limits import Limits
from skedge.live.worker import job_processes
from skedge.live.worker.code_archive import pack
from skedge.live.worker.job_process import EndedError
from skedge.live.worker.job_processes import ForkServerClient, JobProcessPool, environment, sent
from skedge.live.worker.pip_packages import install
from skedge.live.worker.program import Program


def refused() -> str:
    with suppress(InputError):
        check_platform()
        return ""
    return "this machine does not let jobs be confined, which test_penetration looks at"


confines = pytest.mark.skipif(bool(refused()), reason=refused() or "it does")

BOTH = [pytest.param(Confinement(), id="trusted"), pytest.param(CONFINED, id="confined", marks=confines)]


@pytest.fixture(scope="module")
def nurseries() -> Iterator[Callable[[Confinement], ForkServerClient]]:
    made: dict[bool, ForkServerClient] = {}

    def of(confinement: Confinement) -> ForkServerClient:
        return made.setdefault(confinement.trusted, ForkServerClient(replace(confinement, usage=Usage())))

    yield of
    for fork_server in made.values():
        fork_server.end()


@pytest.fixture
def says(nurseries: Callable[[Confinement], ForkServerClient], tmp_path: Path) -> Callable[..., str]:
    """What a job says whose factory is a piece of Python that sets `said`."""

    def say(confinement: Confinement, body: str) -> str:
        child = nurseries(confinement).fork(confinement)
        try:
            child.ask("load", program(tmp_path, body), None)
        except TrainingError as error:
            said = str(error).partition("RuntimeError: ")[2]
            return re.sub(r" \(piece\.py, line \d+\)$", "", said) or str(error)
        finally:
            child.end()
        return "nothing"

    return say


def program(folder: Path, body: str, **changes: object) -> bytes:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    file = folder / "piece.py"
    file.write_text(f"import os, socket, time\n\ndef job():\n{lines}    raise RuntimeError(said)\n", encoding="utf-8")
    return sent(replace(Program("piece:job", {}, 1, 1, 1, code=pack(file)), **changes))  # type: ignore[arg-type]


def test_a_confinement_survives_its_json_forms() -> None:
    one = replace(
        CONFINED, readable=("/data",), hidden=("/state",), connect=("a:1",), own=("/chunks",), usage=Usage(1.5, 2, 3, 4)
    )
    assert from_json(one.as_json()) == one
    assert confinement_of({"trusted": True, "usage": {}}) == Confinement(), "a field that is not there has its default"


def test_the_cpus_of_a_job_are_the_same_for_all_of_its_processes() -> None:
    assert cpus_of("edge/a", [2, 3, 5], 2) == cpus_of("edge/a", [2, 3, 5], 2)
    assert {len(cpus_of(f"edge/{n}", [2, 3, 5], 2)) for n in range(9)} == {2}
    assert {cpus_of(f"edge/{n}", [2, 3, 5], 1)[0] for n in range(30)} == {2, 3, 5}, "jobs are spread over the CPUs"


# -- what a job has ----------------------------------------------------------------------------------------------------


@confines
def test_a_confined_job_reads_what_the_operator_names_and_its_own(says: Callable[..., str], tmp_path: Path) -> None:
    """Its own chunks lie in the state, which is hidden, in a folder that may be read."""
    for name in ("data/state/own", "data/state/others"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text(name)
    tmp_path.chmod(0o755)
    (tmp_path / "data" / "state" / "own" / "later").symlink_to("file")
    state = tmp_path / "data" / "state"
    of = replace(
        CONFINED, readable=(str(tmp_path / "data"),), hidden=(str(state), str(state / "x")), own=(str(state / "own"),)
    )  # fmt: skip
    body = f"""
from pathlib import Path
said = sorted(str(path.relative_to("{tmp_path}")) for path in Path("{tmp_path}").rglob("*"))
said = said, Path("{tmp_path}/data/state/own/later").read_text()
"""
    assert says(of, body) == str(
        (["data", "data/state", "data/state/own", *_files("data/state/own")], "data/state/own")
    )


def _files(folder: str) -> list[str]:
    return [f"{folder}/file", f"{folder}/later"]


@confines
def test_folders_that_are_on_the_import_path_by_chance_are_not_shown(tmp_path: Path) -> None:
    """The home of the service's user, as an ordinary user too, and the current folder; neither is on it by intent."""
    if os.geteuid():
        pytest.skip("only root can be another user")
    home, here, named = (tmp_path / name for name in ("home", "here", "named"))
    for folder in (home, here, named):
        folder.mkdir()
        (folder / "module.py").write_text("")
    for folder in (*tmp_path.parents[:3], tmp_path, home, here, named):
        folder.chmod(folder.stat().st_mode | 0o055)
    script = f"""
import os, pwd, socket, sys
from pathlib import Path
from types import SimpleNamespace
from attacked import NOBODY, become
from skedge.live.confinement import kernel
from skedge.live.confinement.confinement import CONFINED
from skedge.live.confinement.keeper import ProcessFiles, keep
from skedge.live.secret_files import private_folder
become(NOBODY)
kernel.set_dumpable(dumpable=True)  # as after a program is executed
homes = {{NOBODY: "{home}"}}
pwd.getpwuid = lambda uid: SimpleNamespace(pw_dir=homes[uid])
sys.path += ["{home}", "{here}", "{named}"]
ours, theirs = socket.socketpair()
said, word = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
look = lambda: os.write(theirs.fileno(), " ".join(sorted(os.listdir("{tmp_path}"))).encode())
if os.fork() == 0:
    keep(CONFINED, ProcessFiles(theirs.fileno(), word.fileno(), 1, os.dup(0)), look)
word.close()
theirs.close()
print(ours.recv(1000).decode(), said.recv(1000).decode(), sep=";")
"""
    path = os.pathsep.join(filter(None, [*sys.path, str(Path(__file__).parent)]))
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], env={**os.environ, "PYTHONPATH": path}, cwd=here, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["named;its process has ended with status 0"], done.stderr


@confines
def test_a_confined_job_has_few_files_and_no_room_beside_its_places(says: Callable[..., str]) -> None:
    body = """
import resource
said = [resource.getrlimit(resource.RLIMIT_NOFILE)]
said += [os.statvfs(place).f_files for place in ("/tmp", "/dev/shm")]
for place in ("/dev/planted", "/planted", "/etc/planted"):
    try:
        open(place, "w")
    except OSError as error:
        said.append(error.errno)
open("/dev/null", "w").write("x")
"""
    assert says(CONFINED, body) == str([(1024, 1024), 100_000, 100_000, *[errno.EROFS] * 3])


@confines
def test_a_confined_job_has_sockets_of_its_network_alone(says: Callable[..., str]) -> None:
    body = """
said = []
for family in (1, 2, 10, 16, 17, 38, 40):
    try:
        socket.socket(family, socket.SOCK_DGRAM if family < 16 else socket.SOCK_RAW).close()
        said.append(0)
    except OSError as error:
        said.append(error.errno)
said += [len(socket.socketpair())]
"""
    assert says(CONFINED, body) == str([0, 0, 0, *[errno.EAFNOSUPPORT] * 4, 2])


@confines
def test_loaders_with_processes_of_their_own_work(says: Callable[..., str]) -> None:
    """They share tensors by files in shared memory, and answer by sockets."""
    body = """
import torch
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.arange(12.0)), batch_size=4, num_workers=2)
said = [float(batch.sum()) for batch, in loader]
"""
    assert says(CONFINED, body) == "[6.0, 22.0, 38.0]"


@confines
def test_a_job_reaches_what_it_names_and_nothing_else(says: Callable[..., str]) -> None:
    """By a name that only the job's hosts file has: the forwarding side looks it up, here by a number."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def greet() -> None:
            with listening.accept()[0] as one:
                one.sendall(one.recv(100).upper())

        threading.Thread(target=greet, daemon=True).start()
        body = f"""
with socket.create_connection(("localhost.localdomain", {port}), timeout=10) as one:
    one.sendall(b"hello")
    said = one.recv(100)
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=1)
except OSError as error:
    said = said, error.errno
"""
        names = replace(CONFINED, connect=(f"localhost.localdomain:{port}",))
        try:
            socket.getaddrinfo("localhost.localdomain", port)
        except OSError:
            names, body = (
                replace(CONFINED, connect=(f"127.0.0.1:{port}",)),
                body.replace("127.0.0.1", "127.0.0.2").replace("localhost.localdomain", "127.0.0.1"),
            )
        assert says(names, body) == "(b'HELLO', 111)"


@confines
def test_a_job_reaches_an_address_that_it_names_by_its_number(tmp_path: Path) -> None:
    """192.0.2.7 is nobody's: what answers here is the machine's side, told another target for it."""
    script = """
import os, socket
from skedge.live.confinement import forwarding, keeper
from skedge.live.confinement.confinement import Confinement
from skedge.live.confinement.keeper import ProcessFiles, keep
listening = socket.create_server(("127.0.0.1", 0))
reach, place = socket.create_connection, listening.getsockname()
forwarding._accept.__globals__["socket"].create_connection = lambda target, timeout: (
    reach(place if target == ("192.0.2.7", 443) else target)
)
ours, theirs = socket.socketpair()
said, word = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

def ask():
    with reach(("192.0.2.7", 443), timeout=10) as one:
        os.write(theirs.fileno(), one.recv(100))

if os.fork() == 0:
    ends = ProcessFiles(theirs.fileno(), word.fileno(), 1, os.dup(0))
    keep(Confinement(trusted=False, connect=("192.0.2.7:443",)), ends, ask)
word.close()
theirs.close()
listening.settimeout(10)
listening.accept()[0].sendall(b"hello")
print(ours.recv(100), said.recv(1000).decode())
"""
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout == "b'hello' its process has ended with status 0\n", done.stderr


@confines
def test_a_job_cannot_name_what_the_operator_does_not_allow(tmp_path: Path) -> None:
    children = JobProcessPool("e0", replace(CONFINED, connect=("data.test:80",)))
    of = program(tmp_path, "said = 1", connect=("data.test:81",))
    try:
        with pytest.raises(TrainingError, match=r"train.connect: data.test:81: is no address that .*--allow-connect"):
            children._new("a", of, ())
    finally:
        children.fork_server.end()


def test_a_confined_jobs_environment_has_no_variable_that_it_does_not_need() -> None:
    have = {"AWS_SECRET_ACCESS_KEY": "x", "SKEDGE_TOKEN": "x", "CUDA_VISIBLE_DEVICES": "1", "HOME": "/home/x"}
    confined, trusted = environment(have, trusted=False), environment(have)
    assert (confined["CUDA_VISIBLE_DEVICES"], confined["HOME"]) == ("1", "/tmp")  # noqa: S108
    assert not {"AWS_SECRET_ACCESS_KEY", "SKEDGE_TOKEN"} & confined.keys()
    assert "AWS_SECRET_ACCESS_KEY" in trusted
    assert "SKEDGE_TOKEN" not in trusted


# -- what ends with it -------------------------------------------------------------------------------------------------

NAME = f"left-{os.getpid()}"
"""Of what the jobs of this process leave behind."""

_LEAVES = f"""
import ctypes
NAME = b"{NAME}"
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, NAME, 0, 0, 0)
            time.sleep(600)
        os._exit(0)
    os.wait()
said = "left"
"""


def left_behind() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            found += [path.parent.name] if path.read_text().strip() == NAME else []
    return found


@pytest.mark.parametrize("confinement", BOTH)
@pytest.mark.parametrize("by", ["closing", "ending", "time"])
def test_what_a_job_has_started_ends_with_it(
    confinement: Confinement, by: str, nurseries: Callable[[Confinement], ForkServerClient], tmp_path: Path
) -> None:
    """When its client closes the connection, when its code ends its process, and when its code does not return."""
    body = {"closing": _LEAVES, "ending": f"{_LEAVES}os._exit(3)", "time": f"{_LEAVES}time.sleep(600)"}[by]
    child = nurseries(confinement).fork(confinement)
    error = {"closing": TrainingError, "ending": EndedError, "time": TrainingError}[by]
    with pytest.raises(error):
        child.ask("load", program(tmp_path, body), None, prepare_s=60 if by != "time" else 2)
    if by == "closing":
        waits(lambda: len(left_behind()) == 5)
    child.end()
    waits(lambda: not Path(f"/proc/{child.pid}").exists())
    assert not left_behind()


@pytest.mark.parametrize("confinement", BOTH)
def test_it_ends_with_the_process_that_it_was_forked_from(
    confinement: Confinement, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(job_processes, "_shared_by", lambda trusted: f"alone-{os.getpid()}-{trusted}")
    alone = ForkServerClient(confinement)
    child = alone.fork()
    with pytest.raises(TrainingError):
        child.ask("load", program(tmp_path, _LEAVES), None)
    waits(lambda: len(left_behind()) == 5)
    forked_from = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(forked_from), signal.SIGKILL)
    waits(lambda: not left_behind())
    alone.end()
    child.end()


@pytest.mark.parametrize("confinement", BOTH)
def test_what_a_job_has_started_ends_when_its_keeper_is_killed(
    confinement: Confinement, nurseries: Callable[[Confinement], ForkServerClient], tmp_path: Path
) -> None:
    """Whoever kills it: a trusted job may, and it cannot end anything then."""
    child = nurseries(confinement).fork(confinement)
    with pytest.raises(TrainingError):
        child.ask("load", program(tmp_path, _LEAVES), None)
    waits(lambda: len(left_behind()) == 5)
    os.kill(child.pid, signal.SIGKILL)
    waits(lambda: not left_behind())
    child.end()


def waits(until: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_keeper_that_is_told_to_end_while_it_ends_still_ends_what_its_job_has_left() -> None:
    """The signal comes just before it would be ignored."""
    script = f"""
import os, signal, socket, time
from skedge.live.confinement import keeper
from skedge.live.confinement.confinement import Confinement
ignore, late = signal.signal, []

def told(number, how):
    if number == signal.SIGTERM and how is signal.SIG_IGN and not late:
        late.append(how)
        os.kill(os.getpid(), signal.SIGTERM)
    return ignore(number, how)

def leave():
{"".join(f"    {line}" + chr(10) for line in _LEAVES.strip().splitlines())}

ours, theirs = socket.socketpair()
said, word = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
pid = os.fork()
if pid == 0:
    signal.signal = told
    keeper.keep(Confinement(), keeper.ProcessFiles(theirs.fileno(), word.fileno(), os.dup(2), os.dup(2)), leave)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout == "0\n"
    assert not left_behind()


@pytest.mark.parametrize("lacks", ["fork", "pidfd_open"])
def test_where_no_process_can_be_started_the_client_is_told_and_others_are_served(
    lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()
    listening = socket.socket(socket.AF_UNIX)
    server = ForkServer(listening, lambda *_: time.sleep(600), 0.0)
    real, lacking, own = getattr(os, lacks), [1], os.getpid()

    def scarce(*arguments: int) -> int:
        if os.getpid() == own and lacking and lacking.pop():
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return int(real(*arguments))

    monkeypatch.setattr(os, lacks, scarce)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as the process that jobs' are forked from has it
    got = []
    for _ in range(2):
        connection, job = socket.socketpair()
        said, word = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        content = Confinement().as_json()
        numbers = [job.fileno(), word.fileno(), *(os.open(os.devnull, os.O_WRONLY) for _ in range(2))]
        socket.send_fds(ours, [len(content).to_bytes(4, "little") + content], numbers)
        for number in numbers[2:]:
            os.close(number)
        job.close()
        word.close()
        server._answer(theirs)
        got.append((int.from_bytes(ours.recv(4), "little"), connection, said))
    signal.signal(signal.SIGTERM, before)
    (none, ended, why), (pid, running, _) = got
    assert none == 0
    assert ended.recv(1) == b""
    assert why.recv(1000).decode().startswith("no process can be started for the job: ")
    assert list(server.watched) == [pid]
    running.close()
    ((key, _),) = server.ready.select(20)
    key.data()
    assert not server.watched
    for one in (ours, theirs, listening, ended, why, got[1][2]):
        one.close()
    server.ready.close()


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confinement", BOTH)
def test_the_processes_of_a_job_are_counted_together(
    confinement: Confinement, nurseries: Callable[[Confinement], ForkServerClient], tmp_path: Path
) -> None:
    """Two processes of a job with 150 MB each are above 250 MB; that of another job has as much, and stays."""
    of = replace(confinement, usage=Usage(memory_mb=250))
    hold = "job.held = os.urandom(1 << 20) * 150; said = 'held'"
    children = [nurseries(confinement).fork(replace(of, group=group)) for group in ("edge/a", "edge/b", "edge/a")]
    for child in children[:2]:
        with pytest.raises(TrainingError, match="held"):
            child.ask("load", program(tmp_path, hold), None)
    with suppress(TrainingError, EndedError):  # it may be ended before it answers
        children[2].ask("load", program(tmp_path, hold), None)
    waits(lambda: not Path(f"/proc/{children[0].pid}").exists())
    with pytest.raises(
        TrainingError, match=r"its processes use \d\d\d MB of memory, more than the 250 MB that a job may"
    ):
        children[0].ask("gpus")
    assert "gpus" in children[1].ask("gpus")[0]
    for child in children:
        child.end()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A group as systemd delegates it, with this process in it; played, as is the file that names it."""
    own = tmp_path / "tree" / "skedge.service"
    own.mkdir(parents=True)
    for name, text in (
        ("cgroup.controllers", "cpu io memory pids\n"),
        ("cgroup.procs", ""),
        ("cgroup.subtree_control", ""),
    ):
        (own / name).write_text(text)
    (tmp_path / "tree" / "cgroup.controllers").write_text("")
    (tmp_path / "cgroup").write_text("4:memory:/x\n0::/skedge.service\n")
    monkeypatch.setattr(cgroups, "_TREE", tmp_path / "tree")
    monkeypatch.setattr(cgroups, "_OWN", tmp_path / "cgroup")
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1" if (path, name) == (own, "user.delegate") else b"0")
    return own


def test_a_job_has_a_group_where_the_service_has_been_given_a_tree(tree: Path, tmp_path: Path) -> None:
    """By hand: 100 MB and two places for files of 5 MB; 8 processes, the keeper and the first of the namespace."""
    assert cgroups.move_into_tree()
    assert (tree / "skedge-service" / "cgroup.procs").read_text() == f"{os.getpid()}\n"
    assert (tree / "cgroup.subtree_control").read_text() == "+cpu +memory +pids\n"
    (tmp_path / "cgroup").write_text("0::/skedge.service/skedge-service\n")
    one = cgroups.JobGroup(Confinement(group="edge/a", usage=Usage(100, 8, 2, 5)))
    one.enter()
    assert one.folder is not None
    assert one.folder.parent == tree
    assert {file.name: file.read_text().strip() for file in one.folder.iterdir()} == {
        "memory.max": "110000000", "pids.max": "10", "cpu.max": "200000 100000", "cgroup.procs": str(os.getpid()),
    }  # fmt: skip
    assert one.sentence() == "", "the file of events is not there: the group is gone"
    (one.folder / "memory.events").write_text("oom 3\noom_kill 0\n")
    assert one.sentence() == ""
    (one.folder / "memory.events").write_text("oom 3\noom_kill 1\n")
    assert re.search("more memory than the 100 MB that a job may use on a server: skedge up", one.sentence())
    later = cgroups.JobGroup(Confinement(group="edge/a", usage=Usage(100, 8, 2, 5)))
    later.enter()
    assert later.sentence() == "", "that was another process of the job, before"


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENODEV])
def test_a_group_that_is_removed_while_a_process_enters_is_made_again(
    number: int, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last process of the job leaves between two steps of the next one, twice."""
    (tmp_path / "cgroup").write_text("0::/skedge.service/skedge-service\n")
    one = cgroups.JobGroup(Confinement(group="edge/a", usage=Usage(100)))
    write, removed = cgroups._write, list[object]()

    def removing(file: Path, value: int | str) -> None:
        if file.name == "cgroup.procs" and len(removed) < 2:
            removed.append(shutil.rmtree(file.parent))
            raise OSError(number, os.strerror(number), str(file))
        write(file, value)

    monkeypatch.setattr(cgroups, "_write", removing)
    one.enter()
    assert one.folder is not None
    assert (one.folder / "cgroup.procs").read_text() == f"{os.getpid()}\n"
    assert (one.folder / "memory.max").exists()


@pytest.mark.parametrize("lacks", ["delegation", "controllers", "version 2"])
def test_without_a_tree_jobs_have_no_groups(
    lacks: str, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree that is not the service's own is never written to, although root could."""
    if lacks == "delegation":
        monkeypatch.setattr(os, "getxattr", lambda *_: b"0")
    elif lacks == "controllers":
        (tree / "cgroup.controllers").write_text("hugetlb\n")
    else:
        (tmp_path / "cgroup").write_text("4:memory:/x\n")
    before = sorted(tree.iterdir())
    assert not cgroups.move_into_tree()
    cgroups.JobGroup(Confinement(group="edge/a", usage=Usage(100))).enter()
    assert sorted(tree.iterdir()) == before


def test_a_job_of_too_much_work_is_refused() -> None:
    limits = Limits(chunks=10, minibatches=1000)
    limits.check_work(10, 10, 10)
    with pytest.raises(InputError, match=r"chunks: 11; this service takes at most 10"):
        limits.check_work(11, 1, 1)
    with pytest.raises(
        InputError, match=r"epochs: 1000000000000 of 2 .*takes at most 1000 a job: `skedge up --max-min"
    ):
        limits.check_work(2, 10**12, 4)


# -- packages ----------------------------------------------------------------------------------------------------------


@confines
def test_packages_are_installed_where_the_jobs_code_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job imports them, and cannot change them; an operator has named the folder of the wheel."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    of = program(
        tmp_path,
        """
import weights_of_planted
try:
    open(weights_of_planted.__file__, "a")
except OSError as error:
    said = weights_of_planted.weight, error.errno in (13, 30)
""",
        pip=(wheel(tmp_path / "wheels", 0.25),),
    )
    children = JobProcessPool("e0", replace(CONFINED, readable=(str(tmp_path / "wheels"),)))
    try:
        with pytest.raises(TrainingError, match=r"\(0.25, True\)"), children.of("a", of) as child:
            child.ask("load", of, None)
    finally:
        children.fork_server.end()
    cache = tmp_path / ".cache" / "skedge" / "packages"
    assert {path.stat().st_uid for path in cache.rglob("*")} == {os.geteuid()}, "no later process of a job owns them"
    assert not list(cache.glob("*.partial-*"))


@pytest.mark.parametrize("only_wheels", [True, False])
def test_what_is_named_is_not_built_from_its_source_for_a_confined_job(tmp_path: Path, only_wheels: bool) -> None:
    """A source's build runs its code; here it only leaves a file."""
    ran = tmp_path / "ran"
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": f"open({str(ran)!r}, 'w').close()\n",
        "PKG-INFO": "Metadata-Version: 2.1\nName: sourced\nVersion: 1.0\n",
    }
    with tarfile.open(tmp_path / "sourced-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"sourced-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    with pytest.raises(TrainingError, match=r"train.pip: sourced: cannot be installed"):
        install(["sourced"], tmp_path / "packages", settings, only_wheels=only_wheels)
    assert ran.exists() != only_wheels


# -- a machine that confines nothing -----------------------------------------------------------------------------------


@confines
@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        ("kernel.filter_calls(syscall_filter.refusing())", "unshare 0x.*not permitted"),
        ("kernel.MACHINE = 'vax'", "on vax"),
    ],
)
def test_a_machine_that_cannot_confine_says_so_in_one_line(lacks: str, says: str) -> None:
    """Namespaces that are refused, as in a container; a machine whose system calls are not known."""
    script = (
        "from skedge.live.confinement import kernel, syscall_filter\n"
        "from skedge.live.confinement.check import refusal\n"
        f"kernel.without_new_privileges()\n{lacks}\nprint(refusal())"
    )
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    assert line.startswith("jobs cannot be confined here: ")
    assert line.endswith("`skedge up --trust-jobs` runs jobs' code as the service's user")
    assert re.search(says, line)


def test_where_jobs_cannot_be_confined_up_ends_with_that_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from skedge.cli.job_options import JobOptions
    from skedge.live.confinement import check

    monkeypatch.setattr(check.sys, "executable", "/bin/false")
    with pytest.raises(InputError, match="jobs cannot be confined here"):
        JobOptions().confinement()
    assert JobOptions(trust_jobs=True).confinement().trusted


@pytest.mark.parametrize("wrong", ["data.test", ":80", "data.test:0", "data.test:65536", "data.test:http", "[::2]:443"])
def test_an_address_that_is_none_is_refused(wrong: str) -> None:
    from skedge.cli.job_options import JobOptions

    with pytest.raises(InputError, match=r"--allow-connect .*must (be HOST:PORT|name a host)"):
        JobOptions(trust_jobs=True, allow_connect=[wrong]).confinement()


def test_a_confined_job_names_only_addresses_that_the_operator_allows_and_a_trusted_one_any() -> None:
    """At submission, too: the check is the confinement's."""
    allowed = replace(CONFINED, connect=("data.test:80",))
    allowed.check_connect(["data.test:80"])
    TRUSTED.check_connect(["anything:1"])
    with pytest.raises(
        InputError, match=r"train.connect: other:80: is no address .*--allow-connect.* \(data.test:80\)"
    ):
        allowed.check_connect(["data.test:80", "other:80"])
