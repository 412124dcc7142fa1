"""Builds wheel and sdist of a tagged commit into ``dist/``, and tries the wheel in a new environment.

python docs/tools/release.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def why_not(version: str, tags: list[str], changed: str) -> str | None:
    """Why this checkout is no release of `version`; None if it is one."""
    if changed:
        return f"there are uncommitted changes:\n{changed}"
    if f"v{version}" not in tags:
        there = ", ".join(tags) or "none"
        return f"pyproject.toml says version {version}, but the commit has no tag v{version}; its tags: {there}"
    return None


def tried(wheel: Path, folder: Path) -> None:
    """Install the wheel with the tested versions into a new environment, and run the demo there."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel, at=folder)
    _run(folder / "venv" / "bin" / "skedge", "demo", "--out", folder / "demo", at=folder)


def _run(*command: str | Path, at: Path = ROOT) -> str:
    done = subprocess.run(list(map(str, command)), cwd=at, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return done.stdout.strip()


def main() -> None:
    """Check, build, try."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    tags = _run("git", "tag", "--points-at", "HEAD").split()
    reason = why_not(version, tags, _run("git", "status", "--porcelain"))
    if reason is not None:
        sys.exit(reason)
    _run(sys.executable, "-m", "build", "--outdir", ROOT / "dist")
    (wheel,) = (ROOT / "dist").glob(f"skedge-{version}-*.whl")
    with tempfile.TemporaryDirectory() as folder:
        tried(wheel, Path(folder))


if __name__ == "__main__":
    main()
