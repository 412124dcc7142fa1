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

_PLACEHOLDERS = ManifestSettings(
    "value-of/image", "value-of-namespace", "/value-of-chunks-path", "value-of-storage-class"
)
"""Settings that stand for themselves, to be found again in the text of the manifests."""

_EXPRESSIONS = {
    _PLACEHOLDERS.image: "{{ .Values.image | quote }}",
    _PLACEHOLDERS.namespace: "{{ .Release.Namespace }}",
    _PLACEHOLDERS.chunks_path: "{{ .Values.chunksPath | quote }}",
}
_CLASS = f"storageClassName: {_PLACEHOLDERS.storage_class}\n"


def chart(scenario: Scenario, settings: ManifestSettings, version: str) -> dict[str, str]:
    """The files of a chart by their paths; the settings but the namespace, which is the release's, are its values.

    Parameters
    ----------
    scenario, settings
        What is deployed, and how: the values of the chart.
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
    values = {"image": settings.image, "chunksPath": settings.chunks_path, "storageClass": settings.storage_class or ""}
    return "\n".join(f"# {_VALUE_HELP[name]}\n{name}: {json.dumps(value)}\n" for name, value in values.items())


def _template(scenario: Scenario) -> str:
    # braces in a server's id would be Helm's own: they are printed as text
    text = as_yaml(manifests(scenario, _PLACEHOLDERS)).replace("{{", '{{ "{{" }}')
    for value, expression in _EXPRESSIONS.items():
        text = text.replace(value, expression)
    # the field must be absent, not empty, for the cluster's default class
    before, _, after = text.partition(_CLASS)
    indent = before[before.rindex("\n") + 1 :]
    optional = (
        f"{{{{- with .Values.storageClass }}}}\n{indent}storageClassName: {{{{ . | quote }}}}\n{indent}{{{{- end }}}}\n"
    )
    return before.removesuffix(indent) + indent + optional + after


_VALUE_HELP = {
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
    "required": list(_VALUE_HELP),
}
"""Schema of the values, which Helm checks."""


def write(files: dict[str, str], folder: Path) -> None:
    """Write the files of a chart into a folder that exists."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
