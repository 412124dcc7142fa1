"""YAML files as plain data; errors give the line and column."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from skedge.core.errors import ScenarioError
from skedge.platform.files import no_device


class _UniqueKeys(yaml.constructor.SafeConstructor):
    """Rejects duplicate keys instead of keeping the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping; its keys must differ."""
        keys: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in keys:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            keys.add(key.value)
        return super().construct_mapping(node, deep)


class _Loader(_UniqueKeys, yaml.SafeLoader):
    """Reads any file; its errors have lines and columns."""


class _CLoader(_UniqueKeys, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Five times as fast if PyYAML has its C library."""


_DEEPEST = 1000
"""Lists and mappings in one another from which on the C library might overflow the stack."""


def _parse(text: str) -> object:
    """The content of a YAML text. On an error it is read again in Python, so that all errors have the same words."""
    longest = max(map(len, text.splitlines()), default=0)
    # a list or mapping begins with a bracket, or further to the right than the one that it is in
    if text.count("[") + text.count("{") + longest < _DEEPEST:
        # the C library words its errors otherwise: they are left to the second reading
        with suppress(yaml.YAMLError, ValueError):
            return yaml.load(text, _CLoader)  # noqa: S506  a SafeLoader
    return yaml.load(text, _Loader)  # noqa: S506  a SafeLoader


def read_yaml(path: Path) -> object:
    """Read a YAML file.

    Raises
    ------
    ScenarioError
        If it cannot be read or is not YAML; names the file, and line and column if known.
    """
    try:
        return _parse(no_device(path).read_text(encoding="utf-8"))
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
