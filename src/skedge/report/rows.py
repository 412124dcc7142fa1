"""Rows of the bars in the Gantt chart, grouped by server and worker type, the cloud last.

Each lane has its own row. A run without a lane (a gang, or a chunk in the cloud) takes as many free rows of its server
as it has workers, adjacent if possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from skedge.core.model.cluster import Ints
from skedge.core.model.scenario import Scenario

from .encode import whole

_ANY = -1
"""Type of a group that takes workers of every type: the cloud, or an edge server without lanes."""


@dataclass
class Group:
    """Rows of one server and worker type: `slots` of them are lanes, those beyond are packed."""

    server: int
    type: int
    slots: int
    rows: int
    offset: int = 0


@dataclass(frozen=True)
class Layout:
    """Groups in the order drawn, and pieces: piece i is bar `bar[i]` on rows `row[i]` to `row[i] + height[i] - 1`.

    A bar has several pieces if its workers have no adjacent rows.
    """

    groups: list[Group]
    row: Ints
    height: Ints
    bar: Ints

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(g.rows for g in self.groups)

    def described(self, scenario: Scenario) -> list[dict[str, Any]]:
        """Describe the groups for the page."""
        cluster = scenario.cluster
        return [
            {
                "server": g.server,
                "cloud": g.server == cluster.cloud,
                "type": "" if g.type == _ANY else cluster.worker_types[g.type],
                "slots": g.slots,
                "rows": g.rows,
            }
            for g in self.groups
        ]


def lay_out(bars: pl.DataFrame, scenario: Scenario) -> Layout:
    """Rows for `bars`, ordered by start, columns as in :class:`~skedge.report.bars.Bars`."""
    groups = _lane_groups(scenario)
    member = _group_of_bars(bars, scenario, groups)
    lane = whole(bars, "lane")
    pooled = np.stack([whole(bars, "start"), whole(bars, "end"), np.maximum(whole(bars, "workers"), 1)])
    pieces = [_lane_pieces(lane, scenario, groups)]
    pieces += [
        _pooled_pieces(pooled, np.flatnonzero((member == g) & (lane < 0)), groups[g], g) for g in range(len(groups))
    ]
    used = [g for g in range(len(groups)) if groups[g].rows]
    used.sort(key=lambda g: (groups[g].server == scenario.cluster.cloud, groups[g].server, g))
    _set_offsets([groups[g] for g in used])
    group, local, height, bar = np.concatenate(pieces, axis=1)
    offset = np.array([g.offset for g in groups], np.int64)
    row = offset[group] + local if len(group) else local
    order = np.lexsort((row, bar))
    return Layout([groups[g] for g in used], row[order], height[order], bar[order])


def _lane_groups(scenario: Scenario) -> list[Group]:
    cluster = scenario.cluster
    pairs = np.stack([cluster.lane_server, cluster.lane_type], axis=1)
    return [
        Group(int(s), int(t), count, count)
        for s, t in dict.fromkeys(map(tuple, pairs.tolist()))
        for count in (int(((pairs == (s, t)).all(axis=1)).sum()),)
    ]


def _group_of_bars(bars: pl.DataFrame, scenario: Scenario, groups: list[Group]) -> Ints:
    """Index of the group of every bar; groups that have no lanes are added to `groups`."""
    place = {(g.server, g.type): i for i, g in enumerate(groups)}
    server = whole(bars, "server")
    kind = scenario.jobs.worker_type[whole(bars, "job")] if len(scenario.jobs) else np.empty(0, np.int64)
    member = np.zeros(len(server), np.int64)
    for s, t in dict.fromkeys(zip(server.tolist(), kind.tolist(), strict=True)):
        key = (s, t) if (s, t) in place else (s, _ANY)
        if key not in place:
            place[key] = len(groups)
            groups.append(Group(key[0], key[1], slots=0, rows=0))
        member[(server == s) & (kind == t)] = place[key]
    return member


def _lane_pieces(lane: Ints, scenario: Scenario, groups: list[Group]) -> Ints:
    """Pieces (group, row in the group, height, bar) of the bars that have a lane."""
    cluster = scenario.cluster
    place = {(g.server, g.type): i for i, g in enumerate(groups)}
    group = [place[pair] for pair in zip(cluster.lane_server.tolist(), cluster.lane_type.tolist(), strict=True)]
    bar = np.flatnonzero(lane >= 0)
    of_lane = np.array(group, np.int64)
    local = np.zeros(len(of_lane), np.int64)
    for g in range(len(groups)):
        local[of_lane == g] = np.arange(int((of_lane == g).sum()))
    chosen = lane[bar]
    return np.stack([of_lane[chosen], local[chosen], np.ones(len(bar), np.int64), bar]).reshape(4, -1)


def _pooled_pieces(bars: Ints, chosen: Ints, group: Group, number: int) -> Ints:
    """Pieces of the bars `chosen` of one group; the group grows by the rows that they need beyond its lanes.

    Columns of `bars`: start, end, workers.
    """
    start, end, workers = bars[:, chosen]
    row, height, piece = pack(start, end, workers, group.slots)
    if len(row):
        group.rows = max(group.rows, int((row + height).max()))
    return np.stack([np.full(len(row), number), row, height, chosen[piece]]).reshape(4, -1)


def _set_offsets(groups: list[Group]) -> None:
    offset = 0
    for group in groups:
        group.offset = offset
        offset += group.rows


def pack(start: Ints, end: Ints, workers: Ints, slots: int) -> tuple[Ints, Ints, Ints]:
    """Rows for intervals in order of start: each takes `workers` rows that are free, the lowest ones side by side.

    Where no free rows lie side by side within `slots`, any free ones are taken, then new ones. Intervals that never
    need more than `slots` rows at once are therefore given no more: each is put into the lowest free rows, as in the
    greedy colouring of an interval graph.

    Returns
    -------
    tuple of arrays
        Row, height and interval of every piece.
    """
    free_from = np.full(max(slots, 1), np.iinfo(np.int64).min)
    used = slots
    pieces: list[tuple[int, int, int]] = []
    for i, (begin, stop, need) in enumerate(zip(start.tolist(), end.tolist(), workers.tolist(), strict=True)):
        taken = _free_rows(np.flatnonzero(free_from[:used] <= begin), need, used, limited=slots > 0)
        used = max(used, int(taken[-1]) + 1)
        if used > len(free_from):
            free_from = np.concatenate([free_from, np.full(used, np.iinfo(np.int64).min)])
        free_from[taken] = max(stop, begin + 1)
        pieces.extend((first, count, i) for first, count in _stretches(taken))
    table = np.array(pieces, np.int64).reshape(-1, 3)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


def _free_rows(free: Ints, need: int, used: int, *, limited: bool) -> Ints:
    if len(free) >= need:
        together = np.flatnonzero(free[need - 1 :] - free[: len(free) - need + 1] == need - 1)
        if len(together):
            return free[together[0] : together[0] + need]
        if limited:
            return free[:need]
    if limited:
        return np.concatenate([free, np.arange(used, used + need - len(free))])
    return np.arange(used, used + need)


def _stretches(rows: Ints) -> list[tuple[int, int]]:
    """(first, length) of every stretch of neighbouring rows."""
    if rows[-1] - rows[0] == len(rows) - 1:
        return [(int(rows[0]), len(rows))]
    parts = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    return [(int(p[0]), len(p)) for p in parts]
