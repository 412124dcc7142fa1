"""The service's API: JSON over HTTP with a token, on loopback by default.

All paths are below ``/v1``. Wrong input is answered with status 400 (404 for a job or server that is not there) and
problem details (:mod:`.problem`). A missing token gives 401, one with too small a role 403, too many requests 429 and a
body that is too large 413, all before the body is read. While the controller is too busy to answer, or cannot write,
the status is 503.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException  # FastAPI answers unknown paths with this one

from skedge.core.errors import InputError
from skedge.live.controller.limits import spec_in
from skedge.live.controller.service import PAGE, Service
from skedge.live.controller.states import STATES
from skedge.live.controller.submissions import BusyError, UnknownError
from skedge.scenario.schema import JobForm

from .audit import AUDIT, Audit
from .guard import ROLE, Guard
from .page import PageData, add_page
from .problem import problem
from .tenant_view import TenantView, tenant_view_of
from .tokens import ForbiddenError, Tokens, who

V1 = "/v1"
"""What the paths of this version of the API begin with."""

NEXT = "Skedge-Next"
"""Header of an answer of logs: the number of the byte after it."""

_PAUSE_S, _ALIVE_S = 0.5, 15.0
"""Between two looks at the event log for a stream, and longest silence of a stream [s]."""

Since = Annotated[int, Query(ge=0, le=2**53)]
"""Number of the first row."""

Most = Annotated[int, Query(ge=1, le=10_000)]
"""Most rows of the answer."""


async def _spec_of(request: Request) -> dict[str, Any]:
    return spec_in(await request.body())


async def _body_of(request: Request) -> bytes:
    return await request.body()


def make_api(service: Service, token: str) -> FastAPI:
    """The application; every request must have a token (``Authorization: Bearer TOKEN``).

    That is the service's own, `token`, or a named one (:mod:`.tokens`). The paths, all below ``/v1``:

    ========================= =======================================
    ``GET /health``           policy and number of jobs
    ``PUT /code/SHA256``      the code of jobs to come
    ``POST /jobs``            a job spec, perhaps with a header ``Idempotency-Key``; gives the name
    ``GET /jobs``             :meth:`.tenant_view.TenantView.queue`: ``?state=RUNNING,PENDING&since=N&most=M``
    ``GET /jobs/JOB``         :meth:`.tenant_view.TenantView.describe`
    ``GET /jobs/JOB/logs``    text, from byte ``?since=N`` on, of a worker with ``&worker=W``; ``Skedge-Next`` is what
                              to go on from
    ``GET /jobs/JOB/workers`` the workers that have printed something
    ``POST /jobs/JOB/cancel``
    ``POST /jobs/JOB/resubmit`` as it was submitted; gives the new name
    ``GET /events``           :meth:`.tenant_view.TenantView.events`: ``?since=N&most=M``
    ``GET /events/stream``    the same as they happen, as server-sent events; ``Last-Event-ID`` continues
    ``GET /view``             what the page asks, which is served at ``/``: :mod:`.page`
    ``GET /metrics``          for Prometheus: :mod:`skedge.live.controller.metrics`
    ``GET /record``           the run folder of all jobs as a ZIP file, once all have left: :mod:`.record_archive`;
                              with a token of a tenant the tables of its jobs
    ``POST /whatif``          a question; gives :meth:`.tenant_view.TenantView.what_if`
    ``GET /servers``          :meth:`.tenant_view.TenantView.servers`
    ``POST /servers/S/cordon`` and ``/servers/S/uncordon``
    ``POST /down``
    ``GET /openapi.json``     all of this for programs (OpenAPI 3)
    ========================= =======================================

    The role that each needs is in the table of routes and, as ``x-role``, in ``/openapi.json``. A token of a tenant
    sees the tenant's jobs alone (:mod:`.tenant_view`).
    """

    def submit(
        spec: Annotated[dict[str, Any], Depends(_spec_of)], idempotency_key: Annotated[str, Header()] = ""
    ) -> str:
        spec = who.get().submits(spec)
        return _told_of_keys(idempotency_key, lambda: service.submit(spec, idempotency_key))

    def cancel(job: str) -> JSONResponse:
        return _taken(audit.of("cancel", partial(_cancelled, service))(job=job))

    def resubmit(job: str, idempotency_key: Annotated[str, Header()] = "") -> str:
        tenant_view_of(service).check(job)
        return _told_of_keys(idempotency_key, lambda: service.resubmit(job, idempotency_key))

    def logs(job: str, since: Since = 0, worker: str = "") -> PlainTextResponse:
        piece = tenant_view_of(service).log(job, worker, since)
        return PlainTextResponse(piece.text, headers={NEXT: str(piece.next)})

    def record() -> FileResponse:
        file, remove = page_data.archive()
        return FileResponse(
            file, media_type="application/zip", filename="record.zip", background=BackgroundTask(remove)
        )

    def queue(state: str = "", since: Since = 0, most: Most = PAGE) -> list[dict[str, Any]]:
        return tenant_view_of(service).queue(_states_in(state), since, most)

    def events(since: Since = 0, most: Most = PAGE) -> list[dict[str, Any]]:
        return tenant_view_of(service).events(since, most)

    def stream(since: Since = 0, last_event_id: Annotated[int | None, Header(ge=0)] = None) -> StreamingResponse:
        first = since if last_event_id is None else last_event_id + 1
        return StreamingResponse(_stream(tenant_view_of(service), first), media_type="text/event-stream")

    def ask_what_if(question: Annotated[dict[str, Any], Depends(_spec_of)]) -> dict[str, Any]:
        return tenant_view_of(service).what_if(question)

    def keep_code(name: str, code: Annotated[bytes, Depends(_body_of)]) -> None:
        service.submissions.keep_code(name, code)

    audit = Audit(service.folder / AUDIT, lambda: f"token:{who.get().name}")
    page_data = PageData(service)
    api = FastAPI(title="skedge", docs_url=None, redoc_url=None, openapi_url=f"{V1}/openapi.json")
    limits = service.limits
    api.add_middleware(
        Guard,
        tokens=Tokens(service.folder, token),
        max_bytes=int(limits.body_mb * 1e6),
        rate=limits.per_minute,
        routes=api.routes,
    )
    text, unlisted = {"response_class": PlainTextResponse}, {"include_in_schema": False}
    # method, path, the least role that may ask, what answers, and FastAPI's options
    routes: tuple[tuple[str, str, str, Callable[..., Any], dict[str, Any]], ...] = (
        ("GET", "/health", "read", lambda: tenant_view_of(service).health(), {}),
        ("POST", "/jobs", "submit", audit.of("submit", submit), {}),
        ("PUT", "/code/{name}", "submit", audit.of("code", keep_code), {}),
        ("GET", "/jobs", "read", queue, {}),
        ("GET", "/jobs/{job}", "read", _describe(service), {}),
        ("GET", "/jobs/{job}/workers", "read", _workers_of(service), {}),
        ("GET", "/jobs/{job}/logs", "read", logs, text),
        ("POST", "/jobs/{job}/cancel", "submit", cancel, {}),
        ("POST", "/jobs/{job}/resubmit", "submit", audit.of("resubmit", resubmit), {}),
        ("GET", "/events", "read", events, {}),
        ("GET", "/events/stream", "read", stream, unlisted),  # it has no end, which OpenAPI cannot say
        ("POST", "/whatif", "read", ask_what_if, {}),
        ("GET", "/record", "read", record, {"response_class": FileResponse}),
        ("GET", "/metrics", "read", lambda: tenant_view_of(service).metrics(), text),
        ("GET", "/servers", "read", lambda: tenant_view_of(service).servers(), {}),
        ("POST", "/servers/{server}/cordon", "operate", _server_change(audit, "cordon", service.cordon), {}),
        ("POST", "/servers/{server}/uncordon", "operate", _server_change(audit, "uncordon", service.uncordon), {}),
        ("POST", "/down", "operate", audit.of("down", service.down), {}),
    )
    for method, path, role, answer, options in routes:
        api.add_api_route(V1 + path, answer, methods=[method], openapi_extra={ROLE: role}, **options)
    add_page(api, page_data, V1)
    api.add_exception_handler(InputError, _refused)
    api.add_exception_handler(RequestValidationError, _malformed)
    api.add_exception_handler(HTTPException, _no_such)
    _describe_spec(api)
    return api


def _describe(service: Service) -> Callable[[str], dict[str, Any]]:
    """The answer with everything known about a job."""

    def describe(job: str) -> dict[str, Any]:
        return tenant_view_of(service).describe(job)

    return describe


def _workers_of(service: Service) -> Callable[[str], list[dict[str, Any]]]:
    """The answer that lists the workers of a job that have printed something."""

    def workers(job: str) -> list[dict[str, Any]]:
        return tenant_view_of(service).workers(job)

    return workers


def _states_in(words: str) -> tuple[str, ...]:
    """The states named in a list with commas; all of them if it is empty."""
    named = tuple(word for word in words.upper().split(",") if word)
    for word in named:
        if word not in STATES:
            raise InputError(f"state {word!r}: is no state of a job; the states are {', '.join(STATES)}")
    return named or STATES


async def _stream(tenant_view: TenantView, since: int) -> AsyncIterator[str]:
    """Entries of the event log as server-sent events, from number `since` on, until the service ends."""
    quiet = 0.0
    while not tenant_view.service.world.inbox.ending:
        entries = await run_in_threadpool(tenant_view.events, since)
        for entry in entries:
            yield f"id: {entry['n']}\nevent: {entry['what']}\ndata: {json.dumps(entry)}\n\n"
        since, quiet = entries[-1]["n"] + 1 if entries else since, 0.0 if entries else quiet + _PAUSE_S
        if quiet >= _ALIVE_S:
            quiet = 0.0
            yield ": nothing new\n\n"  # a comment, so that a proxy keeps the connection
        if not entries:
            await asyncio.sleep(_PAUSE_S)


def _describe_spec(api: FastAPI) -> None:
    """Add the schema of a submission's body, which ``spec_in`` of the limits reads, to the OpenAPI description."""
    spec = JobForm.model_json_schema(ref_template="#/components/schemas/{model}")
    described = api.openapi()
    described["components"]["schemas"] |= spec.pop("$defs", {})
    content = {"application/json": {"schema": spec}}
    described["paths"][f"{V1}/jobs"]["post"]["requestBody"] = {"required": True, "content": content}


def _malformed(_: Request, error: Exception) -> JSONResponse:
    """Answer to a parameter of a wrong type: names it, and does not echo its value."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - what it is registered for
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    return problem(400, f"{field}: {first['msg']}", field=field)


def _no_such(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
    return problem(error.status_code, f"{request.method} {request.url.path}: {error.detail}")


def _cancelled(service: Service, job: str) -> str | None:
    """Cancel a job; returns a sentence if that waits until the journal can be written."""
    tenant_view_of(service).check(job)
    return _told_if_late(f"job {job!r} will be cancelled", service.cancel(job))


def _server_change(audit: Audit, action: str, change: Callable[[str], str]) -> Callable[[str], JSONResponse]:
    """The endpoint of a change of a server, which may wait until the journal can be written."""

    def changed(server: str) -> str | None:
        return _told_if_late(f"server {server!r} will be {action}ed", change(server))

    def answer(server: str) -> JSONResponse:
        return _taken(audited(server=server))

    audited = audit.of(action, changed)
    return answer


def _told_if_late(change: str, reason: str) -> str | None:
    """What is told of a change that waits for a reason; None if it does not."""
    return f"{change}: that waits, as {reason}" if reason else None


def _taken(waits: str | None) -> JSONResponse:
    """The answer to a change that is in the journal, or that waits until it can be."""
    return JSONResponse({"waits": waits}, 202) if waits else JSONResponse(None)


def _told_of_keys(key: str, submit: Callable[[], str]) -> str:
    """Submit a job; if it is not taken now, a client that sends no key is told how it can repeat its request.

    Raises
    ------
    BusyError
        If the job is not taken now.
    """
    try:
        return submit()
    except BusyError as error:
        if key:
            raise
        raise BusyError(
            f"{error}; this request has no header `Idempotency-Key`: repeated, it may be a second job. Send one, a "
            "text of your choice, with the first try and with each repetition: they are one job then"
        ) from error


def _refused(_: Request, error: Exception) -> JSONResponse:
    statuses: dict[type[Exception], int] = {BusyError: 503, ForbiddenError: 403, UnknownError: 404}
    return problem(statuses.get(type(error), 400), str(error))
