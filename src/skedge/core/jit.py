"""Compiled kernels: numba, imported when the first kernel is called, with its cache on disk where it can be written.

Importing numba takes longer than any other import, and only running a policy needs it: a module that holds kernels must
be cheap to import. So a decorated function is a :class:`Kernel`, which becomes numba's dispatcher at its first call.

Numba counts references to arrays with atomic operations; where lanes (a tuple of arrays) are passed from step to step
that was most of the time (2.0 µs per run on a lane, 0.5 without). Functions that allocate nothing need no counting.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, cached_property, lru_cache, update_wrapper
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])

_WRITTEN = Path(__file__).stat().st_mtime_ns
"""When this file was written, as the process sees it; later if the package is upgraded while the process runs."""


def compiled(function: F) -> F:
    """Compile `function` in numba's nopython mode; cached on disk where that is possible.

    Numba refuses ``cache=True`` where neither the source's folder nor ``NUMBA_CACHE_DIR`` is writable; then the
    function is compiled anew in each process, which costs seconds and changes nothing else.
    """
    return cast("F", Kernel(function))


def lean(function: F) -> F:
    """As :func:`compiled`, for a function that allocates no array: references are not counted."""
    return cast("F", Kernel(function, _nrt=False))


def inlined(function: F) -> F:
    """As :func:`lean`, and inlined where it is called: for the small steps of a hot loop."""
    return cast("F", Step(function, _nrt=False, forceinline=True))


class Kernel:
    """A function that numba compiles when it is first called, or when a kernel that calls it is compiled.

    Attributes
    ----------
    py_func
        The function as it was written.
    """

    def __init__(self, py_func: Callable[..., object], **options: Any) -> None:
        update_wrapper(self, py_func)
        self.py_func, self.options = py_func, options

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's dispatcher of the function; the function itself under ``NUMBA_DISABLE_JIT``."""
        return _njit(self.py_func, **self.options)

    @property
    def _numba_type_(self) -> Any:
        """How numba types the kernel where another one calls it."""
        return _called_type()(self.dispatcher)

    def __call__(self, *given: Any) -> Any:
        """Call the compiled function."""
        return self.dispatcher(*given)

    def __reduce__(self) -> str:
        """Pickled by name, as functions are."""
        return self.py_func.__qualname__


class Step(Kernel):
    """A kernel that is a step of others: what calls it from Python is compiled only if Python calls it.

    That code unpacks each array of the state that a step takes; it is more than the step itself.
    """

    @cached_property
    def step(self) -> Any:
        """Numba's dispatcher of the function, for compiled callers alone."""
        return _njit(self.py_func, "steps", no_cpython_wrapper=True, **self.options)

    @property
    def _numba_type_(self) -> Any:
        """As of :class:`Kernel`, but of the step."""
        return _called_type()(self.step)


@cache
def _called_type() -> Any:
    """Numba's type of dispatchers, called with constants as with any other values.

    Numba compiles a callee once more for each combination of constant arguments. All our callees are small or are
    inlined, so that LLVM knows the constants anyway.
    """
    from numba import types  # noqa: PLC0415 - as numba
    from numba.extending import models, register_model  # noqa: PLC0415

    plain: Any = types.unliteral

    class Called(types.Dispatcher):
        def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
            named = {name: plain(of) for name, of in kws.items()}
            return super().get_call_type(context, tuple(plain(of) for of in args), named)

    register_model(Called)(models.OpaqueModel)
    return Called


def _njit(function: Callable[..., object], folder: str = "kernels", **options: Any) -> Any:
    """Numba's dispatcher of `function`, with its cache in `folder`.

    The cache does not tell a step from what Python can call, and calling a step from Python ends the process. A process
    that outlives an upgrade of the package keeps nothing: its old kernels would get the key of the new sources.
    """
    import numba  # noqa: PLC0415 - takes 0.3 s to import; see the module's docstring

    config: Any = numba.config
    njit: Any = numba.njit
    before = config.CACHE_DIR
    config.CACHE_DIR = os.path.join(_cache_folder(before), folder)
    try:
        return njit(cache=Path(__file__).stat().st_mtime_ns == _WRITTEN, no_cfunc_wrapper=True, **options)(function)
    except RuntimeError:
        return njit(no_cfunc_wrapper=True, **options)(function)
    finally:
        config.CACHE_DIR = before


@lru_cache
def _cache_folder(given: str) -> str:
    """Where compiled kernels are kept: a folder named by the sources that kernels are made of.

    Numba looks only at the file of the function itself; what a kernel inlines from other files would stay as it was.
    """
    package = Path(__file__).parents[1]
    sources = blake2b(digest_size=8)
    for path in sorted(package.rglob("*.py")):
        text = path.read_bytes()
        if package / "core" in path.parents or b"jit import" in text:
            sources.update(text)
    base = Path(given) if given else package / "__pycache__"
    if not given and not os.access(package, os.W_OK):
        base = Path.home() / ".cache" / "skedge"
    return str(base / f"kernels-{sources.hexdigest()}")
