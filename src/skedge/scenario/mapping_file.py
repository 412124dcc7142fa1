"""Files that map the columns of a trace."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from skedge.core.errors import ScenarioError, TraceError
from skedge.traces.readers.mapping import TraceMapping

from .problems import problems
from .yaml import read_yaml


def read_mapping(path: Path) -> TraceMapping:
    """Read a mapping file (YAML): the fields of :class:`~skedge.traces.readers.mapping.TraceMapping`.

    Raises
    ------
    TraceError
        Names the file, and each field that is wrong in a line of its own.
    """
    try:
        return mapping_of(read_yaml(path), str(path))
    except ScenarioError as error:
        raise TraceError(str(error)) from error


def mapping_of(data: object, source: str) -> TraceMapping:
    """The mapping that `data` describes; `source` is its name in errors.

    Raises
    ------
    TraceError
        As :func:`read_mapping`.
    """
    try:
        return TraceMapping.model_validate(data)
    except ValidationError as error:
        raise TraceError("\n".join(f"{source}: {line}" for line in problems(error, TraceMapping))) from error
