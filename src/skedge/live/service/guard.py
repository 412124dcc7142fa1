"""Checks of every request before it is processed: first the token, then the size of its body."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastapi.routing import APIRoute
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter
from starlette.routing import BaseRoute, Match

from skedge.live import host

from .problem import problem
from .tokens import Token, Tokens, who

_BEARER = b"bearer "

ROLE = "x-role"
"""The key of a route's ``openapi_extra`` that has the least role that may ask it; None: no token is needed."""


class Guard:
    """ASGI middleware.

    A request without a known token is answered with 401, one whose token has too small a role with 403, and one above
    `rate` with 429; their bodies are not read. A body above `max_bytes` is answered with 413, and the rest of it is not
    read.

    Parameters
    ----------
    app
        The ASGI application that answers accepted requests.
    tokens
        The tokens that are accepted.
    max_bytes
        Largest body of a request [bytes].
    rate
        Most requests with the same token [1/min].
    routes
        Of the application, each with its role.
    """

    def __init__(self, app: Any, tokens: Tokens, max_bytes: int, rate: int, routes: Sequence[BaseRoute]) -> None:
        self.app, self.tokens, self.most, self.routes = app, tokens, max_bytes, routes
        self.rate, self.counted = RateLimitItemPerMinute(rate), FixedWindowRateLimiter(MemoryStorage())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or reject it."""
        needed = _role(self.routes, scope) if scope["type"] == "http" else None
        if needed is None:
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        token = self._token_in(headers.get(b"authorization", b""))
        if token is None:
            await problem(401, "the token is missing or wrong")(scope, receive, send)
            return
        if not token.may(needed):
            sentence = f"token {token.name!r} has the role {token.role}; this needs {needed}"
            await problem(403, sentence)(scope, receive, send)
            return
        if not self.counted.hit(self.rate, token.name):
            left = math.ceil(self.counted.get_window_stats(self.rate, token.name).reset_time - host.time())
            sentence = f"token {token.name!r} has asked {self.rate.amount} times in this minute, which is the most"
            await problem(429, sentence, {"Retry-After": str(max(left, 1))})(scope, receive, send)
            return
        body = await self._body(headers, receive)
        if body is None:
            sentence = f"the body has more than {self.most} bytes, which is the most that is taken"
            await problem(413, sentence, {"Connection": "close"})(scope, receive, send)
            return
        who.set(token)
        await self.app(scope, _given(body, receive), send)

    def _token_in(self, header: bytes) -> Token | None:
        bearer, text = header[: len(_BEARER)], header[len(_BEARER) :]
        return self.tokens.of(text.decode("latin-1")) if bearer.lower() == _BEARER else None

    async def _body(self, headers: dict[bytes, bytes], receive: Any) -> bytes | None:
        """The whole body; None if it is too large."""
        stated = headers.get(b"content-length", b"0")
        # refused by what it says, before a byte of it is read; what comes is counted all the same
        if not stated.isdigit() or int(stated) > self.most:
            return None
        parts, size = list[bytes](), 0
        while True:
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.most:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)


def _role(routes: Sequence[BaseRoute], scope: Any) -> str | None:
    """The least role that may ask what is asked; None: no token is needed."""
    route = next((route for route in routes if route.matches(scope)[0] is Match.FULL), None)
    # what is not there, and the description of the API, may be asked with any token
    return route.openapi_extra[ROLE] if isinstance(route, APIRoute) and route.openapi_extra else "read"


def _given(body: bytes, receive: Any) -> Any:
    """A `receive` that first returns a body that was already read, then the messages after it."""
    first = True

    async def again() -> Any:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again
