"""The report's section on sites: for each run a picture, and a table of the pairs with the most data moved."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from skedge.core.model.scenario import Scenario
from skedge.core.record.schedule import Schedule

from .site_flows import Flows, flows
from .site_picture import ARROWS, drawn
from .site_places import Places, place

ROWS = 12
"""Most pairs in the table."""

_HINT = (
    "An arrow is a pair of sites, its width the MB moved, on one scale for all policies; its colour is the cost of a "
    "MB. The pointer shows the numbers of a site or an arrow. The exchange of parameters is not drawn."
)


def site_section(runs: Sequence[tuple[str, Scenario, Schedule]]) -> str:
    """Make the section as HTML for the runs (label, scenario, schedule) at sites; "" if there is none."""
    found = [(label, scenario, flows(scenario, schedule)) for label, scenario, schedule in runs]
    at_sites = [(label, scenario, sums) for label, scenario, sums in found if sums is not None]
    if not at_sites:
        return ""
    widest = max(float(sums.moved.max(initial=0.0)) for _, _, sums in at_sites)
    views = [_view(*run, widest, shown=i == 0) for i, run in enumerate(at_sites)]
    return (
        '<section aria-labelledby="sites-title"><h2 id="sites-title">Sites and the data moved between them</h2>'
        f'<p class="hint">{escape(_HINT)}</p>{"".join(views)}</section>'
    )


def _view(label: str, scenario: Scenario, sums: Flows, widest: float, *, shown: bool) -> str:
    moved, places = float(sums.moved.sum()), place(sums.cost)
    text = f"{moved:,.0f} MB moved between {len(sums.pairs):,} pairs of sites, for a cost of {sums.total_cost:,.2f}"
    return (
        f'<details class="flows"{" open" if shown else ""}>'
        f"<summary><strong>{escape(label)}</strong>: {text}</summary>"
        f'<div class="beside"><div>{drawn(scenario, sums, places, widest or None)}'
        f'<p class="hint">{_caption(sums, places)}</p></div>{_table(sums)}</div></details>'
    )


def _caption(sums: Flows, places: Places) -> str:
    """Text on the meaning of distance, and on what is left out."""
    if places.fit is None:
        text = "On a circle, in their order: these costs are no distances in a plane."
    else:
        above = f" above the least, {places.less:.3g}" if places.less else ""
        text = f"Distance stands for the cost of a MB{above}; the plane holds {places.fit:.0%} of it. "
        text += "Sites that would cover each other are moved apart."
    pairs = sums.pairs
    if len(pairs) > ARROWS:
        share = sums.share(pairs[:ARROWS])
        text += (
            f" Arrows: the {ARROWS} pairs of the most MB, of {len(pairs):,}; they have {share:.0%} of what was moved."
        )
    return text


def _table(sums: Flows) -> str:
    pairs = sums.pairs
    if not pairs:
        return "<p>No data were moved.</p>"
    heads = (("from", ""), ("to", ""), ("MB", "number"), ("cost of a MB", "number"), ("cost", "number"))
    top = "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in heads)
    left = pairs[ROWS:]
    last = [f"{len(left):,} other pairs", *_sums(sums, left)] if left else None
    foot = "" if last is None else f'<tfoot><tr><th colspan="2">{last[0]}</th>{_numbers(last[1:])}</tr></tfoot>'
    return (
        f'<div class="scroll"><table class="plain"><caption>Pairs with the most data moved</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{''.join(_row(sums, pair) for pair in pairs[:ROWS])}</tbody>"
        f"{foot}</table></div>"
    )


def _row(sums: Flows, pair: tuple[int, int]) -> str:
    source, target = (escape(sums.names[i]) for i in pair)
    return f"<tr><td>{source}</td><td>{target}</td>{_numbers(_sums(sums, [pair]))}</tr>"


def _sums(sums: Flows, pairs: Sequence[tuple[int, int]]) -> list[str]:
    """MB, cost of a MB, and cost, of `pairs` together."""
    moved = sum(float(sums.moved[pair]) for pair in pairs)
    cost = sum(float(sums.moved[pair] * sums.cost[pair]) for pair in pairs)
    return [f"{moved:,.1f}", f"{cost / moved:.4f}", f"{cost:,.2f}"]


def _numbers(cells: Sequence[str]) -> str:
    return "".join(f'<td class="number">{cell}</td>' for cell in cells)
