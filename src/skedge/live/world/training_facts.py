"""What trainers and uploads have reported, by job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from skedge.live.coordinator.report import Report
from skedge.live.worker.job_process import Printed
from skedge.view.training import block_means

_LOSSES = 200
"""Most points of a job's losses in ``run.json``."""


AWAY, BACK = "storage_away", "storage_back"
"""Reports that a job waits for the storage of checkpoints, and that it does no more."""

NEWS = ("stalled", "restarted", AWAY, BACK)
"""Reports of what has happened to a job's processes, or to what they need, which change nothing."""


def _ignored(*_: object) -> None:
    """Ignores what happens to a job's processes."""


class TrainingFacts:
    """Everything measured about the jobs' training.

    Attributes
    ----------
    progress
        Mini-batches of each chunk as recorded: repeated mini-batches count once.
    trained
        Mini-batches of each chunk that the parameters hold.
    results
        Accuracy and losses of jobs whose result was measured.
    modules
        SHA-256 of the code that trains the job.
    late_s, recovery_s
        Delay of the job's teams, and duration of its rounds in which a process was lost [s].
    devices
        (server, device) of the job's workers.
    freed_s
        Time from each order to suspend until the device of the suspended worker was free [s].
    preemption_s
        Time from each decision to displace a chunk to the displacing job's first update with its own chunk [s].
    first_s
        By (job, team), time from when it held its place to its first update [s], as last reported.
    stalled
        By job, the mini-batches that its parameters held when it was last reported as stalled.
    without_storage
        Jobs that wait for the storage of checkpoints.
    upload_late_s
        Most by which an upload took longer than announced [s].
    labels
        By job and chunk, how often each label occurs, as far as this controller had the chunks made.
    timed
        Called with each time that is measured and its name: ``first_update``, ``worker_release``, ``preemption``.
    job_event
        Called with (job, word, sentence) for what happens to a job's processes.
    job_output
        Called with (job id, worker, text) for what they print, from any thread.
    job_log
        Called with (job id, line) for the job's log, from any thread.
    """

    def __init__(self) -> None:
        self.progress: dict[int, list[int]] = {}
        self.trained: dict[int, tuple[int, ...]] = {}
        self.results: dict[int, Any] = {}
        self.modules: dict[int, str] = {}
        self.late_s: dict[int, float] = {}
        self.recovery_s: dict[int, float] = {}
        self.upload_late_s: dict[int, float] = {}
        self.labels: dict[int, dict[int, dict[int, int]]] = {}
        self.devices: dict[int, set[tuple[int, str]]] = {}
        self.freed_s: list[float] = []
        self.preemption_s: list[float] = []
        self.first_s: dict[tuple[int, int], float] = {}
        self.stalled: dict[int, int] = {}
        self.without_storage: set[int] = set()
        self.timed: Callable[[str, float], None] = _ignored
        self.job_event: Callable[[int, str, str], None] = _ignored
        self.job_output: Callable[[str, str, str], None] = _ignored
        self.job_log: Callable[[str, str], None] = _ignored

    def note(self, report: Report) -> None:
        """Note the progress and the delays of a report."""
        job = report.job
        if report.what == "stalled":
            self.stalled[job] = sum(report.progress)
        if report.what == AWAY:
            self.without_storage.add(job)
        elif report.what not in NEWS or report.what == BACK:  # a mini-batch has been counted
            self.without_storage.discard(job)
        if report.what in NEWS:
            self.job_event(job, report.what, report.reason)
        if report.progress:
            self.trained[job] = report.progress
            self.progress[job] = [max(pair) for pair in zip(self.progress[job], report.progress, strict=True)]
        if report.module:
            self.modules[job] = report.module
        self.devices.setdefault(job, set()).update(report.devices)
        if report.freed_s is not None:
            self.freed_s.append(report.freed_s)
            self.timed("worker_release", report.freed_s)
        # every report of a team repeats it
        if report.first_s is not None and report.first_s != self.first_s.get((job, report.team)):
            self.first_s[job, report.team] = report.first_s
            self.timed("first_update", report.first_s)
        self.late_s[job] = self.late_s.get(job, 0.0) + report.late_s
        self.recovery_s[job] = self.recovery_s.get(job, 0.0) + report.recovery_s

    def note_preemption(self, took_s: float) -> None:
        """Note the time from a decision to displace a chunk to the displacing job's first update [s]."""
        self.preemption_s.append(took_s)
        self.timed("preemption", took_s)

    def note_printed(self, name: str, printed: Printed) -> None:
        """Pass on what a process of the job of this id has printed, if that is anything."""
        if printed:
            self.job_output(name, *printed)

    def note_upload(self, job: int, late_s: float) -> None:
        """Note by how much an upload took longer than announced [s]."""
        self.upload_late_s[job] = max(late_s, self.upload_late_s.get(job, 0.0))

    def untrained(self, job: int, steps: int) -> str:
        """What is missing in the parameters of a job reported as fully trained (rule M38); empty if nothing."""
        progress = self.trained.get(job, (0,))
        if min(progress) >= steps:
            return ""
        chunk = progress.index(min(progress))
        return f"its parameters hold {progress[chunk]} of {steps} mini-batches of chunk {chunk}: they are not complete"

    def devices_of(self, job: int, servers: Sequence[str]) -> dict[str, list[str]]:
        """The devices that have trained a job, by server."""
        by_server: dict[str, list[str]] = {}
        for server, device in sorted(self.devices.get(job, ())):
            by_server.setdefault(servers[server], []).append(device)
        return by_server

    def meta(self, ids: Sequence[str], servers: Sequence[str]) -> dict[str, Any]:
        """The facts for ``run.json``, by the ids of the jobs and servers."""
        jobs = sorted(self.late_s.keys() | self.upload_late_s.keys())
        delays = {ids[job]: self.late_s.get(job, 0.0) + self.upload_late_s.get(job, 0.0) for job in jobs}
        return {
            "recovery_s": max(self.recovery_s.values(), default=0.0),
            "late_s": delays,
            "code": {ids[job]: module for job, module in sorted(self.modules.items())},
            "devices": {ids[job]: self.devices_of(job, servers) for job in sorted(self.devices)},
            "device_free_s": self.freed_s,
            "trained": {ids[job]: list(progress) for job, progress in sorted(self.trained.items())},
            "training": {ids[job]: _kept(result) for job, result in sorted(self.results.items()) if result},
        }


def _kept(result: dict[str, Any]) -> dict[str, Any]:
    """The result of a job for ``run.json``, its losses as means of adjacent updates."""
    return {**result, "losses": block_means(result["losses"], _LOSSES)}
