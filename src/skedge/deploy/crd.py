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

_OF_EVERY_OBJECT: Schema = {"apiVersion": {}, "kind": {}, "metadata": {}}
"""Fields that an API server checks itself, independent of the CRD."""

_SHOWN = 10
_LONGEST = 60


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
        spec = _at(document, "spec")
        if _at(document, "kind") == "CustomResourceDefinition" and (
            (_at(spec, "group"), _at(_at(spec, "names"), "kind")) == (group, kind)
        ):
            found = _of_version(spec, version, f"{path}: {kind}")
            try:
                return _closed(found, root=True)
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


def _at(value: object, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _of_version(spec: Mapping[str, Any], version: str, where: str) -> Mapping[str, Any]:
    versions = spec.get("versions") if isinstance(spec.get("versions"), list) else []
    found = {_at(one, "name"): _at(_at(one, "schema"), "openAPIV3Schema") for one in versions or ()}
    if not isinstance(found.get(version), Mapping):
        there = ", ".join(str(name) for name, schema in found.items() if isinstance(schema, Mapping))
        raise InputError(f"{where}: has no schema for version {version!r}; there are {there or 'none'}")
    schema: Mapping[str, Any] = found[version]
    return schema


def _closed(schema: Mapping[str, Any], *, root: bool = False) -> Schema:
    """The schema without Kubernetes' extensions, rejecting fields that an API server would drop."""
    closed = dict(schema)
    if "properties" in schema:
        closed["properties"] = {name: _closed(one) for name, one in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            closed[key] = _closed(schema[key])
    if schema.get("type") == "object" and "additionalProperties" not in schema:
        closed["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    if schema.get("x-kubernetes-int-or-string"):
        closed["type"] = ["integer", "string"]
    if schema.get("nullable") and "type" in closed:
        kinds = closed["type"]
        closed["type"] = [*(kinds if isinstance(kinds, list) else [kinds]), "null"]
    if schema.get("x-kubernetes-embedded-resource") or root:
        closed["properties"] = {**closed.get("properties", {}), **_OF_EVERY_OBJECT}
    return closed


def check(manifest: Mapping[str, Any], schema: Schema, where: str) -> None:
    """Reject a manifest that does not fit its schema.

    Parameters
    ----------
    manifest
        The document.
    schema
        From :func:`read_schema`.
    where
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
        raise InputError(f"{where}: the schema is damaged: {_path(error.absolute_path)}: {error.message}") from error
    lines = [line for error in Draft4Validator(schema).iter_errors(manifest) for line in _sentences(error)]
    if lines:
        shown = [f"{where}: {line}" for line in sorted(lines)[:_SHOWN]]
        if len(lines) > _SHOWN:
            shown.append(f"{where}: and {len(lines) - _SHOWN} more")
        raise InputError("\n".join(shown))


def _sentences(error: Any) -> Iterator[str]:
    """The text for an error found by jsonschema; our own wording if there is one."""
    place = list(error.absolute_path)
    wanted, value = error.validator_value, error.instance
    if error.validator == "additionalProperties":
        there = error.schema.get("properties", {})
        for name in value:
            if name not in there:
                found = f"{_path([*place, name])}: {_short(value[name])}"
                yield f"{found}: is not a field of this CRD{_instead(name, there)}"
    elif error.validator == "required":
        for name in wanted:
            if name not in value:
                yield f"{_path([*place, name])}: is missing; it is needed"
    else:
        yield f"{_path(place)}: {_short(value)}: it must {_RULES.get(error.validator, _other)(wanted)}"


def _instead(name: str, there: Mapping[str, Any]) -> str:
    return f"{did_you_mean(name, there)}; there are {', '.join(sorted(there))}" if there else "; it takes no fields"


def _other(wanted: object) -> str:
    return f"satisfy {_short(wanted)}"


_RULES = {
    "type": lambda wanted: f"be of type {wanted if isinstance(wanted, str) else ' or '.join(wanted)}",
    "enum": lambda wanted: f"be one of {', '.join(map(str, wanted))}",
    "pattern": lambda wanted: f"match {wanted}",
    "minimum": lambda wanted: f"be at least {wanted}",
    "maximum": lambda wanted: f"be at most {wanted}",
    "minLength": lambda wanted: f"have at least {wanted} characters",
    "maxLength": lambda wanted: f"have at most {wanted} characters",
    "minItems": lambda wanted: f"have at least {wanted} entries",
    "maxItems": lambda wanted: f"have at most {wanted} entries",
}


def _path(place: Sequence[str | int]) -> str:
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return parts.removeprefix(".") or "document"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
