"""Progress of commands on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from skedge.core.events import Event
from skedge.core.model.time import SECOND
from skedge.platform.jit import watchers
from skedge.runs.kept import Kept

from .console import duration, err

_EVERY_S = 30.0
"""Least time between two lines of progress in a log [s]."""


class JobProgress:
    """Shows the progress of a run: finished jobs, of all jobs."""

    def __init__(self, progress: Progress, jobs: int, label: str) -> None:
        self.progress, self.done = progress, 0
        self.task = progress.add_task(label, total=jobs, at="")

    def __call__(self, event: Event) -> None:
        """Update the display with an event."""
        if event.finished:
            self.done += len(event.finished)
            self.progress.update(self.task, completed=self.done, at=duration(event.time / SECOND))


class PartProgress:
    """Shows what is done part by part."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.tasks = progress, dict[str, TaskID]()

    def __call__(self, what: str, done: int, parts: int) -> None:
        """Update the display."""
        if what not in self.tasks:
            self.tasks[what] = self.progress.add_task(what, total=parts, at="")
        self.progress.update(self.tasks[what], completed=done)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Show what a command is doing, with a spinner on a terminal; yields a function to change the text."""
    with err.status(what, spinner="line") as status:

        def say(now: str) -> None:
            if err.is_terminal:
                status.update(now)
            else:
                err.print(f"{now} …", soft_wrap=True)

        say(what)
        yield say


@contextmanager
def keeping(folder: Path | None, *, quiet: bool) -> Iterator[Kept | None]:
    """Keep finished points in `folder`; print their number at the beginning and if the command is ended."""
    if folder is None:
        yield None
        return
    kept = Kept(folder, None if quiet else lambda text: err.print(text, soft_wrap=True))
    try:
        yield kept
    except BaseException as error:
        if count := len(kept):
            points = "point is" if count == 1 else "points are"
            error.add_note(f"{count} finished {points} kept in {folder}")
        raise


class _Lines(Progress):
    """Progress for a log: a line at most every half minute."""

    def __init__(self) -> None:
        super().__init__(console=err, disable=True)
        self.said_at = time.monotonic()

    def update(self, task_id: TaskID, **given: Any) -> None:
        """Update the task, and print a line if the last one is old enough."""
        super().update(task_id, **given)
        if time.monotonic() - self.said_at >= _EVERY_S:
            self.said_at = time.monotonic()
            task = next(one for one in self.tasks if one.id == task_id)
            at = task.fields.get("at")
            err.print(f"{task.description}: {task.completed:g} of {task.total or 0:g}" + (f", {at}" if at else ""))


@contextmanager
def progress(*, quiet: bool) -> Iterator[Progress]:
    """A transient progress display on stderr; if stderr is no terminal, a line every half minute at most."""
    if not (quiet or err.is_terminal):
        yield _Lines()
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[at]}", justify="right"),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=quiet,
    )
    with bar, _saying_what_compiles(bar):
        yield bar


@contextmanager
def _saying_what_compiles(bar: Progress) -> Iterator[None]:
    """Say once on a terminal why the first run takes long."""

    def say(begins: bool) -> None:  # noqa: ARG001 - it begins when this is called first, and says it once
        watchers.remove(say)
        bar.console.print("compiling kernels: once on this machine, half a minute in all", style="dim")

    if not bar.disable:
        watchers.append(say)
    try:
        yield
    finally:
        if say in watchers:
            watchers.remove(say)
