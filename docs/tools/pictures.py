"""Draws the pictures of ``docs/model-in-pictures.md`` from small scenarios that skedge runs.

python docs/tools/pictures.py     # writes docs/pictures/*.svg; a test holds them equal to what is drawn
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import skedge
from skedge.analysis.intervals import Estimate
from skedge.export.workers import workers_of
from skedge.report.pictures import standalone
from skedge.report.site_picture import site_picture
from skedge.scenario.file import scenario_from_dict
from skedge.studies.figure import Figure, Line, svg

FOLDER = Path(__file__).resolve().parents[1] / "pictures"

COLOURS = ("#0072b2", "#d55e00", "#008a64", "#b0508a", "#9a6a00", "#3a9bd5")
"""One a job; the colour-blind can tell them apart."""

LEFT, WIDTH, ROW, TOP, BOTTOM = 110, 620, 30, 34, 56
SECOND = 1_000_000

Spec = dict[str, Any]


def job(name: str, at: float, chunks: int, minutes: float, workers: int = 1, **more: Any) -> Spec:
    """A job whose chunks take `minutes` each."""
    given = {"epochs": 1, "minibatches": 60, "minibatch_s": minutes, "chunk_mb": 40, "upload": {}}
    return {"id": name, "arrival_s": at * 60, "chunks": chunks, "workers": workers, **given, **more}


def edge(name: str, workers: int) -> Spec:
    """An edge server with as many PSs as workers."""
    return {"id": name, "workers": {"gpu": workers}, "ps": {"cpu": workers}}


CLOUD: Spec = {"id": "cloud", "kind": "cloud"}

LANE: Spec = {
    "slot": "1min",
    "cluster": {"servers": [edge("edge", 1), CLOUD]},
    "workload": {
        "jobs": [
            job("long", 0, 3, 10, upload={"edge": "2min", "cloud": "90min"}),
            job("short", 12, 2, 3, upload={"edge": "2min", "cloud": "90min"}),
        ]
    },
}

GANG: Spec = {
    "slot": "1min",
    "physics": {"checkpoint_overhead": "1min"},
    "cluster": {"servers": [edge("north", 2), edge("south", 2), CLOUD]},
    "workload": {
        "jobs": [
            job("a", 0, 3, 20, 3, upload={"north": "2min", "south": "5min", "cloud": "90min"}),
            job("b", 12, 2, 6, 2, upload={"north": "2min", "south": "2min", "cloud": "90min"}),
        ]
    },
}

BATCH: Spec = {
    "slot": "1min",
    "physics": {"slotted": True},
    "cluster": {"servers": [edge("north", 2), edge("south", 1), CLOUD]},
    "workload": {
        "jobs": [
            job(name, at, chunks, 2, chunks, upload={"north": "1min", "south": "1min", "cloud": "20min"})
            for name, at, chunks in (("a", 0, 1), ("b", 1, 2), ("c", 2.5, 1), ("d", 5, 3), ("e", 9, 2))
        ]
    },
}

PRICE: Spec = {
    "slot": "1h",
    "physics": {"slotted": True, "colocation": "one_server", "horizon": "10h"},
    "cluster": {"servers": [{"id": "machine", "resources": {"gpu": 8, "cpu": 8}}]},
    "workload": {
        "jobs": [
            job(name, 0, 1, 60, epochs=hours, batch=2, ratio=2, worker_needs={"gpu": 1}, ps_needs={"cpu": 1},
                bandwidth_mbps=1000, utility={"height": height, "steepness": 0.5, "target": 6})
            for name, hours, height in (("a", 12, 60), ("b", 16, 50), ("c", 12, 40), ("d", 8, 30))
        ]
    },
}  # fmt: skip

SITES: Spec = {
    "slot": "1h",
    "physics": {"slotted": True},
    "cluster": {
        "servers": [
            {"id": "north", "resources": {"gpu": 4, "cpu": 4}},
            {"id": "south", "resources": {"gpu": 0, "cpu": 4}},
            {"id": "west", "resources": {"gpu": 2, "cpu": 4}},
        ],
        "transfer_cost": [[0, 0.03, 0.05], [0.03, 0, 0.08], [0.05, 0.08, 0]],
    },
    "workload": {
        "jobs": [
            {"id": name, "arrival_s": 0, "epochs": 10, "minibatches": 60, "minibatch_s": 2, "chunk_mb": 40,
             "data": data, "exchange_mb": 100, "worker_needs": {"gpu": 1}, "ps_needs": {"cpu": 1},
             "latency": {"kind": "exponential", "tau": 20}}
            for name, data in (("a", {"south": 8}), ("b", {"west": 6, "south": 4}))
        ]
    },
}  # fmt: skip


def ran(name: str, spec: Spec, policy: str) -> skedge.Run:
    """The run of a policy on a scenario; every rule of the model holds."""
    run = skedge.run(scenario_from_dict({"name": name, "seed": 0, **spec}, name, Path()), policy)
    assert run.verify() == []  # noqa: S101 - a picture of a run that breaks a rule would mislead
    return run


def gantt(run: skedge.Run, title: str, marks: Mapping[float, str]) -> str:
    """A row for each worker over time: pale while it waits for data, full while it computes; a red end is a preemption.

    `marks` are vertical lines, by minutes.
    """
    scenario, runs = run.scenario, run.schedule.runs
    names = [f"{scenario.cluster.server_ids[s]}, worker {n}" for s, n in _lanes(scenario.cluster)]
    end = int(runs["end"].max())  # type: ignore[arg-type]
    scale = WIDTH / end
    height = TOP + ROW * len(names) + BOTTOM
    body = list(_rows(names, scenario.jobs, scale))
    for row, workers in zip(runs.iter_rows(named=True), workers_of(scenario, runs), strict=True):
        for worker in workers:
            if worker < len(names):
                body += _bars(row, worker, scale)
    for minutes, label in marks.items():
        x, bottom = LEFT + minutes * 60 * SECOND * scale, TOP + ROW * len(names)
        body.append(f'<path d="M{x:.1f} {TOP - 6}V{bottom}" stroke="#444444" stroke-dasharray="4 3" fill="none"/>')
        body.append(_text(x, TOP - 12, label))
    body += _axis(end, scale, TOP + ROW * len(names))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="#1a2129">'
        f'<title>{escape(title)}</title><rect width="100%" height="100%" fill="#ffffff"/>{"".join(body)}</svg>\n'
    )


def _lanes(cluster: Any) -> Iterator[tuple[int, int]]:
    """(server, number of the worker on it) of every lane."""
    seen: dict[int, int] = {}
    for server in cluster.lane_server.tolist():
        yield server, seen.get(server, 0)
        seen[server] = seen.get(server, 0) + 1


def _rows(names: list[str], jobs: Any, scale: float) -> Iterator[str]:
    """Names and lines of the workers, and a triangle where a job arrives."""
    for n, name in enumerate(names):
        y = TOP + ROW * n
        yield _text(LEFT - 10, y + 20, name, "end")
        yield f'<path d="M{LEFT} {y + ROW}H{LEFT + WIDTH}" stroke="#e6eaee" fill="none"/>'
    bottom = TOP + ROW * len(names)
    for n, (name, at) in enumerate(zip(jobs.ids, jobs.arrival.tolist(), strict=True)):
        x, colour = LEFT + at * scale, COLOURS[n]
        yield f'<path d="M{x:.1f} {bottom}l-5 9h10z" fill="{colour}"/>'
        yield f'<text x="{x + 8:.1f}" y="{bottom + 11}" font-size="11" fill="{colour}">{escape(name)}</text>'


def _bars(row: Mapping[str, Any], worker: int, scale: float) -> Iterator[str]:
    """One run on one worker."""
    x0, x1, x2 = (LEFT + row[name] * scale for name in ("start", "compute_from", "end"))
    y, colour = TOP + ROW * worker + 5, COLOURS[row["job"]]
    if x1 > x0:
        yield f'<rect x="{x0:.1f}" y="{y}" width="{x1 - x0:.1f}" height="20" fill="{colour}" fill-opacity="0.25"/>'
    yield f'<rect x="{x1:.1f}" y="{y}" width="{x2 - x1:.1f}" height="20" fill="{colour}" stroke="#ffffff"/>'
    if row["preempted"]:
        yield f'<path d="M{x2:.1f} {y - 2}v24" stroke="#c00000" stroke-width="3" fill="none"/>'
    if row["chunk"] is not None and x2 - x1 > 12:
        yield f'<text x="{(x1 + x2) / 2:.1f}" y="{y + 15}" text-anchor="middle" fill="#ffffff">{row["chunk"]}</text>'


def _axis(end: int, scale: float, bottom: int) -> Iterator[str]:
    step = 5 if end <= 80 * 60 * SECOND else 10
    for minutes in range(0, end // (60 * SECOND) + 1, step):
        x = LEFT + minutes * 60 * SECOND * scale
        yield f'<path d="M{x:.1f} {bottom + 18}v5" stroke="#1a2129" fill="none"/>'
        yield _text(x, bottom + 36, str(minutes))
    yield _text(LEFT + WIDTH / 2, bottom + 52, "minutes")


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def prices(run: skedge.Run) -> str:
    """The price of a GPU in every slot after each admission."""
    slots = 10
    now = [float(run.meta["params"]["low"])] * slots
    lines = [Line("at first", tuple(map(float, range(slots))), tuple(map(Estimate, now)))]
    decided = run.schedule.prices.sort("made_at", "job", "from", maintain_order=True)
    for (number,), made in decided.group_by("job", maintain_order=True):
        for start, end, price in made.select("from", "to", "price").iter_rows():
            for slot in range(start // (3600 * SECOND), end // (3600 * SECOND)):
                now[slot] = price
        x = tuple(float(slot) for slot in range(slots))
        name = run.scenario.jobs.ids[number]
        lines.append(Line(f"with {name}", x, tuple(Estimate(price) for price in now)))
    figure = Figure("Price of a GPU after each admission", "slot", "price of a GPU in a slot", tuple(lines))
    return standalone(svg(figure)) + "\n"


def drawn() -> dict[str, str]:
    """All pictures by the names of their files."""
    sites = ran("sites", SITES, "okita")
    return {
        "lane.svg": gantt(ran("lane", LANE, "aonline"), "A lane over time", {}),
        "gang.svg": gantt(ran("gang", GANG, "srtf"), "A gang over time", {}),
        "batch.svg": gantt(
            ran("batch", BATCH, "batch"), "Intervals of the batch scheduler", {2.0**i: f"τ={2**i}" for i in range(5)}
        ),
        "prices.svg": prices(ran("prices", PRICE, "pdors")),
        "sites.svg": standalone(site_picture(sites.scenario, sites.schedule)) + "\n",
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, picture in drawn().items():
        (FOLDER / name).write_text(picture, encoding="utf-8")
