"""Compiled kernels: numba, imported when the first kernel is called, with its cache on disk where it can be written.

Importing numba takes longer than any other import, and only running a policy needs it, so a module that holds kernels
must be cheap to import. A decorated function is therefore a :class:`CompiledFunction`, which creates numba's
dispatcher at its first call.

Numba counts references to arrays with atomic operations. Where lanes (a tuple of arrays) are passed from step to step
this took most of the time (2.0 µs per run on a lane, 0.5 without). Functions that allocate nothing need no counting
(ADR 3).
"""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache, update_wrapper
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar, cast

from .signals import uninterruptible

F = TypeVar("F", bound=Callable[..., object])

_SOURCE_MTIME = Path(__file__).stat().st_mtime_ns
"""Modification time of this file at import; it changes if the package is upgraded while the process runs."""


def compiled(function: F) -> F:
    """Compile `function` in numba's nopython mode, cached on disk if possible.

    Numba rejects ``cache=True`` if neither the source folder nor ``NUMBA_CACHE_DIR`` is writable. The function is then
    compiled in each process, which takes seconds and has no other effect.
    """
    # explicit, as a function that is compiled for a lean one would inherit its options
    return cast("F", CompiledFunction(function, _nrt=True))


def lean(function: F) -> F:
    """Like :func:`compiled`, for a function that neither makes arrays nor gets any back: references are not counted.

    It may call a function that makes arrays for itself alone.
    """
    return cast("F", CompiledFunction(function, _nrt=False))


def unlocked(function: F) -> F:
    """Like :func:`lean`, for long passes over arrays that nothing changes meanwhile: other threads go on."""
    return cast("F", CompiledFunction(function, _nrt=False, nogil=True))


def inlined(function: F) -> F:
    """Like :func:`lean`, and inlined into its callers: for the small steps of a hot loop."""
    return cast("F", CompiledFunction(function, _nrt=False, forceinline=True))


class CompiledFunction:
    """A function that numba compiles at its first call, or when a kernel that calls it is compiled.

    Attributes
    ----------
    py_func
        The Python function.
    """

    def __init__(self, py_func: Callable[..., object], **options: Any) -> None:
        update_wrapper(self, py_func)
        self.py_func, self.options = py_func, options

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's dispatcher of the function, for Python; with ``NUMBA_DISABLE_JIT`` the function itself."""
        dispatcher = _njit(self.py_func, **self.options)
        if (stats := getattr(dispatcher, "stats", None)) is not None and stats.cache_path:
            # processes that start together need the same kernels: the first compiles, the others read its cache
            lock_file = Path(stats.cache_path) / f"{self.py_func.__qualname__}.lock"
            dispatcher.compile = _one_at_a_time(dispatcher.compile, lock_file)
        return dispatcher

    @cached_property
    def step(self) -> Any:
        """Numba's dispatcher of the function, for compiled callers only.

        It has no wrapper for calls from Python, which unpacks each array of the arguments and is often larger than the
        function itself.
        """
        return _njit(self.py_func, "steps", no_cpython_wrapper=True, **self.options)

    @property
    def _numba_type_(self) -> Any:
        """Numba's type of the kernel when another kernel calls it."""
        return _callee_type()(self.step)

    @property
    def cached(self) -> bool:
        """Whether the compiled function is on disk, made of the present source."""
        stats = getattr(self.dispatcher, "stats", None)  # a Python function has none
        if stats is None or not stats.cache_path:
            return False
        # numba's index of a function's compiled forms: module.function-line.py311.nbi
        stem = f"{self.py_func.__module__.rpartition('.')[2]}.{self.py_func.__qualname__}"
        written = Path(self.py_func.__code__.co_filename).stat().st_mtime
        return any(file.stat().st_mtime >= written for file in Path(stats.cache_path).glob(f"{stem}-*.nbi"))

    def __call__(self, *args: Any) -> Any:
        """Call the compiled function, or Python's within :func:`interpreted`.

        Numba runs Python to learn the types of named tuples, and to make one that is returned. It does not see that a
        signal's exception has ended that, and crashes.
        """
        if _interpreted:
            return self.py_func(*args)
        with uninterruptible:
            return self.dispatcher(*args)

    def form(self, *args: Any) -> Callable[..., Any]:
        """The compiled form for arguments of the types of `args`, to be called within ``uninterruptible``.

        It does not look at types again, which for nested named tuples takes several times as long as the call itself,
        so a caller passes it arguments of these types alone.
        """
        if _interpreted or not hasattr(self.dispatcher, "typeof_pyval"):
            return self.py_func
        with uninterruptible:
            types = tuple(self.dispatcher.typeof_pyval(argument) for argument in args)
            entry: Callable[..., Any] = self.dispatcher.compile(types)
        return entry

    def __reduce__(self) -> str:
        """Pickle by name, like a function."""
        return self.py_func.__qualname__


def _one_at_a_time(compile_form: Callable[..., object], lock_file: Path) -> Callable[..., object]:
    """`compile_form`, which one process at a time runs; without a lock where its file cannot be made."""

    def compile_locked(signature: object) -> object:
        try:
            lock = lock_file.open("a", encoding="utf-8")
        # a cache that can only be read
        except OSError:
            return compile_form(signature)
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return compile_form(signature)

    return compile_locked


_interpreted = False


def is_interpreted() -> bool:
    """Whether Python's functions are called instead of compiled ones."""
    return _interpreted or os.environ.get("NUMBA_DISABLE_JIT", "0") not in {"", "0"}


@contextmanager
def interpreted() -> Iterator[None]:
    """Call Python's functions instead of compiled ones: the same results, and for the smallest inputs sooner."""
    global _interpreted  # noqa: PLW0603 - looked up at each call of a kernel
    import numpy as np  # noqa: PLC0415 - see the module's docstring

    before, _interpreted = _interpreted, True
    try:
        with np.errstate(over="ignore"):  # hashes wrap
            yield
    finally:
        _interpreted = before


@cache
def _callee_type() -> Any:
    """Numba's type of dispatchers, changed to treat constant arguments like any other values.

    Numba compiles a callee again for each combination of constant arguments. All our callees are small or inlined, so
    LLVM sees the constants anyway.
    """
    from numba import types  # noqa: PLC0415 - slow to import, like numba
    from numba.extending import models, register_model  # noqa: PLC0415

    plain: Any = types.unliteral

    class CalleeType(types.Dispatcher):
        def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
            named = {name: plain(arg) for name, arg in kws.items()}
            return super().get_call_type(context, tuple(plain(arg) for arg in args), named)

    register_model(CalleeType)(models.OpaqueModel)
    return CalleeType


def _njit(function: Callable[..., object], folder: str = "kernels", **options: Any) -> Any:
    """Numba's dispatcher of `function`, with its cache in `folder`.

    The cache does not distinguish a step from a function that Python can call, and calling a step from Python crashes
    the process. A process that outlives an upgrade of the package caches nothing: it would store old kernels under the
    key of the new sources.
    """
    import numba  # noqa: PLC0415 - takes 0.3 s to import; see the module's docstring

    _set_up()
    config: Any = numba.config
    njit: Any = numba.njit
    before = config.CACHE_DIR
    # numba reads the folder when it makes a dispatcher; other packages' kernels keep theirs
    config.CACHE_DIR = os.path.join(_cache_folder(before), folder)
    try:
        # without a wrapper for C, which numba compiles for each function and nothing here calls
        return njit(cache=Path(__file__).stat().st_mtime_ns == _SOURCE_MTIME, no_cfunc_wrapper=True, **options)(
            function
        )
    # numba found no folder that can be written: no cache
    except RuntimeError:
        return njit(no_cfunc_wrapper=True, **options)(function)
    finally:
        config.CACHE_DIR = before


watchers: list[Callable[[bool], None]] = []
"""Called with True whenever a kernel that Python calls begins to be compiled, and with False when it is."""


@cache
def _set_up() -> None:
    """While numba compiles, pause Python's garbage collector and defer Ctrl-C.

    The collector would take a tenth of the time and free little. An exception in the midst of it leaves numba with half
    a function, which fails later and elsewhere.
    """
    from numba.core import event  # noqa: PLC0415 - slow to import, like numba

    from .late import compile_lazily  # noqa: PLC0415

    compile_lazily()

    class Pause(event.Listener):
        depth, paused = 0, False
        handler: Any = None
        interrupted = False

        def on_start(self, _: Any) -> None:
            # a kernel is compiled within the compilation of its caller: only the outermost counts
            if self.depth == 0:
                self.paused, self.interrupted = gc.isenabled(), False
                gc.disable()
                # Python's handlers are set, and run, in the main thread alone
                self.handler = signal.signal(signal.SIGINT, self.note) if _in_main_thread() else None
                # a copy, as a watcher may take itself off the list
                for watch in tuple(watchers):
                    watch(True)
            self.depth += 1

        def note(self, *_: Any) -> None:
            self.interrupted = True

        def on_end(self, _: Any) -> None:
            self.depth -= 1
            if self.depth > 0:
                return
            for watch in tuple(watchers):
                watch(False)
            if self.paused:
                gc.enable()
            if self.handler is not None:
                # first the old handler, which then gets the interrupt that was noted
                signal.signal(signal.SIGINT, self.handler)
                if self.interrupted:
                    signal.raise_signal(signal.SIGINT)

    register: Any = event.register
    register("numba:compile", Pause())


def _in_main_thread() -> bool:
    """Whether signals are handled in this thread."""
    return threading.current_thread() is threading.main_thread()


@lru_cache
def _cache_folder(folder: str) -> str:
    """The folder of compiled kernels, named by a hash of the sources that contain kernels.

    Numba checks only the file of the function itself, so changes to functions inlined from other files would be missed.
    """
    package = Path(__file__).parents[1]
    sources = blake2b(digest_size=8)
    for path in sorted(package.rglob("*.py")):
        text = path.read_bytes()
        # constants of these folders are compiled into the kernels that use them
        if {package / "core", package / "loops"} & {*path.parents} or b"jit import" in text:
            sources.update(text)
    base = Path(folder) if folder else package / "__pycache__"
    if not folder and not os.access(package, os.W_OK):
        base = Path.home() / ".cache" / "skedge"
    return str(base / f"kernels-{sources.hexdigest()}")
