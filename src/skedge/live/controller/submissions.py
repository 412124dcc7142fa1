"""Jobs and code that are submitted to a service: checked, named, and kept until their entry is in the journal."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from skedge.core.errors import InputError, ScenarioError
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import job_table
from skedge.core.model.job_fields import DEFAULT_TENANT
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.live import host
from skedge.live.journal.journal import SqlJournal
from skedge.live.worker.code_archive import CODE, Codes, digest, files_in, lost, modules_in
from skedge.live.worker.program import Program, program_of
from skedge.live.world.inputs import Submitted
from skedge.live.world.ray_world import RayWorld
from skedge.scenario.file import check_chunks, job_from_spec, job_of
from skedge.scenario.schema import JobForm

from .limits import Limits

_DIGEST = re.compile(r"[0-9a-f]{64}")

_LONGEST_KEY = 200
"""Most characters of an idempotency key."""


class UnknownError(InputError):
    """There is no job or server of the name that is asked for."""


class BusyError(InputError):
    """The controller cannot do that now: its thread is busy, or its disk is full."""


class Submissions:
    """Accepts jobs; used by the controller's thread only, except for :meth:`keep_code`.

    Parameters
    ----------
    folder
        Folder of the service's state, where the code of jobs is stored.
    limits
        Limits on jobs and requests.
    kernel, world, journal
        Of the run; a job is in the journal before it is accepted.
    """

    def __init__(self, folder: Path, limits: Limits, kernel: Kernel, world: RayWorld, journal: SqlJournal) -> None:
        self.folder, self.limits, self.kernel, self.world, self.journal = folder, limits, kernel, world, journal
        self.codes = Codes(folder / CODE)
        self._waiting: dict[str, list[host.Future[str]]] = {}
        self._promised: set[str] = set()
        self._checked_jobs: dict[str, Scenario] = {}
        self._numbers: dict[str, int] = {}
        self._keys: dict[tuple[str, str], tuple[str, str]] = {}
        self._fields: dict[str, dict[str, Any]] = {}
        self._before: Scenario | None = None

    def look_ahead(self) -> None:
        """Before a replay: check the jobs of the journal together, and read the code of those that a snapshot has."""
        world = self.world
        self._before = submitted_before(world.scenario, self.journal)
        for job in {*self.kernel.active().tolist(), *world.trainers.unmeasured} if world.engine.acts else ():
            name = self.kernel.name(job)
            code = self._fields[name]["train"].get("code")
            if code is not None:
                world.programs[name] = replace(world.programs[name], code=self._code(code))

    def submitted(self, spec: Mapping[str, Any], key: str, answer: host.Future[str]) -> Submitted | None:
        """Check a job; returns the input that it is, None if it is an earlier submission again.

        Parameters
        ----------
        spec, key
            The job's spec, and the submission's idempotency key; empty: it has none.
        answer
            Gives the job's id once it is in the journal.

        Raises
        ------
        InputError
            If the spec is wrong, or the key was used for another one.
        BusyError
            If no jobs are taken now.
        """
        owner_key = _tenant(spec), key
        return self._promise(lambda: job_from_spec(spec, "job spec"), _digest(spec), owner_key, answer)

    def again(self, job: str, key: str, answer: host.Future[str]) -> Submitted | None:
        """The same as :meth:`submitted` for a job with the spec of an earlier one."""
        base, _, number = job.rpartition("-")
        owner_key, of_spec = (_tenant(self._fields[job]), key), _digest({"again": job})
        name = base if number.isdigit() and base in self._fields else job  # not digits-2-2 after digits-2
        return self._promise(lambda: _arrived({**self._fields[job], "id": name}, 0.0), of_spec, owner_key, answer)

    def _promise(
        self, form: Callable[[], JobForm], of_spec: str, owner_key: tuple[str, str], answer: host.Future[str]
    ) -> Submitted | None:
        """As :meth:`submitted`; `owner_key` are the tenant and the key: other tenants may use the same one."""
        key = owner_key[1]
        if owner_key in self._keys:
            self._answer_as_before(owner_key, of_spec, answer)
            return None
        if len(key) > _LONGEST_KEY:
            raise InputError(f"idempotency key: has {len(key)} characters; it must have at most {_LONGEST_KEY}")
        self.check_space()
        fields = self._checked(form())
        name = fields["id"]
        # the name is taken before the entry is in the journal, so two jobs that wait for it cannot share it
        self._promised.add(name)
        self._waiting[name] = [answer]
        if key:
            self._keys[owner_key] = name, of_spec
        return Submitted(fields, key, of_spec if key else "")

    def take(self, submitted: Submitted, now: int) -> Program:
        """Append a job to the scenario whose entry is in the journal, at a time [µs]; returns its program."""
        form = _arrived(submitted.job, now / SECOND)
        self._fields[form.id] = submitted.job
        if submitted.key:
            self._keys[_tenant(submitted.job), submitted.key] = form.id, submitted.spec
        scenario = self._with(form)
        self.kernel.extend(scenario)
        self._promised.discard(form.id)
        train = form.train
        assert train is not None  # noqa: S101 - a job spec has been checked for it
        for answer in self._waiting.pop(form.id, ()):
            answer.set_result(form.id)
        code = self._code(train.code) if train.code and self.world.engine.acts else b""
        return program_of(train, form.chunks, form.epochs, form.minibatches, scenario.cluster, code)

    def _with(self, form: JobForm) -> Scenario:
        """The scenario with one more job: it was checked when it was promised, or by a restart with all others."""
        now, before = self.world.scenario, self._before
        if before is not None and len(now.jobs) < len(before.jobs):
            row = before.jobs.frame.row(len(now.jobs), named=True)
            if (row["id"], row["arrival_s"]) == (form.id, form.arrival_s):
                return now.with_next_job(before)
        self._before = None
        alone = self._checked_jobs.pop(form.id, None)
        if alone is None:
            return now.with_job(job_of(form))
        return now.followed_by(alone.arriving(form.arrival_s))

    def code_of(self, job: str) -> str | None:
        """The name of the code that was sent with a job; None if none was."""
        name: str | None = self._fields[job]["train"].get("code")
        return name

    def keep_code(self, name: str, code: bytes) -> None:
        """Store the code of future jobs under its SHA-256.

        Raises
        ------
        InputError
            If the SHA-256 is not that of `code`, or `code` is no archive of Python files.
        BusyError
            If there is no space for it.
        """
        if digest(code) != name:
            raise InputError(f"code: its SHA-256 is {digest(code)}, not {name[:64]}")
        files_in(code)
        self.check_space()
        try:
            self.codes.keep(code)
        except OSError as error:
            raise BusyError(f"code: cannot be kept: {error.strerror}") from error

    def check_space(self) -> None:
        """Check that the disk has room for a job.

        Raises
        ------
        BusyError
            If less space is free than the limits require, or what is written would not be kept.
        """
        wrong = self.journal.wrong()
        if wrong:
            raise BusyError(f"read-only: {wrong}; jobs are taken again when that is over")
        try:
            left = host.disk.free(self.folder) / 1e6
        except OSError as error:
            raise BusyError(f"read-only: {self.folder}: {error.strerror}") from error
        if left < self.limits.free_mb:
            raise BusyError(
                f"read-only: {self.folder} has {left:.0f} MB left, less than {self.limits.free_mb:g} MB; jobs are "
                "taken again when there is space"
            )

    def read_only(self) -> str | None:
        """Why no jobs are taken now; None if they are."""
        try:
            self.check_space()
        except BusyError as error:
            return str(error)
        return None

    def _checked(self, form: JobForm) -> dict[str, Any]:
        """The fields of a job that fits the limits and the cluster, with a name of its own."""
        self.limits.check_work(job_of(form).chunks, form.epochs, form.minibatches)
        assert form.train is not None  # noqa: S101 - a job spec has been checked for it
        self.limits.check_pip(form.train.pip)
        self.world.engine.confinement.check_connect(form.train.connect)
        self.limits.check_factory(form.train.factory, self._modules(form.train.code))
        form = form.model_copy(update={"id": self._free_name(form.id)})
        scenario = self.kernel.scenario
        last = float(scenario.jobs.frame["arrival_s"][-1]) if len(scenario.jobs) else 0.0
        fields = form.model_dump(mode="json", exclude_unset=True)
        # what fails here fails in the user's request, not when the journal is read, which has the same form
        alone = scenario.of_rows(*job_table([job_of(_arrived(fields, last + 1))]))
        check_chunks(alone.jobs)
        fits = scenario.followed_by(alone)
        assert len(fits.delays.key) == len(fits.jobs)  # noqa: S101 - delays given by server are checked here
        self._checked_jobs[form.id] = alone
        return fields

    def _modules(self, code: str | None) -> set[str]:
        """The modules of the code that a spec names."""
        if code is None:
            return set()
        if not _DIGEST.fullmatch(code):
            raise InputError(f"job spec: train.code: {code!r}: is no SHA-256; `skedge submit` sends code and names it")
        return modules_in(self.codes.read(code))

    def _code(self, name: str) -> bytes:
        """A job's code; if it is lost, the job fails and the service continues."""
        try:
            return self.codes.read(name)
        except InputError:
            return lost()

    def _answer_as_before(self, owner_key: tuple[str, str], of_spec: str, answer: host.Future[str]) -> None:
        """Answer with the job of an earlier submission of this tenant with this key, once it is in the journal."""
        key, (job, before) = owner_key[1], self._keys[owner_key]
        if of_spec != before:
            raise InputError(f"idempotency key {key!r}: was used for another spec, job {job!r}; give a new key")
        if job in self._waiting:
            self._waiting[job].append(answer)
        else:
            answer.set_result(job)

    def _free_name(self, name: str) -> str:
        """`name`, or the first free of name-2, name-3 …, as ids are unique."""
        ids, n = self.kernel.scenario.jobs.index, self._numbers.get(name, 1)  # no id is ever free again
        while (candidate := name if n == 1 else f"{name}-{n}") in ids or candidate in self._promised:
            n += 1
        if n > 1:
            self._numbers[name] = n
        return candidate


def submitted_before(scenario: Scenario, journal: SqlJournal) -> Scenario | None:
    """`scenario` with all jobs whose submissions are in the journal; None if there are none, or one is wrong now."""
    forms, arrival = list[JobForm](), int(scenario.jobs.arrival[-1]) if len(scenario.jobs) else -1
    for time, content in journal.inputs:
        if content["is"] == Submitted.__name__:
            arrival = max(time, arrival + 1)  # as the world has it: each job arrives after all others
            forms.append(_arrived(content["job"], arrival / SECOND))
    try:
        return scenario.with_rows(*job_table([job_of(form) for form in forms])) if forms else None
    except ScenarioError:
        return None  # the error is raised where that job is taken in


def _tenant(fields: Mapping[str, Any]) -> str:
    """Whose job a spec is of."""
    return str(fields.get("tenant") or DEFAULT_TENANT)


def _digest(spec: Mapping[str, Any]) -> str:
    """Digest of a spec, independent of the order of its fields."""
    text = json.dumps(spec, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _arrived(fields: Mapping[str, Any], time_s: float) -> JobForm:
    """A submitted job with this arrival time [s]."""
    return JobForm.model_validate({**fields, "arrival_s": time_s})
