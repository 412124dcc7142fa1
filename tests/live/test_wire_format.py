"""The bytes in which tensors travel: the inverse of each other, bit by bit, whatever the model has."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from skedge.core.errors import TrainingError
from skedge.live.worker.flat_tensors import FlatLayout
from skedge.live.worker.program import Program
from skedge.live.worker.sgd import Contribution, ParameterServer, gradient
from skedge.live.worker.wire_format import WireFormat

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.uint8)

SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@settings(deadline=None)
@given(st.lists(st.tuples(SHAPES, st.sampled_from(DTYPES)), max_size=6), st.integers(0, 2**32), st.integers(0, 9))
def test_what_is_packed_is_read_bit_by_bit(
    tensors: list[tuple[tuple[int, ...], torch.dtype]], seed: int, n_more: int
) -> None:
    """Empty tensors, scalars and all types; what follows the tensors is left alone, and none begins off its place."""
    generator = torch.Generator().manual_seed(seed)
    named = {
        f"t{n}": (torch.rand(shape, generator=generator, dtype=torch.float64) * 100).to(dtype)
        for n, (shape, dtype) in enumerate(tensors)
    }
    layout = FlatLayout(named)
    memory = layout.pack(named, n_more)
    assert memory[layout.size :] == bytes(n_more)
    views = layout.views(bytes(memory[: layout.size]))
    assert views.keys() == named.keys()
    assert all(torch.equal(views[name], tensor) and views[name].dtype == tensor.dtype for name, tensor in named.items())


@pytest.mark.parametrize("model", ["lenet", "resnet"])
def test_a_contribution_arrives_as_it_was_made(model: str) -> None:
    """Running statistics of batch normalisation included; the update is the same to the bit."""
    program = Program("skedge.live.examples:images", {"model": model, "chunks": 1, "samples": 20, "size": 8}, 1, 1, 2)
    training, server, other = program.make(), ParameterServer(program), ParameterServer(program)
    assert training.chunk is not None
    made = gradient(training.model(), training, program, training.chunk(0), server.state(), 0, 0)
    wire = WireFormat(server.model)
    arrived = wire.unpack(bytes(wire.pack(made)))
    assert (arrived.chunk, arrived.step, arrived.samples, arrived.loss) == (0, 0, made.samples, made.loss)
    for mine, its in ((made.gradients, arrived.gradients), (made.buffers, arrived.buffers)):
        assert mine.keys() == its.keys()
        assert all(torch.equal(mine[name], its[name]) for name in mine)
    server.apply(0, [made])
    other.apply(0, [arrived])
    assert all(torch.equal(value, other.state()[name]) for name, value in server.state().items())


def test_a_parameter_without_a_gradient_has_none_after_the_way_either() -> None:
    """An optimizer leaves it alone; a gradient of 0 would let weight decay and momentum change it."""
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    wire = WireFormat(model)
    one = {"b.weight": torch.ones(2, 2), "b.bias": torch.zeros(2)}
    assert wire.unpack(wire.pack(Contribution(0, 0, one, {}, 0.5))).gradients.keys() == one.keys()


def test_a_sparse_gradient_travels_as_a_dense_one() -> None:
    embedding = nn.Embedding(3, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    assert embedding.weight.grad is not None
    wire = WireFormat(embedding)
    arrived = wire.unpack(wire.pack(Contribution(0, 0, {"weight": embedding.weight.grad}, {}, 0.5)))
    assert arrived.gradients["weight"].tolist() == [[0, 0], [1, 1], [0, 0]]


def test_bytes_of_another_model_are_refused() -> None:
    wire, other = WireFormat(nn.Linear(2, 2)), WireFormat(nn.Linear(2, 3))
    content = other.pack(Contribution(0, 0, {}, {}, 0.0))
    with pytest.raises(TrainingError, match=r"a contribution of \d+ bytes has come; those to its model have \d+"):
        wire.unpack(content + bytes(64))
    with pytest.raises(TrainingError, match=r"tensors of 3 bytes have come; those of its model have 128"):
        wire.state.views(b"abc")
