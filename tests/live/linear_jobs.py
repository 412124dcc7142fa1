"""A model whose gradient is known by hand."""

from __future__ import annotations

import torch
from torch import nn

from skedge.live.training import Data, Training


def linear() -> Training:
    """One linear layer of two weights, both 1; a step of plain SGD with rate 1."""

    def model() -> nn.Module:
        layer = nn.Linear(2, 1, bias=False)
        nn.init.ones_(layer.weight)
        return layer

    def data(chunk: int = 0) -> Data:
        del chunk
        return torch.ones(1, 2), torch.ones(1, 1)

    def optimizer(parameters: object) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1.0)  # type: ignore[arg-type]

    return Training(model, optimizer, nn.functional.mse_loss, data, data)
