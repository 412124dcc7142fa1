"""Extension of Griffe: the reStructuredText of our docstrings becomes Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:func|class|meth|mod|attr|data):`(?:[^`<]*<)?~?\.?([\w.]+)>?`")
_MATH = re.compile(r":math:`([^`]+)`")
_RULE = re.compile(r"^( *)(=+(?: +=+)+) *$")


class MarkdownDocstrings(griffe.Extension):
    """Rewrites roles and simple tables in every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of `obj`."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """`text` with its roles as code and its simple tables as Markdown tables.

    >>> markdown("see :func:`.greedy.edge_cost`")
    'see `greedy.edge_cost`'
    """
    lines, out = text.split("\n"), []
    while lines:
        if (rule := _RULE.match(lines[0])) and (end := _end_of_table(lines)):
            out += _table(lines[:end], rule[2])
            del lines[:end]
        else:
            out.append(lines.pop(0))
    return _MATH.sub(r"`\1`", _ROLE.sub(r"`\1`", "\n".join(out)))


def _end_of_table(lines: list[str]) -> int:
    """Number of lines of the table that begins here: up to its third rule."""
    rules = [n for n, line in enumerate(lines) if _RULE.match(line)]
    return rules[2] + 1 if len(rules) > 2 else 0


def _table(lines: list[str], rule: str) -> list[str]:
    """A Markdown table of a simple table, whose rows are one line each."""
    indent = len(lines[0]) - len(lines[0].lstrip())
    starts = [indent + m.start() for m in re.finditer(r"=+", rule)]
    head, *body = [_cells(line, starts) for line in (lines[1], *lines[3:-1])]
    return ["", *("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(starts), *body]), ""]


def _cells(line: str, starts: list[int]) -> list[str]:
    """The cells of a row: by column, or where one is wider than its column by the spaces between them."""
    if all(line[start - 1 : start] in {"", " "} for start in starts[1:]):
        cells = [line[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)]
    else:
        cells = re.split(r" {2,}", line.strip(), maxsplit=len(starts) - 1)
        cells += [""] * (len(starts) - len(cells))
    return [cell.strip().replace("|", "\\|") for cell in cells]
