"""Notifications of what becomes of jobs and servers, sent by Apprise to where operators name.

Receivers are in ``notify.json`` of the state, which the service reads again when it has changed. Messages are sent by a
thread of their own: a receiver that is slow or gone delays no decision. Those not sent when the controller ends are
lost; the event log has what they would have said.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from skedge.core.errors import InputError
from skedge.core.events import CANCELLED, Event, Order
from skedge.core.model.escape import one_line
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND
from skedge.core.model.wording import did_you_mean
from skedge.live import host

from .metrics import preempted
from .named_entries import NamedEntries
from .reloading_file import ReloadingFile
from .states import NOTIFIED

NOTIFY = "notify.json"

_TRIES, _PAUSE_S, _WAITING = 3, 5.0, 1000
"""Most times that a message is sent, pause between two tries [s], and most messages that wait."""


@dataclass(frozen=True)
class Receiver:
    """Where messages go.

    Attributes
    ----------
    url
        As Apprise reads it: ``mailto://…``, ``slack://…``, ``json://host/path`` and a hundred others.
    on
        Which of :data:`.states.NOTIFIED` are sent.
    jobs
        Pattern of the jobs' names, such as ``night-*``.
    """

    name: str
    url: str
    on: tuple[str, ...]
    jobs: str = "*"

    def wants(self, message: Message) -> bool:
        """Whether it is sent `message`."""
        return message.what in self.on and (message.job is None or fnmatchcase(message.job, self.jobs))

    def shown(self) -> str:
        """The URL without its passwords and tokens."""
        return _apprise(self.url)[0].url(privacy=True)


RECEIVERS = NamedEntries(NOTIFY, "receiver", lambda row: Receiver(**{**row, "on": tuple(row["on"])}))
"""The receivers of a state."""


@dataclass(frozen=True)
class Message:
    """What has become of a job, or of a server (`job` is None)."""

    what: str
    job: str | None
    text: str


class Notifier:
    """Sends messages in its own thread."""

    def __init__(self, state: Path) -> None:
        self._receivers = ReloadingFile(state / NOTIFY, lambda: RECEIVERS.read(state))
        self._waiting = host.Queue[Message | None](_WAITING)
        self._thread = host.Thread(target=self._send_all, name="notifications", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """End the thread, once it has sent the message under way."""
        self._put(None)

    def note(self, event: Event, orders: Sequence[Order], scenario: Scenario) -> None:
        """Take what has happened to jobs and servers of `scenario`; called by the controller's thread."""
        for message in messages(event, orders, scenario):
            self._put(message)

    def tell(self, kind: str, job: str, sentence: str) -> None:
        """Take what has happened to a process of a job, if that is notified of."""
        if kind in NOTIFIED:
            self._put(Message(kind, job, f"job {job}: {sentence}"))

    def _put(self, message: Message | None) -> None:
        try:
            self._waiting.put_nowait(message)
        except host.Full:
            sys.stderr.write(f"notifications: {_WAITING} wait already, so one is left out\n")

    def _send_all(self) -> None:
        while (message := self._waiting.get()) is not None:
            try:
                receivers = [receiver for receiver in self._receivers.content if receiver.wants(message)]
            except InputError as error:
                sys.stderr.write(f"notifications: {error}\n")
                continue
            for receiver in receivers:
                if not send(receiver, message):
                    sys.stderr.write(f"notifications: {receiver.name!r} did not take: {message.text}\n")


def messages(event: Event, orders: Sequence[Order], scenario: Scenario) -> Iterator[Message]:
    """What users may want to be notified of: an event and the orders that answer it."""
    names, servers, arrival = scenario.jobs.ids, scenario.cluster.server_ids, scenario.jobs.arrival
    for job in event.finished:
        took = (event.time - int(arrival[job])) / SECOND
        yield Message("completed", names[job], f"job {names[job]} completed {took:.1f} s after its submission")
    for job, reason in event.failed:
        if reason != CANCELLED:
            yield Message("failed", names[job], f"job {names[job]} failed: {one_line(reason)}")
    for job in preempted(event, orders):
        yield Message("preempted", names[job], f"job {names[job]} was preempted; its data stay where they are")
    for server, reason in event.servers:
        yield Message("server", None, f"server {servers[server]} {reason or 'is back in service'}")


def send(receiver: Receiver, message: Message, tries: int = _TRIES) -> bool:
    """Send a message, several times if it is not taken; whether it was."""
    service, pause = _apprise(receiver.url), host.Event()
    for attempt in range(tries):
        if attempt:
            pause.wait(_PAUSE_S)
        if service.notify(title=f"skedge: {message.job or 'server'} {message.what}", body=message.text):
            return True
    return False


def _apprise(url: str) -> Any:
    """Apprise with this one URL.

    Raises
    ------
    InputError
        If it is no URL of a service that Apprise knows.
    """
    import apprise  # noqa: PLC0415 - imports a hundred services' modules

    service = apprise.Apprise()
    if not service.add(url):
        raise InputError(f"URL {url.partition('://')[0]}://…: is of no service that Apprise knows, or lacks a part")
    return service


def add_receiver(state: Path, receiver: Receiver) -> None:
    """Add a receiver, or replace that of the same name.

    Raises
    ------
    InputError
        If a part of it is wrong.
    """
    if not receiver.name.isprintable() or not 0 < len(receiver.name) <= 64:
        raise InputError(f"receiver {receiver.name!r}: a name has 1 to 64 printable characters")
    for kind in receiver.on:
        if kind not in NOTIFIED:
            suggestion = did_you_mean(kind, NOTIFIED)
            raise InputError(
                f"--on {kind!r}: is nothing that is notified of{suggestion}; there are {', '.join(NOTIFIED)}"
            )
    _apprise(receiver.url)
    RECEIVERS.put(state, receiver)
