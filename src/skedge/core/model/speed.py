"""Training speed: time per mini-batch and work, given the location of the parameter server.

Each function implements an equation of one of the papers.
"""

from __future__ import annotations

import numpy as np

from skedge.platform.jit import inlined

from .cluster import Floats, Ints
from .ties import NOISE
from .time import SECOND, ticks, whole_slots

MBIT_PER_MB = 8
"""Mbit per MB: the papers give gradients in MB and bandwidth in Mbit/s (errata E27)."""


def minibatch_seconds(
    minibatch_s: Floats, ps_update_s: Floats, gradient_mb: Floats, rate_mbps: Floats, share: Floats | float = 1.0
) -> Floats:
    """Seconds per mini-batch, 1 / n_j of JSAC'22 Eq. (1): m + G + 2 q / b.

    All arguments have shape ``(jobs,)``. `rate_mbps` is b: the rate of co-located workers if zeta = 1, and inf if
    communication is free. PD-ORS, Eq. (1) with (2), has tau + 2 g gamma / (b F); `share` is gamma / F.
    """
    return minibatch_s + ps_update_s + 2 * MBIT_PER_MB * gradient_mb * share / rate_mbps


def chunk_ticks(minibatches: Ints, seconds_each: Floats, *, speedup: float, slot: int, slotted: bool) -> Ints:
    """Time to train a chunk, p = E B / n [µs], rounded up; to whole slots if `slotted`.

    `minibatches` is E_j B_j, the mini-batches of one chunk over all epochs; `speedup` is 1 + epsilon. At least 1 µs.
    """
    exact = np.maximum(ticks(minibatches * seconds_each / speedup), 1)
    return whole_slots(exact, slot) if slotted else exact


def work_ticks(minibatches: Ints, seconds_each: Floats, *, speedup: float) -> Ints:
    """Work of a job on servers with resources, V x [worker-µs], where V is `minibatches`; rounded down.

    It is also reduced by 2e-9 of itself, so that a plan computed in floats without slack finishes in its last slot: a
    remainder of 1 worker-µs would take another slot. At least 1 worker-µs.
    """
    exact = minibatches * seconds_each / speedup * SECOND
    return np.maximum(np.floor(exact * (1 - 2 * NOISE)), 1).astype(np.int64)


@inlined
def ceil_almost(x: float) -> int:
    """Smallest integer not below `x`, where `x` may be too large by 1e-9 relative."""
    return int(np.ceil(x - NOISE * max(1.0, abs(x))))


@inlined
def servers_for(workers: int, ratio: float) -> int:
    """PSs for `workers` workers: max(1, ceil(w / gamma)) (P10)."""
    return max(1, ceil_almost(workers / ratio))


@inlined
def whole_chunks(rate: float, workers: int) -> int:
    """Chunks that a site's workers train per slot, floor(rate y), where the product may be short by 1e-9."""
    return int(np.floor(rate * workers + NOISE))
