"""How tables travel inside the page: columns of whole numbers as bytes, JSON that cannot close its own element."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from skedge.core.model.cluster import Ints

NONE = -1
"""How a missing value is written in a column that :func:`pack_ints` takes."""


def pack_ints(values: Ints) -> dict[str, Any]:
    """Write whole numbers >= -1 as little-endian bytes in base64, as few bytes a value as the largest needs.

    Every value is stored one higher, so that :data:`NONE` is 0. Exact for every time that a scenario can hold; a
    start in µs takes 5 or 6 bytes where JSON would take 13 characters.

    Raises
    ------
    ValueError
        If a value is below -1.
    """
    # "<i8" on every machine: the page's script reads little-endian bytes.
    raised = np.ascontiguousarray(values, dtype="<i8") + 1
    if len(raised) and int(raised.min()) < 0:
        raise ValueError(f"column holds {int(raised.min()) - 1}; only whole numbers >= {NONE} can be packed")
    width = (int(raised.max()).bit_length() + 7) // 8 if len(raised) else 0
    # The high bytes of small numbers are 0: dropping them is most of the saving.
    raw = raised.view(np.uint8).reshape(-1, 8)[:, :width]
    return {"n": len(raised), "width": width, "data": base64.b64encode(raw.tobytes()).decode("ascii")}


def unpack_ints(column: Mapping[str, Any]) -> Ints:
    """Read back what :func:`pack_ints` was given."""
    width = int(column["width"])
    raw = np.zeros((int(column["n"]), 8), np.uint8)
    raw[:, :width] = np.frombuffer(base64.b64decode(column["data"]), np.uint8).reshape(-1, width) if width else 0
    return raw.view("<i8").ravel().astype(np.int64) - 1


def int_column(frame: pl.DataFrame, column: str) -> Ints:
    """Read a column of whole numbers, flags or names of an enumeration as int64, nulls as :data:`NONE`."""
    series = frame[column]
    # Of an enumeration the number of its name, which the page looks up in a list.
    if isinstance(series.dtype, pl.Enum):
        series = series.to_physical()
    return series.cast(pl.Int64).fill_null(NONE).to_numpy().astype(np.int64)


def finite_or_none(value: float | None) -> float | int | None:
    """`value`, or None where JSON has no number for it."""
    return None if value is None or not math.isfinite(value) else value


def script_json(value: Any) -> str:
    """Write `value` as JSON for a ``script`` element: ASCII without ``<``: no text can end the element."""
    # Escapes that JSON has for any character: the page reads the same texts back.
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
