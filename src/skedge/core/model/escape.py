"""Text of users, shown so that it can neither steer a terminal nor be taken for lines of a log.

The one place where control characters are escaped. It is called where trusted code takes text of a job in, and again
where the commands print.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

_LONGEST = 2000
"""Most characters of one sentence of a job."""

_ALLOWED = frozenset("\n\t")
"""Control characters of a text of several lines."""


def escaped(text: str) -> str:
    r"""A text of several lines without control characters: those become ``\x1b``, ``\u202e`` and so on.

    Line feeds and tabs stay. Characters that change the direction of text, that have no width, that separate lines in
    Unicode, or that are no characters (half of a surrogate pair) count as control characters.
    """
    return text if _is_plain(text) else "".join(map(_escaped_character, text))


def one_line(text: str, longest: int = _LONGEST) -> str:
    r"""A text as one line of at most `longest` characters: as :func:`escaped`, with ``\n`` for a line feed."""
    cut = text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters in all)"
    return escaped(cut).replace("\n", "\\n").replace("\t", "\\t")


def one_line_values(facts: Any) -> Any:
    """Facts in JSON types with every text in them, names of fields too, as one line."""
    if isinstance(facts, str):
        return one_line(facts)
    if isinstance(facts, Mapping):
        return {one_line(str(name)): one_line_values(value) for name, value in facts.items()}
    return [one_line_values(value) for value in facts] if isinstance(facts, list | tuple) else facts


def _is_plain(text: str) -> bool:
    return text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()


def _escaped_character(character: str) -> str:
    # isprintable is false of all spaces but the ASCII one; those of other widths are harmless
    if character in _ALLOWED or character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
