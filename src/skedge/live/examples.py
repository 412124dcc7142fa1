"""Training jobs that need no download: small image classifiers on data that are available offline.

Each factory returns a :class:`~skedge.live.training.Training` whose data are divided into `chunks` equal
parts. The networks are small versions of those of the papers' Table II (LeNet, AlexNet, ResNet, GoogLeNet), scaled so
that two cores can train them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from skedge.live.training import Data, Training

_TEST_SHARE = 0.2


def digits(model: str = "lenet", chunks: int = 4, lr: float = 0.05, seed: int = 0) -> Training:
    """The 1,797 handwritten digits of scikit-learn, 8 x 8 pixels, ten classes.

    Parameters
    ----------
    model
        A name in :data:`MODELS`.
    chunks
        Number of equal parts of the training data, which are four fifths of all samples.
    lr
        Learning rate of SGD with momentum 0.9.
    seed
        Seed of the order of samples, from which the test data are taken, and of the initial parameters.
    """
    return _training(model, lambda: _digits(seed), chunks, lr, seed, channels=1)


def images(
    model: str = "resnet", chunks: int = 4, samples: int = 2000, size: int = 32, lr: float = 0.05, seed: int = 0
) -> Training:
    """A generated set of colour images, ten classes, with CIFAR10's shapes (3 x 32 x 32).

    Each class has its own pattern; an image is the shifted pattern of its class plus noise.

    Parameters
    ----------
    model, chunks, lr
        As in :func:`digits`.
    samples
        Number of images, those of the test data included.
    size
        Height and width of an image [pixels].
    seed
        As in :func:`digits`, and of the images.
    """
    return _training(model, lambda: _images(samples, size, seed), chunks, lr, seed, channels=3)


def folder(path: str, model: str = "resnet", chunks: int = 4, lr: float = 0.05, seed: int = 0) -> Training:
    """The user's own data: ``inputs.pt`` (samples x channels x height x width) and ``targets.pt`` in a folder.

    Parameters
    ----------
    path
        The folder; it must be on every server, as each of the job's processes reads it.
    model, chunks, lr, seed
        As in :func:`digits`.
    """

    def load() -> Data:
        return torch.load(f"{path}/inputs.pt", weights_only=True), torch.load(f"{path}/targets.pt", weights_only=True)

    return _training(model, load, chunks, lr, seed, channels=load()[0].shape[1])


def mlp(parameters: int = 100_000, chunks: int = 1, samples: int = 256, lr: float = 0.01, seed: int = 0) -> Training:
    """Random samples of 64 numbers, ten classes, and two hidden dense layers of equal width with ReLU.

    `skedge profile --round` trains it.

    Parameters
    ----------
    parameters
        Number of parameters: the width is the one that comes closest.
    chunks, lr
        As in :func:`digits`.
    samples
        Number of samples of a chunk.
    seed
        Seed of the samples and of the initial parameters.
    """
    width = max(round((38**2 - 10 + parameters) ** 0.5 - 38), 1)  # width^2 + 76 width + 10 parameters

    def chunk(number: int) -> Data:
        generator = torch.Generator().manual_seed(seed * chunks + number)
        return torch.randn(samples, 64, generator=generator), torch.randint(10, (samples,), generator=generator)

    def make() -> nn.Module:
        torch.manual_seed(seed)
        first, second, last = nn.Linear(64, width), nn.Linear(width, width), nn.Linear(width, 10)
        return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)

    return Training(
        model=make,
        optimizer=lambda own: torch.optim.SGD(own, lr=lr, momentum=0.9),
        loss=cross_entropy,
        chunk=chunk,
        test=lambda: chunk(chunks),
    )


def _training(model: str, load: Callable[[], Data], chunks: int, lr: float, seed: int, channels: int) -> Training:
    if model not in MODELS:
        raise ValueError(f"model {model!r} is unknown; known are {', '.join(MODELS)}")

    @lru_cache(maxsize=1)
    def parts() -> tuple[Data, Data]:
        inputs, targets = load()
        order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
        test = int(len(inputs) * _TEST_SHARE)
        return (inputs[order[test:]], targets[order[test:]]), (inputs[order[:test]], targets[order[:test]])

    def chunk(number: int) -> Data:
        inputs, targets = parts()[0]
        first, last = (len(inputs) * end // chunks for end in (number, number + 1))
        return inputs[first:last].clone(), targets[first:last].clone()

    def make() -> nn.Module:
        torch.manual_seed(seed)
        return MODELS[model](channels)

    return Training(
        model=make,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
        loss=cross_entropy,
        chunk=chunk,
        test=lambda: parts()[1],
    )


def _digits(seed: int) -> Data:
    del seed
    package = find_spec("sklearn")  # not imported, as that takes seconds in each process of a job
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("the digits are scikit-learn's, which is not installed; pip install scikit-learn")
    path = Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    rows = torch.from_numpy(np.loadtxt(path, delimiter=",", dtype=np.float32))
    return rows[:, :-1].reshape(-1, 1, 8, 8) / 16, rows[:, -1].long()


def _images(samples: int, size: int, seed: int) -> Data:
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randn(10, 3, size // 4, size // 4, generator=generator)
    patterns = nn.functional.interpolate(patterns, size=(size, size), mode="bilinear")
    targets = torch.randint(10, (samples,), generator=generator)
    shifts = torch.randint(-3, 4, (samples, 2), generator=generator).tolist()
    moved = [torch.roll(patterns[t], shift, dims=(1, 2)) for t, shift in zip(targets.tolist(), shifts, strict=True)]
    return torch.stack(moved) + torch.randn(samples, 3, size, size, generator=generator), targets


def lenet(channels: int) -> nn.Module:
    """Two convolutions and two dense layers (LeCun et al. 1998)."""
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1), nn.Tanh(), nn.AdaptiveAvgPool2d(8),
        nn.Conv2d(8, 16, 3, padding=1), nn.Tanh(), nn.AdaptiveAvgPool2d(4),
        nn.Flatten(), nn.Linear(256, 64), nn.Tanh(), nn.Linear(64, 10),
    )  # fmt: skip


def alexnet(channels: int) -> nn.Module:
    """Convolutions with ReLU and pooling, dense layers with dropout (Krizhevsky et al. 2012)."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(8),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(4),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


def resnet(channels: int) -> nn.Module:
    """Residual blocks with batch normalisation (He et al. 2016)."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveMaxPool2d(8),
        _Residual(16), _Residual(16), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


class _Inception(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.paths = nn.ModuleList(
            [
                nn.Conv2d(channels, width, 1),
                nn.Conv2d(channels, width, 3, padding=1),
                nn.Conv2d(channels, width, 5, padding=2),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(channels, width, 1)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.cat([path(x) for path in self.paths], dim=1))


def googlenet(channels: int) -> nn.Module:
    """Blocks of parallel convolutions of several sizes (Szegedy et al. 2015)."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(8),
        _Inception(16, 6), _Inception(24, 8), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


MODELS: dict[str, Callable[[int], nn.Module]] = {
    "lenet": lenet,
    "alexnet": alexnet,
    "resnet": resnet,
    "googlenet": googlenet,
}
