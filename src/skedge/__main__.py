"""``skedge`` and ``python -m skedge``: the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it with one line and exit status 130, also while Python still imports."""
    try:
        from .cli.main import app  # noqa: PLC0415 - inside `try`, because this import can be interrupted

        app()
    except KeyboardInterrupt:
        sys.stderr.write("skedge: interrupted; nothing was written\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
