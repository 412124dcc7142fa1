"""Where agents compute: GPUs asked for, found and taken in turn; what needs a GPU is skipped without one."""

from __future__ import annotations

import os
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from wire import format_of, state_bytes

from skedge.cli.service import up
from skedge.core.errors import InputError, SkedgeError
from skedge.core.model.cluster import Cluster, Server
from skedge.live import host
from skedge.live.cluster.gpus import Gpus, check_device, offered
from skedge.live.coordinator.replies import MinibatchCall
from skedge.live.coordinator.report import Report
from skedge.live.coordinator.teams import Team
from skedge.live.coordinator.trainer import Trainer
from skedge.live.worker import job_processes, worker_main
from skedge.live.worker.agent import Agent
from skedge.live.worker.chunk_format import packed
from skedge.live.worker.device import moved
from skedge.live.worker.job_processes import sent
from skedge.live.worker.loader_batches import seed_all
from skedge.live.worker.program import Program
from skedge.live.worker.sgd import ParameterServer, gradient
from skedge.live.world.inputs import from_json, to_json
from skedge.live.world.training_facts import TrainingFacts

NONE: Any = None
CLUSTER = Cluster([Server("north", capacity={"worker:gpu": 4}, gpus=2.0), Server("south"), Server("far", "cloud")])
OF = Program("skedge.live.examples:images", {"model": "resnet", "chunks": 2, "samples": 80, "size": 8}, 2, 1, 4)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch can use")


def asked(device: str, here: int, monkeypatch: pytest.MonkeyPatch, *, embedded: bool) -> list[float]:
    monkeypatch.setattr("skedge.live.cluster.gpus._here", lambda: here)
    gpus = Gpus(device, CLUSTER, embedded=embedded)
    return [gpus.of(server) for server in range(3)]


@pytest.mark.parametrize(
    ("device", "embedded", "gpus"),
    [
        ("cpu", True, [0, 0, 0]),
        ("cpu", False, [0, 0, 0]),
        ("auto", True, [3, 3, 3]),
        ("auto", False, [2, 0, 0]),
        ("cuda", False, [2, 0, 0]),
    ],
)
def test_agents_ask_for_what_their_servers_state_or_share_this_machine_s_gpus(
    device: str, embedded: bool, gpus: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This machine has three."""
    assert asked(device, 3, monkeypatch, embedded=embedded) == gpus


def test_a_node_that_offers_fewer_gpus_than_its_server_states_is_one_sentence() -> None:
    gpus = Gpus("auto", CLUSTER, embedded=False)
    north, south = host.Node("1", {"server": "north"}, True, 2.0), host.Node("2", {"server": "south"}, True, 0.0)
    others = [south, host.Node("3", {}, True, 0.0)]
    gpus.check_offered(offered([north, *others]))
    with pytest.raises(SkedgeError, match="server 'north' has gpus: 2, but its Ray node offers 1"):
        gpus.check_offered(offered([replace(north, gpus=1.0), *others]))
    with pytest.raises(SkedgeError, match="offers 0"):
        gpus.check_offered(offered([replace(north, alive=False), *others]))


def test_with_cuda_every_server_must_have_a_gpu_and_with_auto_none() -> None:
    with pytest.raises(SkedgeError, match="server 'south' has no GPU that PyTorch can use"):
        Gpus("cuda", CLUSTER, embedded=False).check_found([2, 0, 1])
    Gpus("cuda", CLUSTER, embedded=False).check_found([2, 1, 1])
    Gpus("auto", CLUSTER, embedded=False).check_found([0, 0, 0])


def test_an_unknown_device_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="device 'gpu': is unknown; it must be one of cpu, cuda, auto"):
        check_device("gpu")
    with pytest.raises(InputError, match="is unknown"):
        up(cluster=tmp_path / "no.yaml", state=tmp_path / "state", device="gpu")
    assert not (tmp_path / "state").exists()


class Recording:
    """A process of a job that notes the devices of its calls."""

    def __init__(self, gpus: int, seen: list[str]) -> None:
        self.gpus, self.seen = gpus, seen
        self.chunk, self.device, self.worker, self.calls = -1, "cpu", "", 0

    def ask(self, method: str, *given: Any, **_: float) -> Any:
        if method == "gradient":
            self.seen.append(given[-1])
        return {"gpus": self.gpus}, b""

    def end(self) -> None:
        """It has no connection."""


@pytest.mark.parametrize(
    ("device", "gpus", "first", "devices"),
    [
        ("auto", 2, 0, ["cuda:0", "cuda:1", "cuda:0"]),
        ("auto", 2, 1, ["cuda:1", "cuda:0", "cuda:1"]),
        ("auto", 0, 1, ["cpu"] * 3),
        ("cpu", 2, 0, ["cpu"] * 3),
    ],
)
def test_processes_take_the_gpus_of_their_server_in_turn_and_keep_them(
    device: str, gpus: int, first: int, devices: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three jobs, one process each; each of them computes again where it was."""
    seen: list[str] = []
    monkeypatch.setattr(job_processes.ForkServerClient, "start", lambda _: None)
    monkeypatch.setattr(job_processes.ForkServerClient, "fork", lambda *_: Recording(gpus, seen))
    agent = Agent("north", str(tmp_path), device, first)
    for _ in range(2):
        for job in ("a", "b", "c"):
            agent.gradient(job, b"", 0, 0, b"")
    assert seen == devices * 2
    assert agent.found() == (0 if device == "cpu" else gpus)


def test_clients_with_other_gpus_do_not_share_the_process_that_theirs_are_forked_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray gives an agent its GPUs by this variable; a parameter server's actor, which asked for none, has another."""
    found = set()
    for visible in (None, "", "0", "0,1"):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", visible)
        found.add(job_processes._shared_by(trusted=True))
    assert len(found) == 4


def test_the_process_that_others_are_forked_from_never_asks_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some optimizers look for GPUs at each step; the children of a process that has asked could use none."""
    asked: list[bool] = []
    monkeypatch.setattr(torch._C, "_accelerator_getAccelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(asked.append(True)))
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    worker_main._warm()
    assert asked == []
    torch.optim.Adam([torch.zeros(1, requires_grad=True)]).step()
    assert asked, "this is how PyTorch asks"


def test_a_mini_batch_of_any_form_is_moved_whole() -> None:
    """The meta device stands for a GPU."""
    pair = namedtuple("pair", "x y")
    one = torch.ones(2)
    batch = {"a": [one, 3], "b": (one, "text"), "c": pair(one, one)}
    there = moved(batch, "meta")
    assert [there["a"][0].device.type, there["b"][0].device.type, there["c"].y.device.type] == ["meta"] * 3
    assert (there["a"][1], there["b"][1], type(there["c"])) == (3, "text", pair)
    assert moved(batch, "cpu") is batch


def trainer(facts: list[Report]) -> Trainer:
    return Trainer(0, "a", Program("m:f", {}, 1, 1, 60), facts.append, NONE, servers=("m0",))


def test_the_devices_of_a_job_are_reported_recorded_and_journaled(monkeypatch: pytest.MonkeyPatch) -> None:
    of = trainer([])
    answers = iter([{"device": "cuda:1"}, {"device": "cuda:0"}, None])
    monkeypatch.setattr(of.replies, "of", lambda *_: next(answers))
    monkeypatch.setattr(MinibatchCall, "comes", lambda _: False)
    for server in (1, 0, 0):
        of.perform(of.rounds.by_calls._collect(MinibatchCall(0, server, 0, 0, 0, None, None), 0.0))
    told = of.fact("finished", 0)
    assert (told.devices, told.freed_s) == (((0, "cuda:0"), (1, "cuda:1")), None)
    assert from_json(to_json(told)) == told
    facts = TrainingFacts()
    facts.progress[0] = [0]
    facts.note(told)
    assert facts.meta(["a"], ["m0", "m1"])["devices"] == {"a": {"m0": ["cuda:0"], "m1": ["cuda:1"]}}


@pytest.mark.parametrize(("ended_after", "freed"), [(0.3, 0.3), (-0.2, 0.0)])
def test_a_suspended_team_tells_when_its_device_was_free(ended_after: float, freed: float) -> None:
    """From the order to the end of the mini-batch under way; at once if none is."""
    facts: list[Report] = []
    of = trainer(facts)
    of.put(7, Team(0, (0,), 1))
    of.take(7)
    of.free_at[7] = of.asked_at[7] + ended_after
    of.closed.set()
    of.perform(of.rounds.next_teams())
    assert [(told.what, told.freed_s) for told in facts] == [("stopped", pytest.approx(freed))]
    noted = TrainingFacts()
    noted.progress[0] = [0]
    noted.note(facts[0])
    assert noted.meta(["a"], ["m0"])["device_free_s"] == [pytest.approx(freed)]


@needs_gpu
def test_gradients_on_a_gpu_are_those_on_the_cpu() -> None:
    """To within rounding, and they come back to the CPU; dropout and its random numbers aside."""
    training, server = OF.make(), ParameterServer(OF)
    assert training.chunk is not None
    data = training.chunk(0)
    torch.backends.cudnn.allow_tf32 = False
    found = []
    for device in ("cpu", "cuda:0"):
        seed_all(0)
        model = training.model().to(device)
        found.append(gradient(model, training, OF, data, server.state(), 0, 0, device))
    here, there = found
    assert there.loss == pytest.approx(here.loss, rel=1e-4)
    for name, value in here.gradients.items():
        assert there.gradients[name].device.type == "cpu"
        assert torch.allclose(value, there.gradients[name], rtol=1e-3, atol=1e-4), name
    server.apply(0, [there])
    assert server.version == 1


@needs_gpu
def test_an_agent_computes_on_its_gpu_in_processes_that_are_forked(tmp_path: Path) -> None:
    agent = Agent("north", str(tmp_path), "cuda")
    assert agent.found() == torch.cuda.device_count()
    training, state = OF.make(), state_bytes(ParameterServer(OF))
    assert training.chunk is not None
    agent.store("job", 0, 0, packed(training.chunk(0), OF.module()), last=True)
    for step in range(OF.minibatches):
        facts, content = agent.gradient("job", sent(OF), 0, step, state)
        assert facts["device"] == "cuda:0"
        assert all(value.device.type == "cpu" for value in format_of(OF).unpack(content).gradients.values())
    agent.forget("job")
