"""The service's API: JSON over HTTP, on loopback unless told otherwise, with a token.

The answer to wrong input is status 400 with ``{"error": sentence}``; without the token it is 401, and while
the controller is too busy to answer 503.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from skedge.core.errors import InputError

from .service import BusyError, Service

_BEARER = HTTPBearer(auto_error=False)

_LONGEST_KEY = 200
"""Characters of an idempotency key."""


def make_api(service: Service, token: str) -> FastAPI:
    """The application; `token` is asked for with every request (``Authorization: Bearer TOKEN``).

    ========================= =======================================
    ``GET /health``           policy and number of jobs
    ``POST /jobs``            a job spec, perhaps with a header ``Idempotency-Key``; gives the name
    ``GET /jobs``             :meth:`.Service.queue`
    ``GET /jobs/JOB``         :meth:`.Service.describe`
    ``GET /jobs/JOB/logs``    text
    ``POST /jobs/JOB/cancel``
    ``GET /events?since=N``   :meth:`.Service.events`
    ``GET /servers``          :meth:`.Service.servers`
    ``POST /servers/S/cordon`` and ``/servers/S/uncordon``
    ``POST /down``
    ========================= =======================================
    """

    def known(given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> None:
        if given is None or not secrets.compare_digest(given.credentials.encode(), token.encode()):
            raise HTTPException(401, "the token is missing or wrong")

    def submit(
        spec: dict[str, Any], idempotency_key: Annotated[str, Header(max_length=_LONGEST_KEY)] = ""
    ) -> str:  # fmt: skip
        return service.submit(spec, idempotency_key)

    api = FastAPI(title="skedge", dependencies=[Depends(known)], docs_url=None, redoc_url=None, openapi_url=None)
    routes: tuple[tuple[str, str, Callable[..., Any]], ...] = (
        ("GET", "/health", service.health),
        ("POST", "/jobs", submit),
        ("GET", "/jobs", service.queue),
        ("GET", "/jobs/{job}", service.describe),
        ("POST", "/jobs/{job}/cancel", service.cancel),
        ("GET", "/events", service.events),
        ("GET", "/servers", service.servers),
        ("POST", "/servers/{server}/cordon", service.cordon),
        ("POST", "/servers/{server}/uncordon", service.uncordon),
        ("POST", "/down", service.down),
    )
    for method, path, answer in routes:
        api.add_api_route(path, answer, methods=[method])
    api.add_api_route("/jobs/{job}/logs", service.logs, response_class=PlainTextResponse)
    api.add_exception_handler(InputError, _refused)
    return api


def _refused(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 503 if isinstance(error, BusyError) else 400)
