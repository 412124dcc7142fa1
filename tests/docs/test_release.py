"""Wheel and sdist hold all that skedge needs, outside of the checkout."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from builders.paths import ROOT

PACKAGE = ROOT / "src" / "skedge"

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as pip does; the libraries are those of the present environment."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, wheel]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return folder


def outside(installed: Path, at: Path, *words: str) -> str:
    """Run Python with the installed package and without the checkout."""
    env = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run([sys.executable, *words], cwd=at, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    files = {path.relative_to(ROOT / "src").as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    assert {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("skedge/")} == files


def test_the_sdist_has_what_builds_tests_and_documents_it(dist: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    top = ("README.md", "LICENSE", "Makefile", "constraints.txt", "pyproject.toml", "mkdocs.yml", "tests/conftest.py")
    assert set(top) <= names
    assert {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py")} <= names


def test_the_metadata_have_the_version_the_command_and_every_extra(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    opened = zipfile.ZipFile(wheel)
    (name,) = (name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
    said = Parser().parsestr(opened.read(name).decode())
    assert said["Version"] == project["version"]
    assert set(said.get_all("Provides-Extra")) == set(project["optional-dependencies"])
    commands = opened.read(name.replace("METADATA", "entry_points.txt")).decode()
    assert "skedge = skedge.__main__:main" in commands
    assert all(f"{policy} = " in commands for policy in project["entry-points"]["skedge.policies"])


def test_it_runs_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    where = outside(installed, tmp_path, "-c", "import skedge; print(skedge.__file__)").strip()
    assert Path(where).is_relative_to(installed)
    skedge = ("-m", "skedge")
    outside(installed, tmp_path, *skedge, "run", "demo", "--policy", "fifo", "--out", "one")
    outside(installed, tmp_path, *skedge, "verify", "one")
    outside(installed, tmp_path, *skedge, "report", "one", "--out", "report.html")
    outside(installed, tmp_path, *skedge, "reproduce", "pdors", "fig5", "--out", "figure")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (tmp_path / "figure" / "results.json").is_file()


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import skedge.gym, gymnasium; gymnasium.make('skedge/ChunkDispatch-v0').reset(seed=0)", id="gym"),
        pytest.param(
            "from skedge.optimum.chunks.problem import optimum_of_chunks; from skedge.testing import small_scenario; "
            "assert optimum_of_chunks(small_scenario(0), 1.0).run",
            id="optimum",
        ),
        pytest.param(
            "import skedge, os; skedge.run('demo', 'fifo').plot.jct().save('a'); assert os.path.isfile('a.pdf')",
            id="figures",
        ),
    ],
)
def test_extras_work_outside_the_checkout(installed: Path, tmp_path: Path, code: str) -> None:
    outside(installed, tmp_path, "-c", code)


def test_only_a_clean_commit_with_the_tag_of_its_version_is_a_release() -> None:
    spec = importlib.util.spec_from_file_location("release", ROOT / "docs" / "tools" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    release = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(release)
    assert release.why_not("1.2.0", ["v1.2.0"], "") is None
    assert "no tag v1.2.0" in release.why_not("1.2.0", ["v1.1.0"], "")
    assert "uncommitted" in release.why_not("1.2.0", ["v1.2.0"], " M README.md")
