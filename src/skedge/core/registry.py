"""Policies by name: those that the installed packages register, and a policy made from ``name:key=value,...``."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, get_args

from pydantic import ValidationError

from .errors import PolicyError
from .model.wording import did_you_mean, in_our_words
from .policy import AnyPolicy, Need, Policy


def registered() -> dict[str, EntryPoint]:
    """All policies by name: the entry points ``skedge.policies`` of all installed packages, including skedge."""
    return dict(_found_on(tuple(sys.path)))


@lru_cache(1)
def _found_on(_path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """The entry points; looking for them reads the metadata of every installed package."""
    return {point.name: point for point in sorted(entry_points(group="skedge.policies"), key=lambda p: p.name)}


def make_policy(spec: str) -> Policy:
    """A policy from ``name`` or ``name:key=value,key=value``.

    Raises
    ------
    PolicyError
        If the name or a parameter is unknown, or a value is out of range; the message lists what is allowed.
    """
    name, colon, given = spec.partition(":")
    points = registered()
    if name not in points:
        raise PolicyError(f"policy {name!r} is unknown{did_you_mean(name, points)}; known are {', '.join(points)}")
    factory = _loaded(name, points[name])
    pairs = [part.partition("=") for part in given.split(",") if part]
    keys = [key.strip() for key, _, _ in pairs]
    twice = [key for key in keys if keys.count(key) > 1]
    if twice:
        raise PolicyError(f"policy {spec!r}: {twice[0]!r} is given twice; once is enough")
    unfinished = [key for key, eq, _ in pairs if not eq]
    if colon and not pairs:
        raise PolicyError(f"policy {spec!r}: no parameter follows the colon; write name:key=value,key=value, or name")
    if unfinished:
        raise PolicyError(f"policy {spec!r}: {unfinished[0]!r} has no value; write name:key=value,key=value")
    try:
        made = factory(**{key.strip(): value.strip() for key, _, value in pairs})
    except ValidationError as error:
        raise PolicyError(_explained(spec, factory, error)) from error
    except TypeError as error:
        raise PolicyError(f"policy {spec!r}: {error}") from error
    return _checked(made)


def policy_of(given: AnyPolicy) -> Policy:
    """The policy object of a name, of a class, which takes its default parameters, or the object itself.

    Raises
    ------
    PolicyError
        As :func:`make_policy`; also if it is neither a policy nor the name of one.
    """
    if isinstance(given, str):
        return make_policy(given)
    return _checked(given() if isinstance(given, type) else given)


def spec_of(policy: Policy) -> str:
    """The policy as ``name:key=value,...``, with the parameters that differ from their defaults."""
    default = type(policy.params)().model_dump(mode="json")
    changed = [
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in policy.params.model_dump(mode="json").items()
        if value != default.get(key)
    ]
    return f"{policy.name}:{','.join(changed)}" if changed else policy.name


def _checked(made: Policy) -> Policy:
    """The policy, if it has the parts of one."""
    lacks = [part for part in _PARTS if not hasattr(made, part)]
    if lacks:
        name = getattr(made, "name", None) or type(made).__name__
        raise PolicyError(f"policy {name!r} has no {lacks[0]!r}; a policy has what skedge.core.policy.Policy lists")
    unknown = sorted(set(made.needs) - set(get_args(Need)))
    if unknown:
        allowed = "; ".join(get_args(Need))
        raise PolicyError(f"policy {made.name!r} needs {unknown[0]!r}, which no scenario has; it may need: {allowed}")
    return made


_PARTS = (*Policy.__annotations__, *(name for name in vars(Policy) if not name.startswith("_")))
"""What every policy has."""


def _loaded(name: str, point: EntryPoint) -> Any:
    """The object that an entry point names; a broken package affects only its own policy."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:  # importing a third-party package can raise anything
        raise PolicyError(f"policy {name!r} cannot be loaded from {point.value!r}: {in_a_line(error)}") from error


def in_a_line(error: BaseException) -> str:
    """The first line of the message of `error`; its type if the message is empty."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _explained(spec: str, factory: Any, error: ValidationError) -> str:
    errors = error.errors()
    first, key = errors[0], str(next(iter(errors[0]["loc"]), ""))
    takes = ", ".join(factory.Parameters.model_fields) or "none"
    if first["type"] == "extra_forbidden":
        meant = did_you_mean(key, factory.Parameters.model_fields)
        return f"policy {spec!r}: it has no parameter {key!r}{meant}; it takes {takes}"
    about_it = [one["msg"] for one in errors if one["loc"][:1] == first["loc"][:1]]
    wrong = ", or ".join(dict.fromkeys(map(in_our_words, about_it))).replace(", or it must be ", ", or ")
    return f"policy {spec!r}: {key} = {first['input']!r}: {wrong}" if key else f"policy {spec!r}: {wrong}"
