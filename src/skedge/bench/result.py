"""A result file of the suite: the scores of policies, with the records in a zip file beside it.

Everything outside the key ``machine`` is the same on all machines.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZIP_STORED, ZipFile

from skedge.analysis.metrics.metrics import completion_of
from skedge.core.errors import InputError, PolicyError, SkedgeError
from skedge.core.registry import make_policy, registered, spec_of
from skedge.optimum.problems import Reference, covering_problems
from skedge.prepare import offers
from skedge.recorded_run import Run
from skedge.runs.meta import folder_name, registered_meta
from skedge.runs.tasks import Executor, KeyedTask, run_tasks
from skedge.simulate import run

from .suite import VERSION, Task, hash_of, tasks

FORMAT = 1
"""Version of the form of result files."""


@dataclass(frozen=True)
class Score:
    """The score of a policy on a task.

    Attributes
    ----------
    scenario, group, seed
        The task, and the leaderboard's group that it belongs to.
    metric, value
        The objective: total JCT [s], total cost, or total utility.
    bound
        The stored bound on it.
    score
        The share of the bound that is reached, 0 to 1: bound over value, or value over bound where more is better. None
        if the bound does not hold for the run, as jobs were left unfinished, or the policy cannot run: `why` says it.
    record
        Its run folder in the zip file; None if the policy cannot run.
    """

    scenario: str
    group: str
    seed: int
    metric: str
    value: float | None
    bound: float
    score: float | None
    why: str | None = None
    record: str | None = None


_BOUND_ASSUMPTIONS = {
    "lower": "not every job was finished, as the bound supposes",
    "higher": "the policy counts utility at other times than the ends of jobs, which the bound supposes",
}


def score(task: Task, result: Run, record: str) -> Score:
    """The score of a run on a task.

    Raises
    ------
    SkedgeError
        If the run is of another scenario, or its record breaks a rule.
    """
    # The bound was proved for the frozen scenario: against another one a score would mean nothing.
    if hash_of(result.scenario) != task.frozen().hash:
        raise SkedgeError(f"{record}: the scenario is not the one of suite {VERSION} at size {task.size}")
    result.check_complete()
    violations = result.verify(1)
    if violations:
        raise SkedgeError(f"{record}: the record breaks {violations[0].rule}: {violations[0].message}")
    reference, value = task.reference(), result.metrics[task.reference().metric]
    covered_problems = covering_problems(result.scenario, result.schedule, completion_of(registered_meta(result.meta)))
    # A bound holds only for runs that its problem covers, such as those that finish every job.
    share = _share(reference, value) if reference.problem in covered_problems else None
    reason = None if share is not None else _BOUND_ASSUMPTIONS[reference.sense]
    return Score(
        task.name, task.group, task.seed, reference.metric, value, reference.bound.value, share, reason, record
    )


def _share(reference: Reference, value: float) -> float:
    """The share of the bound that is reached."""
    return reference.bound.value / value if reference.sense == "lower" else value / reference.bound.value


def measure(
    policies: Sequence[str],
    size: str,
    seeds: int,
    out: Path,
    processes: int = -1,
    progress: Callable[[str, int], None] | None = None,
) -> dict[str, Any]:
    """Run policies over the suite, verify every record, and write the result file and the zip file of its records.

    Parameters
    ----------
    policies
        Each as ``name`` or ``name:key=value,...``.
    size, seeds
        As for :func:`skedge.bench.suite.tasks`.
    out
        The result file, ``.json``; the records are written beside it as ``.zip``.
    processes
        Number of parallel runs; -1: one per core.
    progress
        Called with policy and seed after each run.

    Raises
    ------
    InputError
        If a file exists already, or the size or the number of seeds is wrong.
    PolicyError
        If a policy is unknown, or given twice.
    SkedgeError
        If a record breaks a rule.
    """
    specs = [spec_of(make_policy(policy)) for policy in policies]
    if len(set(specs)) < len(specs):
        raise PolicyError(f"policies: {', '.join(specs)}: name each once")
    suite_tasks = tasks(size, seeds)
    _check_new(out)
    # Beside the result, so that the records are moved within one file system.
    with TemporaryDirectory(prefix="skedge-bench-", dir=out.parent) as folder:
        points = [KeyedTask("", _run_task, (spec, task, Path(folder))) for spec in specs for task in suite_tasks]
        scores = {}
        for spec, task, task_score, seconds in run_tasks(points, Executor(processes), "runs"):
            scores[spec, task] = task_score, seconds
            (progress or _silent)(spec, task.seed)
        result = {
            "format": FORMAT,
            "suite": VERSION,
            "size": size,
            "seeds": seeds,
            "skedge": version("skedge"),
            "policies": [
                {**_origin(spec), "scores": [asdict(scores[spec, task][0]) for task in suite_tasks]} for spec in specs
            ],
            "machine": {
                **_machine(),
                "cpu_s": {spec: [scores[spec, task][1] for task in suite_tasks] for spec in specs},
            },
        }
        _write(out, result, Path(folder))
    return result


def _silent(_policy: str, _seed: int) -> None:
    """Report no progress."""


def _check_new(out: Path) -> None:
    if out.suffix != ".json":
        raise InputError(f"--out {out}: a result file ends in .json")
    if not out.parent.is_dir():
        raise InputError(f"--out {out}: {out.parent} is not a folder")
    for path in (out, records_of(out)):
        if path.exists():
            raise InputError(f"{path}: exists already; name a new file or remove it")


def records_of(out: Path) -> Path:
    """The zip file of the records beside a result file."""
    return out.with_suffix(".zip")


def _run_task(spec: str, task: Task, folder: Path) -> tuple[str, Task, Score, float]:
    """The score of a policy on a task and the CPU time of the run [s]; its record is written into `folder`."""
    scenario, reference = task.scenario(), task.reference()
    missing = make_policy(spec).needs - offers(scenario)
    if missing:
        reason = f"the policy needs {', '.join(sorted(missing))}"
        return (
            spec,
            task,
            Score(task.name, task.group, task.seed, reference.metric, None, reference.bound.value, None, reason),
            0.0,
        )
    record = f"{folder_name(spec)}/{task.name}-seed{task.seed}"
    # CPU time: the runs share the machine with each other.
    start_s = time.process_time()
    try:
        result = run(scenario, spec)
        seconds = time.process_time() - start_s
        task_score = score(task, result, record)
    except SkedgeError as error:
        raise SkedgeError(f"{spec} on {task.name}, seed {task.seed}: {error}") from error
    (folder / record).mkdir(parents=True)
    result.write(folder / record)
    return spec, task, task_score, round(seconds, 3)


def _origin(spec: str) -> dict[str, str]:
    """The policy, the package that it comes from, and the package's version."""
    package = registered()[spec.partition(":")[0]].dist
    return {"policy": spec, "package": package.name if package else "", "version": package.version if package else ""}


def _machine() -> dict[str, Any]:
    libraries = {name: version(name) for name in ("numpy", "numba", "polars")}
    return {"system": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version(), **libraries}


def _write(out: Path, result: dict[str, Any], folder: Path) -> None:
    """Write the records, then the result that refers to them."""
    zip_path = folder / "records.zip"
    with ZipFile(zip_path, "w", ZIP_STORED) as records:  # its tables are compressed
        # Sorted, as folders have no order of their own: the archive's is then the same everywhere.
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path != zip_path):
            records.write(path, path.relative_to(folder))
    json_path = folder / "result.json"
    json_path.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n", encoding="utf-8", newline="\n")
    # The records first: a result without them could not be checked.
    shutil.move(zip_path, records_of(out))
    shutil.move(json_path, out)
