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

from .encode import int_column

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

    def group_views(self, scenario: Scenario) -> list[dict[str, Any]]:
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
    group_of_bar = _group_of_bars(bars, scenario, groups)
    lane = int_column(bars, "lane")
    pooled = np.stack([int_column(bars, "start"), int_column(bars, "end"), np.maximum(int_column(bars, "workers"), 1)])
    pieces = [_lane_pieces(lane, scenario, groups)]
    pieces += [
        _pooled_pieces(pooled, np.flatnonzero((group_of_bar == g) & (lane < 0)), groups[g], g)
        for g in range(len(groups))
    ]
    used_groups = [g for g in range(len(groups)) if groups[g].rows]
    used_groups.sort(key=lambda g: (groups[g].server == scenario.cluster.cloud, groups[g].server, g))
    _set_offsets([groups[g] for g in used_groups])
    group, local, height, bar = np.concatenate(pieces, axis=1)
    offset = np.array([g.offset for g in groups], np.int64)
    row = offset[group] + local if len(group) else local
    # By bar and then from the top, so that the pieces of a bar stand together.
    order = np.lexsort((row, bar))
    return Layout([groups[g] for g in used_groups], row[order], height[order], bar[order])


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
    group_of = {(g.server, g.type): i for i, g in enumerate(groups)}
    server = int_column(bars, "server")
    kind = scenario.jobs.worker_type[int_column(bars, "job")] if len(scenario.jobs) else np.empty(0, np.int64)
    group_of_bar = np.zeros(len(server), np.int64)
    for s, t in dict.fromkeys(zip(server.tolist(), kind.tolist(), strict=True)):
        # An edge server has a group for each type of its lanes; the cloud, and a server with resources, one for all
        # types.
        key = (s, t) if (s, t) in group_of else (s, _ANY)
        if key not in group_of:
            group_of[key] = len(groups)
            groups.append(Group(key[0], key[1], slots=0, rows=0))
        group_of_bar[(server == s) & (kind == t)] = group_of[key]
    return group_of_bar


def _lane_pieces(lane: Ints, scenario: Scenario, groups: list[Group]) -> Ints:
    """Pieces (group, row in the group, height, bar) of the bars that have a lane."""
    cluster = scenario.cluster
    group_of = {(g.server, g.type): i for i, g in enumerate(groups)}
    group = [group_of[pair] for pair in zip(cluster.lane_server.tolist(), cluster.lane_type.tolist(), strict=True)]
    bar = np.flatnonzero(lane >= 0)
    group_of_lane = np.array(group, np.int64)
    row = np.zeros(len(group_of_lane), np.int64)
    for g in range(len(groups)):
        row[group_of_lane == g] = np.arange(int((group_of_lane == g).sum()))
    lanes = lane[bar]
    return np.stack([group_of_lane[lanes], row[lanes], np.ones(len(bar), np.int64), bar]).reshape(4, -1)


def _pooled_pieces(bars: Ints, members: Ints, group: Group, number: int) -> Ints:
    """Pieces of the bars `members` of one group; the group grows by the rows that they need beyond its lanes.

    Columns of `bars`: start, end, workers.
    """
    start, end, workers = bars[:, members]
    row, height, piece = assign_rows(start, end, workers, group.slots)
    if len(row):
        group.rows = max(group.rows, int((row + height).max()))
    return np.stack([np.full(len(row), number), row, height, members[piece]]).reshape(4, -1)


def _set_offsets(groups: list[Group]) -> None:
    offset = 0
    for group in groups:
        group.offset = offset
        offset += group.rows


def assign_rows(start: Ints, end: Ints, workers: Ints, slots: int) -> tuple[Ints, Ints, Ints]:
    """Rows for intervals in order of start: each takes free rows, the lowest ones side by side.

    Where no free rows lie side by side within `slots`, any free ones are taken, then new ones. Intervals that never
    need more than `slots` rows at once therefore get no more: each is put into the lowest free rows, as in the greedy
    colouring of an interval graph.

    Parameters
    ----------
    start, end
        Ends of the intervals [µs], ordered by start.
    workers
        Rows that each interval takes, 1 or more.
    slots
        Rows that are there anyway, 0 or more; 0: rows are added rather than an interval split.

    Returns
    -------
    tuple of arrays
        Row, height and interval of every piece.
    """
    free_from = np.full(max(slots, 1), np.iinfo(np.int64).min)
    n_used = slots
    pieces: list[tuple[int, int, int]] = []
    for i, (start_us, end_us, n_workers) in enumerate(zip(start.tolist(), end.tolist(), workers.tolist(), strict=True)):
        rows = _free_rows(np.flatnonzero(free_from[:n_used] <= start_us), n_workers, n_used, limited=slots > 0)
        n_used = max(n_used, int(rows[-1]) + 1)
        if n_used > len(free_from):
            free_from = np.concatenate([free_from, np.full(n_used, np.iinfo(np.int64).min)])
        # A run of no length is drawn too, and must not share its row with another of the same instant.
        free_from[rows] = max(end_us, start_us + 1)
        pieces.extend((first, count, i) for first, count in _adjacent_blocks(rows))
    table = np.array(pieces, np.int64).reshape(-1, 3)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


def _free_rows(free: Ints, n_rows: int, n_used: int, *, limited: bool) -> Ints:
    if len(free) >= n_rows:
        # `free` ascends: n rows side by side are those where the last and the first differ by n - 1.
        adjacent = np.flatnonzero(free[n_rows - 1 :] - free[: len(free) - n_rows + 1] == n_rows - 1)
        if len(adjacent):
            return free[adjacent[0] : adjacent[0] + n_rows]
        if limited:
            return free[:n_rows]
    if limited:
        return np.concatenate([free, np.arange(n_used, n_used + n_rows - len(free))])
    return np.arange(n_used, n_used + n_rows)


def _adjacent_blocks(rows: Ints) -> list[tuple[int, int]]:
    """(first, length) of every stretch of neighbouring rows."""
    # The usual case, without the arrays of np.split.
    if rows[-1] - rows[0] == len(rows) - 1:
        return [(int(rows[0]), len(rows))]
    parts = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    return [(int(p[0]), len(p)) for p in parts]
