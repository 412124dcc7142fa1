"""The cost of a run at sites: Okita's objective (2), recomputed from the record alone."""

from __future__ import annotations

import numpy as np
import polars as pl

from skedge.analysis.columns import Columns
from skedge.core.model.cluster import Floats

Numbers = dict[str, float | int | None]


def costs(c: Columns) -> Numbers:
    """Total, latency and bandwidth cost, the two parts of the latter, and data moved, at sites.

    Latency: the sum of f_i of the response in slots over the finished jobs. It is capped at about 1e300 of its unit
    (O24); its logarithm to base 10 is not. Bandwidth, Eq. (1): parameter exchange, which for each worker and slot is
    pi_i times the cost between its site and the PS's; and data moved, which is the size of the chunks times the cost
    between the sites.
    """
    exchange, transfers = exchange_cost(c), transfer_cost(c)
    latency, log10 = _latency(c)
    total_mb = c.uploads.frame.filter(pl.col("from_site").is_not_null())["mb"].sum()
    return {
        "cost_total": latency + exchange + transfers,
        "cost_latency": latency,
        "cost_latency_log10": log10,
        "cost_bandwidth": exchange + transfers,
        "cost_exchange": exchange,
        "cost_transfers": transfers,
        "moved_mb": float(total_mb),
    }


def exchange_cost(c: Columns) -> float:
    """Sum over runs, each of one slot, of q^{r r~} pi y."""
    cost, slot = c.scenario.cluster.site_cost, c.scenario.physics.slot
    runs = c.gangs.frame.select("job", "start", "workers", "end").with_columns(site=pl.Series(c.gangs["server"]))
    ps = pl.DataFrame({"job": c.ps["job"], "start": c.ps["start"], "ps": c.ps["server"]})
    # Allocations last one slot at sites, each with its own PS: (job, start) is the slot's pair of workers and PS.
    frame = runs.join(ps, on=["job", "start"], how="inner")
    job, site, ps_site = (frame[name].to_numpy() for name in ("job", "site", "ps"))
    # Times are whole µs and slots too: rounding only removes the error of the division.
    slots = np.rint((frame["end"] - frame["start"]).to_numpy() / slot)
    return float((cost[site, ps_site] * c.scenario.jobs.exchange_mb[job] * frame["workers"].to_numpy() * slots).sum())


def transfer_cost(c: Columns) -> float:
    """Sum over transfers of q^{r r'} delta g."""
    return float((c.scenario.cluster.site_cost * moved_mb(c)).sum())


def moved_mb(c: Columns) -> Floats:
    """MB moved from the row's site to the column's, shape ``(servers, servers)``."""
    table, moved = np.zeros_like(c.scenario.cluster.site_cost), c.uploads["from_site"] >= 0
    source, target, mb = (c.uploads[name][moved] for name in ("from_site", "to_server", "mb"))
    # Not `table[source, target] += ...`, which would count a pair that occurs in several rows once.
    np.add.at(table, (source, target), mb)
    return table


def _latency(c: Columns) -> tuple[float, float | None]:
    t, slot = c.jobs, c.scenario.physics.slot
    total, logs = 0.0, []
    for job, completion, arrival in zip(t["job"].tolist(), t["completion"], t["arrival"], strict=True):
        f = c.scenario.jobs.latency[job]
        if completion >= 0 and f is not None:
            slots = float(completion - arrival) / slot
            # f is capped near 1e300 (O24), so that the sum stays a number; logarithms are not, and show its size.
            total += f(slots)
            logs.append(f.log(slots))
    return total, float(np.logaddexp.reduce(logs) / np.log(10)) if logs else None
