"""A server of the page for this machine's browser alone: HTTP on loopback, by the standard library."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from skedge.core.errors import SkedgeError

from .assets import HEADERS, PAGE, page_file

LOOPBACK = "127.0.0.1"


class AnswerSource(Protocol):
    """The source of the page's answers: recorded runs, or a service."""

    def answer(self, path: str, query: Mapping[str, str]) -> Any:
        """The answer to a question; None if there is no such question."""


class ViewServer(ThreadingHTTPServer):
    """Serves the page and `answers`; `port` 0: any free one.

    Raises
    ------
    OSError
        If the port is taken.
    """

    # A browser keeps connections open: they must not keep the command from ending.
    daemon_threads = True

    def __init__(self, answers: AnswerSource, port: int = 0) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.answers = answers

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print errors, but not that a page was closed before its answer came."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{LOOPBACK}:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if self.headers.get("Host", "").rpartition(":")[0] not in (LOOPBACK, "localhost"):
            # A page elsewhere whose name leads here would otherwise read the run
            self._send_problem(403, "only this machine's own address is answered")
        elif parts.path == "/":
            self._send_file(PAGE)
        elif parts.path.startswith("/view/"):
            self._send_file(parts.path.removeprefix("/view/"))
        else:
            self._answer(unquote(parts.path), dict(parse_qsl(parts.query)))

    def _answer(self, path: str, query: Mapping[str, str]) -> None:
        try:
            answer = self.server.answers.answer(path, query)
        except SkedgeError as error:
            self._send_problem(400, str(error))
            return
        if answer is None:
            self._send_problem(404, f"GET {path[:200]}: there is no such question")
        else:
            self._send(200, "application/json", json.dumps(answer, allow_nan=False))

    def _send_file(self, name: str) -> None:
        file = page_file(name)
        if file is None:
            self._send_problem(404, f"GET /view/{name[:200]}: the page has no such file")
        else:
            self._send(200, *file)

    def _send_problem(self, status: int, detail: str) -> None:
        problem = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
        self._send(status, "application/problem+json", json.dumps(problem))

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Write nothing: the terminal shows the address alone."""
