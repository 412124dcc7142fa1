"""Words that errors share: the name that was meant, and Pydantic's messages in plain English."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_MOST = 5
"""Largest number of names that an error lists in full."""

_PLAINER = {
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid boolean": "true or false",
    "a valid string": "text",
    "a valid list": "a list",
}


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """`` (did you mean x?)`` with the known name nearest to `name`; empty if none is near."""
    return next((f" (did you mean {match}?)" for match in get_close_matches(name, list(choices), 1)), "")


def first_names(names: Sequence[str]) -> str:
    """The names; of more than five the first five and the number: ``a, b, c, d, e, … (9 in all)``."""
    return ", ".join(names[:_MOST]) + (f", … ({len(names)} in all)" if len(names) > _MOST else "")


def plain_message(message: str) -> str:
    """A message of Pydantic's without the names of Python's types: ``it must be a whole number``."""
    message = message.removeprefix("Value error, ").replace("Input should be", "it must be")
    message, _, _ = message.partition(", unable to")  # parse, or interpret, a Python type
    return re.sub("|".join(_PLAINER), lambda match: _PLAINER[match[0]], message)


ELASTIC = "elastic: jobs larger than the cluster are trained by policies that divide them, and rejected by the others"
"""Note on a workload with rigid jobs that no gang policy can hold."""
