"""A hook of MkDocs: functions of the reference programs, shown on a page from their source.

A line of a page that is nothing but a link such as ``[`aonline:a_greedy`](../tests/reference/aonline.py)`` becomes the
source of that function, class or method, with a link to the file. Where Markdown is read as it is, the line stays a
link. A name that does not exist fails the build, so the page cannot go stale.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).resolve().parents[2] / "tests" / "reference"

LINE = re.compile(r"^\[`(?P<module>\w+):(?P<name>[\w.]+)`\]\(\.\./tests/reference/(?P=module)\.py\)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each such line."""
    return LINE.sub(lambda found: _block(found["module"], found["name"]), markdown)


def source_of(module: str, name: str) -> str:
    """The source of a function, class or method of a reference program, with the decorators.

    Raises
    ------
    LookupError
        If there is none of this name.
    """
    text = (REFERENCE / f"{module}.py").read_text(encoding="utf-8")
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        body = getattr(node, "body", [])
        found = [child for child in body if getattr(child, "name", None) == part]
        if not found:
            raise LookupError(f"tests/reference/{module}.py has no {name}")
        node = found[0]
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno]))


def _block(module: str, name: str) -> str:
    path = f"tests/reference/{module}.py"
    return f"[`{path}`](../{path}), `{name}`\n\n```python\n{source_of(module, name)}\n```"
