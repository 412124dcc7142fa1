"""Packages that a job's code imports and a server lacks: installed by pip when a process of the job first needs them.

They lie in a folder of their own, one for each list of requirements and each installation of skedge, shared by all jobs
with that list. They add to what is installed and replace none of it: what is there is pinned, because PyTorch is
imported before the job's process knows its job. Ray's runtime environments serve Ray's own processes; those of jobs are
not of Ray (:mod:`.apart`).
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

from skedge.core.errors import TrainingError

_LONGEST = 400
"""Most characters of pip's message in an error."""

_PLAIN_VERSION = re.compile(r"[\w.!+-]+")


@functools.cache
def add_packages(requirements: tuple[str, ...], cache: Path | None = None) -> str:
    """Let this process import `requirements`, installed in `cache` first if they are not there.

    Returns
    -------
    str
        Names and versions of what was installed for them, so that processes of a job can compare them.

    Raises
    ------
    TrainingError
        If pip cannot install them; the message has pip's reason.
    """
    pins = sorted({f"{name}=={version}" for name, version in _found(distributions())})
    key = hashlib.sha256("\n".join([*sorted(requirements), "", sys.prefix, *pins]).encode()).hexdigest()[:24]
    place = (Path.home() / ".cache" / "skedge" / "packages" if cache is None else cache) / key
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # processes of a job start together: the first installs
        if not place.is_dir():
            _install(requirements, pins, place)
    found = _packages_of(place)
    if str(found) not in sys.path:
        site.addsitedir(str(found))  # at the end: what is installed comes first
        importlib.invalidate_caches()
    return "\n".join(sorted(f"{name}=={version}" for name, version in _found(distributions(path=[str(found)]))))


def _install(requirements: Sequence[str], pins: Sequence[str], place: Path) -> None:
    """Install into a folder beside `place`, which then takes its name: a killed process leaves none by that name."""
    for left in place.parent.glob(f"{place.name}.partial-*"):
        shutil.rmtree(left, ignore_errors=True)
    aside = Path(tempfile.mkdtemp(prefix=f"{place.name}.partial-", dir=place.parent))
    try:
        venv.create(aside, with_pip=False, symlinks=True)
        (aside / "pins.txt").write_text("\n".join(pins) + "\n", encoding="utf-8")
        done = subprocess.run(  # noqa: S603 - pip of this installation; a requirement cannot be an option
            [
                sys.executable, "-P", "-m", "pip", "--python", str(aside / "bin" / "python"),
                "--disable-pip-version-check", "install", "--no-input", "--progress-bar=off",
                "--constraint", str(aside / "pins.txt"), "--",
                *requirements,
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_installed())},  # what is installed here counts
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            raise TrainingError(f"train.pip: {', '.join(requirements)}: cannot be installed: {_reason(done.stdout)}")
        aside.replace(place)
    except OSError as error:
        raise TrainingError(f"train.pip: {place.parent}: packages cannot be kept there: {error.strerror}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _installed() -> list[str]:
    """The folders of ``sys.path`` with installed packages; others may have a `pip.py` of the user's."""
    return [entry for entry in sys.path if entry and any(distributions(path=[entry]))]


def _packages_of(environment: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return environment / "lib" / version / "site-packages"


def _found(of: Iterable[Distribution]) -> list[tuple[str, str]]:
    """Names and versions, without those that pip could not read as a pin."""
    named = [(one.metadata["Name"], one.version) for one in of]
    return [(name, version) for name, version in named if name and version and _PLAIN_VERSION.fullmatch(version)]


def _reason(output: str) -> str:
    """The errors in pip's output, and what a conflict is between, in one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    between = [line for line in lines if " depends on " in line or line.startswith("The user requested")]
    if between:
        return "; ".join(between)[:_LONGEST]
    return " ".join(errors or lines[-1:] or ["pip gives no reason"])[:_LONGEST]
