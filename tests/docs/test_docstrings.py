"""Every name that a docstring refers to is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import skedge

PACKAGE = Path(skedge.__file__).parent
REFERENCE = re.compile(r":(?:func|class|mod|meth|data|attr|exc):`~?([\w.]+)`")
FOREIGN = ("torch.",)


def _module(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _names(path: Path) -> set[str]:
    """Functions, classes, imports, and targets of assignments, in classes too."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.ImportFrom(names=names):
                found |= {alias.asname or alias.name for alias in names}
    return found


NAMES = {_module(path): _names(path) for path in PACKAGE.rglob("*.py")}


def _is_there(reference: str, path: Path) -> bool:
    """Relative ones begin in the file's package, others with ``skedge`` or in the file's module."""
    package = ".".join(path.relative_to(PACKAGE.parent).parent.parts)
    if reference.startswith("."):
        reference = package + reference
    elif not reference.startswith("skedge"):
        reference = f"{_module(path)}.{reference}"
    parts = reference.split(".")
    k = next(k for k in range(len(parts), 0, -1) if ".".join(parts[:k]) in NAMES)
    return k == len(parts) or set(parts[k:]) <= NAMES[".".join(parts[:k])]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=_module)
def test_what_docstrings_refer_to_is_there(path: Path) -> None:
    found = [name for name in REFERENCE.findall(path.read_text(encoding="utf-8")) if not name.startswith(FOREIGN)]
    assert [name for name in found if not _is_there(name, path)] == []
