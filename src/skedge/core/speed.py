"""Training speed: how long a worker needs, given where its parameter server is.

Each function is an equation of one of the papers.
"""

from __future__ import annotations

import numpy as np

from .model import Floats, Ints
from .time import ticks, whole_slots

MBIT_PER_MB = 8
"""Mbit in a MB: the papers give gradients in MB and bandwidth in Mbit/s (ERRATA, general convention 3)."""


def minibatch_seconds(
    minibatch_s: Floats,
    ps_update_s: Floats,
    gradient_mb: Floats,
    bandwidth_mbps: Floats,
    *,
    colocated: bool,
) -> Floats:
    """Seconds per mini-batch, 1 / n_j of JSAC'22 Eq. (1): m + G + (1 - zeta) 2 q / b.

    All arguments have shape ``(jobs,)``; `colocated` is zeta.
    """
    compute = minibatch_s + ps_update_s
    return compute if colocated else compute + 2 * MBIT_PER_MB * gradient_mb / bandwidth_mbps


def chunk_ticks(minibatches: Ints, seconds_each: Floats, *, speedup: float, slot: int, slotted: bool) -> Ints:
    """Time to train a chunk, p = E B / n [µs], rounded up; in whole slots when `slotted`.

    `minibatches` is E_j B_j, the mini-batches of one chunk over all epochs; `speedup` is 1 + epsilon. Never below 1 µs.
    """
    exact = np.maximum(ticks(minibatches * seconds_each / speedup), 1)
    return whole_slots(exact, slot) if slotted else exact
