"""Rule M16 for gangs: their uploads are exactly those that allocations and ordered uploads need."""

from __future__ import annotations

import numpy as np
import polars as pl

from .columns import Columns
from .rules import Findings
from .supplies import needed_uploads


def check_supplies(c: Columns, found: Findings) -> None:
    """Compare the uploads of jobs that are not dispatched with those that their orders need: none more, none less."""
    if c.scenario.cluster.transfer_cost is not None:
        return  # M31
    sent = np.zeros(len(c.scenario.jobs), bool)
    sent[c.dispatches["job"]] = True
    u = c.uploads
    rows = np.flatnonzero(~sent[u["job"]])
    brought = pl.DataFrame(
        {"job": u["job"][rows], "server": u["to_server"][rows], "chunks": u["chunks"][rows], "time": u["start"][rows]}
    )
    needed = needed_uploads(c)
    needed = needed.filter(~pl.Series(sent[needed["job"].to_numpy()]))
    both = pl.concat([brought.cast(pl.Int64).with_columns(n=1), needed.cast(pl.Int64).with_columns(n=-1)])
    differ = both.group_by("job", "server", "chunks", "time").agg(pl.col("n").sum()).filter(pl.col("n") != 0)
    for job, server, chunks, time, n in differ.sort("job", "time", "server", "chunks").head(found.limit).iter_rows():
        what = "are brought, and no order needs them" if n > 0 else "are needed by an order, and are not brought"
        found.add("M16", job, time, f"{chunks} chunks for server {server} {what}")
