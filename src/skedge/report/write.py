"""Text files that replace earlier ones."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_report(path: Path | str, page: str) -> None:
    """Write `page` beside `path` and rename it there, so that no half-written report is ever seen."""
    path = Path(path)
    # In the same folder: only within a file system does a rename replace the old report at once.
    handle, temp_path = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(page)
        os.chmod(temp_path, 0o644)  # a temporary file is private, a report is for reading
        os.replace(temp_path, path)
    except BaseException:
        Path(temp_path).unlink(missing_ok=True)
        raise
