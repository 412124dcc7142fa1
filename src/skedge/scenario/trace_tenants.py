"""The tenants and priority classes that a trace has: a cluster that the jobs made of it share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from skedge.core.model.cluster import Cluster
from skedge.core.model.sharing import Sharing, Tenant

_NAMES = ("tenant", "priority")


class SharedCluster(NamedTuple):
    """A cluster, a jobs table, and the origin of the jobs."""

    cluster: Cluster
    jobs: pl.DataFrame
    source: dict[str, Any]


def share_between_tenants(cluster: Cluster, jobs: pl.DataFrame, source: Mapping[str, Any]) -> SharedCluster:
    """Let the tenants of `jobs`, made of a trace, share `cluster` where it does not say how itself.

    On slots each tenant has weight 1 and no quota. Resources have no tenants, so there the jobs lose theirs. Either is
    said in the note of the source.
    """
    names = [name for name in _NAMES if name in jobs.columns]
    if not names or cluster.sharing is not None:
        return SharedCluster(cluster, jobs, dict(source))
    labels = " and ".join(names)
    if not cluster.worker_types:
        return SharedCluster(
            cluster, jobs.drop(names), _with_note(source, f"{labels} left out: only servers with slots have tenants")
        )
    tenants = jobs["tenant"].drop_nulls().unique(maintain_order=True) if "tenant" in names else ()
    # a trace names its tenants, but not what each of them may hold
    sharing = Sharing({name: Tenant() for name in tenants})
    note = f"{labels} of the trace: cluster.sharing has {len(sharing.names)} tenants of weight 1 without a quota"
    return SharedCluster(Cluster(cluster.servers, sharing=sharing), jobs, _with_note(source, note))


def _with_note(source: Mapping[str, Any], note: str) -> dict[str, Any]:
    before = [source["note"]] if "note" in source else []
    return {**source, "note": "; ".join([*before, note])}
