"""KubeRay manifests of a cluster file: a RayCluster with one worker group per server, and the controller.

Every server of the file is one pod on the Kubernetes node with the label ``skedge/server: <id>``. Its Ray node has the
label ``server: <id>``, by which the live world finds it. The names are fixed, so a namespace holds one cluster.

The Ray label is set in the group's field ``labels``, which exists since KubeRay 1.5; since then KubeRay rejects
``labels`` in ``rayStartParams``.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from skedge.core.errors import InputError
from skedge.core.model.cluster import PS, WORKER, Server
from skedge.core.model.scenario import Scenario
from skedge.live.control.health import HEALTH
from skedge.scenario.save import cluster_fields

RAY_VERSION = "2.60.0"
"""Version of Ray in the image of ``deploy/Containerfile``; KubeRay chooses its probes by it."""

NAME = "skedge"
CONTROLLER = "skedge-controller"
SECRET = "skedge-ray-token"  # noqa: S105  the name of the Secret
SECRET_KEY = "auth_token"  # noqa: S105  the same
NODE_LABEL = "skedge/server"

STATE = "/var/lib/skedge-state"
"""The controller's ``--state``. An agent keeps its chunks under the same path, in ``servers/<id>``."""

_HEAD = f"{NAME}-head-svc"
"""Name of the service that KubeRay creates for the head."""

_GCS_PORT = 6379
_RAY_AGENT_PORT = 52365
API_PORT = 8400
"""Port of the API in the controller's pod, on loopback; reached with ``kubectl port-forward``."""

_OPTIONS = "--foreground --trust-jobs"
_START = f"""\
# a Ray driver needs a Ray node at its own address
ray start --address={_HEAD}:{_GCS_PORT} --num-cpus=0 --num-gpus=0
# left by a controller that was killed; there is no other one, and process numbers come again in a new container
rm -f {STATE}/service.json
# so that `kubectl logs` shows it
touch {STATE}/controller.log
tail -n 0 -F {STATE}/controller.log &
# a pod allows no namespaces, so no jobs can be confined in it: they are the pod's
exec skedge up /etc/skedge/cluster.yaml --state {STATE} --ray {_HEAD}:{_GCS_PORT} --port {API_PORT} {_OPTIONS}"""

_GPU = "nvidia.com/gpu"
"""Resource by which a pod asks for GPUs; whole ones only, so that a part of a GPU takes one."""

_USER = 1000
"""User and group in the image."""

_CLOUD_WORKERS, _CLOUD_PS = 16, 4
"""Slots for which a pod of the cloud is sized, as the cloud has no limit of slots."""

_LONGEST_GROUP = 40
"""Most characters of a group name: KubeRay adds the cluster's name and a random suffix, within 63 characters."""

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_IMAGE = re.compile(r"\w[\w.-]*(:\d+)?(/[a-z0-9][a-z0-9._-]*)*(:\w[\w.-]{0,127})?(@\w+:[0-9a-f]{32,})?", re.ASCII)
"""``registry:port/path:tag@digest``, all but the first optional."""

_RESERVED_GROUP = "headgroup"

Manifest = dict[str, Any]


@dataclass(frozen=True)
class ManifestSettings:
    """Settings that are not in a cluster file.

    Attributes
    ----------
    image
        Container image with skedge, built from ``deploy/Containerfile``.
    namespace
        Kubernetes namespace of everything.
    chunks_path
        Folder on the nodes for their chunks; an absolute path.
    storage_class
        Storage class of the checkpoint volume, which all pods write to; None: the cluster's default.

    Raises
    ------
    InputError
        For an invalid namespace, image or path.
    """

    image: str
    namespace: str = NAME
    chunks_path: str = "/var/lib/skedge"
    storage_class: str | None = None

    def __post_init__(self) -> None:
        """Reject values that Kubernetes would reject."""
        if not _DNS_LABEL.fullmatch(self.namespace):
            raise InputError(
                f"--namespace {self.namespace!r}: it must be at most 63 lower-case letters, digits and dashes, with no "
                "dash at either end"
            )
        if not _IMAGE.fullmatch(self.image):
            raise InputError(f"--image {self.image!r}: it must be an image's name, such as registry.example/skedge:1")
        if not self.chunks_path.startswith("/") or ".." in self.chunks_path.split("/"):
            raise InputError(f"--chunks-path {self.chunks_path!r}: it must be an absolute path without '..'")


def manifests(scenario: Scenario, settings: ManifestSettings) -> list[Manifest]:
    """The documents to apply, in order: cluster file, volumes, RayCluster, controller.

    Raises
    ------
    InputError
        For a server whose id is no valid label value.
    """
    documents = [_config(scenario), *_claims(settings), _ray_cluster(scenario.cluster.servers, settings)]
    documents.append(_controller(settings, "auto" if any(s.gpus for s in scenario.cluster.servers) else "cpu"))
    for document in documents:
        document["metadata"] = {"namespace": settings.namespace, **document["metadata"]}
    return documents


def as_yaml(documents: Sequence[Manifest]) -> str:
    """The documents as one YAML file."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=120)


def group_names(ids: Sequence[str]) -> dict[str, str]:
    """Name of the worker group of each server: its id, or, if that is no valid name, a similar name with a hash.

    Raises
    ------
    InputError
        For an id that is no valid label value, as the live world finds servers by label.
    """
    names: dict[str, str] = {}
    for number, name in enumerate(ids):
        if not _LABEL.fullmatch(name):
            raise InputError(
                f"cluster.servers[{number}].id: {name!r}: as a label on Kubernetes and Ray nodes it must be at most 63 "
                "letters, digits, dashes, underscores and dots, with a letter or digit at either end"
            )
        # ids that are valid names first, so that no hashed name takes one of them
        if _is_group(name):
            names[name] = name
    for name in ids:
        if name not in names:
            names[name] = next(candidate for candidate in _hashed_names(name) if candidate not in names.values())
    return {name: names[name] for name in ids}


def _is_group(name: str) -> bool:
    return len(name) <= _LONGEST_GROUP and name != _RESERVED_GROUP and _DNS_LABEL.fullmatch(name) is not None


def _hashed_names(name: str) -> Iterator[str]:
    """Candidate group names for a server, with ever longer parts of the hash of its id."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    like = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    # the first is nearly always free; longer ones resolve a clash with another server's id
    for length in range(6, 31):
        # cut so that the dash and the hash fit in the limit
        yield f"{like[: _LONGEST_GROUP - length - 1].rstrip('-')}-{digest[:length]}"


def _config(scenario: Scenario) -> Manifest:
    """The cluster file for the controller, with all random draws made."""
    content = yaml.safe_dump(cluster_fields(scenario), sort_keys=False, allow_unicode=True, width=120)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{NAME}-cluster"},
        "data": {"cluster.yaml": content},
    }


def _claims(settings: ManifestSettings) -> list[Manifest]:
    storage = {} if settings.storage_class is None else {"storageClassName": settings.storage_class}
    return [
        _claim("state", "ReadWriteOnce", {}),
        _claim("checkpoints", "ReadWriteMany", storage),  # parameter servers on any server read and write them
    ]


def _claim(suffix: str, access: str, storage: Mapping[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{NAME}-{suffix}"},
        "spec": {"accessModes": [access], **storage, "resources": {"requests": {"storage": "10Gi"}}},
    }


def _ray_cluster(servers: Sequence[Server], settings: ManifestSettings) -> Manifest:
    groups = group_names([server.id for server in servers])
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": NAME},
        "spec": {
            "rayVersion": RAY_VERSION,
            "headGroupSpec": _head(settings),
            "workerGroupSpecs": [_group(groups[server.id], server, settings) for server in servers],
        },
    }


def _head(settings: ManifestSettings) -> Manifest:
    ports = [
        {"name": "gcs-server", "containerPort": _GCS_PORT},
        {"name": "dashboard", "containerPort": 8265},
    ]
    container = {
        **_container("ray-head", settings.image),
        "ports": ports,
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "2", "memory": "4Gi"}},
    }
    # KubeRay inserts the values into a shell command without quoting
    params = {"num-cpus": "0", "system-config": f"'{json.dumps(HEALTH, separators=(',', ':'))}'"}
    return {"rayStartParams": params, "template": {"spec": {"securityContext": _security(), "containers": [container]}}}


def _group(name: str, server: Server, settings: ManifestSettings) -> Manifest:
    return {
        "groupName": name,
        "replicas": 1,
        # fixed at one pod: the autoscaler must not start a second with the same Ray label
        "minReplicas": 1,
        "maxReplicas": 1,
        "labels": {"server": server.id},
        "rayStartParams": {"num-cpus": "1", "num-gpus": str(math.ceil(server.gpus))},
        "template": {
            "metadata": {"labels": {NODE_LABEL: server.id}},
            "spec": _worker_pod(server, settings),
        },
    }


def _worker_pod(server: Server, settings: ManifestSettings) -> Manifest:
    mounts = [
        {"name": "chunks", "mountPath": f"{STATE}/servers"},
        {"name": "checkpoints", "mountPath": f"{STATE}/checkpoints"},
    ]
    volumes = [
        {"name": "chunks", "hostPath": {"path": settings.chunks_path, "type": "DirectoryOrCreate"}},
        _volume("checkpoints"),
    ]
    container = {
        **_container("ray-worker", settings.image),
        "resources": _resources(server),
        "volumeMounts": mounts,
    }
    return {
        "nodeSelector": {NODE_LABEL: server.id},
        "securityContext": _security(),
        # Kubernetes sets no owner (fsGroup) on hostPath volumes
        "initContainers": [_owner(settings, mounts[0])],
        "containers": [container],
        "volumes": volumes,
    }


def _owner(settings: ManifestSettings, mount: Mapping[str, str]) -> Manifest:
    """Gives a folder on a node, which is created as root, to the image's user."""
    return {
        "name": "own-chunks",
        "image": settings.image,
        "command": ["chown", f"{_USER}:{_USER}", mount["mountPath"]],
        "securityContext": {"runAsUser": 0, "runAsGroup": 0},
        "volumeMounts": [dict(mount)],
    }


def _resources(server: Server) -> Manifest:
    """GPUs; at most one core per slot; memory for Ray, the agent and 0.4 GB for each PS slot, limit twice that."""
    workers = sum(n for resource, n in server.capacity.items() if resource.startswith(WORKER))
    ps = sum(n for resource, n in server.capacity.items() if resource.startswith(PS))
    if server.kind == "cloud" or any(not r.startswith((WORKER, PS)) for r in server.capacity):  # no slots to count
        workers, ps = _CLOUD_WORKERS, _CLOUD_PS
    # rounded up: 2 GB for Ray and the agent, half a GB for each PS slot
    memory = 2 + (int(ps) + 1) // 2
    gpus = {_GPU: str(math.ceil(server.gpus))} if server.gpus else {}
    return {
        # Kubernetes wants GPUs in both, and equal
        "requests": {"cpu": "1", "memory": f"{memory}Gi", **gpus},
        "limits": {"cpu": str(max(int(workers) + int(ps), 1)), "memory": f"{2 * memory}Gi", **gpus},
    }


def _controller(settings: ManifestSettings, device: str) -> Manifest:
    """At most one controller, as two would write to one journal."""
    labels = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "controller"}
    pod = {
        "securityContext": _security(),
        # as long as `skedge down` waits for the end
        "terminationGracePeriodSeconds": 60,
        "containers": [_controller_container(settings, device)],
        "volumes": [
            {"name": "cluster", "configMap": {"name": f"{NAME}-cluster"}},
            # a container has 64 MB of shared memory by default, too little for Ray's object store
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
            _volume("state"),
            _volume("checkpoints"),
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": CONTROLLER},
        "spec": {
            "replicas": 1,
            # the old pod ends before the new one starts: a rolling update would run two
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": dict(labels)}, "spec": pod},
        },
    }


def _controller_container(settings: ManifestSettings, device: str) -> Manifest:
    raylet = {"path": "/api/local_raylet_healthz", "port": _RAY_AGENT_PORT}
    environment = [*_environment(), {"name": "SKEDGE_STATE", "value": STATE}]
    return {
        **_container("controller", settings.image, environment),
        "command": ["/bin/sh", "-ec", f"{_START} --device {device}\n"],
        "livenessProbe": {"httpGet": raylet, "initialDelaySeconds": 60, "periodSeconds": 10, "failureThreshold": 3},
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "2", "memory": "6Gi"}},
        "volumeMounts": [
            {"name": "cluster", "mountPath": "/etc/skedge", "readOnly": True},
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108  where Ray keeps objects
            {"name": "state", "mountPath": STATE},
            {"name": "checkpoints", "mountPath": f"{STATE}/checkpoints"},
        ],
    }


def _container(name: str, image: str, environment: Sequence[Manifest] | None = None) -> Manifest:
    return {"name": name, "image": image, "env": list(environment or _environment())}


def _environment() -> list[Manifest]:
    return [
        {"name": "RAY_AUTH_MODE", "value": "token"},
        {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": {"name": SECRET, "key": SECRET_KEY}}},
        {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"},
        {"name": "OMP_NUM_THREADS", "value": "1"},
    ]


def _security() -> Manifest:
    return {"runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER}


def _volume(suffix: str) -> Manifest:
    return {"name": suffix, "persistentVolumeClaim": {"claimName": f"{NAME}-{suffix}"}}


class _Dumper(yaml.SafeDumper):
    """Writes readable YAML: no anchors, multi-line texts as blocks."""

    def ignore_aliases(self, data: object) -> bool:
        """Write everything out."""
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
