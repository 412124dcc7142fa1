"""Packages that are made here, as tests reach no registry."""

from __future__ import annotations

import zipfile
from pathlib import Path


def wheel(folder: Path, weight: float, number: str = "1.0", needs: str = "") -> str:
    """A requirement: the wheel of a package with one module, made here, as tests reach no registry."""
    folder.mkdir(exist_ok=True)
    path = folder / f"planted-{number}-py3-none-any.whl"
    info = f"planted-{number}.dist-info"
    files = {
        "weights_of_planted.py": f"weight = {weight}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: planted\nVersion: {number}\n"
        + (f"Requires-Dist: {needs}\n" if needs else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return f"planted @ {path.as_uri()}"
