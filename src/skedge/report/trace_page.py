"""A trace on one page: its histograms as SVG, and its figures as a table. It has no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .histograms import Histogram
from .shell import plain_page

_ROW, _LEFT, _WIDTH, _RIGHT = 20, 150, 640, 90


def trace_page(name: str, figures: Sequence[tuple[str, str]], pictures: Sequence[Histogram]) -> str:
    """The page of the trace `name`; `figures` are names and values, as the terminal shows them."""
    charts = "".join(f"<section><h2>{escape(picture.title)}</h2>{bars(picture)}</section>" for picture in pictures)
    rows = "".join(f"<tr><th>{escape(key)}</th><td class=number>{escape(value)}</td></tr>" for key, value in figures)
    table = f'<div class="scroll"><table class="plain"><tbody>{rows}</tbody></table></div>'
    return plain_page(name, f"{charts}<section><h2>Figures</h2>{table}</section>")


def bars(picture: Histogram) -> str:
    """The histogram as SVG: a bar for each label, with its count."""
    height = _ROW * len(picture.labels)
    longest = max(*picture.counts, 1)
    rows = "".join(
        _bar(i, label, count, _WIDTH * count / longest)
        for i, (label, count) in enumerate(zip(picture.labels, picture.counts, strict=True))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + _RIGHT} {height}" role="img" '
        f'style="max-width:60rem" font-family="system-ui, sans-serif" font-size="13" fill="var(--ink, #1a2129)">'
        f"<title>{escape(picture.title)}</title>{rows}</svg>"
    )


def _bar(i: int, label: str, count: int, length: float) -> str:
    y, text = _ROW * i, escape(label if len(label) <= 20 else f"{label[:19]}…")
    return (
        f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{text}</text>'
        f'<rect x="{_LEFT}" y="{y + 3}" width="{length:.1f}" height="{_ROW - 6}" fill="var(--line-1, #0072b2)"/>'
        f'<text x="{_LEFT + length + 6:.1f}" y="{y + 14}">{count:,}</text>'
    )
