"""Charts of runs as Vega-Lite specifications: Jupyter draws them without network, vl-convert writes them to files.

A specification holds its data; ``altair.Chart.from_dict(plot.spec)`` changes one further.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from skedge.core.errors import InputError
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND

from .bars import choose_bars
from .build import ReportRun
from .curves import jct_distribution, over_time
from .encode import int_column
from .palette import COLOURS, dash_of
from .pictures import HINT, can_draw, write_pictures
from .rows import Layout, lay_out
from .table import unit_of

MIME = "application/vnd.vegalite.v5+json"
"""Type of a specification for which JupyterLab, Notebook and VS Code have a renderer of their own."""

_VERSION = "5.20"
"""Version of Vega-Lite by which vl-convert draws."""

_WIDTH, _HEIGHT = 640, 300
_ROW, _TALLEST = 14, 700
"""Height of a lane, and of all lanes [pixels]."""

_HUES = 20
"""Colours of the jobs."""


@dataclass(frozen=True)
class Plot:
    """A chart; the last expression of a notebook's cell shows it.

    Attributes
    ----------
    spec
        The Vega-Lite specification, with its data.
    """

    spec: Mapping[str, Any]

    def svg(self) -> str:
        """The chart as SVG.

        Raises
        ------
        InputError
            Without the extra `figures`.
        """
        if not can_draw():
            raise InputError("a chart outside a notebook needs the extra `figures`: pip install 'skedge[figures]'")
        import vl_convert  # noqa: PLC0415 - an extra

        return str(vl_convert.vegalite_to_svg(dict(self.spec), vl_version=_VERSION))

    def save(self, stem: Path | str) -> list[Path]:
        """Write ``stem.svg``, ``stem.png`` and ``stem.pdf``; returns the files.

        Raises
        ------
        InputError
            Without the extra `figures`, or if a file cannot be written.
        """
        svg = self.svg()
        try:
            return write_pictures(svg, Path(stem))
        except OSError as error:
            raise InputError(f"{error.filename or stem}: cannot be written: {error.strerror}") from error

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """The specification, and the drawn chart for viewers that do not know Vega-Lite."""
        images = {"image/svg+xml": self.svg()} if can_draw() else {}
        return {MIME: dict(self.spec), **images, "text/plain": f"{self.spec['title']['text']} ({HINT})"}


@dataclass(frozen=True)
class Plots:
    """The charts of runs, a line for each in those that compare.

    Attributes
    ----------
    runs
        At least one, with different labels.
    """

    runs: Sequence[ReportRun]

    def jct(self) -> Plot:
        """Share of the submitted jobs that were finished within a time of their arrival, logarithmic."""
        data = jct_distribution([run.schedule.jobs for run in self.runs])
        x = {"field": "x", "type": "quantitative", "scale": {"type": "log"}, "title": "completion time [s]"}
        return self._lines("Job completion times", data["x"], data["share"], x, "jobs finished")

    def utilisation(self) -> Plot:
        """Share of the edge workers held, over time; on servers with resources the mean share of the resources."""
        data = over_time([run.utilisation for run in self.runs], [])
        factor, unit = unit_of("time_s", data["x"][-1:])
        x = {"field": "x", "type": "quantitative", "title": f"time since the start [{unit}]"}
        return self._lines("Utilisation", [t / factor for t in data["x"]], data["busy_share"], x, "lanes busy")

    def lanes(self, policy: str | None = None, max_bars: int = 5_000) -> Plot:
        """The runs on their lanes over time, coloured by job.

        Parameters
        ----------
        policy
            Label of the run; None: the first one.
        max_bars
            Most bars that are drawn; of more, adjacent runs of a job are one bar, then the busiest window is shown.

        Raises
        ------
        InputError
            If no run has that label.
        """
        labels = [run.label for run in self.runs]
        if policy is not None and policy not in labels:
            raise InputError(f"policy {policy!r} is not among these runs: {', '.join(labels)}")
        return _lanes(self.runs[0 if policy is None else labels.index(policy)], max_bars)

    def charts(self) -> dict[str, Plot]:
        """All charts by name: ``lanes`` of the first run, ``jct``, ``utilisation``."""
        return {"lanes": self.lanes(), "jct": self.jct(), "utilisation": self.utilisation()}

    def _lines(
        self, title: str, x: Sequence[float], columns: Sequence[Sequence[float | None]], axis: Mapping[str, Any], y: str
    ) -> Plot:
        labels = [run.label for run in self.runs]
        points = [
            {"policy": label, "x": x_value, "y": value}
            for label, values in zip(labels, columns, strict=True)
            for x_value, value in zip(x, values, strict=True)
        ]
        hues = [COLOURS[i % len(COLOURS)] for i in range(len(labels))]
        # Vega-Lite has no empty dash; [1, 0] is a full line.
        dashes = [list(dash_of(i)) or [1, 0] for i in range(len(labels))]
        share = {"field": "y", "type": "quantitative", "title": y, "axis": {"format": "%"}, "scale": {"domain": [0, 1]}}
        encoding = {
            "x": axis,
            "y": share,
            "color": _by_policy(labels, hues),
            "strokeDash": _by_policy(labels, dashes),
        }
        # Steps, as a value holds until the next one; a sloping line would show jobs that finish between two
        # completions.
        mark = {"type": "line", "interpolate": "step-after", "tooltip": True}
        return _plot(title, "", points, {"mark": mark, "encoding": encoding, "height": _HEIGHT})


def _by_policy(labels: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    legend = {"symbolType": "stroke", "symbolSize": 900, "labelLimit": 300}
    scale = {"domain": list(labels), "range": list(values)}
    return {"field": "policy", "type": "nominal", "title": None, "scale": scale, "legend": legend}


def _plot(title: str, subtitle: str, values: Sequence[Mapping[str, Any]], properties: Mapping[str, Any]) -> Plot:
    return Plot(
        {
            "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
            "title": {"text": title, "subtitle": subtitle, "anchor": "start"},
            "width": _WIDTH,
            "background": "white",
            "data": {"values": list(values)},
            **properties,
        }
    )


def _lanes(run: ReportRun, max_bars: int) -> Plot:
    bars = choose_bars(run.schedule.runs, run.scenario.cluster.server_ids, max_bars)
    layout, frame = lay_out(bars.frame, run.scenario), bars.frame
    factor, unit = unit_of("time_s", [bars.span[1] / SECOND])
    start, end = (int_column(frame, name) / (SECOND * factor) for name in ("start", "end"))
    names, servers, jobs = run.schedule.jobs["id"].to_list(), run.scenario.cluster.server_ids, int_column(frame, "job")
    server = int_column(frame, "server")
    pieces = [
        {
            "job": names[jobs[bar]], "server": servers[server[bar]], "start": float(start[bar]), "end": float(end[bar]),
            # Twenty hues for any number of jobs: neighbours mostly differ, and the tooltip has the name.
            "row": row, "below": row + height, "hue": int(jobs[bar]) % _HUES,
        }
        for row, height, bar in zip(*(a.tolist() for a in (layout.row, layout.height, layout.bar)), strict=True)
    ]  # fmt: skip
    middles, texts = _server_names(layout, run.scenario)
    x_axis = {"type": "quantitative", "title": f"time since the start [{unit}]", "scale": {"zero": False}}
    # The axis is of row numbers: an expression puts the servers' names at the middles of their rows.
    y_axis = {"values": middles, "labelExpr": f"({texts})[datum.value]", "grid": False, "ticks": False}
    encoding = {
        "x": {"field": "start", **x_axis},
        "x2": {"field": "end"},
        "y": {"field": "row", "type": "quantitative", "title": None, "axis": y_axis, "scale": {"reverse": True}},
        "y2": {"field": "below"},
        "color": {"field": "hue", "type": "nominal", "scale": {"scheme": "tableau20"}, "legend": None},
        "tooltip": [{"field": name} for name in ("job", "server", "start", "end")],
    }
    mark = {"type": "rect", "stroke": "white", "strokeWidth": 0.5}
    height = int(np.clip(_ROW * layout.rows, 120, _TALLEST))
    subtitle = "the busiest window" if bars.window else "adjacent runs of a job are one bar" if bars.merged else ""
    return _plot(f"Lanes under {run.label}", subtitle, pieces, {"mark": mark, "encoding": encoding, "height": height})


def _server_names(layout: Layout, scenario: Scenario) -> tuple[list[float], str]:
    """The middle row of each group, and the names there as a JavaScript object."""
    ids = scenario.cluster.server_ids
    names = {
        group.offset + group.rows / 2: f"{ids[group.server]} {description['type']}".rstrip()
        for group, description in zip(layout.groups, layout.group_views(scenario), strict=True)
    }
    return list(names), json.dumps({f"{middle:g}": name for middle, name in names.items()})
