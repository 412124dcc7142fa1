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


def standalone(svg: str) -> str:
    """An SVG that needs no style sheet: each of the page's colours is replaced by its own."""
    return _STYLED.sub(r"\1", svg)


def write_pictures(svg: str, stem: Path) -> list[Path]:
    """Write an SVG as ``stem.svg`` and, with the extra `figures`, ``stem.png``, at twice its size, and ``stem.pdf``.

    Returns the files.
    """
    plain_svg = standalone(svg)
    contents: dict[str, bytes] = {".svg": plain_svg.encode()}
    if can_draw():
        import vl_convert  # noqa: PLC0415 - an extra

        contents |= {".png": vl_convert.svg_to_png(plain_svg, scale=2), ".pdf": vl_convert.svg_to_pdf(plain_svg)}
    files = [stem.with_name(stem.name + suffix) for suffix in contents]
    for file, content in zip(files, contents.values(), strict=True):
        file.write_bytes(content)
    return files
