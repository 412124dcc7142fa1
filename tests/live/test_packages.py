"""Packages that a job's code imports: installed once, beside what is there, and part of what processes compare."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
import yaml
from wheels import wheel

from skedge.core.errors import InputError, TrainingError
from skedge.live.worker.code_archive import pack
from skedge.live.worker.flat_tensors import FlatLayout
from skedge.live.worker.job_process import JobProcess
from skedge.live.worker.job_processes import ForkServerClient, sent
from skedge.live.worker.pip_packages import add_packages
from skedge.live.worker.program import Program
from skedge.scenario.file import job_from_spec

JOB = """
import torch
from torch import nn
from weights_of_planted import weight
from skedge.live.training import Training

def data(chunk=0):
    return torch.ones(1, 2), torch.ones(1, 1)

def model():
    layer = nn.Linear(2, 1, bias=False)
    nn.init.constant_(layer.weight, weight)
    return layer

def job():
    return Training(model, lambda p: torch.optim.SGD(p, 1.0), lambda a, b: a.sum(), data, data)
"""

WEIGHT = FlatLayout({"weight": torch.empty(1, 2)})
"""That of the job's model, which must not be made in this process: its packages would stay."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of this module's tests: the process that children are forked from lives on between them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("PIP_NO_INDEX", "1")
        yield Path.home() / ".cache" / "skedge" / "packages"


@pytest.fixture
def child(home: Path) -> Callable[[], JobProcess]:
    fork_server = ForkServerClient()
    fork_server.start()
    return fork_server.fork


def folders(home: Path) -> set[Path]:
    return {path for path in home.glob("*") if path.is_dir()}


def program(folder: Path, *pip: str) -> Program:
    folder.mkdir(exist_ok=True)
    (folder / "planted_job.py").write_text(JOB, encoding="utf-8")
    return Program("planted_job:job", {}, 1, 1, 1, code=pack(folder / "planted_job.py"), pip=pip)


def test_a_jobs_process_imports_what_the_job_asks_for(
    child: Callable[[], JobProcess], home: Path, tmp_path: Path
) -> None:
    """By hand: the weights begin at the number in the package. Two jobs with two versions train side by side."""
    one = program(tmp_path / "job", wheel(tmp_path / "a", 0.25))
    two = program(tmp_path / "job", wheel(tmp_path / "b", 0.5, "2.0"))
    first, module = [], []
    for of in (one, two, one):
        facts, state = child().ask("load", sent(of), None)
        first.append(WEIGHT.views(state)["weight"])
        module.append(facts["module"])
    assert all(torch.equal(a, torch.full((1, 2), b)) for a, b in zip(first, (0.25, 0.5, 0.25), strict=True))
    assert module[0] == module[2] != module[1], "processes of a job compare the versions of its packages"
    assert len(folders(home)) == 2, "each list is installed once, and nothing half-installed is left"


def test_without_the_package_the_job_fails_by_its_name(child: Callable[[], JobProcess], tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="No module named 'weights_of_planted'"):
        child().ask("load", sent(program(tmp_path / "job")), None)


def test_what_cannot_be_installed_fails_the_job_in_one_sentence(
    child: Callable[[], JobProcess], home: Path, tmp_path: Path
) -> None:
    before = folders(home)
    with pytest.raises(TrainingError, match=r"train.pip: no-such-package-here==1: cannot be installed: .*No matching"):
        child().ask("load", sent(program(tmp_path / "job", "no-such-package-here==1")), None)
    assert folders(home) == before


def test_what_is_installed_is_never_replaced(home: Path, tmp_path: Path) -> None:
    """A package that needs another PyTorch is refused; one that needs this PyTorch brings no second."""
    with pytest.raises(TrainingError, match=r"cannot be installed: .*torch"):
        add_packages((wheel(tmp_path / "a", 1, needs="torch==0.0.1"),), home)
    here = version("torch").partition("+")[0]
    found = add_packages((wheel(tmp_path / "b", 1, "3.0", needs=f"torch>={here}"),), home)
    assert found == "planted==3.0"


def test_modules_of_the_users_folder_are_not_taken_for_pip(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `pip.py` where the service was called, which is on the path of its processes."""
    (tmp_path / "pip.py").write_text("")
    monkeypatch.chdir(tmp_path)
    before = [entry for entry in sys.path if not entry.startswith(str(home))]  # as in a new process
    monkeypatch.setattr(sys, "path", [str(tmp_path), *before])
    assert add_packages((wheel(tmp_path / "wheels", 2.0),), tmp_path / "cache") == "planted==1.0"


@pytest.mark.parametrize("wrong", ["--index-url=http://127.0.0.1/", "-r other.txt", "", "a\n--pre"])
def test_a_requirement_is_no_option_of_pip(wrong: str) -> None:
    spec = yaml.safe_load((Path(__file__).parents[2] / "docs" / "examples" / "job.yaml").read_text(encoding="utf-8"))
    assert job_from_spec(spec, "job spec").train.pip == []
    with pytest.raises(InputError, match=r"^job spec: train\.pip"):
        job_from_spec({**spec, "train": {**spec["train"], "pip": [wrong]}}, "job spec")
