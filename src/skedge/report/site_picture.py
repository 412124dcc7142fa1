"""The sites of a run as SVG, with arrows for the data moved between them.

It contains no script and no font. In a page it uses the colours of the page's style sheet, light or dark; a stand-alone
picture has its own. The ``title`` of an arrow or a site has its numbers; browsers show it under the pointer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from skedge.core.model.cluster import Floats
from skedge.core.model.scenario import Scenario
from skedge.core.record.schedule import Schedule

from .site_flows import Flows, flows
from .site_places import Places, place

ARROWS = 40
"""Most arrows of a picture, those of the most MB."""

_WIDTH, _HEIGHT, _LEGEND, _EDGE = 760.0, 620.0, 104.0, 46.0
_THINNEST, _WIDEST = 1.2, 9.0
_BEND = 0.12
"""Bend of an arrow to the left, as a part of its length, which separates the two directions."""
_GAP, _ROUNDS = 7.0, 100
"""Least distance between the rims of two sites, and the most rounds of moving them apart."""

_COSTS = (("cheap", "--line-1", "#0072b2"), ("middle", "--line-7", "#444444"), ("dear", "--line-2", "#d55e00"))
"""Thirds of the range of the costs of a MB, and their colours, safe for colour-blind readers."""

_DIGITS = 6
"""Digits after the point that positions keep: what processors and libraries calculate differently lies behind them."""

_SITE = "var(--line-3, #008a64)"
_PAPER = "var(--paper, #ffffff)"
_INK = "var(--ink, #1a2129)"
_FAINT = "var(--faint, #59656f)"
_LABEL, _LETTER, _CHARACTERS = 13.0, 8.2, 12
"""Height of a label, width of a letter of it, and most letters."""
_Box = tuple[float, float, float, float]
"""Left, top, right and bottom."""
_CROWD, _CROWD_ROUND = 40, 60
"""Most sites that are all named, in the plane and on a circle; with more, only those at the ends of arrows are."""


def site_picture(scenario: Scenario, schedule: Schedule, widest_mb: float | None = None) -> str:
    """Draw the sites of a run and the data moved between them.

    Sites are drawn at the positions of :func:`~skedge.report.site_places.place`, moved apart if they would overlap;
    their area is the work done there. An arrow is a pair of sites: its width is the MB moved, its colour the cost of a
    MB. Only the :data:`ARROWS` pairs with the most MB have an arrow.

    Parameters
    ----------
    scenario, schedule
        The scenario, and the resulting schedule.
    widest_mb
        MB of the widest arrow, above 0, for pictures that are compared; None: the most of this run.

    Returns
    -------
    An ``svg`` element; "" if the cluster has no sites.
    """
    found = flows(scenario, schedule)
    return "" if found is None else drawn(scenario, found, place(found.cost), widest_mb)


def drawn(scenario: Scenario, found: Flows, places: Places, widest_mb: float | None = None) -> str:
    """Draw given flows at given places, as described in :func:`site_picture`."""
    canvas = _Canvas(found, places, widest_mb or float(found.moved.max(initial=0.0)) or 1.0)
    arrows = [canvas.arrow(*pair) for pair in reversed(found.pairs[:ARROWS])]
    nodes = [canvas.node(i, _tooltip(scenario, found, i)) for i in range(len(found.names))]
    inside = [*arrows, *nodes, *canvas.labels(), *canvas.legend()]
    title = f"{len(found.names)} sites and the data moved between them, {_mb(float(found.moved.sum()))}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" class="sites" '
        f'aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="{_LABEL:.0f}" fill="{_INK}">'
        f"{''.join(inside)}</svg>"
    )


@dataclass
class _Canvas:
    """Maps sites and MB to positions and widths on the drawing."""

    found: Flows
    places: Places
    widest_mb: float

    def __post_init__(self) -> None:
        self.round = self.places.fit is None
        sites, work = len(self.found.names), self.found.work
        letters = max(len(_short(name)) for name in self.found.names) if self.round else 0
        self.at = _fitted(self.places.at, max(_EDGE, 20 + _LETTER * letters))
        rim = 2 * math.pi * float(np.hypot(*(self.at[0] - _centre()))) if self.round and sites > 1 else math.inf
        largest = min(18.0, 110.0 / math.sqrt(sites), 0.45 * rim / sites)
        self.radius = np.maximum(largest * np.sqrt(work / (work.max(initial=0.0) or 1.0)), 3.0)
        if not self.round:
            self.at = _apart(self.at, self.radius)
        self.at = self.at.round(_DIGITS)
        between = self.found.cost[~np.eye(sites, dtype=bool)]
        self.low, self.high = float(between.min(initial=math.inf)), float(between.max(initial=0.0))

    def arrow(self, a: int, b: int) -> str:
        """The data moved from site `a` to site `b`."""
        mb, unit = float(self.found.moved[a, b]), float(self.found.cost[a, b])
        width = max(_WIDEST * min(mb / self.widest_mb, 1.0), _THINNEST)
        names = f"{self.found.names[a]} → {self.found.names[b]}"
        tooltip = f"{names}\n{_mb(mb)} moved at {unit:.4g} a MB: {_cost(mb * unit)}"
        (x0, y0), (x1, y1), (x2, y2) = self._curve(a, b)
        head = min(5.0 + 1.3 * width, 0.7 * math.hypot(x2 - x0, y2 - y0))
        along = _unit(x2 - x1, y2 - y1)
        end = x2 - head * along[0], y2 - head * along[1]
        tip = _head((x2, y2), along, head, 2.5 + 0.85 * width)
        path = f"M{x0:.1f} {y0:.1f}Q{x1:.1f} {y1:.1f} {end[0]:.1f} {end[1]:.1f}"
        return (
            f'<g data-from="{escape(self.found.names[a])}" data-to="{escape(self.found.names[b])}" class="flow" '
            f'opacity="0.8"><title>{escape(tooltip)}</title>'
            f'<path d="{path}" fill="none" stroke="{self._colour(unit)}" stroke-width="{width:.2f}"/>'
            f'<path d="{path}" fill="none" stroke="transparent" stroke-width="{max(width, 8.0):.2f}"/>'
            f'<polygon points="{tip}" fill="{self._colour(unit)}"/></g>'
        )

    def _curve(self, a: int, b: int) -> list[tuple[float, float]]:
        """Begin, bend and end of an arrow, from the rim of one site to that of the other."""
        begin, end = self.at[a], self.at[b]
        across = end - begin
        middle = (begin + end) / 2 + _BEND * np.array([across[1], -across[0]])
        if self.round:
            # Towards the middle, so that it is off the rim; only slightly if the sites are near each other.
            middle += min(0.45, 0.2 + np.hypot(*across) / 900) * (_centre() - middle)
        rims = []
        for i, beyond in ((a, 1.0), (b, 2.0)):
            x, y = _unit(*(middle - self.at[i]))
            rims.append(self.at[i] + (self.radius[i] + beyond) * np.array([x, y]))
        return [(round(float(x), _DIGITS), round(float(y), _DIGITS)) for x, y in (rims[0], middle, rims[1])]

    def _colour(self, unit: float) -> str:
        spread = self.high - self.low
        third = min(int(3 * (unit - self.low) / spread), 2) if spread > 0 else 1
        _, name, value = _COSTS[third]
        return f"var({name}, {value})"

    def node(self, i: int, tooltip: str) -> str:
        """One site."""
        x, y = self.at[i]
        fill = _SITE if self.found.work[i] > 0 else _PAPER
        return (
            f'<g data-site="{escape(self.found.names[i])}"><title>{escape(tooltip)}</title>'
            f"{_disc(x, y, self.radius[i], fill)}</g>"
        )

    def labels(self) -> list[str]:
        """Names of the sites, those between which the most data moved first, as long as there is room."""
        through = self.found.moved.sum(0) + self.found.moved.sum(1)
        order = np.argsort(-through, kind="stable").tolist()
        if len(order) > (_CROWD_ROUND if self.round else _CROWD):
            ends = {i for pair in self.found.pairs[:ARROWS] for i in pair}
            order = [i for i in order if i in ends]
        return self._outside(order) if self.round else self._beside(order)

    def _outside(self, order: Sequence[int]) -> list[str]:
        """Around the circle, each along its radius."""
        made = []
        for i in order:
            x, y = self.at[i] - _centre()
            far = (math.hypot(x, y) + self.radius[i] + 5) / (math.hypot(x, y) or 1.0)
            angle = math.degrees(math.atan2(y, x))
            flipped = abs(angle) > 90
            px, py = _centre() + far * np.array([x, y])
            turned = f'transform="rotate({angle + 180 * flipped:.1f} {px:.1f} {py:.1f})" dominant-baseline="central"'
            made.append(_text(px, py, _short(self.found.names[i]), "end" if flipped else "start", turned))
        return made

    def _beside(self, order: Sequence[int]) -> list[str]:
        """Beside their sites, covering no site, no other name and, if possible, no arrow's head."""
        taken = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(self.at.tolist(), self.radius.tolist(), strict=True)]
        tips = [self._curve(*pair)[2] for pair in self.found.pairs[:ARROWS]]
        heads = [(x - 7, y - 7, x + 7, y + 7) for x, y in tips]
        made = []
        for i in order:
            name = _short(self.found.names[i])
            boxes = [b for b in self._boxes(i, _LETTER * len(name)) if _inside(b) and not _covers(b, taken)]
            box = next((b for b in boxes if not _covers(b, heads)), boxes[0] if boxes else None)
            if box is not None:
                taken.append(box)
                made.append(_text((box[0] + box[2]) / 2, box[3] - 3, name))
        return made

    def _boxes(self, i: int, wide: float) -> list[_Box]:
        """Candidate positions of a site's name: right, left, above or below."""
        (x, y), r = self.at[i], self.radius[i] + 3
        corners = ((x + r, y - 7), (x - r - wide, y - 7), (x - wide / 2, y - r - 13), (x - wide / 2, y + r))
        return [(left, top, left + wide, top + 14) for left, top in corners]

    def legend(self) -> list[str]:
        """The legend of widths, colours and areas: three rows below the picture."""
        y, left = _HEIGHT - _LEGEND + 30, (125.0, 345.0, 575.0)
        rows = [
            _text(8, y + 28 * k + 4, name, "start")
            for k, name in enumerate(("MB moved", "cost of a MB", "sites, work there"))
        ]
        for x, mb in zip(left, _samples(self.widest_mb), strict=True):
            rows += [
                _stroke(x, y, _FAINT, max(_WIDEST * mb / self.widest_mb, _THINNEST)),
                _text(x + 42, y + 4, _mb(mb), "start"),
            ]
        for x, (colour, label) in zip(left, self._thirds(), strict=False):
            rows += [_stroke(x, y + 28, colour, 4), _text(x + 42, y + 32, label, "start")]
        hours = float(self.found.work.max(initial=0.0))
        largest = float(self.radius.max(initial=3.0))
        for x, r, fill, label in (
            (left[0], largest, _SITE, f"{hours:,.4g} worker-hours"),
            (left[1], 4.0, _PAPER, "none"),
        ):
            if fill == _PAPER or hours > 0:
                rows += [_disc(x + 17, y + 56, r, fill), _text(x + 42, y + 60, label, "start")]
        return [f'<path d="M8 {y - 20:.0f}H{_WIDTH - 8:.0f}" stroke="var(--line, #d5dbe1)"/>', *rows]

    def _thirds(self) -> list[tuple[str, str]]:
        """Colours of the costs, and the costs in words; one if all are equal, none if there is one site."""
        if not self.low < self.high:
            return [(self._colour(self.low), f"{self.low:.4g}")] if self.low < math.inf else []
        steps = np.linspace(self.low, self.high, 4)
        ends = zip(_COSTS, steps[:-1], steps[1:], strict=True)
        return [(f"var({name}, {value})", f"{label}: {a:.3g} to {b:.3g}") for (label, name, value), a, b in ends]


def _tooltip(scenario: Scenario, found: Flows, i: int) -> str:
    """The numbers of one site."""
    capacity = ", ".join(f"{amount:g} {name}" for name, amount in scenario.cluster.servers[i].capacity.items())
    here, away = float(found.moved[:, i].sum()), float(found.moved[i].sum())
    return (
        f"{found.names[i]}: {capacity or 'no capacity'}\ndata at first: {_mb(float(found.stored[i]))}\n"
        f"moved here: {_mb(here)}; moved away: {_mb(away)}\n"
        f"held: workers for {found.work[i]:,.4g} h, parameter servers for {found.ps[i]:,.4g} h"
    )


def _fitted(at: Floats, edge: float) -> Floats:
    """Positions on the drawing, with one scale for both axes and a margin of `edge`, shape ``(sites, 2)``."""
    low, high = at.min(0), at.max(0)
    room = np.array([_WIDTH, _HEIGHT - _LEGEND]) - 2 * edge
    with np.errstate(divide="ignore"):
        scale = float((room / (high - low)).min())
    offset = (at - (low + high) / 2) * [1.0, -1.0]
    return _centre() + offset * (scale if math.isfinite(scale) else 0.0)


def _apart(at: Floats, radius: Floats) -> Floats:
    """Move sites until none overlaps another, each by a quarter of the distance that a pair lacks.

    Sites first move by a hundredth, each in its own direction, so that sites in one place or on a line can separate.
    """
    least = radius[:, None] + radius + _GAP
    np.fill_diagonal(least, 0.0)
    turn = 2.4 * np.arange(len(at))
    moved = at + 0.01 * np.column_stack([np.cos(turn), np.sin(turn)])
    for k in range(_ROUNDS):
        across = moved[:, None] - moved
        far = np.hypot(across[..., 0], across[..., 1])
        short = np.maximum(least - far, 0.0)
        if short.max(initial=0.0) < 1.0:
            return moved if k else at
        push = short / np.where(far > 0, far, 1.0) / 4
        moved += (push[..., None] * across).sum(1)
        moved = np.clip(moved, [_EDGE / 2] * 2, [_WIDTH - _EDGE / 2, _HEIGHT - _LEGEND - _EDGE / 2])
    return moved


def _centre() -> Floats:
    return np.array([_WIDTH, _HEIGHT - _LEGEND]) / 2


def _unit(x: float, y: float) -> tuple[float, float]:
    size = math.hypot(x, y) or 1.0
    return x / size, y / size


def _head(tip: tuple[float, float], along: tuple[float, float], length: float, half: float) -> str:
    back = tip[0] - length * along[0], tip[1] - length * along[1]
    side = -along[1] * half, along[0] * half
    points = (tip, (back[0] + side[0], back[1] + side[1]), (back[0] - side[0], back[1] - side[1]))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _samples(widest: float) -> list[float]:
    """Up to three round amounts of MB, none above the widest."""
    size = 10.0 ** math.floor(math.log10(widest))
    first = next(step for step in (5.0, 2.0, 1.0) if step * size <= widest * (1 + 1e-9)) * size
    return [first, first / 2, first / 5]


def _inside(box: _Box) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= _WIDTH and box[3] <= _HEIGHT - _LEGEND + 10


def _covers(a: _Box, others: Sequence[_Box]) -> bool:
    return any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in others)


def _short(name: str) -> str:
    return name if len(name) <= _CHARACTERS else name[: _CHARACTERS - 1] + "…"


def _mb(amount: float) -> str:
    return f"{amount:,.0f} MB" if amount >= 100 else f"{amount:.3g} MB"


def _cost(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 1000 else f"{amount:.4g}"


def _stroke(x: float, y: float, colour: str, width: float) -> str:
    return f'<path d="M{x:.1f} {y:.1f}h34" stroke="{colour}" stroke-width="{width:.2f}"/>'


def _disc(x: float, y: float, radius: float, fill: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{fill}" stroke="{_INK}"/>'


def _text(x: float, y: float, text: str, anchor: str = "middle", more: str = "") -> str:
    halo = f'stroke="{_PAPER}" stroke-width="3" paint-order="stroke" pointer-events="none"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {halo} {more}>{escape(text)}</text>'
