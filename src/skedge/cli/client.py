"""Client of a running service: its address, requests to it, and answers as text or JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from skedge.core.errors import InputError, SkedgeError
from skedge.live.service.local_socket import reaching
from skedge.live.service.tls import trusting

_ANSWER_S = 90.0
"""Longest wait for an answer [s]."""

_LOCAL = "http://localhost/v1"

_BUSY = (429, 503)
"""HTTP statuses of a service that has been asked too often, or is too busy to answer."""


class NoAnswerError(SkedgeError):
    """The service does not answer, or is too busy: the request may or may not have been carried out."""


def address_in(state: Path) -> dict[str, Any] | None:
    """Address, token and process of the service of this state; None if it is not up.

    Raises
    ------
    InputError
        If the file that has them cannot be read.
    """
    try:
        address: dict[str, Any] = json.loads((state / "service.json").read_text(encoding="utf-8"))
    # the service removes the file when it ends
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{state / 'service.json'}: cannot be read: {error}") from error
    return address


def _address(state: Path) -> dict[str, Any]:
    """URL and token of the service: ``SKEDGE_URL`` and ``SKEDGE_TOKEN``, else those in its state."""
    url, token = os.environ.get("SKEDGE_URL"), os.environ.get("SKEDGE_TOKEN")
    if url:
        if not token:
            raise InputError("SKEDGE_URL is set without SKEDGE_TOKEN: set it to a token of that service")
        return {"url": url.rstrip("/"), "token": token}
    address = address_in(state)
    if address is None:
        raise InputError(f"{state}: no service is up there; start one with `skedge up CLUSTER --state {state}`")
    # the state's own token may do everything; another one limits this command
    return {**address, "token": token or address["token"]}


def ask(state: Path, method: str, path: str, headers: Mapping[str, str] | None = None, **options: Any) -> Any:
    """The content of the service's answer: values of JSON, or text.

    Parameters
    ----------
    state, method, path, headers, options
        As :func:`send_request` has them.

    Raises
    ------
    InputError, NoAnswerError
        As :func:`send_request`.
    """
    answer = send_request(state, method, path, headers, **options)
    return answer.json() if answer.headers["content-type"].startswith("application/json") else answer.text


def send_request(state: Path, method: str, path: str, headers: Mapping[str, str] | None = None, **options: Any) -> Any:
    """The service's answer, with its headers.

    Parameters
    ----------
    state
        Folder of the service's state; ``SKEDGE_URL`` goes before it.
    method, path
        ``GET`` or another method, and the path below ``/v1``.
    headers
        Headers besides that of the token.
    options
        Arguments of ``httpx.Client.request``: ``json``, ``params``, ``content``.

    Raises
    ------
    InputError
        If there is no service, or it refuses; the message is the service's sentence.
    NoAnswerError
        If it does not answer, or is too busy.
    """
    try:
        import httpx  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise InputError(
            f"the service needs the extra `live`: pip install 'skedge[live]' (there is no module {error.name})"
        ) from error
    address = _address(state)
    request_headers = {"Authorization": f"Bearer {address['token']}", **(headers or {})}
    try:
        with _client(state, address) as client:
            answer = client.request(method, path.lstrip("/"), headers=request_headers, **options)
    except httpx.TransportError as error:
        raise NoAnswerError(
            f"the service does not answer at {address['url']} ({error}); one that has died is started again within a "
            f"minute: see controller.log in the folder of its state, {state} unless it is another machine's"
        ) from error
    if answer.is_success:
        return answer
    is_problem = answer.headers["content-type"].startswith("application/problem+json")
    sentence = answer.json()["detail"] if is_problem else f"the service answers {answer.status_code}"
    # the caller may repeat a request that was not answered, but not one that was refused
    raise (NoAnswerError if answer.status_code in _BUSY else InputError)(sentence)


@contextmanager
def _client(state: Path, address: Mapping[str, Any]) -> Iterator[Any]:
    """A client of the service: by its socket on this machine, else by its address."""
    import httpx  # noqa: PLC0415 - an extra

    # the socket needs no port and no encryption; another machine has the address alone
    if "socket" in address and (state / address["socket"]).is_socket():
        with (
            reaching(state / address["socket"]) as path,
            httpx.Client(transport=httpx.HTTPTransport(uds=path), base_url=_LOCAL, timeout=_ANSWER_S) as client,
        ):
            yield client
        return
    cert = address.get("certificate")
    with httpx.Client(base_url=address["url"], timeout=_ANSWER_S, verify=cert is None or trusting(cert)) as client:
        yield client
