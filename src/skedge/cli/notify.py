"""``skedge notify``: who gets a message when jobs complete, fail or are preempted, and when servers are lost."""

from __future__ import annotations

from typing import Annotated

import typer

from skedge.core.errors import SkedgeError
from skedge.live.controller.states import NOTIFIED

from .console import print_answer, print_json, print_table
from .extra import check_live
from .lazy import command_group
from .options import STATE, JsonOption, StateOption

notify = command_group("Send messages to mail, chat or a web address when jobs complete, fail or are preempted.")

NameArgument = Annotated[str, typer.Argument(help="Name of the receiver.")]


@notify.command()
def add(
    name: NameArgument,
    url: Annotated[str, typer.Argument(help="Where messages go, as an Apprise URL: mailto://…, slack://…, json://…")],
    on: Annotated[str, typer.Option(help=f"Of {', '.join(NOTIFIED)}, separated by commas.")] = "completed,failed",
    jobs: Annotated[str, typer.Option(help="Pattern of the jobs' names, such as 'night-*'.")] = "*",
    state: StateOption = STATE,
    as_json: JsonOption = False,
) -> None:
    """Add a receiver, or replace that of the same name; the service need not be restarted."""
    check_live()
    from skedge.live.controller.notify import Receiver, add_receiver  # noqa: PLC0415 - imports the extra

    receiver = Receiver(name, url, tuple(word.strip() for word in on.split(",") if word.strip()), jobs)
    add_receiver(state, receiver)
    print_answer({"name": name, "on": receiver.on}, f"{name} is notified: {', '.join(receiver.on)}", as_json=as_json)


@notify.command("list")
def list_receivers(state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """List the receivers, their URLs without passwords."""
    check_live()
    from skedge.live.controller.notify import RECEIVERS  # noqa: PLC0415 - imports the extra

    receivers = RECEIVERS.read(state)
    if as_json:
        print_json([{"name": r.name, "url": r.shown(), "on": r.on, "jobs": r.jobs} for r in receivers])
    else:
        print_table(("name", "url", "on", "jobs"), ((r.name, r.shown(), ", ".join(r.on), r.jobs) for r in receivers))


@notify.command("test")
def send_test(name: NameArgument, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Send a message to a receiver now."""
    check_live()
    from skedge.live.controller.notify import RECEIVERS, Message, send  # noqa: PLC0415 - imports the extra

    receiver = RECEIVERS.of(state, name)
    # once: a test that fails is reported, not repeated
    if not send(receiver, Message("test", None, "skedge can reach you here"), tries=1):
        raise SkedgeError(f"receiver {name!r}: {receiver.shown()} did not take the message")
    print_answer({"name": name}, f"{name} took the message", as_json=as_json)


@notify.command()
def remove(name: NameArgument, state: StateOption = STATE, as_json: JsonOption = False) -> None:
    """Remove a receiver: no more messages go there."""
    check_live()
    from skedge.live.controller.notify import RECEIVERS  # noqa: PLC0415 - imports the extra

    RECEIVERS.remove(state, name)
    print_answer({"name": name}, f"{name} is removed", as_json=as_json)
