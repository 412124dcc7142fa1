"""The page of :mod:`skedge.view` at the service's address, and what it asks about the present state.

The files of the page need no token, as they say nothing; its questions need one with the role *read*.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from starlette.exceptions import HTTPException

from skedge.core.model.scenario import Scenario
from skedge.core.record.schedule import Schedule
from skedge.live import host
from skedge.live.controller.service import Service
from skedge.report.scenario_summary import scenario_summary
from skedge.view.assets import HEADERS, PAGE, page_file
from skedge.view.shapes import lanes, site_map
from skedge.view.training import training

from .guard import ROLE
from .record_archive import archived, archived_part
from .tenant_view import TenantView, tenant_view_of

_SHARE = 0.05
"""Most of the controller's time that goes into tables for the page."""


class PageData:
    """What the page shows of a service: to each token what it sees."""

    def __init__(self, service: Service) -> None:
        self.service, self._lock, self._again = service, host.Lock(), 0.0

    def overview(self) -> dict[str, Any]:
        """The title, the policy, the scenario's settings, and the number of the next event."""
        scenario, events = self.service.ask(lambda: (self.service.kernel.scenario, len(self.service.status.happened)))
        scenario = scenario if self._sight.tenant is None else self._seen()[0]
        facts = list(scenario_summary(scenario).items())
        runs = [self.service.kernel.policy.name]
        return {"title": scenario.name, "live": True, "runs": runs, "facts": facts, "events": events}

    def lanes(self) -> dict[str, Any]:
        """The bars so far."""
        return lanes([(self.service.kernel.policy.name, *self._seen())])

    def map(self) -> dict[str, Any]:
        """The servers with their states, and the data that moved to them."""
        scenario, schedule = self._seen()
        return site_map(scenario, schedule, [row["state"] for row in self._sight.servers()])

    def why(self, job: str) -> dict[str, Any]:
        """Why a job is where it is, and what happened to it.

        Raises
        ------
        InputError
            If there is no job of that name.
        """
        description = self._sight.describe(job)
        names = ("what", "time_s", "detail")
        timeline = [
            {"until_s": None, "server": None, **{name: row[name] for name in names}} for row in description["history"]
        ]
        return {
            "job": description["job"],
            "verb": description["state"],
            "time_s": description["now_s"],
            "reason": description["message"],
            "terms": None,
            "later_s": [],
            "timeline": timeline,
            "help": description["help"],
        }

    def training(self, job: str) -> dict[str, Any]:
        """How a job is trained, so far.

        Raises
        ------
        InputError
            If there is no job of that name.
        """
        self._sight.check(job)
        scenario, schedule = self._seen()
        measured = self.service.ask(lambda: self.service.world.trainers.result(self.service.number_of(job)))
        return training(scenario, schedule, job, measured)

    def archive(self) -> tuple[Path, Callable[[], None]]:
        """The ZIP file of the record, and what removes it: of all jobs, or the tables of those that are seen.

        Raises
        ------
        InputError
            If a job of them is still in the system.
        BusyError
            If another record is being made.
        """
        tenant_view = self._sight
        if tenant_view.tenant is None:
            return archived(self.service.folder)
        tenant_view.check_all_left()
        return archived_part(*self._seen(anew=True), tenant_view.tenant)

    @property
    def _sight(self) -> TenantView:
        return tenant_view_of(self.service)

    def _seen(self, *, anew: bool = False) -> tuple[Scenario, Schedule]:
        """The jobs of the record so far that the token of this request sees; `anew`: as of now."""
        if anew:
            return self._sight.cut(*self.service.ask(self._made_now))
        return self._sight.cut(*self._so_far())

    def _so_far(self) -> tuple[Scenario, Schedule]:
        """The scenario and the record so far, made by the controller's thread and no oftener than it can afford."""
        with self._lock:
            if host.monotonic() >= self._again:
                start = host.monotonic()
                self._made = self.service.ask(self._made_now)
                end = host.monotonic()
                self._again = end + (end - start) / _SHARE
            return self._made

    def _made_now(self) -> tuple[Scenario, Schedule]:
        run = self.service.record()
        return run.scenario, run.schedule


def add_page(api: FastAPI, page_data: PageData, below: str) -> None:
    """Add the page and its questions to the application, the questions at paths that begin with `below`."""

    def index() -> Response:
        return page_part(PAGE)

    for path, file in (("/", index), ("/view/{name}", page_part)):
        api.add_api_route(path, file, include_in_schema=False, openapi_extra={ROLE: None})
    for path, answer in (
        ("/view", page_data.overview),
        ("/view/lanes", page_data.lanes),
        ("/view/map", page_data.map),
        ("/view/jobs/{job}", page_data.why),
        ("/view/training/{job}", page_data.training),
    ):
        api.add_api_route(below + path, answer, openapi_extra={ROLE: "read"})


def page_part(name: str) -> Response:
    """A file of the page."""
    file = page_file(name)
    if file is None:
        raise HTTPException(404, "the page has no such file")
    kind, text = file
    return Response(text, media_type=kind, headers=HEADERS)
