"""Runs a tutorial as its notebook (``docs/tools/notebooks.py``), and compares what it prints with what it shows."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
from nbclient import NotebookClient

from builders.paths import ROOT

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def maker() -> ModuleType:
    """The tool that makes notebooks, which is loaded by its path as MkDocs does."""
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "docs" / "tools" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed: trailing spaces do not count, and ``…`` stands for anything."""
    plain = _COLOUR.sub("", printed)  # a kernel asks for colours
    lines = "\n".join(line.rstrip() for line in plain.strip("\n").split("\n")).rstrip()
    return re.fullmatch(".*?".join(map(re.escape, shown.strip("\n").split("…"))), lines, re.DOTALL) is not None


def carried_out(page: Path, folder: Path, seconds: int = 240) -> int:
    """Run the notebook of a page in `folder`, at most `seconds` a cell; returns how many outputs were compared.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a command or some Python fails.
    """
    shown = nbformat.from_dict(maker().notebook(page.read_text(encoding="utf-8")))
    nbformat.validate(shown)
    run = nbformat.from_dict(shown)
    client = NotebookClient(run, timeout=seconds, resources={"metadata": {"path": str(folder)}})
    client.execute(env=_environment(folder))
    compared = 0
    for before, after in zip(shown.cells, run.cells, strict=True):
        if before.get("outputs"):
            printed = "".join(of.text for of in after.outputs if of.get("name") == "stdout")
            assert same(before.outputs[0].text, printed), f"{page.name}: {before.source}\nprinted\n{printed}"
            compared += 1
    return compared


def _environment(folder: Path) -> dict[str, Any]:
    """As in a terminal of 100 columns in an active virtual environment; IPython keeps its history elsewhere."""
    program = folder / ".bin" / "skedge"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m skedge "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "COLUMNS": "100", "IPYTHONDIR": str(folder / ".bin" / "ipython")}
