"""Interleavings of parameter servers, agents, uploads and measurements, each forced by events, without Ray."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from staged import Ref, Staged, failed, stage

from skedge.core.errors import TrainingError
from skedge.live import host
from skedge.live.confinement.confinement import Confinement
from skedge.live.coordinator.ps_process import PSProcess
from skedge.live.coordinator.replies import Replies
from skedge.live.coordinator.training_actors import TrainingActors
from skedge.live.worker import job_processes, ps_actor
from skedge.live.worker.agent import Agent
from skedge.live.worker.checkpoint import Checkpoints, Life
from skedge.live.worker.framing import framed
from skedge.live.worker.job_code_runner import JobCodeClient
from skedge.live.worker.job_process import EndedError
from skedge.live.worker.job_processes import sent
from skedge.live.worker.program import Program
from skedge.live.worker.sgd import gradient, progress_in
from skedge.live.worker.wire_format import WireFormat
from skedge.live.worker.worker_main import Caller, JobWorker
from skedge.live.world import upload_thread
from skedge.live.world.inputs import Uploaded
from skedge.live.world.upload_thread import UploadThread
from skedge.live.world.uploads import Uploads

NONE: Any = None
LONG_S = 10.0
"""How long what happens at once may take [s]: only a failing test waits for so long."""


# -- parameter servers: a call of a coordinator that was lost reaches a process after the next coordinator's ---------


class Near:
    """A child whose code runs in this process."""

    pid = calls = 0

    def __init__(self) -> None:
        self.inside = JobWorker(Caller())

    def ask(self, method: str, *given: Any, **_: Any) -> Any:
        """Call a method; its limits are for processes."""
        return getattr(self.inside, method)(*given)

    def give(self, *_: Any) -> None:
        """Do nothing: no worker is connected."""

    def kill(self) -> None:
        """Do nothing: there is no process."""

    def end(self) -> None:
        """Do nothing: there is no process."""


class NearNursery:
    """Gives such children."""

    def __init__(self, confinement: Confinement) -> None:
        self.confinement = confinement

    def start(self) -> None:
        """Do nothing: there is no process to start."""

    def fork(self, confinement: Confinement | None = None) -> Near:
        """A new child."""
        return Near()


class OnePS(TrainingActors):
    """One parameter server's actor, that any job gets."""

    def __init__(self, actor: Staged) -> None:
        self.actor = actor
        self._loads = iter(range(1, 100))

    def parameter_server(self, server: int) -> Any:
        """The actor."""
        return self.actor

    def trains(self, server: int) -> bool:
        """It trains no chunks."""
        return False

    def release(self, server: int, actor: Any, *life: Life) -> None:
        """Unload the job."""
        host.call(actor, "unload", *life)


class Dead(BaseException):
    """The coordinator was killed while it waited."""


class Killed(Replies):
    """The answers of a coordinator that is killed while it waits for one."""

    def of(self, ref: Any, server: int | None, deadline: float | None = None, about: int = -1) -> Any:
        """Die."""
        raise Dead


def unheard(*_: Any) -> None:
    """Take what happens to processes, or what they print."""


def linear(chunks: int) -> Program:
    return Program("linear_jobs:linear", {}, chunks, 1, 1)


@pytest.fixture
def actor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Staged:
    """The actor of a parameter server."""
    stage(monkeypatch)
    monkeypatch.setattr(ps_actor, "ForkServerClient", NearNursery)
    return Staged(ps_actor.PSActor(str(tmp_path)))


def process(actor: Staged, job: str, chunks: int, controllers: int, answers: Replies | None = None) -> PSProcess:
    """The process of a job's parameter server, as the trainer of a coordinator sees it."""
    answers = answers or Replies(("s",), lambda _: None, event=unheard, hear=unheard)
    made = PSProcess(job, OnePS(actor), answers, lambda: controllers, threading.Event())
    made.sent = sent(linear(chunks))
    return made


def late_load(actor: Staged, job: str, chunks: int) -> Callable[[], None]:
    """A coordinator is killed after it has sent a load, which is on its way."""
    actor.held = []
    with pytest.raises(Dead):
        process(actor, job, chunks, 0, Killed((), lambda _: None, event=unheard, hear=unheard)).move(0)
    (late,), actor.held = actor.held, None
    return late


def gradients(chunk: int, state: bytes) -> bytearray:
    """The gradients of a chunk's first mini-batch."""
    made, model = linear(2).make(), linear(2).make().model()
    assert made.chunk is not None
    parameters = WireFormat(model).state.views(state)
    return WireFormat(model).pack(gradient(model, made, linear(2), made.chunk(chunk), parameters, chunk, 0))


def apply(ps: PSProcess, contribution: bytearray) -> Any:
    """Update parameters of version 0; returns the progress then, None if that process has another job or life."""
    facts = ps.apply(0, [contribution], 1e9)
    return facts and facts["progress"]


def test_the_late_load_of_another_job_does_not_take_a_process_from_its_job(actor: Staged, tmp_path: Path) -> None:
    """Job a is loaded by the coordinator that died, b by the next one: then the first message arrives."""
    late, after = late_load(actor, "a", 3), process(actor, "b", 2, 1)
    assert after.move(0)
    late()
    assert after.save()
    saved = Checkpoints(str(tmp_path)).read("b")
    assert saved is not None
    assert progress_in(saved) == [0, 0], "two chunks are those of b"


def test_the_late_load_of_an_earlier_life_does_not_undo_what_was_trained_since(actor: Staged, tmp_path: Path) -> None:
    late, after = late_load(actor, "a", 2), process(actor, "a", 2, 1)
    assert after.move(0)
    assert apply(after, gradients(0, after.state.value)) == [1, 0]
    late()
    assert after.save()
    saved = Checkpoints(str(tmp_path)).read("a")
    assert saved is not None
    assert progress_in(saved) == [1, 0]


def test_the_calls_of_an_earlier_coach_do_not_reach_what_was_loaded_since(actor: Staged, tmp_path: Path) -> None:
    """A frozen coordinator goes on: it unloads nothing, trains nothing, and saves nothing older than what is there."""
    before, after = process(actor, "a", 2, 0), process(actor, "a", 2, 1)
    assert before.move(0)
    assert after.move(0)
    assert apply(before, gradients(0, after.state.value)) is None
    assert not before.save()
    before.release()
    assert apply(after, gradients(1, after.state.value)) == [0, 1]
    assert after.save()
    assert not before.move(0), "it cannot load the job any more"
    assert after.losses() is not None
    checkpoint = Checkpoints(str(tmp_path)).read("a")
    assert checkpoint is not None
    assert progress_in(checkpoint) == [0, 1]


def test_a_checkpoint_of_another_process_is_gone_on_from(actor: Staged, tmp_path: Path) -> None:
    """Of a service whose journal is of a backup: there are checkpoints of its later lives."""
    kept, lines = Checkpoints(str(tmp_path)), list[str]()
    first = process(actor, "a", 2, 0, Replies(("s",), lines.append, event=unheard, hear=unheard))
    assert first.move(0)
    assert first.save()
    content = kept.read("a")
    assert content is not None
    kept.write("a", Life(0, 3), 0, content)
    for life in (2, 3):
        assert first.save() is None
        assert first.move(0)
        assert first.life == Life(0, life)
    assert first.save() == [0, 0], "its life is as late now"
    assert "there is a later one" in lines[0]


# -- what Ray's errors mean ------------------------------------------------------------------------------------------


def ray_errors() -> list[Exception]:
    """Errors of Ray that no job is to blame for."""
    from ray import exceptions

    gone = exceptions.ObjectLostError("00" * 28, None, "")
    return [
        exceptions.ActorDiedError(),
        exceptions.ActorUnavailableError("restarting", None),
        exceptions.NodeDiedError("the node is dead"),
        exceptions.ObjectStoreFullError("full"),
        exceptions.OutOfDiskError("full"),
        exceptions.OutOfMemoryError("killed"),
        exceptions.WorkerCrashedError(),
        exceptions.LocalRayletDiedError(),
        exceptions.RaySystemError("system"),
        gone,
        exceptions.GetTimeoutError("late"),
        failed(gone),
        failed(OSError(errno.EIO, "Input/output error")),
    ]


@pytest.mark.parametrize("number", range(13))
def test_no_error_of_ray_or_of_a_server_is_the_jobs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    """A trainer's call, an upload's piece, and a call of the job_code: each is repeated."""
    stage(monkeypatch)
    error = ray_errors()[number]
    ref = Ref()
    ref.settle(error=error)
    assert Replies(("s",), lambda _: None, event=unheard, hear=unheard).of(ref, 0) is None
    once = Once(NONE, error)
    assert JobCodeClient(once)._ask("contents", OF) == ({}, b"")
    told, _ = carried(monkeypatch, Once(agent(monkeypatch, tmp_path), error))
    assert [type(one) for one in told] == [Uploaded]


class Once:
    """A handle whose first call fails, and whose others are carried out."""

    def __init__(self, actor: Any, *errors: Exception) -> None:
        self.staged, self.errors, self.calls = Staged(actor), list(errors), 0

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *given, **named: self._call(name, *given, **named))

    def _call(self, name: str, *given: Any, **named: Any) -> Any:
        self.calls += 1
        ref = Ref()
        if self.errors:
            ref.settle(error=self.errors.pop(0))
        elif self.staged.actor is None:
            ref.settle(({}, b""))
        else:
            return getattr(self.staged, name).remote(*given, **named)
        return ref


def test_an_object_that_is_gone_has_the_parameters_loaded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray import exceptions

    stage(monkeypatch)
    answers, ref = Replies(("s",), lambda _: None, event=unheard, hear=unheard), Ref()
    ref.settle(error=failed(exceptions.ObjectLostError("00" * 28, None, "")))
    assert answers.of(ref, 0) is None
    assert answers.gone


def test_storage_that_stays_away_fails_the_job_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch)
    lines, ref = list[str](), Ref()
    answers = Replies(("s",), lines.append, event=unheard, hear=unheard)
    ref.settle(error=failed(PermissionError(errno.EACCES, "Permission denied")))
    assert [answers.of(ref, 0) for _ in range(59)] == [None] * 59
    with pytest.raises(TrainingError, match=r"60 calls in a row failed on s: PermissionError: .*Permission denied"):
        answers.of(ref, 0)
    assert len(lines) == 1, "it is told once"


@pytest.mark.parametrize("kills", [3, 4])
def test_a_process_that_makes_data_and_is_killed_is_tried_again(monkeypatch: pytest.MonkeyPatch, kills: int) -> None:
    """By the kernel, as memory is short: a few times in a row are the job's."""
    stage(monkeypatch)
    job_code = Once(NONE, *[failed(EndedError("its code ends the process that it runs in")) for _ in range(kills)])
    if kills == 3:
        assert JobCodeClient(job_code)._ask("contents", OF) == ({}, b"")
    else:
        with pytest.raises(TrainingError, match="or there is too little memory: 4 calls in a row ended so"):
            JobCodeClient(job_code)._ask("contents", OF)
    assert job_code.calls == 4


# -- uploads ---------------------------------------------------------------------------------------------------------

OF = Program("m:f", {}, 1, 1, 1)


def agent(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Agent:
    """An agent whose processes are here."""
    stage(monkeypatch)
    monkeypatch.setattr(job_processes, "ForkServerClient", NearNursery)
    return Agent("s", str(folder))


def carried(monkeypatch: pytest.MonkeyPatch, handle: Any, piece: int = 2**18) -> tuple[list[Any], list[str]]:
    """What an upload of one chunk tells, and the lines of the job's log."""
    for name, value in (("_PIECE", piece), ("_PIECE_S", 0.05), ("_PATIENCE_S", 0.0), ("_FULL_S", 0.0)):
        monkeypatch.setattr(upload_thread, name, value, raising=name != "_FULL_S")
    uploads, told, lines = Uploads(), list[Any](), list[str]()
    world: Any = SimpleNamespace(
        scenario=SimpleNamespace(jobs=SimpleNamespace(ids=("j",))),
        uploads=uploads,
        inbox=SimpleNamespace(tell=told.append, resumed=0),
        facts=SimpleNamespace(job_log=lambda _, line: lines.append(line), note_printed=unheard, labels={}),
        program=lambda _: OF,
        engine=SimpleNamespace(agents={0: handle}, job_code=SimpleNamespace(
            contents=lambda *_, **__: [(0, framed(b"0123456789"))], warning=lambda _: None)),
        out={},
    )  # fmt: skip
    UploadThread(world, uploads.add(0, 0, (0,), 0.0, 0)).run()
    return told, lines


def test_a_disk_that_is_full_delays_an_upload(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    full = failed(OSError(errno.ENOSPC, "No space left on device"))
    told, lines = carried(monkeypatch, Once(agent(monkeypatch, tmp_path), *[full] * 30))
    assert told == [Uploaded(1)]
    assert lines == ["chunk 0 waits for its server, whose disk is full"], "told once"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["000000.pt"]


def test_a_disk_that_refuses_every_attempt_fails_the_job_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = failed(OSError(errno.EROFS, "Read-only file system"))
    (told,), lines = carried(monkeypatch, Once(agent(monkeypatch, tmp_path), *[broken] * 30))
    assert (told.what, "chunk 0 cannot be brought to its server" in told.reason) == ("failed", True)
    assert "Read-only file system" in told.reason
    assert len(lines) == 1


class LatePiece(Once):
    """The first piece of the first attempt is late: it comes just before the last piece of the second."""

    def _call(self, name: str, *given: Any, **named: Any) -> Any:
        self.calls += 1
        store = getattr(self.staged, name)
        if self.calls == 1:
            self.staged.held = []
        elif named["last"] and self.staged.held:
            (late,), self.staged.held = self.staged.held, None
            late()
        else:
            return Staged(self.staged.actor).store.remote(*given, **named)
        return store.remote(*given, **named)


def test_a_late_piece_does_not_damage_the_file_of_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    handle = LatePiece(agent(monkeypatch, tmp_path))
    told, _ = carried(monkeypatch, handle, piece=10)
    assert told == [Uploaded(1)]
    assert handle.calls == 4, "one piece of the first attempt, three of the second"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["000000.pt"]


# -- agents ----------------------------------------------------------------------------------------------------------


def test_a_mini_batch_that_waits_while_its_job_leaves_starts_no_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    at, started, under_way, go_on = agent(monkeypatch, tmp_path), list[Near](), threading.Event(), threading.Event()

    class Slow(Near):
        def ask(self, method: str, *given: Any, **limits: float) -> Any:
            under_way.set()
            assert go_on.wait(LONG_S)
            return {}, b""

    def child(*_: Any) -> Near:
        started.append(Slow())
        return started[-1]

    monkeypatch.setattr(at.pool.fork_server, "fork", child)

    def asked() -> threading.Thread:
        def ask() -> None:
            with suppress(EndedError):
                at.gradient("j", b"", 0, 0, b"")

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        return thread

    first = asked()
    assert under_way.wait(LONG_S)
    second = asked()
    second.join(0.2)  # it waits for the first, or was told that it is late
    at.forget("j")
    go_on.set()
    first.join(LONG_S)
    second.join(LONG_S)
    assert len(started) == 1
    assert not at.computing
    assert not at.pool.idle


def test_a_mini_batch_whose_job_leaves_while_its_process_is_forked_asks_it_for_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What hangs would else stay until its limit: the job has left, and nobody kills that process any more."""
    at, asked = agent(monkeypatch, tmp_path), list[str]()
    monkeypatch.setattr(Near, "ask", lambda _, method, *__, **___: asked.append(method))

    def child(*_: Any) -> Near:
        at.forget("j")
        return Near()

    monkeypatch.setattr(at.pool.fork_server, "fork", child)
    at.gradient("j", b"", 0, 0, b"")
    assert asked == []
    assert not at.pool.idle
    assert not at.pool.busy
    assert not at.computing


def test_what_is_computing_shrinks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    at = agent(monkeypatch, tmp_path)
    monkeypatch.setattr(Near, "ask", lambda *_, **__: ({"gpus": 0}, b""))
    for chunk in range(3):
        at.gradient("j", b"", chunk, 0, b"")
    assert not at.computing
    assert sum(map(len, at.pool.idle.values())) == 1, "the process stays for the next mini-batch"


# -- storage ---------------------------------------------------------------------------------------------------------


def test_what_a_killed_writer_has_left_is_removed(tmp_path: Path) -> None:
    kept, folder = Checkpoints(str(tmp_path)), tmp_path / "j"
    kept.write("j", Life(0, 1), 1, b"first")
    older, newer = ".000000-000001-000000000009.ckpt.7-1.partial", ".000000-000003-000000000009.ckpt.8-1.partial"
    for name in (older, newer):
        (folder / name).write_bytes(b"half")
    kept.write("j", Life(0, 2), 2, b"second")
    names = sorted(path.name for path in folder.iterdir() if path.suffix == ".partial")
    assert names == [newer], "that of a later writer may be about to be whole"
    kept.thin("j")
    assert [path.suffix for path in folder.iterdir()] == [".ckpt"]


def test_a_checkpoint_that_another_process_removes_meanwhile_is_no_error(tmp_path: Path) -> None:
    kept = Checkpoints(str(tmp_path))
    for version in (1, 2):
        kept.write("j", Life(0, 1), version, b"old")
    remove = kept.files.rm_file

    def removed_before(path: str) -> None:
        remove(path)
        remove(path)

    kept.files = SimpleNamespace(  # type: ignore[assignment]
        exists=kept.files.exists, ls=kept.files.ls, makedirs=kept.files.makedirs, rm_file=removed_before,
        pipe_file=kept.files.pipe_file, cat_file=kept.files.cat_file,
    )  # fmt: skip
    kept.write("j", Life(0, 1), 3, b"new")
    assert kept.read("j") == b"new"


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The folder was listed; then its writer has written two more, and removed those that were listed."""
    kept, writer = Checkpoints(str(tmp_path)), Checkpoints(str(tmp_path))
    writer.write("j", Life(0, 1), 1, b"listed")
    read = kept.files.cat_file

    def written_before(path: str) -> bytes:
        for version in (2, 3, 4) if path.endswith("1.ckpt") else ():
            writer.write("j", Life(0, 1), version, b"newest")
        return bytes(read(path))

    monkeypatch.setattr(kept.files, "cat_file", written_before)
    assert kept.read("j") == b"newest"
    monkeypatch.setattr(kept.files, "cat_file", lambda path: read(path + " gone"))
    with pytest.raises(FileNotFoundError):
        kept.read("j")
