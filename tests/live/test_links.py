"""Connections of workers to their parameter server: who is late, lost or wrong, and the same bits as by calls."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import unruly
from here import machine
from torch import nn

from builders.thorough import thorough_except
from skedge.core.errors import TrainingError
from skedge.live import host
from skedge.live.coordinator.report import Report
from skedge.live.coordinator.teams import Team
from skedge.live.coordinator.trainer import Trainer
from skedge.live.worker.chunk_format import packed
from skedge.live.worker.flat_tensors import FlatLayout, SharedState
from skedge.live.worker.links import Listener, Order, ServerLink, WorkerLinks, connected
from skedge.live.worker.program import Program
from skedge.live.worker.watchdog import WatchdogLimits

DIGEST, PARAMETERS, SIZE = "d" * 64, b"p" * 1000, 3_000_000


@pytest.fixture
def listener() -> Iterator[Listener]:
    one = Listener()
    yield one
    one.close()
    assert not Path(one.address).exists()


@pytest.fixture
def links(listener: Listener) -> Iterator[WorkerLinks]:
    def check(digest: str) -> None:
        if digest != DIGEST:
            raise TrainingError("other code")

    one = WorkerLinks(listener.socket, SIZE, check)
    yield one
    one.keep(())


def worker(listener: Listener, number: int, digest: str = DIGEST) -> ServerLink:
    return ServerLink(connected(number, listener.address), digest)


def soon(seconds: float = 10.0) -> float:
    return host.monotonic() + seconds


def nothing() -> None:
    """Is told that a process waits."""


def test_orders_and_parameters_go_one_way_and_contributions_the_other(listener: Listener, links: WorkerLinks) -> None:
    workers = {number: worker(listener, number) for number in (3, 1)}
    assert links.has_all({1, 3}, soon())

    def works(number: int) -> None:
        parameters = bytearray(len(PARAMETERS))
        assert workers[number].order(parameters, 1.0, nothing) == Order(7, number, 2)
        assert parameters == PARAMETERS
        assert workers[number].send(bytes([number]) * SIZE)
        assert workers[number].order(parameters, 1.0, nothing) == Order(7, -1, 0)

    threads = [threading.Thread(target=works, args=(number,)) for number in workers]
    for thread in threads:
        thread.start()
    for number in workers:
        assert links.send(number, Order(7, number, 2), PARAMETERS, soon())
    contents = links.contributions([1, 3], soon(), 0.05, nothing)
    assert {number: (len(content), content[0], content[-1]) for number, content in contents.items()} == {
        number: (SIZE, number, number) for number in (1, 3)
    }
    links.end(7, soon())
    for thread in threads:
        thread.join()


def test_who_is_late_or_lost_is_missing_and_what_comes_of_them_later_is_not_read(
    listener: Listener, links: WorkerLinks
) -> None:
    workers = {number: worker(listener, number) for number in (1, 2, 3)}
    assert links.has_all({1, 2, 3}, soon())
    for number in workers:
        assert links.send(number, Order(1, 0, 0), PARAMETERS, soon())
    waits = list[bool]()
    workers[2].close()
    thread = threading.Thread(target=workers[3].send, args=(b"c" * SIZE,))
    thread.start()
    assert set(links.contributions([1, 2, 3], soon(2.0), 0.05, lambda: waits.append(True))) == {3}
    assert waits == [True], "it is told once"
    thread.join()
    assert set(links.links) == {3}
    assert workers[1].order(bytearray(len(PARAMETERS)), 1.0, nothing) == Order(1, 0, 0)
    assert not (workers[1].send(b"c" * SIZE) and workers[1].send(b"c" * SIZE)), "it is closed"
    assert workers[1].order(bytearray(len(PARAMETERS)), 1.0, nothing) is None


def test_a_connection_that_comes_too_late_is_refused(listener: Listener, links: WorkerLinks) -> None:
    assert not links.has_all({5}, soon(0.1))
    links.close(5)
    late, another = worker(listener, 5), worker(listener, 6)
    assert links.has_all({6}, soon())
    assert not links.has_all({5}, soon(0.2))
    assert late.order(bytearray(1), 1.0, nothing) is None
    another.close()


def test_what_connects_and_says_nothing_or_half_holds_up_nobody(listener: Listener, links: WorkerLinks) -> None:
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as half:
        silent.connect(listener.address)
        half.connect(listener.address)
        half.sendall(struct.pack("<q", 8) + b"d")
        whole = worker(listener, 9)
        assert links.has_all({9}, soon())
        assert not links.has_all({8}, soon(0.1))
        whole.close()


def test_a_worker_with_other_code_fails_the_job(listener: Listener, links: WorkerLinks) -> None:
    other = worker(listener, 1, "e" * 64)
    with pytest.raises(TrainingError, match="other code"):
        links.has_all({1}, soon())
    other.close()


def test_nobody_listens_any_more() -> None:
    gone = Listener()
    gone.close()
    with pytest.raises(OSError, match=r"No such file|refused"):
        connected(1, gone.address)


# -- whole rounds ----------------------------------------------------------------------------------------------------


def trained(folder: Path, monkeypatch: pytest.MonkeyPatch, way: str, width: int, local_steps: int = 1) -> list[Any]:
    """Losses and parameters of a job of three chunks, whose rounds are trained in one of the ways."""
    folder.mkdir()
    program = Program("unruly:job", {}, 3, 4, 4, local_steps=local_steps)
    results, reports = list[Any](), list[Report]()
    with machine(folder, monkeypatch, WatchdogLimits(), way) as here:
        monkeypatch.setattr(here, "outcome", lambda _, losses, state, *__: results.extend((losses, state)) or {})
        for chunk in range(3):
            here.agent.store("j", chunk, 0, packed(unruly.points(chunk), program.module()), last=True)
        processes: Any = here
        trainer = Trainer(0, "j", program, reports.append, processes, servers=("edge-0",))
        trainer.serve_from(0)
        trainer.put(0, Team(0, (0, 1, 2), width))
        trainer.start()
        deadline = time.monotonic() + 60
        while not any(report.what in ("failed", "result") for report in reports):
            assert time.monotonic() < deadline, reports
            time.sleep(0.02)
        trainer.close()
        trainer.join(30)
    return results


@pytest.mark.parametrize(
    ("width", "local_steps"), thorough_except([(2, 1), (3, 3)], [(2, 1), (3, 1), (1, 3), (2, 3), (3, 3)])
)
def test_rounds_make_the_same_bits_in_windows_as_by_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, local_steps: int
) -> None:
    """An epoch has four mini-batches: rounds of three and of one."""
    by_calls = trained(tmp_path / "calls", monkeypatch, "calls", width, local_steps)
    monkeypatch.undo()
    assert len(by_calls[0]) == 3 * (16 if local_steps == 1 else 8) // width
    for way in ("windows", "links", "bridge"):
        results = trained(tmp_path / way, monkeypatch, way, width, local_steps)
        monkeypatch.undo()
        assert results == by_calls, way


# -- the state of a model in what is sent ----------------------------------------------------------------------------


class Tied(nn.Module):
    """A parameter of two names, a buffer, and one that is replaced at each pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.passes: torch.Tensor
        self.register_buffer("passes", torch.zeros(()))
        self.register_buffer("nothing", torch.zeros(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes = self.passes + 1
        return self.norm(self.second(self.first(x)))


class Halves(nn.Linear):
    """A layer that is read in its own way."""

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        state_dict = {**state_dict, f"{prefix}weight": state_dict[f"{prefix}weight"] / 2}
        super()._load_from_state_dict(state_dict, prefix, *rest)


@pytest.mark.parametrize(
    ("make", "is_placed"), [(Tied, True), (lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), True),
                           (lambda: Halves(4, 4), False)],
    ids=["tied", "plain", "own"],
)  # fmt: skip
def test_a_model_has_what_comes_as_if_it_was_loaded(make: Any, is_placed: bool) -> None:
    torch.manual_seed(0)
    sender, receiver, other = make(), make(), make()
    layout = FlatLayout(sender.state_dict())
    out, into = SharedState(sender, layout), SharedState(receiver, layout)
    assert (out.is_placed, into.is_placed) == (is_placed, is_placed)
    for _ in range(3):
        with torch.no_grad():
            for parameter in sender.parameters():
                parameter.add_(torch.rand_like(parameter))
        sender(torch.rand(5, next(iter(sender.parameters())).shape[1]))
        into.memory[:] = out.write()
        into.read()
        other.load_state_dict(layout.views(out.write()))
        for name, value in receiver.state_dict().items():
            assert torch.equal(value, other.state_dict()[name]), name
        with torch.no_grad():
            next(iter(receiver.parameters())).zero_()  # by a step that does what it should not


def test_an_optimizer_may_put_parameters_elsewhere() -> None:
    model = nn.Linear(3, 2)
    layout = FlatLayout(model.state_dict())
    shared = SharedState(model, layout)
    with torch.no_grad():
        model.weight.data = model.weight + 1
    views = layout.views(shared.write())
    assert all(torch.equal(views[name], value) for name, value in model.state_dict().items())
