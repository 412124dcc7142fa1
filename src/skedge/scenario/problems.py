"""Messages for the errors in a scenario file, from Pydantic's."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from skedge.core.model.wording import did_you_mean, plain_message

from .schema import COSTS, ScenarioForm


def problems(error: ValidationError, form: type[BaseModel] = ScenarioForm) -> Iterator[str]:
    """Yield one line per error in a file of the form `form`: ``field.path: value: what would be right``."""
    for detail in error.errors(include_url=False):
        # Pydantic puts the chosen member of a union into the path, where no file has it
        loc = tuple(part for part in detail["loc"] if part not in COSTS)
        place, value = _place(loc), _short(detail["input"])
        if detail["type"] == "extra_forbidden":
            yield f"{place}: {_unknown_field(loc, form)}"
        elif detail["type"] == "missing":
            yield f"{place}: is missing; it is needed"
        else:
            message = _FILE_MESSAGES.get(detail["type"]) or plain_message(detail["msg"])
            yield (
                f"{place or 'file'}: {value}: {message}"
                if isinstance(detail["input"], _PLAIN)
                else f"{place}: {message}"
            )


_FILE_MESSAGES = {
    "tuple_type": "it must be a range [low, high]",
    "model_type": "it must be a mapping of fields",
    "dict_type": "it must be a mapping of names to values",
    "string_too_short": "it must not be empty",
    "invalid_key": "a field's name must be text",
    "string_pattern_mismatch": "write it as package.module:function",
}
"""Replacements of Pydantic's messages that mention Python types, by error type."""

_PLAIN = (str, int, float, bool, type(None), list)


_SHORTENED = reprlib.Repr()
_SHORTENED.maxlevel = 2
"""Shows only the beginning of a list: with aliases a short file can hold a list of a billion entries."""


def _place(loc: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")


def _short(value: object) -> str:
    text = _SHORTENED.repr(value) if isinstance(value, list | dict) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _unknown_field(loc: tuple[int | str, ...], form: type[BaseModel]) -> str:
    """The message that the last part of `loc` is not a field, with the fields there are."""
    for part in loc[:-1]:
        if isinstance(part, str):
            # through lists and optional types down to the form that lacks the field
            form = _form_in(form.model_fields[part].annotation) or form
    return f"is not a field{did_you_mean(str(loc[-1]), form.model_fields)}; there are {', '.join(form.model_fields)}"


def _form_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    forms = (_form_in(part) for part in get_args(annotation))
    return next((form for form in forms if form is not None), None)
