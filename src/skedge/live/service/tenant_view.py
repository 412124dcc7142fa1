"""What a token sees of a service: all of it, or the jobs of its tenant alone, as if there were no others.

Every answer of the API and of its page that tells of jobs is given here. What is not of a job is told to everybody:
the servers and whether they are up, and how much of them is in use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import polars as pl

from skedge.core.errors import InputError
from skedge.core.model.scenario import Scenario
from skedge.core.model.sharing import share_of
from skedge.core.record.schedule import Schedule
from skedge.explanation.what_if import answer_fields, what_if
from skedge.live.controller.job_logs import LogPiece
from skedge.live.controller.service import PAGE, Service, unknown
from skedge.live.controller.states import STATES

from .code_changes import code_of
from .tokens import ForbiddenError, who

OTHERS = "a job of another tenant"
"""What is said in place of the name of another tenant's job."""


class TenantView:
    """The service as a tenant sees it.

    Parameters
    ----------
    service
        What is seen; its thread answers.
    tenant
        Whose jobs are seen; None: everybody's.
    """

    def __init__(self, service: Service, tenant: str | None) -> None:
        self.service, self.tenant = service, tenant

    # -- for the controller's thread -----------------------------------------------------------------------------

    def sees(self, job: int) -> bool:
        """Whether it sees the job of this number."""
        return self.tenant is None or share_of(self.service.kernel.scenario, job).get("tenant") == self.tenant

    def number_of(self, name: str) -> int:
        """The number of a job.

        Raises
        ------
        UnknownError
            If there is none of that name, or it is another tenant's; the sentence is the same.
        """
        index = self.service.kernel.scenario.jobs.index
        if name in index and not self.sees(index[name]):
            raise unknown(name)
        return self.service.number_of(name)

    def shown_blocker(self, name: str | None) -> str | None:
        """The name of a job that another waits for, unless it is not seen."""
        index = self.service.kernel.scenario.jobs.index
        return name if name not in index or self.sees(index[name]) else OTHERS

    def _seen(self) -> list[int]:
        return [job for job in range(self.service.kernel.arrived) if self.sees(job)]

    def _happened(self, since: int) -> Iterator[dict[str, Any]]:
        """Entries of the event log from number `since` on: of the jobs seen, and of servers."""
        index, log = self.service.kernel.scenario.jobs.index, self.service.status.happened
        entries = (log[number] for number in range(since, len(log)))
        return (entry for entry in entries if entry["job"] is None or self.sees(index[entry["job"]]))

    # -- answers -------------------------------------------------------------------------------------------------

    def check(self, job: str) -> None:
        """Check that there is a job of that name, which it sees.

        Raises
        ------
        UnknownError
            If not.
        """
        self.service.ask(lambda: self.number_of(job))

    def check_all_left(self) -> None:
        """Check that no job that is seen is in the system.

        Raises
        ------
        InputError
            If one is.
        """
        kernel = self.service.kernel
        active = self.service.ask(lambda: [kernel.name(job) for job in kernel.active().tolist() if self.sees(job)])
        if active:
            raise InputError(f"job {active[0]!r} is still in the system; a record is complete when all have left")

    def queue(self, states: Collection[str] = STATES, since: int = 0, limit: int = PAGE) -> list[dict[str, Any]]:
        """One row for each of the first `limit` jobs from number `since` on that are in one of `states`."""
        forecast, status = self.service.forecaster.forecast(), self.service.status
        return self.service.ask(lambda: status.rows(forecast, states, since, limit, self.sees, self.shown_blocker))

    def describe(self, job: str) -> dict[str, Any]:
        """Everything known about a job, and which code it runs.

        Raises
        ------
        UnknownError
            If it sees no job of that name.
        """
        self.check(job)
        description = self.service.describe(job, self.shown_blocker)
        return {**description, "code": code_of(self.service, job)}

    def events(self, since: int = 0, limit: int = PAGE) -> list[dict[str, Any]]:
        """At most `limit` entries of the event log, from number `since` on."""
        return self.service.ask(lambda: list(islice(self._happened(since), limit)))

    def log(self, job: str, worker: str = "", since: int = 0) -> LogPiece:
        """A piece of a log: :meth:`skedge.live.controller.service.Service.log`."""
        self.check(job)
        return self.service.log(job, worker, since)

    def workers(self, job: str) -> list[dict[str, Any]]:
        """The workers of a job that have printed something."""
        self.check(job)
        return self.service.logs.workers(job)

    def servers(self) -> list[dict[str, Any]]:
        """One row per server, with the jobs on it that are seen."""
        rows = self.service.servers()
        if self.tenant is None:
            return rows
        index = self.service.kernel.scenario.jobs.index
        return [{**row, "jobs": [name for name in row["jobs"] if self.sees(index[name])]} for row in rows]

    def health(self) -> dict[str, Any]:
        """State of the controller, with the number of jobs that are seen."""
        state = self.service.health()
        if self.tenant is None:
            return state
        aside = [
            entry["job"]["id"] for entry in self.service.journal.aside if entry["job"].get("tenant") == self.tenant
        ]
        return {**state, "jobs": len(self._seen()), "quarantined": aside}

    def what_if(self, question: dict[str, Any]) -> dict[str, Any]:
        """The effects of a change on the jobs that are seen (:mod:`skedge.explanation.what_if`); nothing changes.

        Raises
        ------
        InputError
            If the question is wrong, or is about a job of another tenant.
        """
        if self.tenant is not None and isinstance(question.get("submit"), dict):
            question = {**question, "submit": who.get().submits(question["submit"])}
        answer = what_if(self.service.ask(self.service.status.present), question)
        index = self.service.kernel.scenario.jobs.index
        effects = (effect for effect in answer.effects if effect.submitted or self.sees(index[effect.job]))
        return answer_fields(replace(answer, effects=tuple(effects)))

    def metrics(self) -> str:
        """What Prometheus scrapes.

        Raises
        ------
        ForbiddenError
            If it is of one tenant.
        """
        if self.tenant is not None:
            raise ForbiddenError(
                f"token {who.get().name!r} is for jobs of the tenant {self.tenant!r}; metrics are of all tenants: ask "
                "with a token without --tenant"
            )
        return self.service.metrics.text()

    def cut(self, scenario: Scenario, schedule: Schedule) -> tuple[Scenario, Schedule]:
        """The jobs that are seen of a record, numbered anew."""
        if self.tenant is None:
            return scenario, schedule
        sharing = scenario.cluster.sharing
        own_tenant = sharing.names.index(self.tenant) if sharing is not None and self.tenant in sharing.names else None
        visible = [job for job, tenant in enumerate(scenario.jobs.tenant.tolist()) if tenant == own_tenant]
        tables = {name: _of(table, visible) for name, table in schedule.tables().items()}
        return scenario.only(np.array(visible, np.int64)), Schedule(**tables)


def _of(table: pl.DataFrame, jobs: list[int]) -> pl.DataFrame:
    """The rows of some jobs, which get the numbers from 0 on; all rows of a table that is not of jobs."""
    if "job" not in table.columns:
        return table
    number = pl.col("job").replace_strict(jobs, range(len(jobs)), return_dtype=table.schema["job"])
    return table.filter(pl.col("job").is_in(jobs)).with_columns(number)


def tenant_view_of(service: Service) -> TenantView:
    """The service as the token of this request sees it."""
    return TenantView(service, who.get().tenant)
