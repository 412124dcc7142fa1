"""Epochs of chunks whose job bounds their lag (``max_lag``, rule M39), to decide which chunks may continue."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skedge.core.model.cluster import Ints
from skedge.platform.jit import inlined


class Lag(NamedTuple):
    """Progress in epochs; chunks are numbered through all jobs.

    Attributes
    ----------
    most, epochs, first
        By job: `max_lag` (0: no limit), E_j, and number of its first chunk. `most` is empty if no job has a limit.
    own
        By job: lane of its chunk 0 if it is in the cloud, where each chunk has a lane of its own, numbered after all
        others.
    done, lane, leader
        By chunk: epochs trained, lane, and number of the first chunk of its job on that lane (its leader).
    together
        By leader: total epochs trained by the chunks of its job on its lane.
    slowest
        By job: minimum over its chunks of the epochs trained.
    risen
        Jobs whose minimum has risen at the present instant, ``size[0]`` of them; ``size[1]`` is the number of the
        cluster's lanes.
    """

    most: Ints
    epochs: Ints
    first: Ints
    own: Ints
    done: Ints
    lane: Ints
    leader: Ints
    together: Ints
    slowest: Ints
    risen: Ints
    size: Ints


def make_lag(lanes: int, most: Ints, epochs: Ints, chunks: Ints) -> Lag:
    """The state before any training; empty if no job has a limit."""
    kept = int(chunks.sum()) if most.any() else 0
    alone = np.where(most > 0, chunks, 0)
    return Lag(
        most=most if kept else most[:0],
        epochs=epochs,
        first=np.cumsum(chunks) - chunks,
        own=lanes + np.cumsum(alone) - alone,
        done=np.zeros(kept, np.int64),
        lane=np.full(kept, -1, np.int64),
        leader=np.zeros(kept, np.int64),
        together=np.zeros(kept, np.int64),
        slowest=np.zeros(len(most), np.int64),
        risen=np.zeros(len(most), np.int64),
        size=np.array([0, lanes], np.int64),
    )


@inlined
def bounded(lag: Lag, job: int) -> bool:
    """Whether the lag of the job's chunks is bounded."""
    return len(lag.most) > 0 and lag.most[job] > 0


@inlined
def epoch_end(each: int, epochs: int, number: int) -> int:
    """Training time after which `number` of `epochs` epochs of a chunk that takes `each` are done [µs], floored."""
    # number * each // epochs, in two parts so that the product stays small
    return number * (each // epochs) + number * (each % epochs) // epochs


@inlined
def to_epoch_end(lag: Lag, job: int, chunk: int, each: int, left: int) -> int:
    """Training time until the chunk's present epoch ends [µs]."""
    return epoch_end(each, lag.epochs[job], lag.done[lag.first[job] + chunk] + 1) - (each - left)


@inlined
def is_held(lag: Lag, job: int, chunk: int) -> bool:
    """Whether the chunk is too far ahead, and waits before its next epoch."""
    return bool(lag.done[lag.first[job] + chunk] >= lag.slowest[job] + lag.most[job])


@inlined
def _note_risen(lag: Lag, job: int) -> None:
    for k in range(lag.size[0]):
        if lag.risen[k] == job:
            return
    lag.risen[lag.size[0]] = job
    lag.size[0] += 1


@inlined
def end_epoch(lag: Lag, job: int, chunk: int, chunks: int) -> bool:
    """Count an epoch of a chunk; returns whether the chunks on its lane have now trained the equivalent of one more."""
    first, epochs = lag.first[job], lag.epochs[job]
    lag.done[first + chunk] += 1
    leader = first + lag.leader[first + chunk]
    lag.together[leader] += 1
    slowest = lag.done[first]
    for other in range(first, first + chunks):
        slowest = min(slowest, lag.done[other])
    if slowest > lag.slowest[job]:
        lag.slowest[job] = slowest
        _note_risen(lag, job)
    return bool(lag.together[leader] % epochs == 0)
