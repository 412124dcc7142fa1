"""A figure as SVG: lines over x with the intervals of their points.

It contains no script and no font. In a page it uses the colours of the page's style sheet, light or dark; a stand-alone
figure has its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from skedge.analysis.intervals import Estimate
from skedge.report.palette import COLOURS, dash_of

_GUIDE_COLOUR = "var(--faint, #59656f)"
_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 20, 90
_LEGEND_COLUMNS, _LEGEND_ROW = 4, 22
"""Labels in a row of the legend, and a row's height."""

_TICK_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Line:
    """A line of a figure.

    Attributes
    ----------
    values
        Value at each of `x`, with its interval if there is one.
    joined
        False: points without a line.
    """

    label: str
    x: tuple[float, ...]
    values: tuple[Estimate, ...]
    joined: bool = True


@dataclass(frozen=True)
class Figure:
    """Lines on common axes.

    Attributes
    ----------
    x, y
        Titles of the axes, with units.
    names
        Labels of the numbers 0, 1, ... on the x axis, if it is categorical.
    guides
        Values of y marked by a horizontal line, each with its label.
    limits
        Limits of y, if any; intervals are cut there.
    """

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    names: tuple[str, ...] = ()
    guides: tuple[tuple[float, str], ...] = ()
    limits: tuple[float, float] | None = None


@dataclass(frozen=True)
class _Frame:
    """Maps values to positions on the drawing."""

    x: tuple[float, float]
    y: tuple[float, float]

    def position(self, x: float, y: float) -> tuple[float, float]:
        x_share = (x - self.x[0]) / (self.x[1] - self.x[0])
        # intervals that go beyond the limits of y are cut there
        y_share = (min(max(y, self.y[0]), self.y[1]) - self.y[0]) / (self.y[1] - self.y[0])
        return _LEFT + x_share * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - y_share * (_HEIGHT - _TOP - _BOTTOM)


def svg(figure: Figure) -> str:
    """Draw `figure`."""
    frame = _frame(figure)
    elements = [*_axes(figure, frame), *_guides(figure, frame)]
    for i, line in enumerate(figure.lines):
        elements += [*_draw_line(line, i, frame), *_legend(line, i, min(len(figure.lines), _LEGEND_COLUMNS))]
    height = _HEIGHT + _LEGEND_ROW * ((len(figure.lines) - 1) // _LEGEND_COLUMNS)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="var(--ink, #1a2129)">'
        f"<title>{escape(figure.title)}</title>{''.join(elements)}</svg>"
    )


def ticks(low: float, high: float, max_ticks: int = 7, *, integers: bool = False) -> list[float]:
    """Round values at even steps.

    Parameters
    ----------
    low, high
        Ends of the axis, ``low < high``.
    max_ticks
        Most ticks, at least 2.
    integers
        True: integers only.
    """
    raw = max((high - low) / (max_ticks - 1), 1.0 if integers else 0.0)
    size = 10.0 ** math.floor(math.log10(raw))
    steps = (size * s for s in _TICK_STEPS if not integers or (size * s).is_integer())
    # 1e-9: a step that is the raw one but for rounding counts
    step = next(step for step in steps if step >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _frame(figure: Figure) -> _Frame:
    # a margin beside the outermost points, so that none lies on the frame; one x alone has no width to take it from
    xs = [x for line in figure.lines for x in line.x] or [0.0]
    margin = 0.5 if figure.names else 0.04 * (max(xs) - min(xs)) or 0.5
    return _Frame((min(xs) - margin, max(xs) + margin), figure.limits or _extent(figure))


def _extent(figure: Figure) -> tuple[float, float]:
    """The range of all values and 0, with a margin."""
    # from 0, so that lengths are comparable; intervals and guides must be visible, too
    ends = [end for line in figure.lines for v in line.values for end in (v.mean, v.low, v.high) if end is not None]
    ends += [y for y, _ in figure.guides]
    low, high = min(0.0, *ends), max(0.0, *ends)
    room = 0.06 * (high - low) or 1.0
    return low - (room if low < 0 else 0.0), high + room


def _axes(figure: Figure, frame: _Frame) -> list[str]:
    bottom = frame.y[0]
    marks = [(float(i), name) for i, name in enumerate(figure.names)] or [(x, f"{x:g}") for x in _x_ticks(figure)]
    middle = (_HEIGHT - _BOTTOM + _TOP) / 2
    # the y axis has grid lines, the x axis marks alone
    elements = []
    for y in ticks(*frame.y):
        (x0, y_px), (x1, _) = frame.position(frame.x[0], y), frame.position(frame.x[1], y)
        elements.append(_path([(x0, y_px), (x1, y_px)], "var(--grid, #e6eaee)", 1))
        elements.append(_text(x0 - 8, y_px + 4, f"{y:g}", "end"))
    for x, name in marks:
        x_px, y_px = frame.position(x, bottom)
        elements += [_path([(x_px, y_px), (x_px, y_px + 5)], "var(--ink, #1a2129)", 1), _text(x_px, y_px + 20, name)]
    elements.append(_text((_WIDTH + _LEFT - _RIGHT) / 2, _HEIGHT - _BOTTOM + 42, figure.x))
    elements.append(
        f'<text x="18" y="{middle:.1f}" text-anchor="middle" transform="rotate(-90 18 {middle:.1f})">'
        f"{escape(figure.y)}</text>"
    )
    return elements


def _x_ticks(figure: Figure) -> Sequence[float]:
    """Ticks of the x axis: at the points if they are few, else at round values."""
    # few values are the study's own settings; many are samples of a continuous field
    xs = sorted({x for line in figure.lines for x in line.x})
    return xs if len(xs) <= 8 else ticks(xs[0], xs[-1], 10, integers=all(x.is_integer() for x in xs))


def _guides(figure: Figure, frame: _Frame) -> list[str]:
    elements = []
    for y, label in figure.guides:
        left, right = (frame.position(x, y) for x in frame.x)
        elements += [
            _path([left, right], _GUIDE_COLOUR, 1, "2 4"),
            _text(right[0] - 4, right[1] - 5, label, "end", _GUIDE_COLOUR),
        ]
    return elements


def _draw_line(line: Line, i: int, frame: _Frame) -> list[str]:
    """One line: its points, intervals and connecting line, in a group that can be found by its label."""
    colour = _colour(i)
    # the line first: points and intervals lie on top of it
    means = [frame.position(x, v.mean) for x, v in zip(line.x, line.values, strict=True)]
    elements = [_path(means, colour, 2, _dash(i))] if line.joined and len(means) > 1 else []
    for x, value in zip(line.x, line.values, strict=True):
        if value.low is not None and value.high is not None:
            elements.append(_path([frame.position(x, value.low), frame.position(x, value.high)], colour, 1))
    elements += [_point(*place, colour) for place in means]
    return [f'<g data-line="{escape(line.label)}">', *elements, "</g>"]


def _legend(line: Line, i: int, columns: int) -> list[str]:
    row, column = divmod(i, columns)
    x = _LEFT + column * (_WIDTH - _LEFT - _RIGHT) / columns
    y = _HEIGHT - 16 + _LEGEND_ROW * row
    mark = _path([(x, y - 4), (x + 26, y - 4)], _colour(i), 2, _dash(i))
    return [mark if line.joined else _point(x + 13, y - 4, _colour(i)), _text(x + 32, y, line.label, "start")]


def _colour(i: int) -> str:
    return f"var(--line-{i % len(COLOURS) + 1}, {COLOURS[i % len(COLOURS)]})"


def _dash(i: int) -> str:
    return " ".join(map(str, dash_of(i)))


def _point(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'


def _path(places: Sequence[tuple[float, float]], colour: str, width: float, dash: str = "") -> str:
    steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{steps}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>'


def _text(x: float, y: float, text: str, anchor: str = "middle", colour: str = "") -> str:
    fill = f' fill="{colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{fill}>{escape(text)}</text>'
