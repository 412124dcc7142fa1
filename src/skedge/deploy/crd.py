"""Check of a manifest against a CustomResourceDefinition, without an API server.

The schema of a CRD is *structural*: an API server silently drops fields that it does not name. Here they are errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from skedge.core.errors import InputError
from skedge.core.model.wording import did_you_mean

Schema = dict[str, Any]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The fast C loader if available, as a CRD with pod templates is a megabyte of YAML."""

_OBJECT_FIELDS: Schema = {"apiVersion": {}, "kind": {}, "metadata": {}}
"""Fields that an API server checks itself, independent of the CRD."""

_MAX_LINES = 10
_MAX_CHARS = 60


def read_schema(path: Path | str, kind: str, api_version: str) -> Schema:
    """The schema of a kind in a file of CRDs, closed: with ``additionalProperties: false`` where fields are named.

    Parameters
    ----------
    path
        A YAML file, which may contain other documents as well.
    kind, api_version
        As in a manifest: ``RayCluster``, ``ray.io/v1``.

    Raises
    ------
    InputError
        If the file cannot be read, or its schema is missing or damaged.
    """
    group, _, version = api_version.rpartition("/")
    for document in _documents(Path(path)):
        spec = _field(document, "spec")
        if _field(document, "kind") == "CustomResourceDefinition" and (
            (_field(spec, "group"), _field(_field(spec, "names"), "kind")) == (group, kind)
        ):
            version_schema = _version_schema(spec, version, f"{path}: {kind}")
            try:
                return _close(version_schema, root=True)
            except (TypeError, ValueError, AttributeError) as error:
                raise InputError(f"{path}: the schema of {kind} is damaged: {error}") from error
    raise InputError(f"{path}: has no CustomResourceDefinition of {kind} in {group}; take KubeRay's own file")


def _documents(path: Path) -> list[object]:
    try:
        return list(yaml.load_all(path.read_text(encoding="utf-8"), _LOADER))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error


def _field(value: object, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _version_schema(spec: Mapping[str, Any], version: str, label: str) -> Mapping[str, Any]:
    versions = spec.get("versions") if isinstance(spec.get("versions"), list) else []
    schemas = {_field(entry, "name"): _field(_field(entry, "schema"), "openAPIV3Schema") for entry in versions or ()}
    if not isinstance(schemas.get(version), Mapping):
        names = ", ".join(str(name) for name, schema in schemas.items() if isinstance(schema, Mapping))
        raise InputError(f"{label}: has no schema for version {version!r}; there are {names or 'none'}")
    schema: Mapping[str, Any] = schemas[version]
    return schema


def _close(schema: Mapping[str, Any], *, root: bool = False) -> Schema:
    """The schema without Kubernetes' extensions, rejecting fields that an API server would drop."""
    # an API server drops unknown fields silently: a misspelt one would just have no effect
    closed = dict(schema)
    if "properties" in schema:
        closed["properties"] = {name: _close(field) for name, field in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            closed[key] = _close(schema[key])
    if schema.get("type") == "object" and "additionalProperties" not in schema:
        closed["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    # such a field has no type of its own in a structural schema
    if schema.get("x-kubernetes-int-or-string"):
        closed["type"] = ["integer", "string"]
    # draft 4 of JSON Schema does not know `nullable`
    if schema.get("nullable") and "type" in closed:
        kinds = closed["type"]
        closed["type"] = [*(kinds if isinstance(kinds, list) else [kinds]), "null"]
    if schema.get("x-kubernetes-embedded-resource") or root:
        closed["properties"] = {**closed.get("properties", {}), **_OBJECT_FIELDS}
    return closed


def check(manifest: Mapping[str, Any], schema: Schema, label: str) -> None:
    """Reject a manifest that does not fit its schema.

    Parameters
    ----------
    manifest
        The document.
    schema
        From :func:`read_schema`.
    label
        Name of the schema in errors.

    Raises
    ------
    InputError
        With all errors, one per line: ``field: value: what would be right``; also if jsonschema is not installed.
    """
    try:
        from jsonschema import Draft4Validator, SchemaError  # noqa: PLC0415 - an extra; CRDs are close to draft 4
    except ImportError as error:
        raise InputError(f"--crd needs the extra `live`: pip install 'skedge[live]' ({error})") from error
    try:
        Draft4Validator.check_schema(schema)
    except SchemaError as error:
        raise InputError(f"{label}: the schema is damaged: {_path(error.absolute_path)}: {error.message}") from error
    lines = [line for error in Draft4Validator(schema).iter_errors(manifest) for line in _sentences(error)]
    if lines:
        messages = [f"{label}: {line}" for line in sorted(lines)[:_MAX_LINES]]
        if len(lines) > _MAX_LINES:
            messages.append(f"{label}: and {len(lines) - _MAX_LINES} more")
        raise InputError("\n".join(messages))


def _sentences(error: Any) -> Iterator[str]:
    """The text for an error found by jsonschema; our own wording if there is one."""
    place = list(error.absolute_path)
    rule, value = error.validator_value, error.instance
    if error.validator == "additionalProperties":
        known_fields = error.schema.get("properties", {})
        for name in value:
            if name not in known_fields:
                field_text = f"{_path([*place, name])}: {_short(value[name])}"
                yield f"{field_text}: is not a field of this CRD{_suggestion(name, known_fields)}"
    elif error.validator == "required":
        for name in rule:
            if name not in value:
                yield f"{_path([*place, name])}: is missing; it is needed"
    else:
        yield f"{_path(place)}: {_short(value)}: it must {_RULES.get(error.validator, _generic_rule)(rule)}"


def _suggestion(name: str, known_fields: Mapping[str, Any]) -> str:
    return (
        f"{did_you_mean(name, known_fields)}; there are {', '.join(sorted(known_fields))}"
        if known_fields
        else "; it takes no fields"
    )


def _generic_rule(rule: object) -> str:
    return f"satisfy {_short(rule)}"


_RULES = {
    "type": lambda rule: f"be of type {rule if isinstance(rule, str) else ' or '.join(rule)}",
    "enum": lambda rule: f"be one of {', '.join(map(str, rule))}",
    "pattern": lambda rule: f"match {rule}",
    "minimum": lambda rule: f"be at least {rule}",
    "maximum": lambda rule: f"be at most {rule}",
    "minLength": lambda rule: f"have at least {rule} characters",
    "maxLength": lambda rule: f"have at most {rule} characters",
    "minItems": lambda rule: f"have at least {rule} entries",
    "maxItems": lambda rule: f"have at most {rule} entries",
}


def _path(place: Sequence[str | int]) -> str:
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return parts.removeprefix(".") or "document"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 3] + "..."
