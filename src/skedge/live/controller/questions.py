"""Questions to the controller's thread: it answers between two inputs, so each sees one consistent state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from skedge.live import host
from skedge.live.journal.journal import SqlJournal
from skedge.live.world.inbox import Inbox
from skedge.live.world.inputs import Submitted

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


def accept(inbox: Inbox, journal: SqlJournal, submitted: Callable[[host.Future[str]], Submitted | None]) -> str:
    """Have a job be the next input, if nothing is wrong with it; returns its id once it is in the journal.

    Parameters
    ----------
    inbox, journal
        Those of the controller.
    submitted
        Checks the job, in the controller's thread; returns the input that it is, if it is one. The future that it is
        given has the id later, or soon.

    Raises
    ------
    BusyError
        If it does not come to that, or the job cannot be written into the journal now.
    """
    answer, deadline = host.Future[str](), host.monotonic() + ANSWER_S

    def take() -> Submitted | None:
        if not answer.set_running_or_notify_cancel():
            return None  # the client has stopped waiting
        try:
            return submitted(answer)
        except BaseException as error:
            answer.set_exception(error)
            return None

    inbox.waiting.put(take)
    while not answer.done() and host.monotonic() < deadline:
        if journal.midway or (answer.running() and journal.blocked):
            break
        host.wait([answer], timeout=LOOK_S)
    if answer.cancel():
        raise BusyError(f"{journal.blocked or BUSY}; ask again in a while")
    if not answer.done():
        reason = journal.blocked or "the controller is busy"
        raise BusyError(f"{reason}; the job may be taken later: ask again with the same idempotency key")
    return answer.result()
