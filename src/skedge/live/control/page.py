"""The page of :mod:`skedge.view` at the service's address, and what it asks about the present state.

The files of the page need no token, as they say nothing; its questions need one with the role *read*.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Response
from starlette.exceptions import HTTPException

from skedge.core.facts import scenario_facts
from skedge.core.scenario import Scenario
from skedge.core.schedule import Schedule
from skedge.view.assets import HEADERS, PAGE, page_file
from skedge.view.shapes import lanes, site_map
from skedge.view.training import training

from .service import Service

_SHARE = 0.05
"""Most of the controller's time that goes into tables for the page."""


class Shown:
    """What the page shows of a service."""

    def __init__(self, service: Service) -> None:
        self.service, self._lock, self._again = service, threading.Lock(), 0.0

    def overview(self) -> dict[str, Any]:
        """The title, the policy, the scenario's settings, and the number of the next event."""
        scenario, events = self.service.ask(lambda: (self.service.kernel.scenario, len(self.service.status.happened)))
        facts = list(scenario_facts(scenario).items())
        runs = [self.service.kernel.policy.name]
        return {"title": scenario.name, "live": True, "runs": runs, "facts": facts, "events": events}

    def lanes(self) -> dict[str, Any]:
        """The bars so far."""
        return lanes([(self.service.kernel.policy.name, *self._so_far())])

    def map(self) -> dict[str, Any]:
        """The servers with their states, and the data that moved to them."""
        scenario, schedule = self._so_far()
        return site_map(scenario, schedule, [row["state"] for row in self.service.servers()])

    def why(self, job: str) -> dict[str, Any]:
        """Why a job is where it is, and what happened to it.

        Raises
        ------
        InputError
            If there is no job of that name.
        """
        found = self.service.describe(job)
        names = ("what", "time_s", "detail")
        timeline = [
            {"until_s": None, "server": None, **{name: row[name] for name in names}} for row in found["history"]
        ]
        return {
            "job": found["job"],
            "verb": found["state"],
            "time_s": found["now_s"],
            "reason": found["message"],
            "terms": None,
            "later_s": [],
            "timeline": timeline,
            "help": found["help"],
        }

    def training(self, job: str) -> dict[str, Any]:
        """How a job is trained, so far.

        Raises
        ------
        InputError
            If there is no job of that name.
        """
        scenario, schedule = self._so_far()
        found = self.service.ask(lambda: self._measured(job))
        return training(scenario, schedule, job, found)

    def _measured(self, job: str) -> Mapping[str, Any]:
        return self.service.world.trainers.result(self.service.number_of(job))

    def _so_far(self) -> tuple[Scenario, Schedule]:
        """The scenario and the record so far, made by the controller's thread and no oftener than it can afford."""
        with self._lock:
            if time.monotonic() >= self._again:
                began = time.monotonic()
                self._made = self.service.ask(self._made_now)
                ended = time.monotonic()
                self._again = ended + (ended - began) / _SHARE
            return self._made

    def _made_now(self) -> tuple[Scenario, Schedule]:
        run = self.service.record()
        return run.scenario, run.schedule


def add_page(api: FastAPI, service: Service, below: str) -> None:
    """Add the page and its questions to the application, the questions at paths that begin with `below`."""
    shown = Shown(service)

    def index() -> Response:
        return _file(PAGE)

    def page_part(name: str) -> Response:
        return _file(name)

    api.add_api_route("/", index, include_in_schema=False)
    api.add_api_route("/view/{name}", page_part, include_in_schema=False)
    api.add_api_route(f"{below}/view", shown.overview)
    api.add_api_route(f"{below}/view/lanes", shown.lanes)
    api.add_api_route(f"{below}/view/map", shown.map)
    api.add_api_route(f"{below}/view/jobs/{{job}}", shown.why)
    api.add_api_route(f"{below}/view/training/{{job}}", shown.training)


def _file(name: str) -> Response:
    found = page_file(name)
    if found is None:
        raise HTTPException(404, "the page has no such file")
    kind, text = found
    return Response(text, media_type=kind, headers=HEADERS)
