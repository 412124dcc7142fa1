"""Ray's environment on one machine; a module of its own, importable without Ray and torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from skedge.core.errors import SkedgeError
from skedge.live.secret_files import private_folder, secret_of

RAY_TOKEN = "ray_token"  # noqa: S105 - a file's name
"""Name of the file with Ray's token."""


def on_loopback(folder: Path | None = None) -> None:
    """Set Ray's environment for one machine: listen on loopback, require a token, one thread for torch, no niceness.

    The token is in a file of `folder`; without one, in a folder of this user's.
    """
    if "ray" in sys.modules and os.environ.get("RAY_AUTH_MODE") != "token":
        raise SkedgeError(
            "Ray was imported before skedge.live configured it: import it after skedge.live has started, or set "
            "RAY_AUTH_MODE=token in the environment"
        )
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # otherwise the driver turns 127.0.0.1 into an outer address
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # failed jobs are reported by skedge
    # 15 by default: training would stand behind whatever else the machine does
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "5")  # a lost local head does not come back
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    if os.environ["RAY_AUTH_MODE"] == "token":
        token_by_file(folder or private_folder())


def token_by_file(folder: Path) -> None:
    """Have Ray read its token from a file of `folder`, so that no environment has it."""
    if os.environ.get("RAY_AUTH_TOKEN") or "RAY_AUTH_TOKEN_PATH" not in os.environ:
        secret_of(folder / RAY_TOKEN, "RAY_AUTH_TOKEN")
        os.environ["RAY_AUTH_TOKEN_PATH"] = str((folder / RAY_TOKEN).absolute())
