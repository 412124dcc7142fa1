"""Training speed: time per mini-batch and work, given the location of the parameter server.

Each function implements an equation of one of the papers.
"""

from __future__ import annotations

import numpy as np

from skedge.platform.jit import inlined

from .cluster import Floats, Ints
from .ties import NOISE, SLACK
from .time import SECOND, ticks, whole_slots

MBIT_PER_MB = 8
"""Mbit per MB: the papers give gradients in MB and bandwidth in Mbit/s (errata E27)."""


def minibatch_seconds(
    minibatch_s: Floats, ps_update_s: Floats, gradient_mb: Floats, rate_mbps: Floats, share: Floats | float = 1.0
) -> Floats:
    """Seconds per mini-batch, 1 / n_j of JSAC'22 Eq. (1): m + G + 2 q / b.

    PD-ORS, Eq. (1) with (2), has tau + 2 g gamma / (b F): the same with `share` gamma / F.

    Parameters
    ----------
    minibatch_s, ps_update_s
        m and G [s], shape ``(jobs,)``.
    gradient_mb
        q [MB], shape ``(jobs,)``.
    rate_mbps
        b [Mbit/s], shape ``(jobs,)``: the rate of co-located workers if zeta = 1; inf if communication is free.
    share
        Factor of the communication, shape ``(jobs,)``.
    """
    # twice q: gradients to the PS and parameters back
    return minibatch_s + ps_update_s + 2 * MBIT_PER_MB * gradient_mb * share / rate_mbps


def chunk_ticks(minibatches: Ints, seconds_each: Floats, *, speedup: float, slot: int, slotted: bool) -> Ints:
    """Time to train a chunk, p = E B / n [µs], rounded up, at least 1.

    Parameters
    ----------
    minibatches
        E_j B_j: mini-batches of one chunk over all epochs, shape ``(jobs,)``.
    seconds_each
        1 / n_j [s], shape ``(jobs,)``.
    speedup
        1 + epsilon of speed augmentation, > 0.
    slot, slotted
        Length of a slot [µs], and whether times are rounded up to whole slots.
    """
    # a chunk takes time, or its start and its end would be one instant
    exact = np.maximum(ticks(minibatches * seconds_each / speedup), 1)
    return whole_slots(exact, slot) if slotted else exact


def work_ticks(minibatches: Ints, seconds_each: Floats, *, speedup: float) -> Ints:
    """Work of a job on servers with resources, V x [worker-µs], where V is `minibatches`; rounded down.

    It is also reduced by 2e-9 of itself, so that a plan computed in floats without slack finishes in its last slot: a
    remainder of 1 worker-µs would take another slot (ADR 16). At least 1 worker-µs.
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


def max_units(free: Floats, demand: Floats) -> Ints:
    """Copies of `demand`, which is above 0 for some resource, that each machine has room for; shape ``(machines,)``."""
    # a resource that is not needed does not limit, and is not divided by
    demanded = demand > 0
    # the scarcest resource decides (Okita, Alg. 2 line 6); the slack keeps 3 x 0.1 within 0.3
    return np.maximum(np.floor((free[:, demanded] / demand[demanded]).min(axis=1) + SLACK), 0).astype(np.int64)
