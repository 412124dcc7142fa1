"""Packages that a job's code imports and a server lacks: installed by pip when a process of the job first needs them.

They lie in a folder of their own, one for each list of requirements and each installation of skedge, shared by all jobs
with that list. They add to what is installed and replace none of it: what is there is pinned, because PyTorch is
imported before the job's process knows its job. Ray's runtime environments serve Ray's own processes; those of jobs are
not of Ray (:mod:`.job_processes`).
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

from skedge.core.errors import TrainingError

_LONGEST = 400
"""Most characters of pip's message in an error."""

_PLAIN_VERSION = re.compile(r"[\w.!+-]+")


PACKAGES = "JOB_PACKAGES"
"""Environment variable with the folder of all such folders, for jobs' processes: their home is another."""

_PIP = ("PIP_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY")
"""Prefixes of environment variables with settings of pip; an address can have a password in it."""


def packages() -> Path:
    """The folder of the folders of packages."""
    return Path(os.environ.get(PACKAGES) or Path.home() / ".cache" / "skedge" / "packages")


def folder_of(requirements: Sequence[str]) -> str:
    """Name of the folder of these requirements, beside what is installed here."""
    return hashlib.sha256("\n".join([*sorted(requirements), "", sys.prefix, *_pins()]).encode()).hexdigest()[:24]


def settings_of_pip(variables: Mapping[str, str]) -> dict[str, str]:
    """The settings of pip in an environment."""
    return {name: value for name, value in variables.items() if name.startswith(_PIP)}


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
    place = (cache or packages()) / folder_of(requirements)
    install_at(place, lambda aside: install(requirements, aside, settings_of_pip(os.environ)))
    site_packages = _packages_of(place)
    if str(site_packages) not in sys.path:
        site.addsitedir(str(site_packages))  # at the end: what is installed comes first
        importlib.invalidate_caches()
    return "\n".join(sorted(f"{name}=={version}" for name, version in _found(distributions(path=[str(site_packages)]))))


def install_at(place: Path, fill: Callable[[Path], object]) -> None:
    """Have a folder beside `place` filled, which then takes its name, unless that is there.

    Raises
    ------
    TrainingError
        If packages cannot be kept there.
    """
    if place.is_dir():
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # processes of a job start together: the first installs
            if not place.is_dir():
                _fill_aside(place, fill)
    except OSError as error:
        raise TrainingError(f"train.pip: {place.parent}: packages cannot be kept there: {error.strerror}") from error


def _fill_aside(place: Path, fill: Callable[[Path], object]) -> None:
    """Fill a folder and give it its name: a killed process leaves none by that name."""
    for left in place.parent.glob(f"{place.name}.partial-*"):
        shutil.rmtree(left, ignore_errors=True)
    aside = Path(tempfile.mkdtemp(prefix=f"{place.name}.partial-", dir=place.parent))
    try:
        fill(aside)
        aside.replace(place)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def install(
    requirements: Sequence[str], folder: Path, settings: Mapping[str, str], *, only_wheels: bool = False
) -> None:
    """Install into an empty folder.

    Parameters
    ----------
    requirements, folder
        As pip has them, and where they are installed.
    settings
        Of pip, by environment variable.
    only_wheels
        True: what is named, and what that depends on, is not built from its source, which would run its code; a file
        or an address that is required itself still may be.

    Raises
    ------
    TrainingError
        If pip cannot install them; the message has its reason.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    (folder / "pins.txt").write_text("\n".join(_pins()) + "\n", encoding="utf-8")
    completed = subprocess.run(  # noqa: S603 - pip of this installation; a requirement cannot be an option
        [
            sys.executable, "-P", "-m", "pip", "--python", str(folder / "bin" / "python"),
            "--disable-pip-version-check", "install", "--no-input", "--progress-bar=off",
            "--constraint", str(folder / "pins.txt"), *(["--only-binary=:all:"] if only_wheels else []), "--",
            *requirements,
        ],
        env={**os.environ, **settings, "PYTHONPATH": os.pathsep.join(_installed())},  # what is installed here counts
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )  # fmt: skip
    if completed.returncode:
        raise TrainingError(f"train.pip: {', '.join(requirements)}: cannot be installed: {_reason(completed.stdout)}")


def _pins() -> list[str]:
    """What is installed, as requirements."""
    return sorted({f"{name}=={version}" for name, version in _found(distributions())})


def _installed() -> list[str]:
    """The folders of ``sys.path`` with installed packages; others may have a `pip.py` of the user's."""
    return [entry for entry in sys.path if entry and any(distributions(path=[entry]))]


def _packages_of(environment: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return environment / "lib" / version / "site-packages"


def _found(candidates: Iterable[Distribution]) -> list[tuple[str, str]]:
    """Names and versions, without those that pip could not read as a pin."""
    named = [(distribution.metadata["Name"], distribution.version) for distribution in candidates]
    return [(name, version) for name, version in named if name and version and _PLAIN_VERSION.fullmatch(version)]


def _reason(output: str) -> str:
    """The errors in pip's output, and what a conflict is between, in one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    between = [line for line in lines if " depends on " in line or line.startswith("The user requested")]
    if between:
        return "; ".join(between)[:_LONGEST]
    return " ".join(errors or lines[-1:] or ["pip gives no reason"])[:_LONGEST]
