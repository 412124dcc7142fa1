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
    sys.unraisablehook = _resend_lost_signal
    try:
        with deferred_signals():  # some modules catch all exceptions while they are imported
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


_RESEND_S = 0.05
"""Time after which a signal that was lost comes again [s]."""


def _resend_lost_signal(hook_args: sys.UnraisableHookArgs) -> None:
    """Send a signal again whose exception was lost, because it came in a callback of the garbage collection."""
    code = 130 if hook_args.exc_type is KeyboardInterrupt else getattr(hook_args.exc_value, "code", None)
    signals: dict[object, int] = {128 + number: number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    number = signals.get(code)
    if number is None:
        sys.__unraisablehook__(hook_args)
        return
    timer = threading.Timer(_RESEND_S, signal.pthread_kill, (threading.main_thread().ident, number))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    main()
