"""A Python script that states its own job spec, as inline script metadata (PEP 723).

The block ``# /// script`` holds TOML. Its table ``[tool.skedge]`` is the job spec; its ``dependencies`` are the
packages that the script imports (`train.pip`). The script is the job's code, and its function ``job`` the factory,
unless the table says otherwise.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from skedge.core.errors import ScenarioError

_BLOCK = re.compile(r"(?m)^# /// script$\n(?P<content>(?:^#(?:| .*)$\n)+?)^# ///$")

_EXAMPLE = "# /// script\n# [tool.skedge]\n# epochs = 8\n# …\n# ///"


def spec_in(path: Path) -> dict[str, Any]:
    """The job spec that a script states, not yet checked.

    Raises
    ------
    ScenarioError
        If the script cannot be read, has no such block or several, or the block is not TOML.
    """
    try:
        blocks = list(_BLOCK.finditer(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: is not UTF-8 text: {error}") from error
    if len(blocks) != 1:
        raise ScenarioError(
            f"{path}: has {len(blocks)} blocks of inline metadata; a script that is submitted states its job spec in "
            f"one:\n{_EXAMPLE}"
        )
    return _spec(path, _table(path, blocks[0]))


def _table(path: Path, block: re.Match[str]) -> dict[str, Any]:
    # as many empty lines before it as the script has, so that an error names the script's line
    before = block.string.count("\n", 0, block.start("content"))
    text = "\n".join(line[2:] for line in block["content"].splitlines())
    try:
        return tomllib.loads("\n" * before + text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{path}: its block of inline metadata is not TOML: {error}") from error


def _spec(path: Path, table: dict[str, Any]) -> dict[str, Any]:
    """The spec with what follows from the script: its name, its code, the factory and the packages."""
    tool = table.get("tool")
    spec = tool.get("skedge") if isinstance(tool, dict) else None
    if not isinstance(spec, dict):
        raise ScenarioError(f"{path}: its block of inline metadata has no table [tool.skedge] with the job spec")
    train = spec.get("train", {})
    if not isinstance(train, dict):
        raise ScenarioError(f"{path}: tool.skedge.train: must be a table, not {train!r}")
    packages = {"pip": table["dependencies"]} if table.get("dependencies") else {}
    own = {"factory": f"{path.stem}:job", "code": str(path), **packages}
    # what the script says itself goes before what follows from its name
    return {"name": path.stem, **spec, "train": {**own, **train}}
