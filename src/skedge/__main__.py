"""``skedge`` and ``python -m skedge``: the command line."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading

from .platform.malloc import share_heap
from .platform.signals import deferred_signals


def main() -> None:
    """Run the command line; Ctrl-C ends it with one line and exit status 130, even during imports."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # searching for plugins reads all installed packages
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads wait for work by spinning, 0.1 s after each start
    share_heap()
    gc.set_threshold(100_000)  # imports create many objects and no garbage: collecting takes a tenth of the start
    sys.unraisablehook = _again_if_lost
    try:
        with deferred_signals():  # modules that catch whatever happens as they are imported would swallow an interrupt
            from .cli.main import app  # noqa: PLC0415 - inside `try`, as this is when one that came is answered

        app()
    except KeyboardInterrupt:
        sys.stderr.write("skedge: interrupted; nothing was written\n")
        sys.exit(130)
    finally:
        # Python ends itself by SIGINT if the last text that it ran was interrupted, as dataclasses run while imported
        exec("")  # noqa: S102
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the outcome is settled: another Ctrl-C must not change it
        gc.freeze()  # Python's final garbage collection takes longer than `skedge --help`


_LOST_S = 0.05
"""Time after which a signal that was lost comes again [s]."""


def _again_if_lost(lost: sys.UnraisableHookArgs) -> None:
    """Send a signal again whose exception was lost, because it came in a callback of the garbage collection."""
    code = 130 if lost.exc_type is KeyboardInterrupt else getattr(lost.exc_value, "code", None)
    signals: dict[object, int] = {128 + number: number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    number = signals.get(code)
    if number is None:
        sys.__unraisablehook__(lost)
        return
    again = threading.Timer(_LOST_S, signal.pthread_kill, (threading.main_thread().ident, number))
    again.daemon = True
    again.start()


if __name__ == "__main__":
    main()
