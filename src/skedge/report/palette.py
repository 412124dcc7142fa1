"""Colours and dashes of lines, different for each of the first 32."""

from __future__ import annotations

COLOURS = ("#0072b2", "#d55e00", "#008a64", "#b0508a", "#9a6a00", "#3a9bd5", "#444444", "#7a4fbf")
"""Colours safe for colour-blind readers, as in the report's style sheet."""

DASHES = ((), (9, 4), (3, 3), (12, 3, 3, 3))
"""Lengths of dashes and gaps."""


def dash_of(i: int) -> tuple[int, ...]:
    """The dashes of line number `i`; lines of one colour have different ones."""
    return DASHES[(i + i // len(COLOURS)) % len(DASHES)]
