"""Random scenarios for the compiled loop of A_online."""

from __future__ import annotations

from builders.aonline_instances import Pick, one_of
from builders.aonline_property import seeded_pick
from builders.gang_policies import random_physics
from skedge.core.model.cluster import Cluster, Job, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario


def instance(seed: int) -> Scenario:
    """Up to 25 jobs on up to four servers with two types of workers and PSs, in two of three cases with a cloud."""
    pick = seeded_pick(seed)
    servers = [_server(pick, i) for i in range(pick(1, 4))]
    cloud = [Server("cloud", "cloud")] if pick(0, 2) else []
    cluster = Cluster([Server("always", capacity={"worker:a": 1, "ps:x": 1}), *servers, *cloud])
    kinds = (cluster.worker_types if not cloud else ("a", "b")), (cluster.ps_types if not cloud else ("x", "y"))
    frame, given = job_table([_job(pick, i, kinds) for i in range(pick(1, 25))])
    return Scenario(cluster, Jobs(frame, cluster, given), random_physics(pick), seed, f"chunks-{seed}")


def _server(pick: Pick, number: int) -> Server:
    """A server; of one type of PSs it may have too few for the jobs that run at once."""
    workers = {"worker:a": pick(0, 2), "worker:b": pick(0, 2)}
    return Server(f"s{number}", capacity={**workers, "ps:x": 12, "ps:y": one_of(pick, (0, 1, 12))})


def _job(pick: Pick, number: int, kinds: tuple[tuple[str, ...], tuple[str, ...]]) -> Job:
    return Job(
        id=str(number),
        arrival_s=pick(0, 40) / 2,
        epochs=1,
        chunks=pick(1, 7),
        minibatches=pick(1, 9),
        minibatch_s=0.5,
        gradient_mb=float(pick(0, 1)),
        bandwidth_mbps=16.0,
        worker_type=one_of(pick, kinds[0]),
        ps_type=one_of(pick, kinds[1]),
        workers=1,
        upload_edge_s=(0.0, 3.0),
        upload_cloud_s=(2.0, 9.0),
    )
