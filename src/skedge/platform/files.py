"""Check that an input path is a file."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def no_device(path: Path) -> Path:
    """Return `path`, unless it is a device, such as ``/dev/full``, reading which may never end.

    Raises
    ------
    OSError
        If it is a device or does not exist.
    """
    # follows links: a link to a device is read as the device
    mode = os.stat(path).st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "it is a device, not a file", str(path))
    return path
