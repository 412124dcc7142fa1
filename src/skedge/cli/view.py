"""``skedge view``: recorded runs in the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from skedge.core.errors import InputError
from skedge.recorded_run import load_complete
from skedge.view.recorded_runs import RecordedRuns
from skedge.view.server import ViewServer

from .console import out


def view(
    folders: Annotated[list[Path], typer.Argument(help="Run folders; several are compared.")],
    port: Annotated[int, typer.Option(help="Port on this machine; 0: any free port.", min=0, max=65535)] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address and open no browser.")] = False,
) -> None:
    """View recorded runs in the browser: lanes, jobs, decisions, servers and a comparison; until Ctrl-C."""
    answers = RecordedRuns([load_complete(folder) for folder in folders])
    _ = answers.lanes  # made before the page asks
    try:
        server = ViewServer(answers, port)
    except OSError as error:
        raise InputError(f"--port {port}: cannot be listened on: {error.strerror}; 0 takes a free one") from error
    with server:
        out.print(f"viewed at {server.url}; Ctrl-C ends it", soft_wrap=True)
        if not no_open:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            out.print("ended")
