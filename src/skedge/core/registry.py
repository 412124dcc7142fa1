"""Policies by name: those that the installed packages register, and a policy made from ``name:key=value,...``."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, get_args

from pydantic import ValidationError

from .errors import PolicyError
from .model.wording import did_you_mean, plain_message
from .policy import AnyPolicy, Need, Policy


def registered() -> dict[str, EntryPoint]:
    """All policies by name: the entry points ``skedge.policies`` of all installed packages, including skedge."""
    return dict(_entry_points(tuple(sys.path)))


@lru_cache(1)
def _entry_points(_path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """The entry points; looking for them reads the metadata of every installed package."""
    return {point.name: point for point in sorted(entry_points(group="skedge.policies"), key=lambda p: p.name)}


def make_policy(spec: str) -> Policy:
    """A policy from ``name`` or ``name:key=value,key=value``.

    Raises
    ------
    PolicyError
        If the name or a parameter is unknown, or a value is out of range; the message lists what is allowed.
    """
    name, colon, options = spec.partition(":")
    points = registered()
    if name not in points:
        raise PolicyError(f"policy {name!r} is unknown{did_you_mean(name, points)}; known are {', '.join(points)}")
    factory = _load(name, points[name])
    pairs = [part.partition("=") for part in options.split(",") if part]
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
        # values stay text, as Pydantic casts them by the types of the parameters
        policy = factory(**{key.strip(): value.strip() for key, _, value in pairs})
    except ValidationError as error:
        raise PolicyError(_parameter_error(spec, factory, error)) from error
    except TypeError as error:
        raise PolicyError(f"policy {spec!r}: {error}") from error
    return _check_policy(policy)


def policy_of(policy: AnyPolicy) -> Policy:
    """The policy object of a name, of a class, which takes its default parameters, or the object itself.

    Raises
    ------
    PolicyError
        As :func:`make_policy`; also if it is neither a policy nor the name of one.
    """
    if isinstance(policy, str):
        return make_policy(policy)
    return _check_policy(policy() if isinstance(policy, type) else policy)


def spec_of(policy: Policy) -> str:
    """The policy as ``name:key=value,...``, with the parameters that differ from their defaults."""
    default = type(policy.params)().model_dump(mode="json")
    changed = [
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in policy.params.model_dump(mode="json").items()
        if value != default.get(key)
    ]
    return f"{policy.name}:{','.join(changed)}" if changed else policy.name


def _check_policy(policy: Policy) -> Policy:
    """The policy, if it has the parts of one."""
    lacks = [part for part in _PARTS if not hasattr(policy, part)]
    if lacks:
        name = getattr(policy, "name", None) or type(policy).__name__
        raise PolicyError(f"policy {name!r} has no {lacks[0]!r}; a policy has what skedge.core.policy.Policy lists")
    unknown = sorted(set(policy.needs) - set(get_args(Need)))
    if unknown:
        allowed = "; ".join(get_args(Need))
        raise PolicyError(f"policy {policy.name!r} needs {unknown[0]!r}, which no scenario has; it may need: {allowed}")
    return policy


_PARTS = (*Policy.__annotations__, *(name for name in vars(Policy) if not name.startswith("_")))
"""Attributes and methods of every policy."""


def _load(name: str, point: EntryPoint) -> Any:
    """The object that an entry point names; a broken package affects only its own policy."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:  # importing a third-party package can raise anything
        raise PolicyError(f"policy {name!r} cannot be loaded from {point.value!r}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of the message of `error`; its type if the message is empty."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _parameter_error(spec: str, factory: Any, error: ValidationError) -> str:
    errors = error.errors()
    first, key = errors[0], str(next(iter(errors[0]["loc"]), ""))
    parameters = ", ".join(factory.Parameters.model_fields) or "none"
    if first["type"] == "extra_forbidden":
        hint = did_you_mean(key, factory.Parameters.model_fields)
        return f"policy {spec!r}: it has no parameter {key!r}{hint}; it takes {parameters}"
    # a union reports an error of each member: all of the first field that is wrong, and of no other
    about_it = [detail["msg"] for detail in errors if detail["loc"][:1] == first["loc"][:1]]
    wrong = ", or ".join(dict.fromkeys(map(plain_message, about_it))).replace(", or it must be ", ", or ")
    return f"policy {spec!r}: {key} = {first['input']!r}: {wrong}" if key else f"policy {spec!r}: {wrong}"
