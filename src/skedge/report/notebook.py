"""Tables and charts as the HTML that Jupyter shows: no script, no network."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .pictures import HINT, can_draw
from .plots import Plot
from .table import ReportTable, table_view


def notebook_html(title: str, table: ReportTable, plots: Sequence[Plot], note: str = "") -> str:
    """A title, a table, a note and charts, as HTML.

    Parameters
    ----------
    title, note
        Plain text; an empty note is left out.
    table
        With one row it is shown transposed.
    plots
        They need the extra `figures`; without it a line says so.
    """
    view = table_view(table)
    # One row of twenty columns is wider than a notebook.
    body = _transposed_row(view) if len(view["rows"]) == 1 else _table(view)
    charts = "".join(map(_picture, plots)) if can_draw() else f"<p>{escape(HINT.replace('PNG and PDF', 'charts'))}</p>"
    note_html = f"<p>{escape(note)}</p>" if note else ""
    return (
        f'<div><p><strong>{escape(title)}</strong></p><div style="overflow-x:auto"><table>{body}</table></div>'
        f"{note_html}{charts}</div>"
    )


def _title(column: Mapping[str, Any]) -> str:
    unit = f" [{column['unit']}]" if column["unit"] else ""
    return f'<th scope="col">{escape(column["title"] + unit)}</th>'


def _cell(cell: Mapping[str, Any]) -> str:
    interval = f"<br><small>{escape(cell['interval'])}</small>" if "interval" in cell else ""
    return f"<td>{'★ ' if cell.get('best') else ''}{escape(cell['text'])}{interval}</td>"


def _table(view: Mapping[str, Any]) -> str:
    head = "".join(map(_title, view["columns"]))
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in view["rows"])
    return f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"


def _transposed_row(view: Mapping[str, Any]) -> str:
    pairs = zip(view["columns"], view["rows"][0], strict=True)
    return f"<tbody>{''.join(f'<tr>{_title(column)}{_cell(cell)}</tr>' for column, cell in pairs)}</tbody>"


def _picture(plot: Plot) -> str:
    """The chart as an image, whose names cannot clash with those of another."""
    encoded = base64.b64encode(plot.svg().encode()).decode("ascii")
    return f'<p><img alt="{escape(plot.spec["title"]["text"])}" src="data:image/svg+xml;base64,{encoded}"></p>'
