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
from importlib.resources import files
from string import Template
from typing import Any

import yaml

from skedge.core.errors import InputError
from skedge.core.model.cluster import PS, WORKER, Server
from skedge.core.model.scenario import Scenario
from skedge.live.cluster.health_checks import HEALTH
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

API_PORT = 8400
"""Port of the API in the controller's pod, on loopback; reached with ``kubectl port-forward``."""

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
    servers, values = scenario.cluster.servers, _VALUES | _values(scenario, settings)
    groups = group_names(scenario.cluster.server_ids)
    documents: list[Manifest] = yaml.safe_load((files(__package__) / "manifests.yaml").read_text(encoding="utf-8"))
    for document in documents:
        if document["kind"] == "RayCluster":
            (group,) = document["spec"]["workerGroupSpecs"]
            groups_values = [values | _server_values(groups[server.id], server) for server in servers]
            document["spec"]["workerGroupSpecs"] = [_filled(group, group_values) for group_values in groups_values]
    return [_filled(document, values) for document in documents]


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


def _filled(part: Any, values: Mapping[str, str]) -> Any:
    """A part of the template with its values filled in; a field that is then empty is left out."""
    if isinstance(part, Mapping):
        fields = {_filled(name, values): _filled(field, values) for name, field in part.items()}
        return {name: field for name, field in fields.items() if field != ""}
    if isinstance(part, list):
        return [_filled(entry, values) for entry in part]
    return Template(part).substitute(values) if isinstance(part, str) else part


_VALUES = {
    "name": NAME,
    "controller": CONTROLLER,
    "secret": SECRET,
    "secret_key": SECRET_KEY,
    "node_label": NODE_LABEL,
    "state": STATE,
    "ray_version": RAY_VERSION,
    "api_port": str(API_PORT),
    "health": f"'{json.dumps(HEALTH, separators=(',', ':'))}'",
}
"""Values in the template that are the same for all clusters."""


def _values(scenario: Scenario, settings: ManifestSettings) -> dict[str, str]:
    """Values in the template of one cluster file."""
    return {
        "image": settings.image,
        "namespace": settings.namespace,
        "chunks_path": settings.chunks_path,
        "storage_class": settings.storage_class or "",
        "cluster_file": yaml.safe_dump(cluster_fields(scenario), sort_keys=False, allow_unicode=True, width=120),
        "device": "auto" if any(server.gpus for server in scenario.cluster.servers) else "cpu",
    }


def _server_values(group: str, server: Server) -> dict[str, str]:
    """Values of a server's group: at most one core per slot; memory for Ray, the agent and each PS slot, limit twice.

    GPUs are whole ones, so that a part of a GPU takes one.
    """
    workers = sum(n for resource, n in server.capacity.items() if resource.startswith(WORKER))
    ps = sum(n for resource, n in server.capacity.items() if resource.startswith(PS))
    if server.kind == "cloud" or any(not r.startswith((WORKER, PS)) for r in server.capacity):  # no slots to count
        workers, ps = _CLOUD_WORKERS, _CLOUD_PS
    # rounded up: 2 GB for Ray and the agent, half a GB for each PS slot
    memory, gpus = 2 + (int(ps) + 1) // 2, str(math.ceil(server.gpus))
    return {
        "group": group,
        "server": server.id,
        "ray_gpus": gpus,
        "gpus": gpus if server.gpus else "",
        "cores": str(max(int(workers) + int(ps), 1)),
        "memory": str(memory),
        "most_memory": str(2 * memory),
    }


class _Dumper(yaml.SafeDumper):
    """Writes readable YAML: no anchors, multi-line texts as blocks."""

    def ignore_aliases(self, data: object) -> bool:
        """Write everything out."""
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
