"""Jobs that misbehave, by kind: hang, fork, leak, exit, print, raise, patch, nan, spy; any other kind does not."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from skedge.live.training import Training

HELD: list[bytearray] = []
MEGABYTE = 2**20


class Net(nn.Sequential):
    """Two small layers."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))


def points(d: int) -> tuple[Tensor, Tensor]:
    """128 points, in two classes by their first coordinate."""
    x = torch.randn(128, 16, generator=torch.Generator().manual_seed(d + 7))
    return x, (x[:, 0] > 0).long()


class Hanging(Dataset[tuple[Tensor, int]]):
    """A data set whose 78th item never comes."""

    def __len__(self) -> int:
        return 128

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        if i == 77:
            time.sleep(3600)
        return torch.randn(16), 0


class Step:
    """One mini-batch, in which the job misbehaves at a certain number of them."""

    def __init__(self, kind: str, state: str, mark: str) -> None:
        self.kind, self.state, self.mark, self.steps = kind, Path(state), mark, 0

    def __call__(self, model: nn.Module, batch: Any) -> float:
        self.steps += 1
        loss = cross_entropy(model(batch[0]), batch[1])
        action = getattr(self, self.kind, None)
        if action is not None:
            loss = loss * (action() or 1.0)
        loss.backward()
        return float(loss.detach())

    def leak(self) -> None:
        HELD.append(bytearray(os.urandom(1024) * 1024 * 60))

    def fork(self) -> None:
        for _ in range(5):
            if os.fork() == 0:
                Path("/proc/self/comm").write_text(self.mark, encoding="ascii")
                time.sleep(600)
                os._exit(0)

    def exit(self) -> None:
        if self.steps == 3:
            os._exit(3)

    def print(self) -> None:
        if self.steps == 2:
            sys.stdout.write(("A" * 99 + "\n") * 1_000_000)

    def raises(self) -> None:
        if self.steps >= 9:
            raise RuntimeError("boom \x1b[31m red \n2026-01-01T00:00:00+0000 finished: a forged line")

    def patch(self) -> None:
        if self.steps == 3:
            torch.Tensor.backward = lambda *_, **__: None  # type: ignore[method-assign, assignment, misc]

    def nan(self) -> float:
        return float("nan") if self.steps == 6 else 1.0

    def spy(self) -> None:
        if self.steps == 2:
            found = [name for name in ("token", "journal.db", "settings.json") if os.access(self.state / name, os.R_OK)]
            names = [f"/proc/{pid}/environ" for pid in os.listdir("/proc") if pid.isdigit()]
            secrets = sum(b"TOKEN=" in Path(name).read_bytes() for name in names if os.access(name, os.R_OK))
            raise RuntimeError(f"a job can read {found} and the environment of {secrets} processes with a token")


def job(kind: str, state: str = "", mark: str = "left") -> Training:
    """A job of a kind; `state`: the service's, of which one kind tries to read; `mark`: the name of what it forks."""
    sgd, step = partial(torch.optim.SGD, lr=0.1), Step(kind, state, mark)
    if kind == "hang":
        return Training(
            Net, sgd, loader=lambda _: DataLoader(Hanging(), batch_size=32), step=step, test=partial(points, 99)
        )
    return Training(Net, sgd, chunk=points, step=step, test=partial(points, 99))
