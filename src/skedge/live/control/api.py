"""The service's API: JSON over HTTP with a token, on loopback by default.

Wrong input is answered with status 400 and ``{"error": sentence}``. A missing token gives 401 and a body that is too
large 413, both before the body is read. While the controller is too busy to answer, or cannot write, the status is 503.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException  # FastAPI answers unknown paths with this one

from skedge.core.errors import InputError
from skedge.scenario.schema import JobForm

from .audit import AUDIT, Audit
from .guard import Guard
from .limits import spec_in
from .service import Service
from .submissions import BusyError


async def _spec_of(request: Request) -> dict[str, Any]:
    return spec_in(await request.body())


async def _body_of(request: Request) -> bytes:
    return await request.body()


def make_api(service: Service, token: str) -> FastAPI:
    """The application; every request must have the `token` (``Authorization: Bearer TOKEN``).

    ========================= =======================================
    ``GET /health``           policy and number of jobs
    ``PUT /code/SHA256``      the code of jobs to come
    ``POST /jobs``            a job spec, perhaps with a header ``Idempotency-Key``; gives the name
    ``GET /jobs``             :meth:`.service.Service.queue`
    ``GET /jobs/JOB``         :meth:`.service.Service.describe`
    ``GET /jobs/JOB/logs``    text
    ``POST /jobs/JOB/cancel``
    ``GET /events?since=N``   :meth:`.service.Service.events`
    ``POST /whatif``          a question; gives :meth:`.service.Service.what_if`
    ``GET /servers``          :meth:`.service.Service.servers`
    ``POST /servers/S/cordon`` and ``/servers/S/uncordon``
    ``POST /down``
    ``GET /openapi.json``     all of this for programs (OpenAPI 3)
    ========================= =======================================
    """

    def submit(
        spec: Annotated[dict[str, Any], Depends(_spec_of)], idempotency_key: Annotated[str, Header()] = ""
    ) -> str:
        return service.submit(spec, idempotency_key)

    def ask_what_if(question: Annotated[dict[str, Any], Depends(_spec_of)]) -> dict[str, Any]:
        return service.what_if(question)

    def keep_code(name: str, code: Annotated[bytes, Depends(_body_of)]) -> None:
        service.submissions.keep_code(name, code)

    audit = Audit(service.folder / AUDIT, f"token:{hashlib.sha256(token.encode()).hexdigest()[:12]}")
    api = FastAPI(title="skedge", docs_url=None, redoc_url=None)
    api.add_middleware(Guard, token=token, most=int(service.limits.body_mb * 1e6))
    routes: tuple[tuple[str, str, Callable[..., Any]], ...] = (
        ("GET", "/health", service.health),
        ("POST", "/jobs", audit.of("submit", submit)),
        ("PUT", "/code/{name}", audit.of("code", keep_code)),
        ("GET", "/jobs", service.queue),
        ("GET", "/jobs/{job}", service.describe),
        ("POST", "/jobs/{job}/cancel", audit.of("cancel", service.cancel)),
        ("GET", "/events", service.events),
        ("POST", "/whatif", ask_what_if),
        ("GET", "/servers", service.servers),
        ("POST", "/servers/{server}/cordon", audit.of("cordon", service.cordon)),
        ("POST", "/servers/{server}/uncordon", audit.of("uncordon", service.uncordon)),
        ("POST", "/down", audit.of("down", service.down)),
    )
    for method, path, answer in routes:
        api.add_api_route(path, answer, methods=[method])
    api.add_api_route("/jobs/{job}/logs", service.logs, response_class=PlainTextResponse)
    api.add_exception_handler(InputError, _refused)
    api.add_exception_handler(RequestValidationError, _malformed)
    api.add_exception_handler(HTTPException, _no_such)
    _describe_spec(api)
    return api


def _describe_spec(api: FastAPI) -> None:
    """Add the schema of a submission's body, which :func:`.limits.spec_in` reads, to the OpenAPI description."""
    spec = JobForm.model_json_schema(ref_template="#/components/schemas/{model}")
    described = api.openapi()
    described["components"]["schemas"] |= spec.pop("$defs", {})
    content = {"application/json": {"schema": spec}}
    described["paths"]["/jobs"]["post"]["requestBody"] = {"required": True, "content": content}


def _malformed(_: Request, error: Exception) -> JSONResponse:
    """Answer to a parameter of a wrong type: names it, and does not echo its value."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - what it is registered for
    first = error.errors()[0]
    return JSONResponse({"error": f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"}, 400)


def _no_such(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
    return JSONResponse({"error": f"{request.method} {request.url.path}: {error.detail}"}, error.status_code)


def _refused(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 503 if isinstance(error, BusyError) else 400)
