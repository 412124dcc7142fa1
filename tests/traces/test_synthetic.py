"""The Philly-like generator against the published figures of Philly.

The figures are those of Microsoft Philly's passed jobs: arrivals in the dense window 2017-10-03 to 2017-12-15 (73,565
jobs), sizes and durations of the whole file (82,247 jobs). Tolerances are factors unless a comment says otherwise.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from skedge.core.errors import TraceError
from skedge.traces.describe import describe
from skedge.traces.frame import check_frame
from skedge.traces.makers.synthetic import GPU_SHARE, HOUR_INDEX, philly_like, philly_like_machines


@pytest.fixture(scope="module")
def traces() -> list[pl.DataFrame]:
    """Four traces of 60,000 jobs: hourly counts are so dispersed that one alone says little about the tail."""
    return [philly_like(60_000, np.random.default_rng(seed)) for seed in range(4)]


@pytest.fixture(scope="module")
def figures(traces):
    return [describe(trace) for trace in traces]


def mean_of(figures, part, name):
    return float(np.mean([f[part][name] for f in figures]))


def within(value: float, target: float, factor: float) -> bool:
    return target / factor <= value <= target * factor


@pytest.mark.parametrize(
    ("name", "target", "factor"),
    [("p25", 2, 1.3), ("p50", 8, 1.3), ("p75", 38, 1.6), ("p90", 335, 1.3), ("p95", 599, 1.1), ("p99", 601, 1.1)],
)
def test_gap_quantiles_are_phillys(figures, name, target, factor):
    assert within(mean_of(figures, "gap_s", name), target, factor)


@pytest.mark.parametrize(
    ("part", "name", "target", "factor"),
    [
        ("gap_s", "mean", 85.6, 1.2),
        ("gap_s", "cv", 4.17, 1.3),
        ("gap_s", "zero", 0.085, 1.25),
        ("hour", "mean", 42.1, 1.2),
        ("hour", "dispersion", 163.0, 1.3),
        ("hour", "max", 1032, 1.6),
        ("hour", "lag1", 0.39, 1.4),
    ],
)
def test_bursts_are_phillys(figures, part, name, target, factor):
    assert within(mean_of(figures, part, name), target, factor)


@pytest.mark.parametrize(
    ("name", "target", "factor"),
    [
        ("p1", 17, 1.15), ("p5", 48, 1.1), ("p10", 61, 1.1), ("p25", 115, 1.15), ("p50", 1144, 1.1), ("p75", 2932, 1.1),
        ("p90", 11265, 1.1), ("p95", 43646, 1.15), ("p99", 254758, 1.15), ("mean", 13136, 1.1),
    ],
)  # fmt: skip
def test_duration_quantiles_are_phillys(figures, name, target, factor):
    assert within(mean_of(figures, "duration_s", name), target, factor)


@pytest.mark.parametrize(
    ("gpus", "median", "p90"),
    [(1, 1117, 8512), (2, 21, 72740), (4, 17410, 184435), (8, 23683, 351982), (16, 52548, 340974)],
)
def test_durations_by_gpu_count_are_phillys(traces, gpus, median, p90):
    drawn = pl.concat(traces).filter(pl.col("gpus") == gpus)["duration_s"]
    # 16 GPUs: 0.24 % of the jobs, some 600 here, and a median between two far modes
    factor = 1.25 if gpus < 16 else 1.6
    assert within(drawn.median(), median, factor)
    assert within(drawn.quantile(0.9), p90, factor)


def test_gpu_counts_are_phillys(traces):
    drawn = pl.concat(traces)["gpus"].to_numpy()
    assert drawn.mean() == pytest.approx(1.30, abs=0.03)
    for gpus, share in GPU_SHARE.items():
        # four standard errors of a share among 240,000
        assert (drawn == gpus).mean() == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / len(drawn)) + 2e-4)


def test_large_jobs_hold_most_of_the_gpu_time(traces):
    drawn = pl.concat(traces).with_columns(work=pl.col("gpus") * pl.col("duration_s"))
    share = drawn.filter(pl.col("gpus") == 8)["work"].sum() / drawn["work"].sum()
    assert share == pytest.approx(0.484, abs=0.08)


def test_the_hours_of_the_day_follow_phillys_index():
    submit = philly_like(400_000, np.random.default_rng(5))["submit_s"].to_numpy()
    by_hour = np.bincount((submit // 3600).astype(int) % 24, minlength=24)
    assert np.corrcoef(by_hour, HOUR_INDEX)[0, 1] > 0.8


def test_weekends_are_quiet():
    submit = philly_like(400_000, np.random.default_rng(5))["submit_s"].to_numpy()
    by_day = np.bincount((submit // 86400).astype(int) % 7, minlength=7)
    # Saturday and Sunday hold 0.65 and 0.55 of a mean day
    assert by_day[5:].sum() / by_day.sum() == pytest.approx(1.2 / 7, abs=0.05)


def test_a_clock_submits_every_600_seconds(traces):
    ticks = traces[0].filter(pl.col("group") == "clock")["submit_s"].to_numpy()
    gaps = np.diff(ticks)
    assert np.mean(np.abs(gaps - 600) <= 5) > 0.95
    assert len(ticks) / 60_000 == pytest.approx(6 / 42.1, abs=0.03)


@pytest.mark.parametrize("jobs", [1, 2, 400])
def test_so_many_jobs_are_drawn_and_they_make_a_sound_trace(jobs):
    trace = philly_like(jobs, np.random.default_rng(0))
    assert len(check_frame(trace, "drawn")) == jobs
    assert trace["submit_s"][0] == 0
    assert (trace["duration_s"] >= 1).all()


def test_a_span_stretches_the_same_draw():
    plain = philly_like(300, np.random.default_rng(3))
    wide = philly_like(300, np.random.default_rng(3), span_s=360_000.0)
    assert wide["submit_s"].max() == 360_000.0
    scale = 360_000.0 / plain["submit_s"].max()
    np.testing.assert_allclose(wide["submit_s"], plain["submit_s"] * scale, rtol=1e-12)
    assert wide.drop("submit_s").equals(plain.drop("submit_s"))


def test_the_same_generator_state_draws_the_same_trace_and_another_another():
    one, same, other = (philly_like(100, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)


def test_machines_have_2_or_8_gpus_in_phillys_mix():
    machines = philly_like_machines(552, np.random.default_rng(0))
    assert machines["gpus"].value_counts().sort("gpus").rows() == [(2, 321), (8, 231)]
    assert machines["id"].is_unique().all()
    # 100 · 321 / 552 = 58.15
    assert (philly_like_machines(100, np.random.default_rng(0))["gpus"] == 2).sum() == 58


def test_nothing_cannot_be_drawn():
    with pytest.raises(TraceError, match="at least 1 job"):
        philly_like(0, np.random.default_rng(0))
    with pytest.raises(TraceError, match="at least 1 machine"):
        philly_like_machines(0, np.random.default_rng(0))
