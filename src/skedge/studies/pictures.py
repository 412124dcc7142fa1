"""A figure as PNG and PDF, for documents that take no SVG."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

HINT = "figure.png and figure.pdf need the extra `figures`: pip install 'skedge[figures]'"

_STYLED = re.compile(r"var\(--[\w-]+, ([^)]+)\)")
"""A colour of the page's style sheet, which has none outside a page: its own colour follows."""


def can_draw() -> bool:
    """Whether the extra is installed."""
    return find_spec("vl_convert") is not None


def write_pictures(drawn: str, folder: Path) -> None:
    """Write an SVG as ``figure.png``, at twice its size, and ``figure.pdf``."""
    import vl_convert  # noqa: PLC0415 - an extra

    alone = _STYLED.sub(r"\1", drawn)
    (folder / "figure.png").write_bytes(vl_convert.svg_to_png(alone, scale=2))
    (folder / "figure.pdf").write_bytes(vl_convert.svg_to_pdf(alone))
