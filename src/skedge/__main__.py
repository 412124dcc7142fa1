"""``skedge`` and ``python -m skedge``: the command line."""

from __future__ import annotations

import gc
import os
import signal
import sys

from .core.heap import share_heap


def main() -> None:
    """Run the command line; Ctrl-C ends it with one line and exit status 130, even during imports."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # searching for plugins reads all installed packages
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads wait for work by spinning, 0.1 s after each start
    share_heap()
    gc.set_threshold(100_000)  # imports create many objects and no garbage: collecting takes a tenth of the start
    try:
        from .cli.main import app  # noqa: PLC0415 - inside `try`, because this import can be interrupted

        app()
    except KeyboardInterrupt:
        sys.stderr.write("skedge: interrupted; nothing was written\n")
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the outcome is settled: another Ctrl-C must not change it
        gc.freeze()  # Python's final garbage collection takes longer than `skedge --help`


if __name__ == "__main__":
    main()
