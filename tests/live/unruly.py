"""Jobs that misbehave in their own processes, by kind: hang, hang-ps, print, raise, exit, close, forge."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from skedge.live.training import Training

FORGED = "boom \x1b[31m red \n2026-01-01T00:00:00+0000 finished: a forged line\u202egnp.exe \x00"
"""A message with an escape sequence, a line of a log, an override of the direction of text, and NUL."""

STEPS = count(1)
"""Numbers of the steps of this process."""


class Net(nn.Sequential):
    """Two small layers."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))


def points(d: int) -> tuple[Tensor, Tensor]:
    """128 points, in two classes by their first coordinate."""
    x = torch.randn(128, 16, generator=torch.Generator().manual_seed(d + 7))
    return x, (x[:, 0] > 0).long()


def step(kind: str, at: int, model: nn.Module, batch: Any) -> float:
    """A step that misbehaves from the `at`-th of its process on."""
    steps = next(STEPS)
    loss = cross_entropy(model(batch[0]), batch[1])
    if steps == at and kind == "exit":
        os._exit(3)
    if steps == at and kind == "print":
        sys.stdout.write(("A" * 99 + "\n") * 100_000)
    if steps == at and kind == "close":
        os.close(1)
        os.close(2)
    if steps >= at and kind == "raise":
        raise RuntimeError(FORGED)
    if steps >= at and kind == "forge":
        print(FORGED)  # noqa: T201 - what is tested
    if steps == 1 and kind == "slow-first":
        time.sleep(1.5)
    if steps == at and kind == "slow":
        time.sleep(1.5)
    if kind in ("hang-on", "slow-on") and bool((batch[0][:1] == points(at)[0]).all(dim=1).any()):
        time.sleep(3600 if kind == "hang-on" else 1.5 if steps == 3 else 0)
    if steps >= at and kind == "hang":
        print("about to hang")  # noqa: T201 - what is tested
        time.sleep(3600)
    loss.backward()
    return float(loss.detach())


def clip(kind: str, _: nn.Module) -> None:
    """Hangs on the parameter server."""
    if kind == "hang-ps":
        time.sleep(3600)


def job(kind: str = "", at: int = 1) -> Training:
    """A job of one kind."""
    if kind == "slow-factory":
        time.sleep(2.0)
    sgd = partial(torch.optim.SGD, lr=0.1)
    return Training(
        Net, sgd, chunk=points, step=partial(step, kind, at), test=partial(points, 99), clip=partial(clip, kind)
    )
