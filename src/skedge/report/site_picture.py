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
    site_flows = flows(scenario, schedule)
    return "" if site_flows is None else draw_flows(scenario, site_flows, place(site_flows.cost), widest_mb)


def draw_flows(scenario: Scenario, flows: Flows, places: Places, widest_mb: float | None = None) -> str:
    """Draw flows between sites at their places, as described in :func:`site_picture`.

    Parameters
    ----------
    scenario
        Its servers' capacities are shown under the pointer.
    flows, places
        Those of the record, and those of its costs.
    widest_mb
        As for :func:`site_picture`.
    """
    canvas = _Canvas(flows, places, widest_mb or float(flows.moved_mb.max(initial=0.0)) or 1.0)
    # Backwards: what is drawn later covers what is drawn before, and the widest arrows are to be on top.
    arrows = [canvas.arrow(*pair) for pair in reversed(flows.pairs[:ARROWS])]
    nodes = [canvas.node(i, _tooltip(scenario, flows, i)) for i in range(len(flows.names))]
    elements = [*arrows, *nodes, *canvas.labels(), *canvas.legend()]
    title = f"{len(flows.names)} sites and the data moved between them, {_mb(float(flows.moved_mb.sum()))}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" class="sites" '
        f'aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="{_LABEL:.0f}" fill="{_INK}">'
        f"{''.join(elements)}</svg>"
    )


@dataclass
class _Canvas:
    """Maps sites and MB to positions and widths on the drawing."""

    flows: Flows
    places: Places
    widest_mb: float

    def __post_init__(self) -> None:
        self.is_circle = self.places.fit is None
        sites, work = len(self.flows.names), self.flows.worker_hours
        # Around a circle names stand outside, so that the margin must hold the longest; in the plane they find a gap.
        letters = max(len(_short_name(name)) for name in self.flows.names) if self.is_circle else 0
        self.xy = _fit_to_canvas(self.places.xy, max(_EDGE, 20 + _LETTER * letters))
        rim = 2 * math.pi * float(np.hypot(*(self.xy[0] - _centre()))) if self.is_circle and sites > 1 else math.inf
        # Of three limits the least: easy to read, not too much of the picture for many sites, and no overlap on a
        # circle.
        largest = min(18.0, 110.0 / math.sqrt(sites), 0.45 * rim / sites)
        # Areas are compared, not radii: hence the root. 3.0 keeps a site without work visible.
        self.radius = np.maximum(largest * np.sqrt(work / (work.max(initial=0.0) or 1.0)), 3.0)
        if not self.is_circle:
            self.xy = _separate(self.xy, self.radius)
        # After this all coordinates are decimals, so that the same record gives the same bytes on all machines.
        self.xy = self.xy.round(_DIGITS)
        pair_costs = self.flows.cost[~np.eye(sites, dtype=bool)]
        self.low, self.high = float(pair_costs.min(initial=math.inf)), float(pair_costs.max(initial=0.0))

    def arrow(self, a: int, b: int) -> str:
        """The arrow of the data moved from site `a` to site `b`."""
        mb, cost_per_mb = float(self.flows.moved_mb[a, b]), float(self.flows.cost[a, b])
        width = max(_WIDEST * min(mb / self.widest_mb, 1.0), _THINNEST)
        names = f"{self.flows.names[a]} → {self.flows.names[b]}"
        tooltip = f"{names}\n{_mb(mb)} moved at {cost_per_mb:.4g} a MB: {_cost(mb * cost_per_mb)}"
        # A quadratic Bézier curve; it ends with the direction from its control point, which the head continues.
        (x0, y0), (x1, y1), (x2, y2) = self._curve(a, b)
        head = min(5.0 + 1.3 * width, 0.7 * math.hypot(x2 - x0, y2 - y0))
        direction = _unit(x2 - x1, y2 - y1)
        # The line stops where the head begins: a wide line would show beside the head's point.
        end = x2 - head * direction[0], y2 - head * direction[1]
        tip = _head((x2, y2), direction, head, 2.5 + 0.85 * width)
        path = f"M{x0:.1f} {y0:.1f}Q{x1:.1f} {y1:.1f} {end[0]:.1f} {end[1]:.1f}"
        return (
            f'<g data-from="{escape(self.flows.names[a])}" data-to="{escape(self.flows.names[b])}" class="flow" '
            f'opacity="0.8"><title>{escape(tooltip)}</title>'
            f'<path d="{path}" fill="none" stroke="{self._colour(cost_per_mb)}" stroke-width="{width:.2f}"/>'
            # Transparent and at least 8 wide: thin arrows are hard to point at.
            f'<path d="{path}" fill="none" stroke="transparent" stroke-width="{max(width, 8.0):.2f}"/>'
            f'<polygon points="{tip}" fill="{self._colour(cost_per_mb)}"/></g>'
        )

    def _curve(self, a: int, b: int) -> list[tuple[float, float]]:
        """Begin, bend and end of an arrow, from the rim of one site to that of the other."""
        start, end = self.xy[a], self.xy[b]
        delta = end - start
        # A quarter turn of the difference: to the left, seen along the arrow, so that a -> b and b -> a part.
        middle = (start + end) / 2 + _BEND * np.array([delta[1], -delta[0]])
        if self.is_circle:
            # Towards the middle, so that it is off the rim; only slightly if the sites are near each other.
            middle += min(0.45, 0.2 + np.hypot(*delta) / 900) * (_centre() - middle)
        rims = []
        for i, gap in ((a, 1.0), (b, 2.0)):
            x, y = _unit(*(middle - self.xy[i]))
            rims.append(self.xy[i] + (self.radius[i] + gap) * np.array([x, y]))
        return [(round(float(x), _DIGITS), round(float(y), _DIGITS)) for x, y in (rims[0], middle, rims[1])]

    def _colour(self, cost_per_mb: float) -> str:
        spread = self.high - self.low
        # The highest cost is at the end of the last third, not in a fourth.
        third = min(int(3 * (cost_per_mb - self.low) / spread), 2) if spread > 0 else 1
        _, name, value = _COSTS[third]
        return f"var({name}, {value})"

    def node(self, i: int, tooltip: str) -> str:
        """A site: its disc, with its numbers under the pointer."""
        x, y = self.xy[i]
        fill = _SITE if self.flows.worker_hours[i] > 0 else _PAPER
        return (
            f'<g data-site="{escape(self.flows.names[i])}"><title>{escape(tooltip)}</title>'
            f"{_disc(x, y, self.radius[i], fill)}</g>"
        )

    def labels(self) -> list[str]:
        """Names of the sites, those between which the most data moved first, as long as there is room."""
        traffic = self.flows.moved_mb.sum(0) + self.flows.moved_mb.sum(1)
        order = np.argsort(-traffic, kind="stable").tolist()
        if len(order) > (_CROWD_ROUND if self.is_circle else _CROWD):
            ends = {i for pair in self.flows.pairs[:ARROWS] for i in pair}
            order = [i for i in order if i in ends]
        return self._radial_labels(order) if self.is_circle else self._side_labels(order)

    def _radial_labels(self, order: Sequence[int]) -> list[str]:
        """Names around the circle, each along its radius."""
        texts = []
        for i in order:
            x, y = self.xy[i] - _centre()
            scale = (math.hypot(x, y) + self.radius[i] + 5) / (math.hypot(x, y) or 1.0)
            angle = math.degrees(math.atan2(y, x))
            # On the left half a name would stand on its head: it is turned around and ends at its site.
            flipped = abs(angle) > 90
            px, py = _centre() + scale * np.array([x, y])
            attributes = (
                f'transform="rotate({angle + 180 * flipped:.1f} {px:.1f} {py:.1f})" dominant-baseline="central"'
            )
            texts.append(_text(px, py, _short_name(self.flows.names[i]), "end" if flipped else "start", attributes))
        return texts

    def _side_labels(self, order: Sequence[int]) -> list[str]:
        """Names beside their sites; they cover no site, no other name and, if possible, no arrow's head."""
        occupied = [
            (x - r, y - r, x + r, y + r) for (x, y), r in zip(self.xy.tolist(), self.radius.tolist(), strict=True)
        ]
        tips = [self._curve(*pair)[2] for pair in self.flows.pairs[:ARROWS]]
        heads = [(x - 7, y - 7, x + 7, y + 7) for x, y in tips]
        texts = []
        for i in order:
            name = _short_name(self.flows.names[i])
            # No name rather than one that covers another: the pointer shows it.
            boxes = [b for b in self._boxes(i, _LETTER * len(name)) if _inside(b) and not _overlaps(b, occupied)]
            box = next((b for b in boxes if not _overlaps(b, heads)), boxes[0] if boxes else None)
            if box is not None:
                occupied.append(box)
                # 3 above the lower edge: the letters stand on a base line.
                texts.append(_text((box[0] + box[2]) / 2, box[3] - 3, name))
        return texts

    def _boxes(self, i: int, width: float) -> list[_Box]:
        """Candidate positions of a site's name: right, left, above or below."""
        (x, y), r = self.xy[i], self.radius[i] + 3
        corners = ((x + r, y - 7), (x - r - width, y - 7), (x - width / 2, y - r - 13), (x - width / 2, y + r))
        return [(left, top, left + width, top + 14) for left, top in corners]

    def legend(self) -> list[str]:
        """The legend of widths, colours and areas: three rows below the picture."""
        y, column_x = _HEIGHT - _LEGEND + 30, (125.0, 345.0, 575.0)
        rows = [
            _text(8, y + 28 * k + 4, name, "start")
            for k, name in enumerate(("MB moved", "cost of a MB", "sites, work there"))
        ]
        for x, mb in zip(column_x, _samples(self.widest_mb), strict=True):
            rows += [
                _stroke(x, y, _FAINT, max(_WIDEST * mb / self.widest_mb, _THINNEST)),
                _text(x + 42, y + 4, _mb(mb), "start"),
            ]
        for x, (colour, label) in zip(column_x, self._thirds(), strict=False):
            rows += [_stroke(x, y + 28, colour, 4), _text(x + 42, y + 32, label, "start")]
        hours = float(self.flows.worker_hours.max(initial=0.0))
        largest = float(self.radius.max(initial=3.0))
        for x, r, fill, label in (
            (column_x[0], largest, _SITE, f"{hours:,.4g} worker-hours"),
            (column_x[1], 4.0, _PAPER, "none"),
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


def _tooltip(scenario: Scenario, flows: Flows, i: int) -> str:
    """The numbers of one site."""
    capacity = ", ".join(f"{amount:g} {name}" for name, amount in scenario.cluster.servers[i].capacity.items())
    inbound_mb, outbound_mb = float(flows.moved_mb[:, i].sum()), float(flows.moved_mb[i].sum())
    return (
        f"{flows.names[i]}: {capacity or 'no capacity'}\ndata at first: {_mb(float(flows.stored_mb[i]))}\n"
        f"moved here: {_mb(inbound_mb)}; moved away: {_mb(outbound_mb)}\n"
        f"held: workers for {flows.worker_hours[i]:,.4g} h, parameter servers for {flows.ps_hours[i]:,.4g} h"
    )


def _fit_to_canvas(xy: Floats, edge: float) -> Floats:
    """Positions on the drawing, with one scale for both axes and a margin of `edge`, shape ``(sites, 2)``."""
    low, high = xy.min(0), xy.max(0)
    room = np.array([_WIDTH, _HEIGHT - _LEGEND]) - 2 * edge
    # All sites in one column, or in one place, have a range of 0: that axis sets no limit.
    with np.errstate(divide="ignore"):
        scale = float((room / (high - low)).min())
    # y grows downwards in SVG and upwards in `Places`.
    offset = (xy - (low + high) / 2) * [1.0, -1.0]
    return _centre() + offset * (scale if math.isfinite(scale) else 0.0)


def _separate(xy: Floats, radius: Floats) -> Floats:
    """Move sites until none overlaps another, each by a quarter of the distance that a pair lacks.

    Sites first move by a hundredth, each in its own direction, so that sites in one place or on a line can separate.
    """
    min_distance = radius[:, None] + radius + _GAP
    np.fill_diagonal(min_distance, 0.0)
    angle = 2.4 * np.arange(len(xy))
    # 2.4 radians, about the golden angle: no two of the first sites get nearly the same direction.
    positions = xy + 0.01 * np.column_stack([np.cos(angle), np.sin(angle)])
    for k in range(_ROUNDS):
        delta = positions[:, None] - positions
        distance = np.hypot(delta[..., 0], delta[..., 1])
        overlap = np.maximum(min_distance - distance, 0.0)
        # In the first round unmoved places are returned: the hundredth is only needed if something overlaps.
        if overlap.max(initial=0.0) < 1.0:
            return positions if k else xy
        # A quarter to each of the two per round: with many neighbours, half would move sites to and fro.
        push = overlap / np.where(distance > 0, distance, 1.0) / 4
        positions += (push[..., None] * delta).sum(1)
        # Pushed sites stay in the picture; what they then overlap is pushed in the next round.
        positions = np.clip(positions, [_EDGE / 2] * 2, [_WIDTH - _EDGE / 2, _HEIGHT - _LEGEND - _EDGE / 2])
    return positions


def _centre() -> Floats:
    return np.array([_WIDTH, _HEIGHT - _LEGEND]) / 2


def _unit(x: float, y: float) -> tuple[float, float]:
    size = math.hypot(x, y) or 1.0
    return x / size, y / size


def _head(tip: tuple[float, float], direction: tuple[float, float], length: float, half: float) -> str:
    back = tip[0] - length * direction[0], tip[1] - length * direction[1]
    side = -direction[1] * half, direction[0] * half
    points = (tip, (back[0] + side[0], back[1] + side[1]), (back[0] - side[0], back[1] - side[1]))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _samples(widest: float) -> list[float]:
    """Up to three round amounts of MB, none above the widest."""
    size = 10.0 ** math.floor(math.log10(widest))
    # 1e-9: if the logarithm was rounded up to a whole one, the power of ten itself must still be found.
    first = next(step for step in (5.0, 2.0, 1.0) if step * size <= widest * (1 + 1e-9)) * size
    return [first, first / 2, first / 5]


def _inside(box: _Box) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= _WIDTH and box[3] <= _HEIGHT - _LEGEND + 10


def _overlaps(box: _Box, boxes: Sequence[_Box]) -> bool:
    return any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in boxes)


def _short_name(name: str) -> str:
    return name if len(name) <= _CHARACTERS else name[: _CHARACTERS - 1] + "…"


def _mb(amount: float) -> str:
    return f"{amount:,.0f} MB" if amount >= 100 else f"{amount:.3g} MB"


def _cost(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 1000 else f"{amount:.4g}"


def _stroke(x: float, y: float, colour: str, width: float) -> str:
    return f'<path d="M{x:.1f} {y:.1f}h34" stroke="{colour}" stroke-width="{width:.2f}"/>'


def _disc(x: float, y: float, radius: float, fill: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{fill}" stroke="{_INK}"/>'


def _text(x: float, y: float, text: str, anchor: str = "middle", attributes: str = "") -> str:
    # A rim in the colour of the paper, drawn below the letters: names stay legible on arrows. Without pointer events
    # they do not cover the tooltips below.
    halo = f'stroke="{_PAPER}" stroke-width="3" paint-order="stroke" pointer-events="none"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {halo} {attributes}>{escape(text)}</text>'
