"""Local SGD: several mini-batches a round by each worker, and the mean of the workers' parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
import torch
from sorted_jobs import sorted_digits
from torch import nn

from skedge.core.errors import TrainingError
from skedge.live.training import Data, State, Training
from skedge.live.worker.chunk_data import ChunkData
from skedge.live.worker.loader_batches import seed_all, seed_of
from skedge.live.worker.program import Program
from skedge.live.worker.sgd import ParameterServer, gradient, local_of, minibatch

torch.set_num_threads(1)
CHUNKS, EPOCHS, MINIBATCHES, H = 2, 2, 5, 3


def program(local_steps: int = H, factory: str = "test_local_steps:job", **args: object) -> Program:
    return Program(factory, args, CHUNKS, EPOCHS, MINIBATCHES, 7, local_steps=local_steps)


def job(momentum: float = 0.9, decays: bool = False, clips: bool = False, adam: bool = False) -> Training:
    """Digits, with an optimizer that has a state, a learning rate that falls, and gradients that are clipped."""
    made = sorted_digits(chunks=CHUNKS, seed=0, mixed=1.0)
    return replace(
        made,
        optimizer=lambda parameters: (
            torch.optim.AdamW(parameters) if adam else torch.optim.SGD(parameters, lr=0.1, momentum=momentum)
        ),
        scheduler=(lambda of: torch.optim.lr_scheduler.ExponentialLR(of, 0.9)) if decays else None,
        clip=(lambda model: nn.utils.clip_grad_norm_(model.parameters(), 0.5)) if clips else None,
    )


def rounds_of(server: ParameterServer, together: Sequence[Sequence[int]]) -> None:
    """Train the chunks of each round together, each from where it is."""
    of, made = server.program, ChunkData(server.program)
    model, data = made.training.model(), [made(chunk) for chunk in range(CHUNKS)]
    local = local_of(model, made.training, of)
    for chunks in together:
        state = server.state()
        brought = [
            gradient(model, made.training, of, data[c], state, c, server.progress[c], local=local) for c in chunks
        ]
        server.apply(server.version, brought)


def by_hand(of: Program, lengths: Sequence[int]) -> State:
    """Parameters after rounds of these lengths, in PyTorch alone: each worker trains, and the mean is taken."""
    made = ChunkData(of)
    data: list[Data] = [made(chunk) for chunk in range(CHUNKS)]
    seed_all(seed_of(of.seed))
    model, step, momenta = made.training.model(), 0, list[torch.Tensor]()
    for length in lengths:
        before, ends, weights = {k: v.clone() for k, v in model.state_dict().items()}, list[State](), list[int]()
        buffers = list[list[torch.Tensor]]()
        for chunk in range(CHUNKS):
            model.load_state_dict(before)
            optimizer, samples = made.training.optimizer(model.parameters()), 0
            for parameter, momentum in zip(model.parameters(), momenta, strict=False):
                optimizer.state[parameter]["momentum_buffer"] = momentum.clone()
            for group in optimizer.param_groups:
                group["lr"] *= 0.9**step if made.training.scheduler else 1.0
            for number in range(step, step + length):
                inputs, targets = minibatch(data[chunk], of, chunk, number)
                optimizer.zero_grad()
                model.train()
                seed_all(seed_of(of.seed, chunk, number, 1))
                made.training.loss(model(inputs), targets).backward()
                if made.training.clip:
                    made.training.clip(model)
                optimizer.step()
                for group in optimizer.param_groups:
                    group["lr"] *= 0.9 if made.training.scheduler else 1.0
                samples += len(targets)
            ends.append({k: v.clone() for k, v in model.state_dict().items()})
            buffers.append(
                [m for p in model.parameters() if (m := optimizer.state[p].get("momentum_buffer")) is not None]
            )
            weights.append(samples)
        total = sum(weights)
        momenta = [
            sum(m * (w / total) for m, w in zip(each, weights, strict=True)) for each in zip(*buffers, strict=True)
        ]
        mean = {k: sum(e[k] * (w / total) for e, w in zip(ends, weights, strict=True)) for k in before}
        model.load_state_dict(mean)
        step += length
    return model.state_dict()


@pytest.mark.parametrize(
    "args",
    [{"momentum": 0.0}, {}, {"decays": True}, {"clips": True}],
    ids=["plain", "momentum", "schedule", "clipped"],
)
def test_rounds_are_local_sgd_written_with_pytorch_alone(args: dict[str, object]) -> None:
    """Five mini-batches an epoch, three a round: a round ends with the epoch."""
    server = ParameterServer(program(**args))
    rounds_of(server, [range(CHUNKS)] * 4)
    assert (server.progress, server.version) == ([10, 10], 4)
    for name, value in by_hand(server.program, [3, 2, 3, 2]).items():
        assert torch.allclose(server.state()[name], value, atol=1e-6), name


def test_with_one_mini_batch_a_round_it_is_synchronous_sgd() -> None:
    """The mean of parameters that have each gone one step, with momentum, is a step by the mean of the gradients."""
    servers = [ParameterServer(replace(program(h), epochs=EPOCHS * MINIBATCHES, minibatches=1)) for h in (1, H)]
    for server in servers:
        rounds_of(server, [range(CHUNKS)] * 3)
    one, local = servers
    assert one.progress == local.progress == [3, 3]
    for name, value in one.state().items():
        assert torch.allclose(local.state()[name], value, atol=1e-6), name


@pytest.mark.parametrize("adam", [False, True], ids=["SGD", "AdamW"])
def test_a_round_depends_on_nothing_that_a_worker_has_kept(*, adam: bool) -> None:
    """A preempted job ends with the bits of an undisturbed one."""
    whole, stopped, later = (ParameterServer(program(decays=True, adam=adam)) for _ in range(3))
    rounds_of(whole, [[0], [1]] * 4)
    rounds_of(stopped, [[0], [1]])
    later.restore(stopped.dump())
    for chunk in (0, 1) * 3:
        rounds_of(later, [[chunk]])
    assert later.progress == whole.progress == [10, 10]
    state = whole.state()
    assert any(name.startswith("optimizer/") for name in state)
    for name, value in state.items():
        assert torch.equal(later.state()[name], value), name


class Counting(torch.optim.SGD):
    """Plain SGD that counts its steps in a number of Python's."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Go a step."""
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["steps"] = self.state[parameter].get("steps", 0) + 1


def counting() -> Training:
    """Digits, with an optimizer whose state is more than tensors."""
    return replace(job(), optimizer=lambda parameters: Counting(parameters, lr=0.1))


def sparse() -> Training:
    """Digits, with an optimizer that takes sparse gradients alone."""
    return replace(job(), optimizer=torch.optim.SparseAdam)


def test_an_optimizer_that_takes_no_dense_gradients_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"train.local_steps: .*SparseAdam, cannot be seen, .* fails: RuntimeError"):
        ParameterServer(program(factory="test_local_steps:sparse"))


def test_an_optimizer_whose_state_cannot_be_sent_is_refused() -> None:
    with pytest.raises(
        TrainingError, match=r"train.local_steps: .*Counting, has a 'steps' that is no tensor; take one"
    ):
        ParameterServer(program(factory="test_local_steps:counting"))


class Rebinding(torch.optim.SGD):
    """SGD with momentum that puts new tensors in the place of its state's at each step."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Go a step."""
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                if parameter.grad is not None:
                    before = self.state[parameter].get("momentum", torch.zeros_like(parameter))
                    self.state[parameter]["momentum"] = 0.9 * before + parameter.grad
                    parameter.sub_(0.1 * self.state[parameter]["momentum"])


def rebinding() -> Training:
    """Digits, with that optimizer."""
    return replace(job(), optimizer=lambda parameters: Rebinding(parameters, lr=0.1))


def test_an_optimizer_may_put_other_tensors_in_the_place_of_its_state() -> None:
    own, torchs = ParameterServer(program(factory="test_local_steps:rebinding")), ParameterServer(program())
    for server in (own, torchs):
        rounds_of(server, [range(CHUNKS)] * 4)
    for name, value in torchs.model.state_dict().items():
        assert torch.allclose(own.model.state_dict()[name], value, atol=1e-5), name


class Scaled(nn.Module):
    """A factor of no dimension, and rows of an embedding whose gradients are sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.5))
        self.rows = nn.Embedding(8, 1, sparse=True)
        nn.init.ones_(self.rows.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * self.rows(x).squeeze(-1)


def scaled() -> Training:
    """Chunks whose rows and targets differ, so that the workers' momenta do."""

    def chunk(number: int) -> Data:
        return torch.arange(8) % (number + 3), torch.arange(8.0) * (number + 1)

    def optimizer(parameters: object) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)  # type: ignore[arg-type]

    return Training(Scaled, optimizer, nn.functional.mse_loss, chunk, lambda: chunk(0))


def test_parameters_without_dimensions_and_sparse_gradients_are_trained_as_others() -> None:
    """A mini-batch a round: synchronous SGD."""
    servers = [ParameterServer(replace(program(h, "test_local_steps:scaled"), epochs=4, minibatches=1)) for h in (1, H)]
    for server in servers:
        rounds_of(server, [range(CHUNKS)] * 3)
    one, local = (server.model.state_dict() for server in servers)
    for name, value in one.items():
        assert torch.allclose(local[name], value, atol=1e-6), name


def grouped() -> Training:
    """Digits, with an optimizer that has the parameters in groups, in another order than the model."""

    def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        first, *others = parameters
        groups = [{"params": others, "weight_decay": 0.01}, {"params": [first]}]
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    return replace(job(), optimizer=optimizer)


def test_groups_of_parameters_may_have_another_order_than_the_model() -> None:
    """A mini-batch a round: synchronous SGD."""
    servers = [
        ParameterServer(replace(program(h, "test_local_steps:grouped"), epochs=4, minibatches=1)) for h in (1, H)
    ]
    for server in servers:
        rounds_of(server, [range(CHUNKS)] * 3)
    one, local = (server.model.state_dict() for server in servers)
    for name, value in one.items():
        assert torch.allclose(local[name], value, atol=1e-6), name


def of_kind(kind: str) -> Training:
    """Digits, with an optimizer whose state does not begin at 0, or of which not all is sent."""
    made = {
        "rprop": torch.optim.Rprop,
        "nadam": torch.optim.NAdam,
        "dampened": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.1),
    }
    return replace(job(), optimizer=made[kind])


@pytest.mark.parametrize("kind", ["rprop", "nadam", "dampened"])
def test_an_optimizer_that_would_begin_otherwise_is_refused(kind: str) -> None:
    with pytest.raises(TrainingError, match=r"train.local_steps: .* take one whose state is tensors that begin at 0"):
        ParameterServer(program(factory="test_local_steps:of_kind", kind=kind))


def test_a_round_that_has_been_counted_is_not_counted_again() -> None:
    server = ParameterServer(program())
    made = ChunkData(server.program)
    model = made.training.model()
    local = local_of(model, made.training, server.program)
    brought = gradient(model, made.training, server.program, made(0), server.state(), 0, 0, local=local)
    assert (server.apply(0, [brought]), server.progress) == (1, [3, 0])
    before = server.state()
    assert (server.apply(0, [brought]), server.apply(1, [brought]), server.progress) == (1, 1, [3, 0])
    assert all(torch.equal(server.state()[name], value) for name, value in before.items())
