"""Writing of resolved scenarios, in the form that :mod:`skedge.scenario.file` reads."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from skedge.core.model.cluster import PS, WORKER, Cluster, Server
from skedge.core.model.scenario import Scenario
from skedge.core.model.sharing import Tenant
from skedge.core.model.time import SECOND
from skedge.core.record.record_fields import job_labels


def save_scenario(scenario: Scenario, folder: Path | str) -> Path:
    """Write the resolved scenario, with nothing left to draw: ``scenario.yaml`` and ``jobs.parquet`` in `folder`.

    Jobs that have not been read from their file are copied with it. For a cluster of sites it also writes
    ``transfer_cost.csv``. :func:`.file.load_scenario` restores an equal scenario.
    Equal scenarios are written as equal bytes.

    Returns
    -------
    pathlib.Path
        The scenario file.
    """
    content, folder = _resolved(scenario), Path(folder)
    text = yaml.dump(content, Dumper=_dumper(content), sort_keys=False, allow_unicode=True, width=120)
    folder.mkdir(parents=True, exist_ok=True)
    table, costs, file = folder / JOBS, folder / _COSTS, folder / "scenario.yaml"
    # everything is complete under temporary names before anything is renamed, and the scenario file, which names the
    # others, comes last: a file that is there names complete ones
    written = [table, file]
    _write_jobs(scenario, _aside(table))
    if "transfer_cost" in content["cluster"]:
        frame = pl.DataFrame(scenario.cluster.transfer_cost, schema=scenario.cluster.server_ids, orient="row")
        frame.write_csv(_aside(costs))
        written.insert(1, costs)
    _aside(file).write_text(text, encoding="utf-8")
    for path in written:
        os.replace(_aside(path), path)
    return file


def _write_jobs(scenario: Scenario, path: Path) -> None:
    if scenario.unread is not None:
        shutil.copyfile(scenario.unread.path, path)
        return
    jobs = scenario.jobs.frame
    jobs.write_parquet(path, metadata=job_labels(*jobs.columns))


JOBS = "jobs.parquet"
"""File of the jobs in a saved scenario."""

_COSTS = "transfer_cost.csv"
"""File of the costs between sites in a saved scenario; as YAML, 500 x 500 numbers would take seconds to read."""


def _dumper(content: dict[str, Any]) -> type[Any]:
    """PyYAML's C library, which is far faster, for ASCII: it writes some other characters in another way."""
    plain = json.dumps(content, ensure_ascii=False).isascii()
    quick: type[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return quick if plain else yaml.SafeDumper


def digest_of(scenario: Scenario) -> str:
    """Hash of the resolved scenario: those that are written as equal files have equal hashes."""
    scenario = replace(scenario)  # in memory: another file may have the same jobs
    jobs = BytesIO()
    scenario.jobs.frame.write_parquet(jobs)
    # as JSON: YAML takes longer than many a run
    content = json.dumps([_resolved(scenario), scenario.cluster.site_cost.tolist()])
    return blake2b(content.encode() + jobs.getvalue(), digest_size=16).hexdigest()


def _aside(path: Path) -> Path:
    """Temporary path to write to before renaming, so that no partial file is left."""
    return path.with_name(path.name + ".part")


def _resolved(scenario: Scenario) -> dict[str, Any]:
    workload: dict[str, Any] = {"table": JOBS}
    fixed_delays = (scenario.unread or scenario.jobs).fixed_delays
    if fixed_delays:
        workload["upload"] = {job: dict(delays) for job, delays in sorted(fixed_delays.items())}
    fields = cluster_fields(scenario)
    if "transfer_cost" in fields["cluster"]:
        fields["cluster"]["transfer_cost"] = _COSTS
    source = {"source": dict(scenario.source)} if scenario.source else {}
    return {**fields, "workload": workload, **source}


def cluster_fields(scenario: Scenario) -> dict[str, Any]:
    """Content of a cluster file from which :func:`.file.load_cluster_file` restores the cluster; nothing is drawn."""
    p, cluster = scenario.physics, scenario.cluster
    return {
        "name": scenario.name,
        "seed": scenario.seed,
        "slot": p.slot / SECOND,
        "physics": {
            "slotted": p.slotted,
            "colocation": p.colocation,
            "charge_upload": p.charge_upload,
            "data": p.data,
            "checkpoint_overhead": p.checkpoint_overhead / SECOND,
            "estimate_error": float(p.estimate_error),
            "speedup": float(p.speedup),
            **({} if p.horizon is None else {"horizon": p.horizon / SECOND}),
            **({} if p.mtbf is None else {"mtbf": p.mtbf / SECOND, "mttr": p.mttr / SECOND}),
        },
        "cluster": {
            "servers": [_server_fields(s) for s in cluster.servers],
            **_cost_fields(cluster),
            **_sharing_fields(cluster),
        },
    }


def _cost_fields(cluster: Cluster) -> dict[str, Any]:
    fields = {"transfer_cost": cluster.site_cost.tolist(), "asymmetric": cluster.asymmetric}
    return {name: value for name, value in fields.items() if value}


def _sharing_fields(cluster: Cluster) -> dict[str, Any]:
    sharing = cluster.sharing
    if sharing is None:
        return {}
    bounds = {
        "min_runtime": sharing.min_runtime_s, "most_preemptions": sharing.most_preemptions, "ageing": sharing.ageing_s
    }  # fmt: skip
    tenants = {name: _tenant_fields(tenant) for name, tenant in sharing.tenants.items()}
    return {"sharing": {"tenants": tenants, **{name: value for name, value in bounds.items() if value is not None}}}


def _tenant_fields(tenant: Tenant) -> dict[str, Any]:
    limits = {"max_wait": tenant.max_wait_s, "max_run_time": tenant.max_run_time_s}
    fields = {name: value for name, value in limits.items() if value is not None}
    return {"weight": tenant.weight, "quota": tenant.quota, **fields}


def _server_fields(server: Server) -> dict[str, Any]:
    fields = {
        "id": server.id,
        "kind": server.kind,
        "workers": _slots(server, WORKER),
        "ps": _slots(server, PS),
        "resources": {r: float(n) for r, n in server.capacity.items() if not r.startswith((WORKER, PS))},
        "storage_mb": None if server.storage_mb is None else float(server.storage_mb),
        "site": server.site,
        "gpus": server.gpus or None,
        "upload": None if server.upload == "edge" else server.upload,
    }
    return {name: value for name, value in fields.items() if value not in (None, {})}


def _slots(server: Server, prefix: str) -> dict[str, int]:
    return {r.removeprefix(prefix): int(n) for r, n in server.capacity.items() if r.startswith(prefix)}
