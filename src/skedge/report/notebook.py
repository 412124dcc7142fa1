"""Tables and charts as the HTML that Jupyter shows: no script, no network."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .pictures import HINT, can_draw
from .plots import Plot
from .table import ReportTable, table_view


def displayed(title: str, table: ReportTable, plots: Sequence[Plot], note: str = "") -> str:
    """A title, a table, a note and charts; the charts need the extra `figures`, and a line says so where it lacks.

    The row of a table that has only one stands upright.
    """
    view = table_view(table)
    body = _upright(view) if len(view["rows"]) == 1 else _lying(view)
    charts = "".join(map(_picture, plots)) if can_draw() else f"<p>{escape(HINT.replace('PNG and PDF', 'charts'))}</p>"
    said = f"<p>{escape(note)}</p>" if note else ""
    return (
        f'<div><p><strong>{escape(title)}</strong></p><div style="overflow-x:auto"><table>{body}</table></div>'
        f"{said}{charts}</div>"
    )


def _title(column: Mapping[str, Any]) -> str:
    unit = f" [{column['unit']}]" if column["unit"] else ""
    return f'<th scope="col">{escape(column["title"] + unit)}</th>'


def _cell(cell: Mapping[str, Any]) -> str:
    between = f"<br><small>{escape(cell['interval'])}</small>" if "interval" in cell else ""
    return f"<td>{'★ ' if cell.get('best') else ''}{escape(cell['text'])}{between}</td>"


def _lying(view: Mapping[str, Any]) -> str:
    head = "".join(map(_title, view["columns"]))
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in view["rows"])
    return f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"


def _upright(view: Mapping[str, Any]) -> str:
    pairs = zip(view["columns"], view["rows"][0], strict=True)
    return f"<tbody>{''.join(f'<tr>{_title(column)}{_cell(cell)}</tr>' for column, cell in pairs)}</tbody>"


def _picture(plot: Plot) -> str:
    """The chart as an image, whose names cannot clash with those of another."""
    drawn = base64.b64encode(plot.svg().encode()).decode("ascii")
    return f'<p><img alt="{escape(plot.spec["title"]["text"])}" src="data:image/svg+xml;base64,{drawn}"></p>'
