"""The check of a result file against its records."""

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
from skedge.prepare import prepare_policy
from skedge.recorded_run import Run

from .result import FORMAT, Score, records_of, score
from .suite import SEEDS, SIZES, VERSION, Task, tasks


class PolicyResult(BaseModel):
    """The scores of a policy, and the package that it comes from."""

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
        result = Result.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: is not a result file: {field}: {plain_message(first['msg'])}") from error
    except ValueError as error:
        raise InputError(f"{path}: is not a result file: {error}") from error
    _check_suite(path, result)
    return result


def _check_suite(path: Path, result: Result) -> None:
    """Reject a result that is not one of this suite, or not of all its tasks."""
    for name, actual, expected in (("format", result.format, FORMAT), ("suite", result.suite, VERSION)):
        if actual != expected:
            raise InputError(f"{path}: {name} is {actual}; this skedge reads {name} {expected}")
    if result.size not in SIZES:
        raise InputError(f"{path}: size is {result.size!r}; a suite has {', '.join(SIZES)}")
    if not 1 <= result.seeds <= SEEDS[result.size]:
        raise InputError(f"{path}: seeds is {result.seeds}; at size {result.size} it is 1 to {SEEDS[result.size]}")
    # The scores must be those of all tasks, in the suite's order: a file with the hard ones left out is refused.
    task_keys = [(task.name, task.group, task.seed) for task in tasks(result.size, result.seeds)]
    for policy in result.policies:
        if [(s.scenario, s.group, s.seed) for s in policy.scores] != task_keys:
            raise InputError(
                f"{path}: {policy.policy} does not have the {len(task_keys)} scores of the suite, in its order"
            )


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
    result = read_result(path)
    with _extract(records_of(path)) as folder:
        for policy in result.policies:
            for claimed_score in policy.scores:
                _check_score(
                    path,
                    policy.policy,
                    Task(claimed_score.scenario, result.size, claimed_score.seed),
                    claimed_score,
                    folder,
                )
    return result


def _check_score(path: Path, policy: str, task: Task, claimed_score: Score, folder: Path) -> None:
    place = f"{path}: {policy} on {task.name}, seed {task.seed}"
    if claimed_score.record is None:
        _check_absent(place, task, claimed_score)
        return
    try:
        result = Run.load(_record_folder(folder, claimed_score.record))
        recomputed, recorded_policy = score(task, result, claimed_score.record), _recorded_policy(policy, result)
    except SkedgeError as error:
        raise SkedgeError(f"{place}: {str(error).replace(f'{folder}/', '')}") from error
    if result.policy != recorded_policy:
        raise SkedgeError(f"{place}: the record is of policy {result.policy}")
    for key, value in asdict(recomputed).items():
        # Exactly equal: the same operations on the same record give the same floats on every machine.
        if getattr(claimed_score, key) != value:
            raise SkedgeError(f"{place}: {key} is {getattr(claimed_score, key)!r}; by the record it is {value!r}")


def _recorded_policy(policy: str, result: Run) -> str:
    """The policy as its record names it, calibrated; of one that is not installed only the name can be compared."""
    # Calibrated on the scenario, as when it ran: the record names the parameters that came out.
    if policy.partition(":")[0] in registered():
        return spec_of(prepare_policy(policy, result.scenario))
    return result.policy if result.policy.partition(":")[0] == policy.partition(":")[0] else policy


def _check_absent(place: str, task: Task, claimed_score: Score) -> None:
    """Reject a score without a record."""
    if claimed_score.score is not None or claimed_score.value is not None:
        raise SkedgeError(f"{place}: score is {claimed_score.score!r} without a record")
    if claimed_score.bound != task.reference().bound.value:
        raise SkedgeError(f"{place}: bound is {claimed_score.bound!r}; the suite's is {task.reference().bound.value!r}")


def _record_folder(folder: Path, record: str) -> Path:
    """The folder of a record; a path that leads elsewhere is refused."""
    # Resolved first: the file may come from anybody, and name ../ or a link.
    path = (folder / record).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InputError(f"record {record!r}: is not in the zip file")
    return path


@contextmanager
def _extract(records: Path) -> Iterator[Path]:
    """The zip file's content in a temporary folder."""
    # The archive is untrusted, but extractall() never writes outside its folder.
    with TemporaryDirectory(prefix="skedge-bench-") as folder:
        try:
            with ZipFile(records) as archive:
                archive.extractall(folder)
        except (OSError, BadZipFile) as error:
            raise InputError(f"{records}: the records cannot be read: {error}") from error
        yield Path(folder)
