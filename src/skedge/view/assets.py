"""The files of the page, by the names under which they are served: its own, and those that it has from the report."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from skedge.report.shell import asset, fill, gantt_section

PAGE = "index.html"

OWN = ("view.css", "view.js", "ask.js", "svg.js", "jobs.js", "why.js", "training.js", "map.js", "compare.js")
"""Its own, in ``page/``; the scripts are ES modules."""

SHARED = (
    "uPlot.min.css", "report.css", "uPlot.iife.min.js", "format.js", "charts.js", "gantt_draw.js", "gantt_input.js",
    "gantt.js", "comparison.js", "explorer.js",
)  # fmt: skip
"""The report's."""

_GANTT_LABELS = {"choice": "Run", "group": "Zoom", "taller": "", "flatter": "", "chart": ' aria-label="Gantt chart"'}

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Sent with every file: nothing that is not the page's own is loaded, run or asked."""


@cache
def page_file(name: str) -> tuple[str, str] | None:
    """Content type and text of a file of the page; None if it has no such file."""
    # By lists, not by path: nothing that a request names reaches the file system.
    if name in SHARED:
        text = asset(f"vendor/{name}" if name.startswith("uPlot") else name)
    elif name == PAGE or name in OWN:
        text = files(__package__).joinpath("page", name).read_text("utf-8")
        if name == PAGE:
            text = fill(text, {"gantt": gantt_section(_GANTT_LABELS)})
    else:
        return None
    return f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8", text
