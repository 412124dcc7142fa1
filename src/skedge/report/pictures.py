"""A drawing as SVG, PNG and PDF files, for documents."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

HINT = "PNG and PDF need the extra `figures`: pip install 'skedge[figures]'"

_STYLED = re.compile(r"var\(--[\w-]+, ([^)]+)\)")
"""A colour of the page's style sheet, which has none outside a page: its own colour follows."""


def can_draw() -> bool:
    """Whether the extra is installed."""
    return find_spec("vl_convert") is not None


def standalone(drawn: str) -> str:
    """An SVG that needs no style sheet: each of the page's colours is replaced by its own."""
    return _STYLED.sub(r"\1", drawn)


def write_pictures(drawn: str, stem: Path) -> list[Path]:
    """Write an SVG as ``stem.svg`` and, with the extra `figures`, ``stem.png``, at twice its size, and ``stem.pdf``.

    Returns the files.
    """
    itself = standalone(drawn)
    made: dict[str, bytes] = {".svg": itself.encode()}
    if can_draw():
        import vl_convert  # noqa: PLC0415 - an extra

        made |= {".png": vl_convert.svg_to_png(itself, scale=2), ".pdf": vl_convert.svg_to_pdf(itself)}
    files = [stem.with_name(stem.name + suffix) for suffix in made]
    for file, content in zip(files, made.values(), strict=True):
        file.write_bytes(content)
    return files
