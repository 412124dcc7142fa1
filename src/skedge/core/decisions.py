"""The decisions of a run, collected as they are made, and their table."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import polars as pl

from .events import CLOUD, Dispatch
from .model import Cluster, Ints
from .schedule import VERBS, Columns, server_column

_CODES = {verb: code for code, verb in enumerate(VERBS)}
_NONE = float("nan")
"""Stands for a value that is not given."""


class Decisions:
    """The decisions of one run: dispatches as orders, whose rows are made at the end, and the others as rows.

    Attributes
    ----------
    dispatches
        (time, order) of each dispatch.
    rows, values
        Of each other decision (time, job, verb, server, workers, reason) as numbers, flat; and its value.
    reasons
        Number of each reason.
    """

    def __init__(self, cluster: Cluster, schema: Columns) -> None:
        self.cluster, self.schema = cluster, schema
        self.dispatches: list[tuple[int, Dispatch]] = []
        self.rows, self.values = array("q"), array("d")
        self.reasons: dict[str, int] = {}

    def add(
        self,
        now: int,
        job: int,
        verb: str,
        reason: str,
        server: int | None = None,
        value: float | None = None,
        workers: int = -1,
    ) -> None:
        """Add a decision without a chunk; `workers` -1 means that it has no number of workers."""
        code = self.reasons.setdefault(reason, len(self.reasons))
        self.rows.extend((now, job, _CODES[verb], -1 if server is None else server, workers, code))
        self.values.append(_NONE if value is None else value)

    def add_each(self, now: int, job: int, verb: str, reason: str, where: Ints, value: float | None = None) -> None:
        """Add a decision with a row for each server and number of workers of `where`."""
        rows = np.empty((len(where), 6), np.int64)
        rows[:] = now, job, _CODES[verb], -1, -1, self.reasons.setdefault(reason, len(self.reasons))
        rows[:, 3:5] = where
        self.rows.frombytes(rows.tobytes())
        self.values.extend(array("d", [_NONE if value is None else value]) * len(where))

    def dispatched(self) -> tuple[Ints, Ints, Ints, Ints]:
        """(job, lane, time, number of the dispatch) of each dispatched chunk."""
        sizes = [len(order.lane) for _, order in self.dispatches]
        job = np.repeat(np.array([order.job for _, order in self.dispatches], np.int64), sizes)
        time = np.repeat(np.array([now for now, _ in self.dispatches], np.int64), sizes)
        of = np.repeat(np.arange(len(sizes)), sizes)
        return job, _joined([order.lane for _, order in self.dispatches]), time, of

    # -- the table -----------------------------------------------------------------------------------------------

    def table(self) -> pl.DataFrame:
        """The decisions so far, in order."""
        return pl.concat([self._of_dispatches(), self._others()]).sort("time", maintain_order=True)

    def _others(self) -> pl.DataFrame:
        table, types = rows_of_buffer(self.rows, 6), self.schema
        verbs = pl.Series(VERBS, dtype=pl.Enum(list(VERBS)))
        reasons = pl.Series(list(self.reasons), dtype=pl.String).cast(pl.Categorical())
        columns = {
            "time": table[:, 0],
            "job": table[:, 1],
            "verb": verbs.gather(table[:, 2]),
            "server": self._server(table[:, 3]),
            "workers": pl.Series(table[:, 4]).replace(-1, None),
            "reason": reasons.gather(table[:, 5]),
            "value": pl.Series(np.array(self.values)).fill_nan(None),
        }
        empty = (pl.lit(None, kind).alias(name) for name, kind in types.items() if name not in columns)
        return pl.DataFrame(columns).with_columns(*empty).select(list(types)).cast(types)

    def _of_dispatches(self) -> pl.DataFrame:
        cluster = self.cluster
        job, lane, time, of = self.dispatched()
        edge = lane != CLOUD
        server = np.full(len(lane), -1 if cluster.cloud is None else cluster.cloud)
        server[edge] = cluster.lane_server[lane[edge]]
        sizes = [len(order.lane) for _, order in self.dispatches]
        again = np.array([order.chunks is not None for _, order in self.dispatches], np.int64)
        numbers = [
            np.arange(len(order.lane)) if order.chunks is None else np.array(order.chunks, np.int64)
            for _, order in self.dispatches
        ]
        verbs = pl.Series(["dispatch", "redispatch"], dtype=pl.Enum(list(VERBS)))
        reasons = pl.Series([order.reason for _, order in self.dispatches], dtype=pl.String).cast(pl.Categorical())
        columns = {
            "time": time,
            "job": job,
            "verb": verbs.gather(again[of]),
            "chunk": _joined(numbers),
            "lane": pl.Series(lane.astype(np.int32)).set(pl.Series(~edge), None),
            "server": self._server(server),
            "workers": pl.Series([None], dtype=pl.Int32).new_from_index(0, len(job)),
            "rank": np.repeat(np.array([order.rank for _, order in self.dispatches], np.int64), sizes),
            "postponed": _joined([order.postponed for _, order in self.dispatches]),
            "value": np.concatenate([np.empty(0), *(order.alpha for _, order in self.dispatches)]),
            "reason": reasons.gather(of),
        }
        return pl.DataFrame(columns).cast(self.schema)

    def _server(self, servers: Ints) -> pl.Series:
        return server_column(servers, self.cluster.server_ids)


def rows_of_buffer(buffer: array[int], width: int) -> Ints:
    """The numbers of a buffer as rows of `width`."""
    return np.frombuffer(buffer, np.int64).reshape(-1, width) if len(buffer) else np.zeros((0, width), np.int64)


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64)
