"""The data of a job's chunks, made by the job's own code and shuffled across its chunks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from skedge.live.training import Data

from .loader_batches import seed_of as _seed
from .program import Program


class ChunkData:
    """The data of a job's chunks, made on first use.

    Shuffled chunks (:attr:`.program.Program.shuffle`) are cut from one permutation of all samples, so the first chunk
    costs as much as all of them.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.training, self.module = program, program.make(), program.module()
        self.whole: Data | None = None
        self.labels: dict[int, dict[int, int]] = {}

    def __call__(self, chunk: int) -> Data:
        """Data of chunk d, 0 <= d < D_j."""
        make = self.training.chunk
        if make is None:
            return ()  # the loader reads them on the server that trains them
        if not self.program.shuffle or self.program.chunks == 1:
            return make(chunk)
        if self.whole is None:
            self.whole = self._shuffled(make)
        count = len(self.whole[0])
        first, last = (count * end // self.program.chunks for end in (chunk, chunk + 1))
        return tuple(part[first:last].clone() for part in self.whole)

    def _shuffled(self, make: Callable[[int], Data]) -> Data:
        parts = [make(chunk) for chunk in range(self.program.chunks)]
        columns = [torch.cat(column) for column in zip(*parts, strict=True)]
        rows = torch.randperm(len(columns[0]), generator=torch.Generator().manual_seed(_seed(self.program.seed, -1)))
        return tuple(part[rows] for part in columns)

    def counted(self, chunk: int) -> Data:
        """Data of a chunk; counts its labels."""
        data = self(chunk)
        if data and isinstance(data[-1], Tensor):
            self.note_labels(chunk, data[-1])
        return data

    def note_labels(self, chunk: int, targets: Tensor) -> None:
        """Count the labels of a chunk if they are integers."""
        if targets.ndim == 1 and not targets.is_floating_point():
            labels, counts = targets.unique(return_counts=True)
            self.labels[chunk] = dict(zip(labels.tolist(), counts.tolist(), strict=True))
