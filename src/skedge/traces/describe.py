"""Statistics of a trace, for comparing real and synthetic traces."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from skedge.core.model.cluster import Floats

from .frame import Trace

_FEW_GROUPS = 16
_QUANTILES = (0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)


def describe(trace: Trace | pl.DataFrame, gpus: int | None = None) -> dict[str, Any]:
    """Statistics of a trace.

    Parameters
    ----------
    trace
        A trace frame (:data:`~skedge.traces.frame.TRACE_SCHEMA`), or a trace read from a file.
    gpus
        Number of GPUs of the cluster, for the offered load; None: no load is given.

    Returns
    -------
    dict
        `jobs`, `rows` (of the file), `merged` (rows of jobs with several), `skipped` (rows omitted, by reason),
        `changed` (jobs changed, by kind of change), `note` (where the file may have been misread), `unit` (what the
        trace counts), `span_s`, `statuses` (jobs by status), `gap_s` (quantiles p1..p99,
        `mean`, `cv`: standard deviation over mean, `zero`: share of gaps of length 0), `hour` (jobs per hour: `mean`,
        `max`, `dispersion`: variance over mean, `lag1`: autocorrelation from one hour to the next), `gpus` (jobs by
        GPU count), `groups` (jobs by group, where there are at most 16), `users` (their number), `duration_s`
        (quantiles, `mean`), `gpu_hours`, `mean_gpus` (average number of busy GPUs if no job waited) and `load`
        (`mean_gpus` over `gpus`). If the trace has no GPUs, `gpus`, `gpu_hours` and `mean_gpus` have the name of what
        it has. A statistic is None if the trace is too short for it, or does not have it.
    """
    trace = trace if isinstance(trace, Trace) else Trace(trace, "")
    frame, unit = trace.frame, trace.unit
    span = float(frame["submit_s"].to_numpy().max(initial=0.0))
    gpu_seconds = float((frame["duration_s"] * frame["gpus"]).sum())
    busy = gpu_seconds / span if span > 0 else None
    return {
        "jobs": len(frame),
        "rows": trace.rows,
        "merged": trace.merged or None,
        "skipped": trace.skipped,
        "changed": trace.changed,
        "note": trace.note or None,
        "unit": f"{unit.name}: {unit.about}" if unit.about else unit.name,
        "span_s": span,
        "statuses": _counts(frame["status"]),
        "gap_s": _gaps(np.diff(frame["submit_s"].to_numpy())),
        "hour": _per_hour(frame["submit_s"].to_numpy()),
        f"{unit.key}s": _counts(frame["gpus"]),
        "groups": _counts(frame["group"]) if frame["group"].n_unique() <= _FEW_GROUPS else {},
        "users": frame["user"].drop_nulls().n_unique() if "user" in frame.columns else None,
        "duration_s": _quantiles(frame["duration_s"].to_numpy()),
        f"{unit.key}_hours": gpu_seconds / 3600,
        f"mean_{unit.key}s": busy,
        "load": busy / gpus if gpus and busy is not None else None,
    }


def rows(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """The statistics of :func:`describe` as printable rows: name and value."""
    flat: list[tuple[str, str]] = []
    for name, value in figures.items():
        if isinstance(value, dict):
            flat.extend((f"{name} {part}", _text(v)) for part, v in value.items())
        elif value is not None:
            flat.append((name, _text(value)))
    return flat


def _text(value: float | str | None) -> str:
    if isinstance(value, str):
        return value
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _counts(column: pl.Series) -> dict[str, int]:
    count = column.value_counts().sort(column.name)
    return {str(value): int(n) for value, n in count.iter_rows()}


def _quantiles(values: Floats) -> dict[str, float | None]:
    if not len(values):
        return {}
    figures = {f"p{100 * q:g}": float(v) for q, v in zip(_QUANTILES, np.quantile(values, _QUANTILES), strict=True)}
    return {**figures, "mean": float(values.mean())}


def _gaps(gaps: Floats) -> dict[str, float | None]:
    mean = gaps.mean() if len(gaps) else 0.0
    if not len(gaps):
        return {}
    cv = float(gaps.std() / mean) if mean > 0 else None
    return {**_quantiles(gaps), "cv": cv, "zero": float((gaps == 0).mean())}


def _per_hour(submit_s: Floats) -> dict[str, float | None]:
    if not len(submit_s):
        return {}
    # hours from the first submission; the last one may be incomplete
    counts = np.bincount((submit_s // 3600).astype(np.int64)).astype(float)
    return {
        "mean": float(counts.mean()),
        "max": float(counts.max()),
        "dispersion": float(counts.var() / counts.mean()),
        "lag1": _autocorrelation(counts),
    }


def _autocorrelation(counts: Floats) -> float | None:
    # NumPy would divide by 0, warn and give NaN
    if len(counts) < 3 or counts[1:].std() == 0 or counts[:-1].std() == 0:
        return None
    return float(np.corrcoef(counts[1:], counts[:-1])[0, 1])
