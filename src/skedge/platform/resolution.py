"""What numba has found out about an operation is remembered while a process lives.

To learn the type of ``a + b`` numba tries its implementations of ``+``, for integers, arrays, texts, sets and others,
with constant arguments and without, and makes an error of each that does not fit. It does so again wherever the same
operation has arguments of the same types, which takes a quarter of the time of compiling (ADR 28). What it finds is the
same each time, so here it is kept.

The names used here are numba's own, as those of :mod:`.late`, so this is done with the same versions only.
"""

# ruff: noqa: SLF001 - they are private

from __future__ import annotations

from typing import Any

from numba.core.target_extension import get_local_target
from numba.core.targetconfig import ConfigStack, TargetConfig
from numba.core.types.functions import BaseFunction

_Function: Any = BaseFunction
_Options: Any = TargetConfig
_options: Any = ConfigStack
_local_target: Any = get_local_target
_resolve: Any = BaseFunction.get_call_type

_resolved = dict[tuple[Any, ...], tuple[Any, Any]]()
"""Signature and implementation of each operation, by its arguments and the options of compiling."""

_hashes = dict[type, int]()
"""Hash of all options of a class."""


def remember_resolutions() -> None:
    """Have numba remember, from now on, which implementation an operation has."""
    _Function.get_call_type = _get_call_type
    # options are part of each key; numba makes a table of all of them, set or not, for each hash and comparison
    _Options.__hash__, _Options.__eq__ = _hash_of, _are_equal


def _get_call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
    """The signature of `function` for arguments of these types."""
    options = _options.top_or_none()
    key = (function, context, _local_target(context), tuple(args), tuple(kws.items()), options)
    known = _resolved.get(key)
    if known is None:
        signature = _resolve(function, context, args, kws)
        # a copy, as options can be changed
        key = (*key[:-1], None if options is None else options.copy())
        _resolved[key] = signature, function._impl_keys[signature.args]
        return signature
    signature, implementation = known
    # with other options the same signature can have another implementation
    function._impl_keys[signature.args] = implementation
    return signature


def _hash_of(options: Any) -> int:
    """Numba's hash: of the names of the options, whatever their values."""
    kind = type(options)
    if kind not in _hashes:
        _hashes[kind] = hash(tuple(sorted(options.options)))
    return _hashes[kind]


def _are_equal(options: Any, other: Any) -> bool:
    """Whether all options have the same values; those that are not set have their defaults."""
    if not isinstance(other, _Options):
        return NotImplemented
    if type(options) is type(other) and options._values == other._values:
        return True
    equal: bool = options.values() == other.values()
    return equal
