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
from skedge.runs.result_cache import ResultCache

from .console import duration, err

_LOG_PERIOD_S = 30.0
"""Least time between two lines of progress in a log [s]."""


class JobProgress:
    """Shows the progress of a run: finished jobs, of all jobs."""

    def __init__(self, progress: Progress, jobs: int, label: str) -> None:
        self.progress, self.done = progress, 0
        self.task = progress.add_task(label, total=jobs, at="")

    def __call__(self, event: Event) -> None:
        """Update the display with an event."""
        # most events end no job, and drawing is not free
        if event.finished:
            self.done += len(event.finished)
            self.progress.update(self.task, completed=self.done, at=duration(event.time / SECOND))


class PartProgress:
    """Shows what is done part by part."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.tasks = progress, dict[str, TaskID]()

    def __call__(self, label: str, n_done: int, parts: int) -> None:
        """Update the display."""
        if label not in self.tasks:
            self.tasks[label] = self.progress.add_task(label, total=parts, at="")
        self.progress.update(self.tasks[label], completed=n_done)


@contextmanager
def spinner(activity: str) -> Iterator[Callable[[str], None]]:
    """Show what a command is doing, with a spinner on a terminal; yields a function to change the text."""
    with err.status(activity, spinner="line") as status:

        def show(new_activity: str) -> None:
            # a log gets a line instead of a spinner
            if err.is_terminal:
                status.update(new_activity)
            else:
                err.print(f"{new_activity} …", soft_wrap=True)

        show(activity)
        yield show


@contextmanager
def open_cache(folder: Path | None, *, quiet: bool) -> Iterator[ResultCache | None]:
    """Keep finished points in `folder`; print their number at the beginning and if the command is ended."""
    if folder is None:
        yield None
        return
    cache = ResultCache(folder, None if quiet else lambda text: err.print(text, soft_wrap=True))
    try:
        yield cache
    except BaseException as error:
        # a note, as the error itself may be an interrupt without a message
        if count := len(cache):
            points = "point is" if count == 1 else "points are"
            error.add_note(f"{count} finished {points} kept in {folder}")
        raise


class _LogProgress(Progress):
    """Progress for a log: a line at most every half minute."""

    def __init__(self) -> None:
        # no bars: their control characters would fill the log
        super().__init__(console=err, disable=True)
        self.said_at = time.monotonic()

    def update(self, task_id: TaskID, **fields: Any) -> None:
        """Update the task, and print a line if the last one is old enough."""
        super().update(task_id, **fields)
        if time.monotonic() - self.said_at >= _LOG_PERIOD_S:
            self.said_at = time.monotonic()
            task = next(candidate for candidate in self.tasks if candidate.id == task_id)
            position = task.fields.get("at")
            err.print(
                f"{task.description}: {task.completed:g} of {task.total or 0:g}" + (f", {position}" if position else "")
            )


@contextmanager
def progress(*, quiet: bool) -> Iterator[Progress]:
    """A transient progress display on stderr; if stderr is no terminal, a line every half minute at most."""
    if not (quiet or err.is_terminal):
        yield _LogProgress()
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
    with bar, _compilation_notice(bar):
        yield bar


@contextmanager
def run_progress(total: int, label: str, *, quiet: bool) -> Iterator[Callable[[str, int], None]]:
    """Show progress: yields what is called with a policy and a seed after each of the `total` runs and bounds."""
    with progress(quiet=quiet) as bar:
        task = bar.add_task(label, total=total, at="")

        def on_run(policy: str, seed: int) -> None:
            bar.update(task, advance=1, at=f"{policy}, seed {seed}")

        yield on_run


@contextmanager
def _compilation_notice(bar: Progress) -> Iterator[None]:
    """Print once, on a terminal, why the first run takes long."""

    def notify(begins: bool) -> None:  # noqa: ARG001 - it begins when this is called first, and says it once
        watchers.remove(notify)
        bar.console.print("compiling kernels: once on this machine, half a minute in all", style="dim")

    if not bar.disable:
        watchers.append(notify)
    try:
        yield
    finally:
        if notify in watchers:
            watchers.remove(notify)
