"""A result file checked again from its records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import BadZipFile, ZipFile

from pydantic import BaseModel, ConfigDict, ValidationError

from skedge.core.errors import InputError, SkedgeError
from skedge.core.model.wording import plain_message
from skedge.core.registry import registered, spec_of
from skedge.run import Run, prepared

from .result import FORMAT, Score, records_of, score
from .suite import SEEDS, SIZES, VERSION, Task, tasks


class PolicyResult(BaseModel):
    """What one policy scored, and where it comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: str
    package: str
    version: str
    scores: list[Score]


class Result(BaseModel):
    """The content of a result file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int
    suite: int
    size: str
    seeds: int
    skedge: str
    policies: list[PolicyResult]
    machine: dict[str, Any]


def read_result(path: Path) -> Result:
    """Read a result file.

    Raises
    ------
    InputError
        If it cannot be read, is of another format or suite, or does not have the tasks of its size, each once.
    """
    try:
        found = Result.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: is not a result file: {at}: {plain_message(first['msg'])}") from error
    except ValueError as error:
        raise InputError(f"{path}: is not a result file: {error}") from error
    _must_fit(path, found)
    return found


def _must_fit(path: Path, found: Result) -> None:
    """Reject a result that is not one of this suite, or not of all its tasks."""
    for name, is_, right in (("format", found.format, FORMAT), ("suite", found.suite, VERSION)):
        if is_ != right:
            raise InputError(f"{path}: {name} is {is_}; this skedge reads {name} {right}")
    if found.size not in SIZES:
        raise InputError(f"{path}: size is {found.size!r}; a suite has {', '.join(SIZES)}")
    if not 1 <= found.seeds <= SEEDS[found.size]:
        raise InputError(f"{path}: seeds is {found.seeds}; at size {found.size} it is 1 to {SEEDS[found.size]}")
    todo = [(task.name, task.group, task.seed) for task in tasks(found.size, found.seeds)]
    for one in found.policies:
        if [(s.scenario, s.group, s.seed) for s in one.scores] != todo:
            raise InputError(f"{path}: {one.policy} does not have the {len(todo)} scores of the suite, in its order")


def check(path: Path) -> Result:
    """Check a result file: every record is verified again and every score recomputed from its record.

    That the policy itself made a record is not shown: for that, run it again.

    Raises
    ------
    InputError
        As :func:`read_result`; or if the records cannot be read.
    SkedgeError
        If a record breaks a rule or is of another scenario or policy, or a score is not the record's.
    """
    found = read_result(path)
    with _unpacked(records_of(path)) as folder:
        for one in found.policies:
            for claimed in one.scores:
                _check_score(path, one.policy, Task(claimed.scenario, found.size, claimed.seed), claimed, folder)
    return found


def _check_score(path: Path, policy: str, task: Task, claimed: Score, folder: Path) -> None:
    where = f"{path}: {policy} on {task.name}, seed {task.seed}"
    if claimed.record is None:
        _check_absent(where, task, claimed)
        return
    try:
        result = Run.load(_inside(folder, claimed.record))
        right, named = score(task, result, claimed.record), _recorded(policy, result)
    except SkedgeError as error:
        raise SkedgeError(f"{where}: {str(error).replace(f'{folder}/', '')}") from error
    if result.policy != named:
        raise SkedgeError(f"{where}: the record is of policy {result.policy}")
    for key, value in asdict(right).items():
        if getattr(claimed, key) != value:
            raise SkedgeError(f"{where}: {key} is {getattr(claimed, key)!r}; by the record it is {value!r}")


def _recorded(policy: str, result: Run) -> str:
    """The policy as its record names it, calibrated; of one that is not installed only the name can be compared."""
    if policy.partition(":")[0] in registered():
        return spec_of(prepared(policy, result.scenario))
    return result.policy if result.policy.partition(":")[0] == policy.partition(":")[0] else policy


def _check_absent(where: str, task: Task, claimed: Score) -> None:
    """Reject a score without a record."""
    if claimed.score is not None or claimed.value is not None:
        raise SkedgeError(f"{where}: score is {claimed.score!r} without a record")
    if claimed.bound != task.reference().bound.value:
        raise SkedgeError(f"{where}: bound is {claimed.bound!r}; the suite's is {task.reference().bound.value!r}")


def _inside(folder: Path, record: str) -> Path:
    """The folder of a record; a path that leads elsewhere is refused."""
    found = (folder / record).resolve()
    if not found.is_relative_to(folder.resolve()):
        raise InputError(f"record {record!r}: is not in the zip file")
    return found


@contextmanager
def _unpacked(records: Path) -> Iterator[Path]:
    """The zip file's content in a temporary folder."""
    with TemporaryDirectory(prefix="skedge-bench-") as folder:
        try:
            with ZipFile(records) as packed:
                packed.extractall(folder)
        except (OSError, BadZipFile) as error:
            raise InputError(f"{records}: the records cannot be read: {error}") from error
        yield Path(folder)
