"""Rows of a compiled loop as the record has them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from skedge.core.model.cluster import Ints


def set_reasons(rows: Ints, key: Ints, reasons: dict[str, int], text: Callable[[int, list[int]], str]) -> None:
    """Replace the last column of decisions by the record's numbers of `reasons`, in order of first use.

    Rows of the same `key` have the same reason: `text`, given the key and the first of these rows.

    Parameters
    ----------
    rows
        In and out: rows of decisions.
    key
        Of each row.
    reasons
        In and out: the record's reasons with their numbers.
    text
        Takes a key and the first row that has it.
    """
    first = np.full(int(key.max(initial=-1)) + 1, len(rows))
    # backwards, so that the first row of each key is written last and stays
    first[key[::-1]] = np.arange(len(rows))[::-1]
    codes = np.zeros(len(first), np.int64)
    for k in first.argsort()[: np.count_nonzero(first < len(rows))].tolist():
        codes[k] = reasons.setdefault(text(k, rows[first[k]].tolist()), len(reasons))
    rows[:, -1] = codes[key]
