"""The manifests of :mod:`.kuberay` as a Helm chart: what they leave open are its values.

A chart is of one cluster file, because a worker group is of one server. The template is the manifests themselves,
with an expression of Helm where a setting stands; so for equal settings it renders to equal documents.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from skedge.core.model.scenario import Scenario

from .kuberay import NAME, ManifestSettings, as_yaml, manifests

_OPEN = ManifestSettings("value-of/image", "value-of-namespace", "/value-of-chunks-path", "value-of-storage-class")
"""Settings that stand for themselves, to be found again in the text of the manifests."""

_EXPRESSIONS = {
    _OPEN.image: "{{ .Values.image | quote }}",
    _OPEN.namespace: "{{ .Release.Namespace }}",
    _OPEN.chunks_path: "{{ .Values.chunksPath | quote }}",
}
_CLASS = f"storageClassName: {_OPEN.storage_class}\n"


def chart(scenario: Scenario, settings: ManifestSettings, version: str) -> dict[str, str]:
    """The files of a chart by their paths; the settings but the namespace, which is the release's, are its values.

    Parameters
    ----------
    version
        Version of skedge, and of the chart.

    Raises
    ------
    InputError
        As :func:`.kuberay.manifests`.
    """
    about = {"apiVersion": "v2", "name": NAME, "type": "application", "version": version, "appVersion": version}
    about["description"] = f"skedge on the servers of {scenario.name}"
    return {
        "Chart.yaml": yaml.safe_dump(about, sort_keys=False),
        "values.yaml": _values(settings),
        "values.schema.json": json.dumps(_SCHEMA, indent=2) + "\n",
        "templates/skedge.yaml": _template(scenario),
    }


def _values(settings: ManifestSettings) -> str:
    """The values as YAML, each below what it means."""
    of = {"image": settings.image, "chunksPath": settings.chunks_path, "storageClass": settings.storage_class or ""}
    return "\n".join(f"# {_ABOUT[name]}\n{name}: {json.dumps(value)}\n" for name, value in of.items())


def _template(scenario: Scenario) -> str:
    text = as_yaml(manifests(scenario, _OPEN)).replace("{{", '{{ "{{" }}')
    for value, expression in _EXPRESSIONS.items():
        text = text.replace(value, expression)
    before, _, after = text.partition(_CLASS)
    indent = before[before.rindex("\n") + 1 :]
    optional = (
        f"{{{{- with .Values.storageClass }}}}\n{indent}storageClassName: {{{{ . | quote }}}}\n{indent}{{{{- end }}}}\n"
    )
    return before.removesuffix(indent) + indent + optional + after


_ABOUT = {
    "image": "Image of deploy/Containerfile, with your own code",
    "chunksPath": "Folder on the nodes for their chunks; an absolute path",
    "storageClass": "Storage class of the checkpoint volume, which all pods write to; empty: the cluster's default",
}

_SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "image": {"type": "string", "minLength": 1, "pattern": r"^\S+$"},
        "chunksPath": {"type": "string", "pattern": "^/", "not": {"pattern": r"\.\."}},
        "storageClass": {"type": "string"},
    },
    "required": list(_ABOUT),
}
"""What Helm accepts as values."""


def write(files: dict[str, str], folder: Path) -> None:
    """Write the files of a chart into a folder that exists."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
