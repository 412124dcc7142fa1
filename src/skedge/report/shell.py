"""What the HTML pages share: the report's files, templates, the Gantt chart's section, and pages without a script."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files


def asset(name: str) -> str:
    """A style sheet, script or template of the report, by its name."""
    return files(__package__).joinpath(name).read_text("utf-8")


def fill(template: str, parts: Mapping[str, str]) -> str:
    """`template` with each ``{{name}}`` replaced by the part of that name, as HTML."""
    # One pass over the template, so that inserted text is never searched for names.
    return re.sub(r"\{\{(\w+)\}\}", lambda m: parts[m[1]], template)


def gantt_section(labels: Mapping[str, str]) -> str:
    """The Gantt chart's controls, canvas and help, which ``gantt.js`` finds by their ids.

    Parameters
    ----------
    labels
        Where pages differ: ``choice``, the label of the list of runs; ``group``, the name of the buttons; and
        attributes, with a space before them, of the buttons ``taller`` and ``flatter`` and of the canvas (``chart``).
    """
    return fill(asset("gantt.html"), labels)


def plain_page(title: str, content: str) -> str:
    """A page without a script: `title` is text, `content` HTML, with the styles of the report."""
    text = escape(title)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{text}</title>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{asset('report.css').strip()}</style></head>"
        f"<body><h1>{text}</h1><main>{content}</main></body></html>\n"
    )
