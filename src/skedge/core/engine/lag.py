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
    max_lag, epochs, first
        By job: max_lag (0: no limit), E_j, and number of its first chunk. `max_lag` is empty if no job has a limit.
    cloud_lane
        By job: lane of its chunk 0 if it is in the cloud, where each chunk has a lane of its own, numbered after all
        others.
    epochs_done, lane, leader
        By chunk: epochs trained, lane, and number of the first chunk of its job on that lane (its leader).
    lane_epochs
        By leader: total epochs trained by the chunks of its job on its lane.
    slowest
        By job: minimum over its chunks of the epochs trained.
    risen
        Jobs whose minimum has risen at the present instant, ``size[0]`` of them; ``size[1]`` is the number of the
        cluster's lanes.
    """

    max_lag: Ints
    epochs: Ints
    first: Ints
    cloud_lane: Ints
    epochs_done: Ints
    lane: Ints
    leader: Ints
    lane_epochs: Ints
    slowest: Ints
    risen: Ints
    size: Ints


def make_lag(lanes: int, max_lag: Ints, epochs: Ints, chunks: Ints) -> Lag:
    """The state before any training; empty if no job has a limit.

    Parameters
    ----------
    lanes
        Lanes of the cluster; lanes for chunks in the cloud are numbered after them.
    max_lag, epochs, chunks
        By job: largest lag in epochs (0: no limit), E_j, D_j.
    """
    n_chunks = int(chunks.sum()) if max_lag.any() else 0
    # only chunks of bounded jobs get a lane each in the cloud; others need none there
    cloud_lanes = np.where(max_lag > 0, chunks, 0)
    return Lag(
        max_lag=max_lag if n_chunks else max_lag[:0],
        epochs=epochs,
        first=np.cumsum(chunks) - chunks,
        cloud_lane=lanes + np.cumsum(cloud_lanes) - cloud_lanes,
        epochs_done=np.zeros(n_chunks, np.int64),
        lane=np.full(n_chunks, -1, np.int64),
        leader=np.zeros(n_chunks, np.int64),
        lane_epochs=np.zeros(n_chunks, np.int64),
        slowest=np.zeros(len(max_lag), np.int64),
        risen=np.zeros(len(max_lag), np.int64),
        size=np.array([0, lanes], np.int64),
    )


@inlined
def bounded(lag: Lag, job: int) -> bool:
    """Whether the lag of the job's chunks is bounded."""
    return len(lag.max_lag) > 0 and lag.max_lag[job] > 0


@inlined
def epoch_end(chunk_time: int, epochs: int, number: int) -> int:
    """Training time after which `number` of a chunk's `epochs` epochs are trained [µs], floored."""
    # number * chunk_time // epochs, in two parts so that the product stays below 2**63
    return number * (chunk_time // epochs) + number * (chunk_time % epochs) // epochs


@inlined
def to_epoch_end(lag: Lag, job: int, chunk: int, chunk_time: int, left: int) -> int:
    """Training time until the chunk's present epoch ends [µs].

    Parameters
    ----------
    lag
        Epochs of chunks whose lag is bounded.
    job, chunk
        The chunk: job, and number in the job.
    chunk_time, left
        Time of the whole chunk, and what is left of it [µs].
    """
    return epoch_end(chunk_time, lag.epochs[job], lag.epochs_done[lag.first[job] + chunk] + 1) - (chunk_time - left)


@inlined
def must_wait(lag: Lag, job: int, chunk: int) -> bool:
    """Whether the chunk is too far ahead, and waits before its next epoch."""
    return bool(lag.epochs_done[lag.first[job] + chunk] >= lag.slowest[job] + lag.max_lag[job])


@inlined
def _note_risen(lag: Lag, job: int) -> None:
    for k in range(lag.size[0]):
        if lag.risen[k] == job:
            return
    lag.risen[lag.size[0]] = job
    lag.size[0] += 1


@inlined
def end_epoch(lag: Lag, job: int, chunk: int, chunks: int) -> bool:
    """Count an epoch of a chunk; returns whether the chunks on its lane have now trained the equivalent of one more.

    Parameters
    ----------
    lag
        Epochs of chunks whose lag is bounded; changed in place.
    job, chunk
        The chunk: job, and number in the job.
    chunks
        D_j.
    """
    first, epochs = lag.first[job], lag.epochs[job]
    lag.epochs_done[first + chunk] += 1
    leader = first + lag.leader[first + chunk]
    lag.lane_epochs[leader] += 1
    slowest = lag.epochs_done[first]
    for k in range(first, first + chunks):
        slowest = min(slowest, lag.epochs_done[k])
    if slowest > lag.slowest[job]:
        lag.slowest[job] = slowest
        _note_risen(lag, job)
    return bool(lag.lane_epochs[leader] % epochs == 0)
