"""Seeded generators of Philly-like traces and machine lists.

The model has the structure of Microsoft Philly's passed jobs, and constants fitted to their published statistics
(dense window 2017-10-03 to 2017-12-15, 73,565 jobs, unless said otherwise). Submissions are the sum of

- a *clock*: one job every 600 s, from a periodic task of one virtual cluster,
- *singles*: lone submissions, a Poisson process whose rate follows the hour of the day and the weekday, and
- *bursts*: campaigns of jobs a few seconds apart. They start as a doubly stochastic Poisson process: hour by hour its
  rate is a log-normal, autocorrelated level times the indices of the hour of the day and of the weekday;

During *outages* no jobs are submitted. Times are whole seconds, as in the log, so some gaps are zero. GPU counts and
durations are drawn job by job; durations are mixtures of log-normals by GPU count.

Not modelled: users, failed and killed jobs, the similarity of the jobs in one burst.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

from skedge.core.errors import TraceError
from skedge.core.model.cluster import Floats, Ints
from skedge.traces.frame import check_frame, from_first_submit, stretched

HOUR_S = 3600.0
DAY_HOURS = 24

PARTS = ("clock", "single", "burst")
"""The parts of the submissions."""

CLOCK_S = 600.0
"""Period of the clock [s]: 52.6 % of the gaps inside its virtual cluster are about 600 s, and p95..p99 of all gaps."""
CLOCK_JITTER_S = 0.6
"""Standard deviation of a tick [s]: the gaps' p95 and p99 are 599 and 601 s."""

JOBS_PER_HOUR = 42.1
"""Mean number of jobs per hour."""
SINGLES_PER_HOUR = 4.7
"""Mean number of single submissions per hour; with the clock they keep nine in ten gaps below 335 s."""
LEVEL_SIGMA = 1.15
"""Standard deviation of the log of the hourly level; with the bursts it yields the dispersion of 163."""
LEVEL_RHO = 0.6
"""Autocorrelation of the log of the hourly level from one hour to the next; jobs per hour: 0.39."""
BURST_SIZE_SIGMA = 1.42
"""Standard deviation of the log of the number of jobs in a burst."""
BURST_MEDIAN = 11.0
"""Median number of jobs in a burst, before rounding up."""
BURST_LARGEST = 700
"""Number of jobs in the largest burst; the busiest hour has 1,032."""
BURST_GAP_MEDIAN_S = 7.8
"""Median over bursts of the mean gap within a burst [s]: half of all gaps are at most 8 s."""
BURST_GAP_SIGMA = 0.9
"""Standard deviation of its log: a quarter of the gaps are at most 2 s, and a quarter at least 38 s."""
OUTAGES_PER_HOUR = 1 / 240
"""Rate of outages: one in ten days."""
OUTAGE_LONGEST_S = 16.6 * HOUR_S
"""Maximum length of an outage [s], drawn uniformly: the gaps' CV is 4.17, nearly all of it from a few long gaps."""

# Hour of the day 0..23 and weekday Monday..Sunday, 1 = mean, of the whole file of 82,247 jobs.
HOUR_INDEX = (
    1.31, 1.00, 1.20, 1.17, 0.68, 1.17, 1.68, 2.11, 1.11, 1.01, 0.89, 0.79,
    0.65, 0.68, 0.52, 0.58, 0.93, 0.68, 0.81, 0.73, 1.09, 0.93, 1.21, 1.07,
)  # fmt: skip
WEEKDAY_INDEX = (0.76, 1.07, 1.15, 1.35, 1.48, 0.65, 0.55)

GPU_SHARE = {1: 0.9317, 2: 0.0221, 4: 0.0227, 8: 0.0200, 16: 0.0024, 32: 0.0008, 64: 0.0001}
"""Share of jobs by GPU count, whole file; the rest (0.02 %) is added to 1."""

DURATION = {
    1: (
        (0.091, 64.65, 0.70), (0.165, 67.03, 0.15), (0.206, 655.6, 0.74),
        (0.157, 1688.0, 0.38), (0.134, 3127.0, 0.55), (0.247, 4315.0, 1.94),
    ),
    2: ((0.653, 18.15, 0.31), (0.176, 44.03, 1.57), (0.171, 91890.0, 1.09)),
    4: ((0.330, 312.2, 1.30), (0.528, 37350.0, 1.64), (0.142, 111900.0, 0.38)),
    8: ((0.412, 963.4, 1.56), (0.298, 55160.0, 1.85), (0.290, 215000.0, 0.55)),
    16: ((0.395, 204.5, 0.85), (0.472, 131200.0, 1.20), (0.133, 177900.0, 0.08)),
    32: ((0.525, 863.4, 1.69), (0.475, 59770.0, 0.09)),
}  # fmt: skip
"""Mixture of log-normals by GPU count: (weight, median [s], sigma of the log).

Fitted to the median, the p90 and the log's mean and standard deviation of each GPU count, and to the quantiles p1 to
p99.9 of all jobs, whole file.
"""
LONGEST_DRAWN_S = 4_628_226.0
"""Longest duration in the whole file [s]: 53.6 days."""

MACHINE_GPUS = {2: 321, 8: 231}
"""Machines by GPU count in Philly's ``cluster_machine_list``: 552 machines, 2,490 GPUs."""


def philly_like(jobs: int, rng: Generator, *, span_s: float | None = None) -> pl.DataFrame:
    """Draw a Philly-like trace of `jobs` passed jobs.

    Parameters
    ----------
    jobs
        Number of jobs, >= 1.
    rng
        Source of all randomness. The trace begins at midnight on a Monday; its time 0 is the first submission.
    span_s
        Time from the first submission to the last [s], > 0; the submissions are scaled to it. None: as drawn, about 42
        jobs per hour.

    Returns
    -------
    polars.DataFrame
        A trace frame; ids are ``"0"``, ``"1"``, ... by submission, `group` is one of :data:`PARTS`.
    """
    if jobs < 1:
        raise TraceError(f"jobs: {jobs}; a trace has at least 1 job")
    submit_s, part = _submissions(jobs, rng)
    gpus = rng.choice(np.array(list(GPU_SHARE)), jobs, p=_normed(np.array(list(GPU_SHARE.values()))))
    frame = _passed_jobs(submit_s, durations(gpus, rng), gpus, np.array(PARTS)[part])
    frame = check_frame(from_first_submit(frame), "philly-like")
    return frame if span_s is None else stretched(frame, span_s)


def at_slots(
    jobs: int, rng: Generator, *, slot_s: float, slots: int, kind: Literal["uniform", "alternating"]
) -> pl.DataFrame:  # fmt: skip
    """Draw arrivals at slot boundaries.

    Parameters
    ----------
    kind
        ``uniform``: all slots have equal probability (Okita); ``alternating``: even slots receive twice as many as odd
        ones (PD-ORS).
    jobs, slots
        Numbers of jobs and slots, >= 1; slots are counted from 0.
    rng
        Source of all randomness.
    slot_s
        Length of a slot [s].

    Returns
    -------
    polars.DataFrame
        A trace frame; durations are 0.
    """
    weight = np.where(np.arange(slots) % 2 == 0, 2.0 if kind == "alternating" else 1.0, 1.0)
    slot = np.sort(rng.choice(slots, jobs, p=_normed(weight)))
    frame = _passed_jobs(np.asarray(slot * slot_s, float), np.zeros(jobs), np.ones(jobs, np.int64), np.full(jobs, kind))
    return check_frame(frame, kind)


def _passed_jobs(submit_s: Floats, duration_s: Floats, gpus: Ints, group: NDArray[np.str_]) -> pl.DataFrame:
    """The columns of a trace frame; ids are numbers from 0."""
    columns = {"submit_s": submit_s, "duration_s": duration_s, "gpus": gpus, "group": group}
    return pl.DataFrame(columns).with_columns(
        id=pl.int_range(pl.len()).cast(pl.String),
        status=pl.lit("passed"),
    )


def _submissions(jobs: int, rng: Generator) -> tuple[Floats, Ints]:
    """Draw the first `jobs` submissions [s from midnight on a Monday], ascending, and the part of each.

    The part is an index into :data:`PARTS`. The window is doubled until it holds enough submissions.
    """
    # more than expected, as outages and quiet hours may take much of the window, of a short one most
    hours = 7 * DAY_HOURS + math.ceil(1.5 * jobs / JOBS_PER_HOUR)
    while True:
        parts = _clock(hours, rng), _singles(hours, rng), _bursts(hours, rng)
        times = np.concatenate(parts)
        part = np.repeat(np.arange(len(parts)), [len(p) for p in parts])
        up = ~_in_outage(times, hours, rng)
        if up.sum() >= jobs:
            order = np.argsort(times[up], kind="stable")[:jobs]
            return np.floor(times[up][order]), part[up][order]
        hours *= 2


def _clock(hours: int, rng: Generator) -> Floats:
    tick = np.arange(0.0, hours * HOUR_S, CLOCK_S) + CLOCK_S / 2
    return tick + CLOCK_JITTER_S * rng.standard_normal(len(tick))


def _singles(hours: int, rng: Generator) -> Floats:
    return _poisson(SINGLES_PER_HOUR * _calendar(hours), rng)


def _poisson(rate: Floats, rng: Generator) -> Floats:
    """Events [s] of a Poisson process with the expected number `rate` in each hour, in order of the hour only."""
    count = rng.poisson(rate)
    return np.asarray(HOUR_S * (np.repeat(np.arange(len(rate)), count) + rng.random(count.sum())))


def _bursts(hours: int, rng: Generator) -> Floats:
    """Draw the submissions of the bursts that start within `hours` [s], unordered."""
    starts = _poisson(_burst_rate(hours, rng) / _mean_burst_size(), rng)
    sizes = _burst_sizes(len(starts), rng)
    gap = BURST_GAP_MEDIAN_S * np.exp(BURST_GAP_SIGMA * rng.standard_normal(len(starts)))
    steps = rng.exponential(np.repeat(gap, sizes))
    walked = np.cumsum(steps)
    first = np.cumsum(sizes) - sizes
    # one running sum over all bursts instead of a loop: less its value at a burst's first job, plus the burst's start
    return np.repeat(starts - walked[first], sizes) + walked


def _burst_rate(hours: int, rng: Generator) -> Floats:
    """Draw the expected number of jobs in bursts for each hour, shape ``(hours,)``."""
    # the mean of a log-normal is exp(mu + sigma^2 / 2); this one has mean 1
    level = np.exp(LEVEL_SIGMA * _autocorrelated(hours, rng) - LEVEL_SIGMA**2 / 2)
    # expected share of the time without an outage, whose mean length is half the longest; rates are raised by it, so
    # that the mean number of jobs per hour is as stated
    up = 1 - OUTAGES_PER_HOUR * OUTAGE_LONGEST_S / 2 / HOUR_S
    return (JOBS_PER_HOUR / up - HOUR_S / CLOCK_S - SINGLES_PER_HOUR) * _calendar(hours) * level


def _calendar(hours: int) -> Floats:
    """Relative rate of each hour by hour of the day and weekday, mean 1, shape ``(hours,)``."""
    hour = np.arange(hours)
    return np.asarray(_rest(HOUR_INDEX)[hour % DAY_HOURS] * _rest(WEEKDAY_INDEX)[hour // DAY_HOURS % 7])


def _rest(index: tuple[float, ...]) -> Floats:
    """`index` without the contribution of the clock, which is uniform: the index of singles and bursts, mean 1."""
    # the clock's share of all submissions
    even = HOUR_S / CLOCK_S / JOBS_PER_HOUR
    rest = np.array(index) - even
    return np.asarray(rest / rest.mean())


def _autocorrelated(hours: int, rng: Generator) -> Floats:
    """Draw a stationary AR(1) series of standard normals, shape ``(hours,)``."""
    noise = rng.standard_normal(hours)
    # so that the series has variance 1 throughout
    noise[1:] *= math.sqrt(1 - LEVEL_RHO**2)
    for i in range(1, hours):
        noise[i] += LEVEL_RHO * noise[i - 1]
    return noise


def _burst_sizes(bursts: int, rng: Generator) -> Ints:
    size = BURST_MEDIAN * np.exp(BURST_SIZE_SIGMA * rng.standard_normal(bursts))
    return np.minimum(np.ceil(size), BURST_LARGEST).astype(np.int64)


def _mean_burst_size() -> float:
    """Mean number of jobs in a burst: sum over n of P(size > n), sizes rounded up and at most :data:`BURST_LARGEST`."""
    above = (math.log(n / BURST_MEDIAN) / BURST_SIZE_SIGMA for n in range(1, BURST_LARGEST))
    return 1 + sum(0.5 * math.erfc(z / math.sqrt(2)) for z in above)


def _in_outage(times: Floats, hours: int, rng: Generator) -> np.ndarray:
    count = rng.poisson(hours * OUTAGES_PER_HOUR)
    start = np.sort(hours * HOUR_S * rng.random(count))
    end = start + OUTAGE_LONGEST_S * rng.random(count)
    # outages may overlap: of those that have begun the latest end counts
    latest_end = np.concatenate([[-np.inf], np.maximum.accumulate(end)])
    return np.asarray(times < latest_end[np.searchsorted(start, times, side="right")])


def durations(gpus: Ints, rng: Generator) -> Floats:
    """Draw a duration [s] in [1, :data:`LONGEST_DRAWN_S`] for each GPU count in `gpus`; above 32 GPUs as for 32."""
    sizes = np.array(list(DURATION))
    place = np.clip(np.searchsorted(sizes, gpus, side="right") - 1, 0, len(sizes) - 1)
    # two numbers a job, whatever its GPUs and mixture, so that later draws are not shifted
    pick, normal = rng.random(len(gpus)), rng.standard_normal(len(gpus))
    out = np.empty(len(gpus))
    for i, mixture in enumerate(DURATION.values()):
        mask = place == i
        weight, median, sigma = np.array(mixture).T
        # at most the last one: the weights may add up to a little less than 1
        part = np.minimum(np.searchsorted(np.cumsum(_normed(weight)), pick[mask], side="right"), len(weight) - 1)
        out[mask] = median[part] * np.exp(sigma[part] * normal[mask])
    return np.clip(np.ceil(out), 1.0, LONGEST_DRAWN_S)


def _normed(weight: Floats) -> Floats:
    return np.asarray(weight / weight.sum())


def philly_like_machines(n: int, rng: Generator) -> pl.DataFrame:
    """Draw a machine list of `n` machines: columns `id` and `gpus`.

    The ratio of 2-GPU to 8-GPU machines is 321 to 231, as in Philly's list, up to rounding; the order is random.
    """
    if n < 1:
        raise TraceError(f"machines: {n}; a cluster has at least 1 machine")
    small = round(n * MACHINE_GPUS[2] / sum(MACHINE_GPUS.values()))
    gpus = rng.permutation(np.repeat([2, 8], [small, n - small]))
    return pl.DataFrame({"id": [f"m{i}" for i in range(n)], "gpus": gpus}, {"id": pl.String, "gpus": pl.Int64})
