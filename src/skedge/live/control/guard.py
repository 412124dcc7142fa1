"""Checks of every request before it is processed: first the token, then the size of its body."""

from __future__ import annotations

import secrets
from typing import Any

from fastapi.responses import JSONResponse

_BEARER = b"bearer "


class Guard:
    """ASGI middleware.

    A request without the token is answered with 401 and its body is not read. A body above `most` bytes is answered
    with 413, and the rest of it is not read.
    """

    def __init__(self, app: Any, token: str, most: int) -> None:
        self.app, self.token, self.most = app, token.encode(), most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if not self._is_known(headers.get(b"authorization", b"")):
            await JSONResponse({"error": "the token is missing or wrong"}, 401)(scope, receive, send)
            return
        body = await self._body(headers, receive)
        if body is None:
            sentence = f"the body has more than {self.most} bytes, which is the most that is taken"
            await JSONResponse({"error": sentence}, 413, {"Connection": "close"})(scope, receive, send)
            return
        await self.app(scope, _given(body, receive), send)

    def _is_known(self, header: bytes) -> bool:
        bearer, token = header[: len(_BEARER)], header[len(_BEARER) :]
        return bearer.lower() == _BEARER and secrets.compare_digest(token, self.token)

    async def _body(self, headers: dict[bytes, bytes], receive: Any) -> bytes | None:
        """The whole body; None if it is too large."""
        said = headers.get(b"content-length", b"0")
        if not said.isdigit() or int(said) > self.most:
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
