"""Which code a job runs, and how it differs from that of its user's last job with the same factory."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from skedge.core.errors import InputError
from skedge.core.model.sharing import share_of
from skedge.live.controller.service import Service
from skedge.live.worker.code_archive import changes


def code_of(service: Service, job: str) -> dict[str, Any]:
    """The code of a job that is there: its SHA-256, and how it differs from the last.

    ``shipped``: it was sent with the job; else it is installed, and its SHA-256 is known once the job trains. ``last``
    is None if there is no earlier job of the same tenant and factory with such code; else its ``job`` and ``sha256``,
    and of shipped code the files that were ``added``, ``removed`` and ``changed``, None if one of both is not kept.
    """
    own, last = service.ask(lambda: _known(service, job))
    return {**own, "last": None if last is None else _compared(service, own, last)}


def _known(service: Service, name: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The code of a job, and that of the last before it; for the controller's thread."""
    scenario = service.kernel.scenario
    number = scenario.jobs.index[name]
    own, factory, tenant = _code(service, number), service.world.program(number).factory, _tenant(service, number)
    for earlier in range(number - 1, -1, -1):
        if service.world.program(earlier).factory == factory and _tenant(service, earlier) == tenant:
            before = _code(service, earlier)
            if before["sha256"] is not None and before["shipped"] == own["shipped"]:
                return own, {"job": scenario.jobs.ids[earlier], "sha256": before["sha256"]}
    return own, None


def _code(service: Service, job: int) -> dict[str, Any]:
    shipped = service.submissions.code_of(service.kernel.scenario.jobs.ids[job])
    return {"sha256": shipped or service.world.facts.modules.get(job), "shipped": shipped is not None}


def _tenant(service: Service, job: int) -> str | None:
    return share_of(service.kernel.scenario, job).get("tenant")


def _compared(service: Service, own: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    codes = service.submissions.codes
    if own["shipped"]:
        with suppress(InputError):  # removed from the state, or damaged: the digests still say whether it is the same
            return {**last, **changes(codes.read(last["sha256"]), codes.read(own["sha256"]))}
    return {**last, "added": None, "removed": None, "changed": None}
