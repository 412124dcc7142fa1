"""The decisions of a run, collected as they are made, and their table."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from skedge.core.engine.ledger import RecordRows
from skedge.core.events import CLOUD, VERBS, Dispatch
from skedge.core.model.cluster import Bools, Cluster, Floats, Ints

from .schedule import Columns, or_null, server_column

Small = NDArray[np.int32]


class Dispatches(NamedTuple):
    """The dispatches of a run as columns.

    Attributes
    ----------
    time, job, rank, redispatch, reason
        Of each dispatch; `redispatch`: a re-dispatch.
    sizes
        Number of its chunks.
    chunk, lane, postponed, alpha
        Of each of its chunks; alpha in seconds.
    """

    time: Ints
    job: Ints
    rank: Ints
    redispatch: Bools
    reason: list[str]
    sizes: Ints
    chunk: Small | Ints
    lane: Small | Ints
    postponed: Small | Ints
    alpha: Floats

    @staticmethod
    def from_orders(orders: Sequence[tuple[int, Dispatch]]) -> Dispatches:
        """The columns of (time, order) pairs."""
        return Dispatches(
            np.array([now for now, _ in orders], np.int64),
            np.array([order.job for _, order in orders], np.int64),
            np.array([order.rank for _, order in orders], np.int64),
            np.array([order.chunks is not None for _, order in orders], np.bool_),
            [order.reason for _, order in orders],
            np.array([len(order.lane) for _, order in orders], np.int64),
            _concatenated([range(len(o.lane)) if o.chunks is None else o.chunks for _, o in orders]),
            _concatenated([order.lane for _, order in orders]),
            _concatenated([order.postponed for _, order in orders]),
            np.concatenate([np.empty(0), *(order.alpha for _, order in orders)]),
        )


class Decisions:
    """The decisions of one run: dispatches as orders, whose rows are made at the end, and the reasons of all.

    Attributes
    ----------
    orders
        (time, order) of each dispatch.
    reasons
        Number of each reason.
    """

    def __init__(self, cluster: Cluster, schema: Columns) -> None:
        self.cluster, self.schema = cluster, schema
        self.orders: list[tuple[int, Dispatch]] = []
        self.reasons: dict[str, int] = {}

    def servers(self, d: Dispatches) -> Small:
        """Server of each dispatched chunk."""
        cluster = self.cluster
        cloud = -1 if cluster.cloud is None else cluster.cloud
        servers: Small = np.append(cluster.lane_server, cloud).astype(np.int32)[d.lane]  # CLOUD is -1: the last one
        return servers

    # -- the table -----------------------------------------------------------------------------------------------

    def table(self, rows: RecordRows, dispatches: Dispatches | None = None) -> pl.DataFrame:
        """The decisions so far, in order: the dispatches, and the others as `rows`.

        `dispatches`: those of a compiled run, which makes no orders.
        """
        d = Dispatches.from_orders(self.orders) if dispatches is None else dispatches
        parts = [*([self._dispatch_rows(d)] if len(d.time) else []), self._other_rows(rows.decisions, rows.values)]
        full = pl.concat(parts) if len(parts) > 1 else parts[0]
        # stable: dispatches come first within an instant, and both parts stay in order of their decisions
        return full if full["time"].is_sorted() else full.sort("time", maintain_order=True)

    def _other_rows(self, table: Ints, values: Floats) -> pl.DataFrame:
        types = self.schema
        verbs = pl.Series(VERBS, dtype=pl.Enum(list(VERBS)))
        reasons = pl.Series(list(self.reasons), dtype=pl.String).cast(pl.Categorical())
        nulls = pl.Series([None], dtype=pl.Int32).new_from_index(0, len(table))
        columns = {
            "time": table[:, 0],
            "job": table[:, 1],
            "verb": verbs.gather(table[:, 2]),
            "server": self._server(table[:, 3]),
            "workers": or_null(table[:, 4]),
            "reason": reasons.gather(table[:, 5]),
            "value": pl.Series(values, dtype=pl.Float64).set(pl.Series(np.isnan(values)), None),
        }
        return pl.DataFrame({name: columns.get(name, nulls) for name in types}).cast(types)

    def _dispatch_rows(self, d: Dispatches) -> pl.DataFrame:
        verbs = pl.Series(["dispatch", "redispatch"], dtype=pl.Enum(list(VERBS)))
        reasons = pl.Series(d.reason, dtype=pl.String).cast(pl.Categorical())
        order_index = np.repeat(np.arange(len(d.sizes), dtype=np.uint32), d.sizes)
        lane = pl.Series(d.lane.astype(np.int32))
        columns = {
            "time": np.repeat(d.time, d.sizes),
            "job": np.repeat(d.job.astype(np.int32), d.sizes),
            "verb": verbs.gather(d.redispatch.astype(np.uint32)).gather(order_index),
            "chunk": d.chunk,
            "lane": lane.set(lane == CLOUD, None),
            "server": self._server(self.servers(d)),
            "workers": pl.Series([None], dtype=pl.Int32).new_from_index(0, len(order_index)),
            "rank": np.repeat(d.rank, d.sizes),
            "postponed": d.postponed,
            "value": d.alpha,
            "reason": reasons.gather(order_index),
        }
        return pl.DataFrame(columns).cast(self.schema)

    def _server(self, servers: Small | Ints) -> pl.Series:
        return server_column(servers, self.cluster.server_ids)


def rows_of_buffer(buffer: array[int], width: int) -> Ints:
    """The numbers of a buffer as rows of `width`."""
    # a view: while it is alive the buffer cannot grow
    return np.frombuffer(buffer, np.int64).reshape(-1, width) if len(buffer) else np.zeros((0, width), np.int64)


def _concatenated(parts: Sequence[Ints | Sequence[int]]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *(np.asarray(part, np.int64) for part in parts)])
