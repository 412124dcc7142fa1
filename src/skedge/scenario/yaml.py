"""YAML files as plain data; errors give the line and column."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from skedge.core.errors import ScenarioError
from skedge.core.files import no_device


class _Loader(yaml.SafeLoader):
    """A safe loader that rejects duplicate keys instead of keeping the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping; its keys must differ."""
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> object:
    """Read a YAML file.

    Raises
    ------
    ScenarioError
        If it cannot be read or is not YAML; names the file, and line and column if known.
    """
    try:
        return yaml.load(no_device(path).read_text(encoding="utf-8"), _Loader)  # noqa: S506  a SafeLoader
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: is not UTF-8 text: {error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ScenarioError(f"{path}: {line}is not YAML: {error.problem}") from error
    except RecursionError as error:
        raise ScenarioError(f"{path}: is not a scenario: its lists or mappings are nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an impossible date, such as 2017-13-01
        raise ScenarioError(f"{path}: is not YAML: {error}") from error
