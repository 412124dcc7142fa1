"""Jobs tables made from a trace: with the trace's own work, or with the paper's random draws (:func:`paper_jobs`).

The trace's own work is used in two ways: as gangs of the GPUs requested (:func:`rigid_jobs`), or divided into as many
chunks as JSAC'22's models have (:func:`divisible_jobs`). Both draw the same numbers from the same generator.

A jobs table has the columns :data:`~skedge.core.model.job_fields.JOB_SCHEMA`. Random values are drawn column by column
from one generator, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.random import Generator

from skedge.core.errors import TraceError
from skedge.core.model.cluster import Floats, Ints
from skedge.core.model.speed import MBIT_PER_MB
from skedge.traces.frame import check_frame
from skedge.traces.jobs_table import Counts, Range, jobs_table

MINIBATCHES = 58
TABLE_II = ((27, MINIBATCHES), (115, MINIBATCHES), (60, MINIBATCHES))
"""Data chunks D and mini-batches per chunk B of JSAC'22 Table II: ResNet-50 and -101 on CIFAR10, GoogLeNet and LeNet on
Caltech101, AlexNet and Inception-BN on ImageNet-12; two models each, so the three rows have equal probability."""

HOUR_S = 3600.0

DATA_MB = (170.0, 132.0, 154_600.0)
"""Sizes of the data sets in JSAC'22 Table II [MB]: CIFAR-10 (the archive for Python), Caltech101 (its archive) and
ImageNet-12 (the archives of training and validation); two models each, so the three have equal probability."""

READ_MB_PER_S = 50.0
"""Data that one GPU reads while it trains [MB/s]: ResNet-50 on a V100 in FP32 takes about 400 images a second (NVIDIA,
DeepLearningExamples), of 116 kB in ImageNet-12."""

EDGE_MBPS = 1000.0
"""Default rate of an upload to an edge server [Mbit/s]: a link of 1 Gbit/s; JSAC'22 draws links from 100 to 5,120."""

CLOUD_MBPS = EDGE_MBPS / 15
"""Default rate of an upload to the cloud: links between data centers are 15 times slower than inside one, in the mean
of 11 regions (Hsieh et al., Gaia, NSDI'17)."""

SHARED_CHUNK_MB = (20.0, 60.0)
"""Size of a chunk where uploads are a share of the duration [MB]: Okita's range."""

RESTORE_S = 30.0
"""Default checkpoint overhead of rigid jobs [s]: the cost of each change of a job's GPUs in Pollux's simulator
(Qiao et al., OSDI'21; petuum/adaptdl, branch osdi21-artifact, simulator/simulator.py, ``Job.reallocate``)."""


class TraceJobs(NamedTuple):
    """A jobs table, and the number of jobs that deviate from the trace or the draw, by kind of change."""

    table: pl.DataFrame
    changed: dict[str, int]


@dataclass(frozen=True, slots=True)
class PaperRanges:
    """The ranges of the uniform draws in JSAC'22 Sec. V; bounds included.

    Attributes
    ----------
    epochs
        E.
    minibatch_h
        m [hours].
    ps_update_ms
        G [ms].
    gradient_mb
        q [MB].
    bandwidth_mbps
        b [Mbit/s].
    upload_edge_slots, upload_cloud_slots
        Upload delay of a chunk to an edge server and to the cloud [slots]; the scenario draws it per (job, server).
    chunk_mb
        Size of a chunk [MB]. Not given in the paper; Okita, in a similar setting, draws it from [20, 60].
    chunks, minibatches
        D and B, which must be given together; None: a row of Table II.
    gang_share
        A gang's workers k as a share of its job's D, > 0, rounded, at least 1 and at most D; None: the trace's GPUs.
    """

    epochs: tuple[int, int] = (20, 60)
    minibatch_h: Range = (0.001, 0.05)
    ps_update_ms: Range = (10.0, 100.0)
    gradient_mb: Range = (30.0, 575.0)
    bandwidth_mbps: Range = (100.0, 5120.0)
    upload_edge_slots: Range = (1.0, 4.0)
    upload_cloud_slots: Range = (10.0, 15.0)
    chunk_mb: Range = (20.0, 60.0)
    chunks: tuple[int, int] | None = None
    minibatches: tuple[int, int] | None = None
    gang_share: float | None = None

    def __post_init__(self) -> None:
        if self.gang_share is not None and self.gang_share <= 0:
            raise TraceError(f"gang_share {self.gang_share}: must be above 0")
        if (self.chunks is None) != (self.minibatches is None):
            raise TraceError("chunks and minibatches: give both, or neither for the rows of Table II")


@dataclass(frozen=True, slots=True)
class TraceShares:
    """Parameters for splitting a trace's duration into the model's parts (:func:`rigid_jobs`, :func:`divisible_jobs`).

    Attributes
    ----------
    communication
        Share of a mini-batch's time for communication, 2 q / b; >= 0, its sum with `ps_update` < 1.
    ps_update
        Share for the PS's update, G; >= 0.
    data_mb
        Sizes of a job's data [MB], each > 0, one of which is drawn where the trace has none: at most what the job's
        GPUs could read once in its time, at :data:`READ_MB_PER_S` each. A chunk is an equal part of it.
    edge_mbps, cloud_mbps
        Rates of the upload of a chunk to an edge server and to the cloud [Mbit/s], > 0.
    upload
        Instead of all three: upload delay of a chunk to an edge server, relative to the job's duration, >= 0.
    upload_spread
        Bounds of the range of upload delays, relative to the delay by rate or share; it is drawn by job and server.
    cloud_factor
        With `upload`: ratio of the upload delay to the cloud to that to an edge server, >= 0; default 4.
    epochs
        E, drawn uniformly, bounds included.
    gradient_mb
        q [MB], drawn uniformly, > 0; the bandwidth follows from `communication`.
    chunk_mb
        Size of a chunk [MB], drawn uniformly, instead of `data_mb`; with `upload` the default is
        :data:`SHARED_CHUNK_MB`.
    chunks
        D of divisible jobs, drawn uniformly, bounds included; None: a row of Table II.
    """

    communication: float = 0.1
    ps_update: float = 0.01
    data_mb: Sequence[float] = DATA_MB
    edge_mbps: float = EDGE_MBPS
    cloud_mbps: float = CLOUD_MBPS
    upload: float | None = None
    upload_spread: Range = (0.5, 1.5)
    cloud_factor: float = 4.0
    epochs: tuple[int, int] = (20, 60)
    gradient_mb: Range = (30.0, 575.0)
    chunk_mb: Range | None = None
    chunks: Counts | None = None

    def __post_init__(self) -> None:
        if self.communication < 0 or self.ps_update < 0 or not self.communication + self.ps_update < 1:
            raise TraceError(
                f"communication share {self.communication} and PS share {self.ps_update}: both must be >= 0 and their "
                "sum below 1, or nothing is left for training"
            )
        share = 0.0 if self.upload is None else self.upload
        if not (share >= 0 and self.cloud_factor >= 0 and 0 <= self.upload_spread[0] <= self.upload_spread[1]):
            raise TraceError(
                f"upload share {self.upload}, cloud factor {self.cloud_factor}, spread {self.upload_spread}: all must "
                "be >= 0 and the spread ascending"
            )
        if not (self.edge_mbps > 0 and self.cloud_mbps > 0 and self.data_mb and min(self.data_mb) > 0):
            raise TraceError(
                f"edge_mbps {self.edge_mbps}, cloud_mbps {self.cloud_mbps}, data_mb {list(self.data_mb)}: all must be "
                "above 0, and there must be a size"
            )


def paper_jobs(
    trace: pl.DataFrame,
    rng: Generator,
    worker_types: Sequence[str],
    ps_types: Sequence[str],
    *,
    slot_s: float = HOUR_S,
    ranges: PaperRanges | None = None,
) -> TraceJobs:
    """Jobs of JSAC'22 Sec. V: arrivals and numbers of GPUs from `trace`, all other values drawn from `ranges`.

    Parameters
    ----------
    trace
        A trace frame; its durations are not used.
    rng
        Source of all randomness.
    worker_types, ps_types
        Types of the cluster to draw from uniformly, at least one each.
    slot_s
        Length of a slot [s] (upload delays are given in slots).
    ranges
        None: the ranges of the paper.

    Returns
    -------
    TraceJobs
        A jobs table in the trace's order. A gang has min(D, gpus) workers; gangs with fewer than gpus are counted.
    """
    r = ranges or PaperRanges()
    n = len(check_frame(trace, "trace"))
    chunks, minibatches = _sizes(r, n, rng)
    if r.gang_share is not None:
        gangs = np.maximum(np.rint(r.gang_share * chunks), 1).astype(np.int64)
        trace = trace.with_columns(gpus=pl.Series(gangs, dtype=trace.schema["gpus"]))
    edge, cloud = slot_s * np.array(r.upload_edge_slots), slot_s * np.array(r.upload_cloud_slots)
    table = _table(
        trace,
        chunks=chunks,
        minibatches=minibatches,
        # arguments are evaluated in this order, which is that of the draws: do not sort them
        epochs=rng.integers(r.epochs[0], r.epochs[1], n, endpoint=True),
        minibatch_s=HOUR_S * rng.uniform(*r.minibatch_h, n),
        ps_update_s=rng.uniform(*r.ps_update_ms, n) / 1000,
        gradient_mb=rng.uniform(*r.gradient_mb, n),
        bandwidth_mbps=rng.uniform(*r.bandwidth_mbps, n),
        chunk_mb=rng.uniform(*r.chunk_mb, n),
        worker_type=_draw_types(worker_types, n, rng),
        ps_type=_draw_types(ps_types, n, rng),
        upload_edge_lo_s=np.full(n, edge[0]),
        upload_edge_hi_s=np.full(n, edge[1]),
        upload_cloud_lo_s=np.full(n, cloud[0]),
        upload_cloud_hi_s=np.full(n, cloud[1]),
    )
    smaller = int((table["workers"] < trace["gpus"]).sum())
    return TraceJobs(table, {"gang smaller than the GPUs asked for, as it has no more chunks": smaller})


def rigid_jobs(
    trace: pl.DataFrame,
    rng: Generator,
    worker_types: Sequence[str],
    ps_types: Sequence[str],
    *,
    shares: TraceShares | None = None,
) -> TraceJobs:
    """Jobs with the work of `trace` on the requested number of GPUs: D = k = gpus, one chunk per GPU.

    As a gang such a job takes its real duration, and no policy can train it on more workers. Its work is
    gpus x duration: one chunk takes p = duration. With p = E B / n (JSAC'22 Eq. (1)) one mini-batch takes
    m + G + 2 q / b = p / (E B), which `shares` splits into parts; q is drawn and b follows. Times are exact to the
    microsecond to which the model rounds a chunk up.

    A job takes the same time on all servers with its type, because the trace has only one kind of GPU. A chunk's upload
    delay does not depend on k but by the size of the chunk, because all chunks of a gang are uploaded in parallel.

    Parameters
    ----------
    trace
        A trace frame whose durations are above 0.
    rng
        Source of all randomness.
    worker_types, ps_types
        Types to draw from uniformly, at least one each.
    shares
        None: the defaults of :class:`TraceShares`.

    Returns
    -------
    TraceJobs
        A jobs table in the trace's order, without changes to count.

    Raises
    ------
    TraceError
        If a job has duration 0.
    """
    s = shares or TraceShares()
    _draw_chunks(s, len(trace), rng)  # unused draw, so that the other columns equal those of divisible jobs
    return TraceJobs(_jobs_by_duration(trace, rng, worker_types, ps_types, s, trace["gpus"].to_numpy()), {})


def divisible_jobs(
    trace: pl.DataFrame,
    rng: Generator,
    worker_types: Sequence[str],
    ps_types: Sequence[str],
    *,
    shares: TraceShares | None = None,
) -> TraceJobs:
    """Jobs with the work of `trace`, divided into D chunks, so that up to D workers can train them.

    D is drawn or from a row of Table II, and at least the number of GPUs requested. A gang of k = gpus workers that
    communicate (zeta = 0) takes D p / k, which is the job's real duration; with more workers it is proportionally
    faster. Times are as in :func:`rigid_jobs`.

    Parameters
    ----------
    trace, rng, worker_types, ps_types, shares
        As for :func:`rigid_jobs`.

    Returns
    -------
    TraceJobs
        A jobs table in the trace's order; jobs whose D was raised to the number of GPUs requested are counted.

    Raises
    ------
    TraceError
        If a job has duration 0.
    """
    s = shares or TraceShares()
    drawn, gpus = _draw_chunks(s, len(trace), rng), trace["gpus"].to_numpy()
    table = _jobs_by_duration(trace, rng, worker_types, ps_types, s, np.maximum(drawn, gpus))
    return TraceJobs(table, {"chunks raised to the GPUs asked for": int((drawn < gpus).sum())})


def _draw_chunks(s: TraceShares, n: int, rng: Generator) -> Ints:
    return _table_ii(n, rng)[0] if s.chunks is None else rng.integers(*s.chunks, n, endpoint=True)


def _jobs_by_duration(
    trace: pl.DataFrame,
    rng: Generator,
    worker_types: Sequence[str],
    ps_types: Sequence[str],
    s: TraceShares,
    chunks: Ints,
) -> pl.DataFrame:
    """The jobs table of jobs with `chunks` chunks each, whose work is gpus x duration."""
    n = len(check_frame(trace, "trace"))
    duration = trace["duration_s"].to_numpy()
    if not (duration > 0).all():
        raise TraceError(f"trace: row {int(np.argmin(duration))}, column duration_s: 0; a job's work needs time")
    epochs = rng.integers(s.epochs[0], s.epochs[1], n, endpoint=True)
    # m + G + 2 q / b of Eq. (1): the work, gpus x duration, over D E B mini-batches
    minibatch_s = trace["gpus"].to_numpy() * duration / (chunks * epochs * MINIBATCHES)
    gradient = rng.uniform(*s.gradient_mb, n)
    bandwidth, gradient = _bandwidth(gradient, s.communication * minibatch_s)
    chunk_mb = _chunk_sizes(trace, chunks, rng, s)
    edge, cloud = _upload_delays(duration, chunk_mb, s)
    return _table(
        trace,
        chunks=chunks,
        minibatches=np.full(n, MINIBATCHES),
        epochs=epochs,
        minibatch_s=(1 - s.communication - s.ps_update) * minibatch_s,
        ps_update_s=s.ps_update * minibatch_s,
        gradient_mb=gradient,
        bandwidth_mbps=bandwidth,
        chunk_mb=chunk_mb,
        worker_type=_draw_types(worker_types, n, rng),
        ps_type=_draw_types(ps_types, n, rng),
        upload_edge_lo_s=s.upload_spread[0] * edge,
        upload_edge_hi_s=s.upload_spread[1] * edge,
        upload_cloud_lo_s=s.upload_spread[0] * cloud,
        upload_cloud_hi_s=s.upload_spread[1] * cloud,
    )


def _chunk_sizes(trace: pl.DataFrame, chunks: Ints, rng: Generator, s: TraceShares) -> Floats:
    """Size of a chunk of each job [MB]: drawn, or an equal part of the job's data."""
    share = rng.random(len(trace))  # one number a job either way, so that all later draws are the same
    chunk_range = SHARED_CHUNK_MB if s.chunk_mb is None and s.upload is not None else s.chunk_mb
    if chunk_range is not None:
        return chunk_range[0] + (chunk_range[1] - chunk_range[0]) * share
    drawn = np.asarray(s.data_mb)[(share * len(s.data_mb)).astype(np.int64)]
    # a job of a minute has not read all of ImageNet
    readable = READ_MB_PER_S * trace["gpus"].to_numpy() * trace["duration_s"].to_numpy()
    data = np.minimum(drawn, readable)
    if "data_mb" in trace.columns:
        data = trace["data_mb"].fill_null(pl.Series(data)).to_numpy()
    return np.asarray(data / chunks)


def _upload_delays(duration: Floats, chunk_mb: Floats, s: TraceShares) -> tuple[Floats, Floats]:
    """Upload delay of a chunk of each job to an edge server and to the cloud [s], before the spread."""
    if s.upload is not None:
        return s.upload * duration, s.cloud_factor * s.upload * duration
    return MBIT_PER_MB * chunk_mb / s.edge_mbps, MBIT_PER_MB * chunk_mb / s.cloud_mbps


def _bandwidth(gradient_mb: Floats, communication_s: Floats) -> tuple[Floats, Floats]:
    """The rate b [Mbit/s] such that 2 q / b is `communication_s`, and q [MB]; without communication q = 0, b = 1000."""
    silent = communication_s <= 0
    # np.where computes both sides, so the side that is dropped must not divide by 0
    bandwidth = 2 * MBIT_PER_MB * gradient_mb / np.where(silent, 1.0, communication_s)
    return np.where(silent, 1000.0, bandwidth), np.where(silent, 0.0, gradient_mb)


def _sizes(r: PaperRanges, n: int, rng: Generator) -> tuple[Ints, Ints]:
    """D and B of `n` jobs, from the ranges or from Table II."""
    if r.chunks is None or r.minibatches is None:
        return _table_ii(n, rng)
    return rng.integers(*r.chunks, n, endpoint=True), rng.integers(*r.minibatches, n, endpoint=True)


def _table_ii(n: int, rng: Generator) -> tuple[Ints, Ints]:
    """D and B of `n` jobs, each from a row of Table II."""
    rows = np.array(TABLE_II)[rng.integers(len(TABLE_II), size=n)]
    return rows[:, 0], rows[:, 1]


def _draw_types(types: Sequence[str], n: int, rng: Generator) -> Sequence[str]:
    if not types:
        raise TraceError("types: none to draw from; the cluster must have at least one worker type and one PS type")
    place = rng.integers(len(types), size=n)
    return pl.Series(list(types))[place].to_list()


def _table(trace: pl.DataFrame, **columns: Ints | Floats | Sequence[str]) -> pl.DataFrame:
    # k <= D, as a worker without a chunk would have nothing to train
    workers = np.minimum(np.asarray(columns["chunks"]), trace["gpus"].to_numpy())
    return jobs_table(trace, {"workers": workers, **columns})
