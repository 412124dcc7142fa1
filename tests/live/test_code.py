"""A job's code: shipped by content, the same in every process, apart from other jobs' and without tokens."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch

from skedge.core.errors import InputError, TrainingError
from skedge.live.worker.agent import Agent
from skedge.live.worker.chunk_format import packed
from skedge.live.worker.code_archive import Codes, digest, files_in, modules_in, pack
from skedge.live.worker.flat_tensors import FlatLayout
from skedge.live.worker.job_process import Ack, EndedError, JobProcess
from skedge.live.worker.job_processes import ForkServerClient, environment, sent
from skedge.live.worker.program import Program
from skedge.live.worker.sgd import ParameterServer

JOB = """
import os
import torch
from torch import nn
from helpers import factor
from skedge.live.training import Training

def data(chunk=0):
    return torch.ones(1, 2), torch.ones(1, 1)

def model():
    layer = nn.Linear(2, 1, bias=False)
    nn.init.ones_(layer.weight)
    return layer

def job(does=""):
    return Training(model, lambda p: torch.optim.SGD(p, 1.0), lambda a, b: loss(a, does), data, data, metric=metric)

def loss(outputs, does):
    if does == "end":
        os._exit(3)
    while does == "hang":
        pass
    return factor() * outputs.sum()

def metric(model, test):
    return float(sum(name.startswith(("RAY_", "SKEDGE_")) for name in os.environ))
"""
DATA = torch.ones(1, 2), torch.ones(1, 1)
HELPERS = "def factor():\n    return {factor}\n"


def folder_of(path: Path, factor: float, job: str = JOB) -> Path:
    path.mkdir(exist_ok=True)
    (path / "job.py").write_text(job, encoding="utf-8")
    (path / "helpers.py").write_text(HELPERS.format(factor=factor), encoding="utf-8")
    return path


def program(code: bytes = b"", **args: str) -> Program:
    return Program("job:job", args, 1, 4, 1, code=code)


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServerClient]:
    before = dict(os.environ)
    os.environ.update({"RAY_AUTH_TOKEN": "secret", "SKEDGE_TOKEN": "secret"})
    one = ForkServerClient()
    one.start()
    try:
        yield one
    finally:
        os.environ.clear()
        os.environ.update(before)
        assert one.control is not None
        path = Path(one.control.getpeername())
        one.end()
        deadline = time.monotonic() + 60
        while path.exists():
            assert time.monotonic() < deadline, "it ends when it has no client"
            time.sleep(0.1)


@pytest.fixture
def child(fork_server: ForkServerClient) -> Iterator[Callable[[], JobProcess]]:
    made = list[JobProcess]()

    def make() -> JobProcess:
        made.append(fork_server.fork())
        return made[-1]

    yield make
    for one in made:
        one.end()


WEIGHT = FlatLayout({"weight": torch.empty(1, 2)})
"""That of the jobs' model."""


def weights(answer: tuple[Ack, bytes]) -> list[float]:
    return [float(w) for w in WEIGHT.views(answer[1])["weight"].flatten()]


def trained(child: JobProcess, of: Program, path: Path) -> list[float]:
    """The weights after one update by one child that is worker and parameter server at once, from (1, 1)."""
    chunk = path / f"{digest(of.code)}.pt"
    chunk.write_bytes(packed(DATA, of.module()))
    state = child.ask("load", sent(of), None)[1]
    brought = child.ask("gradient", sent(of), str(chunk), 0, 0, state)[1]
    return weights(child.ask("apply", 0, (brought,)))


def test_two_versions_of_a_module_never_meet(child: Callable[[], JobProcess], tmp_path: Path) -> None:
    """By hand: the gradient is (factor, factor), so the weights are 1 - factor; the factor is in a second module."""
    old = program(pack(folder_of(tmp_path / "code", 0.25)))
    new = program(pack(folder_of(tmp_path / "code", 0.5)))
    first, second, third = child(), child(), child()
    assert trained(first, old, tmp_path) == [0.75, 0.75]
    assert trained(second, new, tmp_path) == [0.5, 0.5]
    assert trained(third, old, tmp_path) == [0.75, 0.75], "a process that starts later has the job's own version"
    with pytest.raises(TrainingError, match="it cannot have"):
        first.ask("load", sent(new), None)


def test_an_installed_module_that_was_edited_is_what_the_next_job_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warm agent served a job of the old version; it is not asked to start again."""
    monkeypatch.syspath_prepend(folder_of(tmp_path / "installed", 0.25))
    agent, losses = Agent("s", str(tmp_path / "agent")), []
    for name, factor in (("old", 0.25), ("new", 0.5)):
        folder_of(tmp_path / "installed", factor, JOB + f"# {factor}")
        of = program()
        agent.store(name, 0, 0, packed(DATA, _sha(tmp_path / "installed" / "job.py")), last=True)
        ack, _ = agent.gradient(name, sent(of), 0, 0, WEIGHT.pack({"weight": torch.ones(1, 2)}))
        losses.append(ack["loss"])
        agent.forget(name)
    assert losses == [0.5, 1.0], "factor times the sum of both weights"


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_processes_with_different_installed_modules_do_not_mix(child: Callable[[], JobProcess], tmp_path: Path) -> None:
    of, chunk = program(pack(folder_of(tmp_path / "code", 1.0))), tmp_path / "chunk.pt"
    worker = child()
    state = worker.ask("load", sent(of), None)[1]
    chunk.write_bytes(packed(DATA, "another"))
    with pytest.raises(TrainingError, match=r"factory 'job:job' differs between processes .* ship it with the job"):
        worker.ask("gradient", sent(of), str(chunk), 0, 0, state)


def test_a_checkpoint_of_another_version_is_refused() -> None:
    of = Program("skedge.live.examples:images", {"samples": 40, "size": 8}, 4, 1, 1)
    server = ParameterServer(of)
    server.module = "another"
    with pytest.raises(TrainingError, match="differs between processes"):
        ParameterServer(of).restore(server.dump())


def test_a_jobs_processes_have_no_tokens(child: Callable[[], JobProcess], tmp_path: Path) -> None:
    """The job's metric counts the variables of Ray and skedge that its process has."""
    of = program(pack(folder_of(tmp_path / "code", 1.0)))
    one = child()
    state = one.ask("load", sent(of), None)[1]
    assert one.ask("accuracies", sent(of), (state,))[0] == {"accuracies": [0.0], "metric": "metric"}
    assert os.environ["RAY_AUTH_TOKEN"] == "secret"
    assert not {"RAY_AUTH_TOKEN", "SKEDGE_TOKEN"} & environment(os.environ).keys()


def test_code_that_ends_or_hangs_costs_its_own_process(child: Callable[[], JobProcess], tmp_path: Path) -> None:
    code, chunk = pack(folder_of(tmp_path / "code", 0.25)), tmp_path / "chunk.pt"
    chunk.write_bytes(packed(DATA, digest(code)))
    other = child()
    for does, raised in (("end", EndedError), ("hang", TrainingError)):
        one, of = child(), program(code, does=does)
        state = one.ask("load", sent(of), None)[1]
        with pytest.raises(raised, match=r"has ended with status 3|has not returned after 1 s"):
            one.ask("gradient", sent(of), str(chunk), 0, 0, state, limit_s=1.0)
        with pytest.raises(EndedError):
            one.ask("losses")
    assert trained(other, program(code), tmp_path) == [0.75, 0.75]


def test_a_client_that_ends_while_it_waits_harms_no_other(fork_server: ForkServerClient) -> None:
    assert fork_server.control is not None
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(fork_server.control.getpeername())
    before = fork_server.control
    with closing(fork_server.fork().connection):
        assert fork_server.control is before


def test_an_archive_is_named_by_the_content_of_its_python_files(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a", 1.0)
    (folder / "sub").mkdir()
    (folder / "sub" / "__init__.py").write_text("")
    (folder / "sub" / "deep.py").write_text("x = 1")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "big.py").write_text("x = 1")
    (folder / "data.bin").write_bytes(b"0" * 1000)
    before = pack(folder)
    assert sorted(files_in(before)) == ["helpers.py", "job.py", "sub/__init__.py", "sub/deep.py"]
    assert modules_in(before) == {"helpers", "job", "sub", "sub.deep"}
    os.utime(folder / "job.py", (1, 1))
    (folder / "data.bin").write_bytes(b"1")
    assert pack(folder) == before
    (folder / "helpers.py").write_text("x = 2")
    assert digest(pack(folder)) != digest(before)
    assert modules_in(pack(folder / "job.py")) == {"job"}
    with pytest.raises(InputError, match="has 0 Python files"):
        pack(tmp_path / "none")


def archive(name: str, content: bytes = b"x = 1", how: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as file:
        file.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "code",
    [
        b"no archive",
        archive("../job.py"),
        archive("/job.py"),
        archive("job.so"),
        archive("job.py", b" " * 10**6, zipfile.ZIP_DEFLATED),
        archive("job.py")[:-30],
    ],
    ids=["text", "outside", "absolute", "binary", "compressed", "cut"],
)
def test_an_archive_that_submit_does_not_make_is_refused(code: bytes) -> None:
    with pytest.raises(InputError, match=r"^code: "):
        files_in(code)


def test_code_that_is_kept_is_whole_or_not_there(tmp_path: Path) -> None:
    codes, code = Codes(tmp_path / "code"), archive("job.py")
    name = codes.keep(code)
    assert codes.keep(code) == name
    assert codes.read(name) == code
    assert [path.name for path in (tmp_path / "code").iterdir()] == [f"{name}.zip"]
    (tmp_path / "code" / f"{name}.zip").write_bytes(code[:-1])
    with pytest.raises(InputError, match="is damaged"):
        codes.read(name)
    with pytest.raises(InputError, match="is not kept"):
        codes.read("0" * 64)


def test_a_factory_of_shipped_code_is_never_taken_from_what_is_installed(tmp_path: Path) -> None:
    code = pack(folder_of(tmp_path / "code", 1.0))
    with pytest.raises(TrainingError, match="the job's code has no module os"):
        Program("os:getcwd", {}, 1, 1, 1, code=code).make()
