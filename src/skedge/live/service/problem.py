"""Errors of the API as problem details (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi.responses import JSONResponse


def problem(status: int, detail: str, headers: dict[str, str] | None = None, **fields: Any) -> JSONResponse:
    """An answer that says what is wrong.

    Parameters
    ----------
    status
        Status code of HTTP; its phrase is the title.
    detail
        What is wrong, in one sentence, or one per line.
    headers
        Further headers; None: no others.
    fields
        Further fields of the content, beside those of RFC 9457.
    """
    content = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **fields}
    return JSONResponse(content, status, headers, media_type="application/problem+json")
