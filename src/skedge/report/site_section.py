"""The report's section on sites: for each run a picture, and a table of the pairs with the most data moved."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from skedge.core.model.scenario import Scenario
from skedge.core.record.schedule import Schedule

from .site_flows import Flows, flows
from .site_picture import ARROWS, draw_flows
from .site_places import Places, place

ROWS = 12
"""Most pairs in the table."""

_HINT = (
    "An arrow is a pair of sites, its width the MB moved, on one scale for all policies; its colour is the cost of a "
    "MB. The pointer shows the numbers of a site or an arrow. The exchange of parameters is not drawn."
)


def site_section(runs: Sequence[tuple[str, Scenario, Schedule]]) -> str:
    """Make the section as HTML for the runs (label, scenario, schedule) at sites; "" if there is none."""
    runs_and_flows = [(label, scenario, flows(scenario, schedule)) for label, scenario, schedule in runs]
    at_sites = [(label, scenario, sums) for label, scenario, sums in runs_and_flows if sums is not None]
    if not at_sites:
        return ""
    # One scale for all policies: widths are to be compared between the pictures.
    widest = max(float(sums.moved_mb.max(initial=0.0)) for _, _, sums in at_sites)
    views = [_view(*run, widest, is_open=i == 0) for i, run in enumerate(at_sites)]
    return (
        '<section aria-labelledby="sites-title"><h2 id="sites-title">Sites and the data moved between them</h2>'
        f'<p class="hint">{escape(_HINT)}</p>{"".join(views)}</section>'
    )


def _view(label: str, scenario: Scenario, sums: Flows, widest: float, *, is_open: bool) -> str:
    total_mb, places = float(sums.moved_mb.sum()), place(sums.cost)
    text = f"{total_mb:,.0f} MB moved between {len(sums.pairs):,} pairs of sites, for a cost of {sums.total_cost:,.2f}"
    return (
        f'<details class="flows"{" open" if is_open else ""}>'
        f"<summary><strong>{escape(label)}</strong>: {text}</summary>"
        f'<div class="beside"><div>{draw_flows(scenario, sums, places, widest or None)}'
        f'<p class="hint">{_caption(sums, places)}</p></div>{_table(sums)}</div></details>'
    )


def _caption(sums: Flows, places: Places) -> str:
    """Text on the meaning of distance, and on what is left out."""
    if places.fit is None:
        text = "On a circle, in their order: these costs are no distances in a plane."
    else:
        above = f" above the least, {places.cost_offset:.3g}" if places.cost_offset else ""
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
    rest = pairs[ROWS:]
    last = [f"{len(rest):,} other pairs", *_sums(sums, rest)] if rest else None
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
    mb = sum(float(sums.moved_mb[pair]) for pair in pairs)
    cost = sum(float(sums.moved_mb[pair] * sums.cost[pair]) for pair in pairs)
    return [f"{mb:,.1f}", f"{cost / mb:.4f}", f"{cost:,.2f}"]


def _numbers(cells: Sequence[str]) -> str:
    return "".join(f'<td class="number">{cell}</td>' for cell in cells)
