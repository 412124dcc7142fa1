"""Questions to the controller's thread: it answers between two inputs, so each sees one consistent state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from skedge.live import host
from skedge.live.journal.journal import SqlJournal
from skedge.live.world.inbox import Inbox

from .submissions import BusyError

Answer = TypeVar("Answer")

BUSY = "the controller is busy taking its journal in again"
"""Why a question is not answered, if the journal does not say."""

ANSWER_S, LOOK_S = 60.0, 0.2
"""How long a caller waits for the controller's thread, and how often it checks whether the journal is full [s]."""


def ask(inbox: Inbox, journal: SqlJournal, question: Callable[[], Answer]) -> Answer:
    """Have the controller's thread answer a question, between two inputs.

    Raises
    ------
    BusyError
        If it does not come to that: it takes its journal in again, or waits in the middle of an event until its
        decision can be written.
    """
    future: host.Future[Answer] = host.Future()

    def answer() -> None:
        if not future.set_running_or_notify_cancel():
            return  # the caller has stopped waiting
        try:
            future.set_result(question())
        except BaseException as error:
            future.set_exception(error)

    inbox.waiting.put(answer)
    deadline = host.monotonic() + ANSWER_S
    while not future.done() and host.monotonic() < deadline and not journal.midway:
        host.wait([future], timeout=LOOK_S)
    if future.cancel():
        raise BusyError(f"{journal.blocked or BUSY}; ask again in a while")
    return future.result()
