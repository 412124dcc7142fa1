"""Training as it goes on, logged to TensorBoard or MLflow by their own clients, for jobs that need not know of them.

A thread of its own asks the controller's every few seconds what is new; a tracker that is slow or gone delays nothing,
and what it did not take is logged when it is back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from skedge.core.errors import InputError
from skedge.live import host

if TYPE_CHECKING:
    from .service import Service

_EVERY_S = 2.0
"""Pause between two questions to the controller [s]."""


@dataclass(frozen=True)
class JobTraining:
    """What is known of a job's training.

    Attributes
    ----------
    spec
        Numbers and names of the job as announced.
    state
        One of :data:`.states.STATES`.
    update, progress, workers
        Updates of its parameters so far, the share of its mini-batches that is in them, and workers it holds.
    losses
        (update, loss), an update per second while it trains.
    accuracy
        On its test data, once it is complete and measured.
    over
        Whether nothing more will come of it.
    """

    job: str
    spec: Mapping[str, Any]
    state: str
    update: int
    progress: float
    workers: int
    losses: Sequence[tuple[int, float]]
    accuracy: float | None
    over: bool


class Tracker(Protocol):
    """A client of TensorBoard or MLflow; all methods may raise anything if it cannot be reached."""

    def log(self, job: str, update: int, values: Mapping[str, float]) -> None:
        """Log values of a job after so many updates of its parameters."""

    def begin(self, job: str, spec: Mapping[str, Any]) -> None:
        """A job is logged for the first time by this controller."""

    def end(self, job: str, state: str) -> None:
        """A job has left."""


class TensorBoard:
    """Scalars in a folder for each job below `folder`, as ``tensorboard --logdir`` reads them."""

    def __init__(self, folder: str, service: str) -> None:  # noqa: ARG002 - the folder is this service's
        from tensorboard.summary import Writer  # noqa: PLC0415 - an extra

        self._writer, self._folder, self._open = Writer, Path(folder), dict[str, Any]()

    def begin(self, job: str, spec: Mapping[str, Any]) -> None:  # noqa: ARG002 - scalars alone
        """Open the job's folder."""
        self._open[job] = self._writer(str(self._folder / job))

    def log(self, job: str, update: int, values: Mapping[str, float]) -> None:
        """Add a scalar for each value."""
        for name, value in values.items():
            self._open[job].add_scalar(name, value, update)
        self._open[job].flush()

    def end(self, job: str, state: str) -> None:  # noqa: ARG002 - scalars alone
        """Close the job's folder."""
        self._open.pop(job).close()


class MLflow:
    """A run for each job in the experiment ``skedge`` of a tracking server; a restarted service goes on in it."""

    def __init__(self, uri: str, service: str) -> None:
        from mlflow import MlflowClient  # noqa: PLC0415 - an extra

        self._client, self._service, self._runs = MlflowClient(uri), service, dict[str, str]()

    def begin(self, job: str, spec: Mapping[str, Any]) -> None:
        """Find the job's run, or create it with the announced job as its parameters."""
        client = self._client
        existing = client.get_experiment_by_name("skedge")
        experiment = client.create_experiment("skedge") if existing is None else existing.experiment_id
        query = f"tags.`skedge.service` = '{self._service}' and tags.`skedge.job` = '{job}'"
        runs = client.search_runs([experiment], query, max_results=1)
        if runs:
            self._runs[job] = runs[0].info.run_id
            return
        tags = {"skedge.service": self._service, "skedge.job": job}
        self._runs[job] = client.create_run(experiment, tags=tags, run_name=job).info.run_id
        for name, value in spec.items():
            client.log_param(self._runs[job], name, value)

    def log(self, job: str, update: int, values: Mapping[str, float]) -> None:
        """Log a metric for each value."""
        for name, value in values.items():
            self._client.log_metric(self._runs[job], name, value, step=update)

    def end(self, job: str, state: str) -> None:
        """End the run."""
        status = {"COMPLETED": "FINISHED", "CANCELLED": "KILLED"}.get(state, "FAILED")
        self._client.set_terminated(self._runs.pop(job), status)


_TRACKERS: dict[str, tuple[type[TensorBoard | MLflow], str, str]] = {
    "tensorboard": (TensorBoard, "tensorboard", "tensorboard"),
    "mlflow": (MLflow, "mlflow", "mlflow-skinny"),
}
"""By the word before the colon: the client, its module, and the package that has it."""


def tracked(url: str) -> str:
    """``tensorboard:FOLDER``, with the whole path of the folder, or ``mlflow:URI``.

    Raises
    ------
    InputError
        If it is neither, or its client is not installed.
    """
    kind, _, target = url.partition(":")
    if kind not in _TRACKERS or not target:
        raise InputError(f"--track {url!r}: must be tensorboard:FOLDER or mlflow:URI")
    if kind == "mlflow" and "://" not in target:
        raise InputError(f"--track {url!r}: MLflow takes a URI, such as http://HOST:PORT or sqlite:////PATH")
    _, module, package = _TRACKERS[kind]
    if find_spec(module) is None:
        raise InputError(f"--track {url!r}: {kind} is not installed here: pip install {package}, or skedge[track]")
    return url if "://" in target else f"{kind}:{Path(target).absolute()}"


@dataclass
class _LoggedJob:
    """What of a job one tracker has: whether its run is open, and the last update of its losses and of the rest."""

    begun: bool = False
    loss: int = -1
    rest: tuple[float, ...] = field(default=())


class Tracking:
    """Logs to the trackers in a thread of its own.

    Parameters
    ----------
    urls, service
        The trackers, and the name of the service there.
    read
        Returns what is known of the jobs in the system, and of the named ones that have left.
    """

    def __init__(self, urls: Sequence[str], service: str, read: Callable[[Sequence[str]], list[JobTraining]]) -> None:
        self._urls, self._service, self._read = urls, service, read
        self._logged: dict[str, dict[str, _LoggedJob]] = {url: {} for url in urls}
        self._trackers: dict[str, Tracker] = {}
        self._silent = set[str]()
        self._ended = host.Event()
        self._thread = host.Thread(target=self._run, name="tracking", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """End the thread, once it has logged what is under way."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_EVERY_S)

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_S):
            try:
                self.step()
            except Exception as error:  # the controller is busy, or ends: the next question has what this one had
                sys.stderr.write(f"tracking: {type(error).__name__}: {error}\n")

    def step(self) -> None:
        """Log what is new."""
        for training in self._read(sorted({job for logged in self._logged.values() for job in logged})):
            for url in self._urls:
                try:
                    self._log(url, training)
                except Exception as error:
                    self._say(url, error)
                else:
                    self._silent.discard(url)

    def _log(self, url: str, training: JobTraining) -> None:
        """Log to one tracker what it does not have yet; what fails is tried again with the next question."""
        if url not in self._trackers:
            kind, _, target = url.partition(":")
            self._trackers[url] = _TRACKERS[kind][0](target, self._service)
        tracker, had = self._trackers[url], self._logged[url].setdefault(training.job, _LoggedJob())
        if not had.begun:
            tracker.begin(training.job, training.spec)
            had.begun = True
        for update, loss in training.losses:
            if update > had.loss:
                tracker.log(training.job, update, {"loss": loss})
                had.loss = update
        rest = {"progress": training.progress, "workers": float(training.workers)}
        rest |= {} if training.accuracy is None else {"accuracy": training.accuracy}
        if tuple(rest.values()) != had.rest:
            tracker.log(training.job, training.update, rest)
            had.rest = tuple(rest.values())
        if training.over:
            tracker.end(training.job, training.state)
            del self._logged[url][training.job]

    def _say(self, url: str, error: Exception) -> None:
        """Write a line to the controller's log, once until the tracker answers again."""
        if url not in self._silent:
            self._silent.add(url)
            sys.stderr.write(f"tracking: {url} does not take what is logged: {type(error).__name__}: {error}\n")


@contextmanager
def tracking(service: Service, urls: Sequence[str], mark: str) -> Iterator[None]:
    """Log the training of a service's jobs while it runs; `mark` identifies the service."""
    if not urls:
        yield
        return
    logger = Tracking(urls, mark, lambda left: service.ask(lambda: service.status.trained(left)))
    logger.start()
    try:
        yield
    finally:
        logger.end()
