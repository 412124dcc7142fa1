"""Mini-batches that a job's own loader reads, on the server that trains the chunk.

A loader with random access (a :class:`torch.utils.data.Dataset` behind a sampler) is not iterated. The samples of each
mini-batch of an epoch are drawn from its sampler with a generator seeded by (seed, chunk, epoch), and each mini-batch
is read with random numbers seeded by (seed, chunk, mini-batch). Mini-batch k is therefore the same on every worker and
in every order of reading.

A stream (:class:`torch.utils.data.IterableDataset`) can only be read from its beginning: after a restart, the stream of
the epoch is opened again and the mini-batches already trained are skipped. They are the same as before only if the
stream yields the same samples each time it is opened.

Loaders are read in the worker's thread: their ``num_workers`` are not started.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from skedge.core.errors import TrainingError

from .code_errors import told


def seed_of(*parts: int) -> int:
    """A seed derived from a tuple of integers."""
    text = ":".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def seed_all(seed: int) -> None:
    """Seed the generators of PyTorch, NumPy and Python."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # what torch.manual_seed notes for later, with a traceback, takes 0.4 ms
        torch.cuda.manual_seed_all(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - jobs' own code draws from it
    random.seed(seed)


class LoaderBatches:
    """Mini-batches of one chunk by its loader; not thread-safe.

    Parameters
    ----------
    loader
        The chunk's loader.
    seed
        The job's seed.
    chunk
        Number of the chunk in its job.
    minibatches
        B_j: mini-batches per epoch.
    """

    def __init__(self, loader: DataLoader[Any], seed: int, chunk: int, minibatches: int) -> None:
        if not isinstance(loader, DataLoader):
            raise TrainingError(f"chunk {chunk}: its loader is a {type(loader).__name__}; it must be a DataLoader")
        self.loader, self.seed, self.chunk, self.minibatches = loader, seed, chunk, minibatches
        self.streamed = isinstance(loader.dataset, IterableDataset)
        self.drawn: tuple[int, list[Any]] = -1, []
        self.stream: tuple[int, Iterator[Any]] = -1, iter(())
        self.last: tuple[int, Any, int] = -1, None, 0

    def __call__(self, step: int) -> tuple[Any, int]:
        """Mini-batch `step`, counted over all epochs, and its number of samples.

        Raises
        ------
        TrainingError
            If the loader's number of mini-batches is not the job's, or its code fails.
        """
        if self.last[0] != step:
            try:
                batch, samples = self._streamed(step) if self.streamed else self._drawn(step)
            except TrainingError:
                raise
            except (Exception, SystemExit) as error:  # the job's own code: whatever it raises is its reason to fail
                reason = f"its data cannot be read: {told(error)}"
                raise TrainingError(f"chunk {self.chunk}, mini-batch {step}: {reason}") from error
            self.last = step, batch, samples
        return self.last[1], self.last[2]

    def _drawn(self, step: int) -> tuple[Any, int]:
        epoch, batch = divmod(step, self.minibatches)
        if self.drawn[0] != epoch:
            self.drawn = epoch, self._draw(epoch)
        chosen = self.drawn[1][batch]
        seed_all(seed_of(self.seed, self.chunk, step, 2))
        dataset = self.loader.dataset
        if self.loader.batch_sampler is None:  # batch_size=None: the dataset makes whole mini-batches
            read = self.loader.collate_fn(dataset[chosen])
            return read, samples_in(read)
        several = getattr(dataset, "__getitems__", None)
        read = several(chosen) if several is not None else [dataset[index] for index in chosen]
        return self.loader.collate_fn(read), len(chosen)

    def _draw(self, epoch: int) -> list[Any]:
        """The samples of each mini-batch of an epoch."""
        sampler = self.loader.batch_sampler if self.loader.batch_sampler is not None else self.loader.sampler
        seed = seed_of(self.seed, self.chunk, epoch, 3)
        inner = self.loader.sampler
        for generator in (self.loader.generator, getattr(inner, "generator", None)):
            if generator is not None:
                generator.manual_seed(seed)
        if hasattr(inner, "set_epoch"):
            inner.set_epoch(epoch)
        seed_all(seed)
        drawn = list(sampler)
        if len(drawn) != self.minibatches:
            raise TrainingError(
                f"chunk {self.chunk}: its loader has {len(drawn)} mini-batches an epoch, the job {self.minibatches}: "
                "minibatches must be what the loader has"
            )
        return drawn

    def _streamed(self, step: int) -> tuple[Any, int]:
        epoch, batch = divmod(step, self.minibatches)
        position, samples = self.stream
        if position != step:
            seed_all(seed_of(self.seed, self.chunk, epoch, 3))
            position, samples = epoch * self.minibatches, iter(self.loader.dataset)
        for number in range(position, step + 1):
            seed_all(seed_of(self.seed, self.chunk, number, 2))
            read = list(islice(samples, size := self.loader.batch_size or 1))
            if not read or (self.loader.drop_last and len(read) < size):
                raise TrainingError(
                    f"chunk {self.chunk}: its stream ends before mini-batch {batch} of an epoch, of which the job has "
                    f"{self.minibatches}"
                )
        self.stream = step + 1, samples
        if batch + 1 == self.minibatches:
            self.stream = -1, iter(())
        if self.loader.batch_size is None:
            minibatch = self.loader.collate_fn(read[0])
            return minibatch, samples_in(minibatch)
        return self.loader.collate_fn(read), len(read)


def samples_in(batch: Any) -> int:
    """Number of samples of a mini-batch of any form: the length of its first tensor; 1 if it has none."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else 1
    parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else ()
    return next((samples_in(part) for part in parts if isinstance(part, Tensor | dict | list | tuple)), 1)
