"""The service: a run that accepts jobs while it is running, and answers questions about them.

It is the loop of :func:`skedge.core.kernel.drive.drive` over the same kernel and live world. A request of an operator
is an input like any other: journaled, then processed. Questions are answered between two inputs, by the controller's
thread, so that each answer sees one consistent state.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from skedge.core.errors import InputError, StateError
from skedge.core.events import Event, Order
from skedge.core.kernel.drive import drive
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.scenario import Scenario
from skedge.explanation.what_if import find_remedies
from skedge.live import host
from skedge.live.cluster.engine import Engine
from skedge.live.journal.journal import JOURNAL, NoRunError, SqlJournal, journal_url
from skedge.live.worker.checkpoint import Checkpoints
from skedge.live.world.inputs import Cancelled, ServerChanged
from skedge.live.world.ray_world import NoEngine
from skedge.live.world.site_world import world_of
from skedge.prepare import prepare_for_service
from skedge.recorded_run import Run
from skedge.runs.meta import meta_of
from skedge.sim.what_if import Present

from .forecaster import Forecaster
from .job_logs import JobLogs, LogPiece
from .limits import Limits
from .metrics import Metrics, Read
from .notify import Notifier
from .questions import Answer, accept, ask
from .retention import Retention
from .snapshot import newest
from .states import WAITING
from .status import Status, as_named
from .submissions import BusyError, Submissions, UnknownError

LOGS = "logs"

RESTARTS = ("stalled", "restarted")
"""What happens to a job's processes when they are started again."""

PAGE = 1000
"""Most rows of one answer, unless another number is asked for."""


def _ignored(_: float) -> None:
    """Ignore a time."""


class _TimedKernel(Kernel):
    """A kernel that measures how long it takes to answer: `took` is called with the time of each answer [s]."""

    took: Callable[[float], None] = staticmethod(_ignored)

    def handle(self, event: Event) -> list[Order]:
        """As every kernel does; the journal is written in that time."""
        start = host.perf_counter()
        orders = super().handle(event)
        self.took(host.perf_counter() - start)
        return orders

    def __getstate__(self) -> dict[str, Any]:
        """For copies, on which forecasts are made: they measure nothing."""
        return {**super().__getstate__(), "took": _ignored}


class Service:
    """A running controller.

    Parameters
    ----------
    scenario
        The cluster, without jobs.
    policy
        ``name`` or ``name:key=value,…``.
    folder
        Folder of the persistent state; ``logs/`` and the final record are written here.
    engine
        The Ray cluster, or :class:`NoEngine` to rebuild a run without side effects.
    journal
        Empty, or that of the service's earlier life, which is replayed first.
    limits
        Limits on jobs and requests.
    snapshot
        File of a snapshot (:mod:`.snapshot`): if it can be used, only the entries after it are replayed.

    Raises
    ------
    PolicyError
        If the policy does not fit, or takes constants from a workload, which a service does not have.
    """

    def __init__(
        self,
        scenario: Scenario,
        policy: str,
        folder: Path,
        engine: Engine | NoEngine,
        journal: SqlJournal,
        limits: Limits | None = None,
        snapshot: Path | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.folder, self.engine, self.journal = folder, engine, journal
        prepared = prepare_for_service(policy, scenario)
        before = None if snapshot is None else newest(snapshot, scenario, prepared, journal)
        self.kernel = _TimedKernel(scenario, prepared, journal)
        began = float(journal.about["began"])
        self.world = world_of(scenario)(self.kernel, {}, engine, journal=journal, began=began)
        inbox = self.world.inbox
        self.logs = JobLogs(folder / LOGS, self.limits.output_mb, lambda: inbox.rebuilding)
        facts = self.world.facts
        facts.job_event, facts.job_output, facts.job_log = self._job_event, self.logs.printed, self.logs.line
        self.metrics = Metrics(self._read, lambda: inbox.rebuilding)
        facts.timed = self.metrics.time
        self.kernel.took = self.metrics.decided.observe
        self.submissions = Submissions(folder, self.limits, self.kernel, self.world, journal)
        self.world.submit = self.submissions.take
        self.status = Status(self.kernel, self.world, self.logs.line)
        self.notifier = Notifier(folder)
        self.forecaster = Forecaster(self._present, self.metrics.off.observe)
        self.retention = Retention(
            Checkpoints(engine.url), self.world.real_now, self.limits.keep_days, self._sweep_servers
        )
        if before is not None:
            before.restore(self)
        self.submissions.look_ahead()

    # -- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until :meth:`down`."""
        if self.engine.acts:
            self.retention.thread.start()
            self.forecaster.start()
            self.notifier.start()
        try:
            drive(self.kernel, self.world, self._note)
        finally:
            self.notifier.end()
            self.forecaster.end()
            self.retention.end()
            self.world.close()

    def _note(self, event: Event, orders: list[Order]) -> None:
        self.status.note(event, orders)
        if not self.world.inbox.rebuilding:
            self.metrics.note(event, orders)
            self.notifier.note(event, orders, self.kernel.scenario)
        for job in event.finished:
            self.forecaster.completed(job, event.time)
        for job in event.left:
            self.forecaster.left(job)
            self.retention.note(self.kernel.scenario.jobs.ids[job], event.time)

    def _sweep_servers(self) -> None:
        """Have servers forget jobs that have left; of a job that they know, being in no system says so."""
        if not self.world.inbox.rebuilding:
            index, kernel = self.kernel.scenario.jobs.index, self.kernel
            self.engine.sweep(lambda name: name in index and not kernel.in_system(index[name]))

    def record(self) -> Run:
        """The record so far; complete when no job is in the system."""
        meta = {**meta_of(self.kernel.scenario, self.kernel.policy), **self.world.meta()}
        return Run(self.kernel.scenario, meta, self.kernel.record.schedule(self.world.runs()))

    def _job_event(self, job: int, kind: str, sentence: str) -> None:
        """Note what has happened to a process of a job."""
        self.status.tell(job, kind, sentence)
        if not self.world.inbox.rebuilding:
            if kind in RESTARTS:
                self.metrics.restarted.labels(kind).inc()
            self.notifier.tell(kind, self.kernel.scenario.jobs.ids[job], sentence)

    # -- from other threads --------------------------------------------------------------------------------------

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Have the controller's thread answer a question, between two inputs."""
        return ask(self.world.inbox, self.journal, question)

    def submit(self, spec: dict[str, Any], key: str = "") -> str:
        """Accept a job; returns its id once it is in the journal.

        Parameters
        ----------
        spec
            The job spec, as of a file.
        key
            Idempotency key: a spec submitted again with the key of an earlier submission is the same job, also after a
            restart of the controller. Empty: every submission is a new job.

        Raises
        ------
        ScenarioError
            If the spec is wrong or does not fit the cluster.
        InputError
            If the key was used for another spec.
        BusyError
            If the journal cannot be written now.
        """
        return accept(self.world.inbox, self.journal, lambda answer: self.submissions.submitted(spec, key, answer))

    def resubmit(self, job: str, key: str = "") -> str:
        """Accept a job again, as it was submitted; returns the new job's id. Otherwise as :meth:`submit`.

        Raises
        ------
        InputError
            If there is no job of that name.
        """
        self.ask(lambda: self.number_of(job))
        return accept(self.world.inbox, self.journal, lambda answer: self.submissions.again(job, key, answer))

    def cancel(self, job: str) -> str:
        """Cancel a job; returns why that waits, or an empty text if it is done.

        Raises
        ------
        InputError
            If there is no job of that name, or it has left already.
        """

        def put() -> None:
            number = self.number_of(job)
            if not self.kernel.in_system(number):
                raise InputError(f"job {job!r} is {self.status.state(number)}: there is nothing to cancel")
            self.world.inbox.waiting.put(Cancelled(number))

        self.ask(put)
        return self._why_that_waits()

    def cordon(self, server: str) -> str:
        """Take a server out of service; its work moves elsewhere after the mini-batches under way.

        Returns why that waits, or an empty text if it is done.

        Raises
        ------
        InputError
            If there is no server of that name, or it is cordoned already.
        BusyError
            If the journal cannot be written now: nothing is changed.
        """
        return self._cordon(server, back=False)

    def uncordon(self, server: str) -> str:
        """Put a cordoned server back into service; returns why that waits, or an empty text if it is done.

        Raises
        ------
        InputError
            If there is no server of that name, or it is not cordoned.
        BusyError
            If the journal cannot be written now: nothing is changed.
        """
        return self._cordon(server, back=True)

    def _cordon(self, server: str, *, back: bool) -> str:
        def put() -> None:
            if self.journal.blocked:  # a request that waits would be done after one that was answered since
                raise BusyError(f"{self.journal.blocked}; ask again in a while")
            names = self.kernel.scenario.cluster.server_ids
            if server not in names:
                raise UnknownError(f"server {server!r} is unknown; there are {', '.join(names)}")
            number = names.index(server)
            is_so = "cordoned" in self.world.out.get(number, ())
            if is_so != back:
                raise InputError(f"server {server!r} is {'cordoned already' if is_so else 'not cordoned'}")
            self.world.inbox.waiting.put(ServerChanged(number, "uncordoned" if back else "cordoned"))

        self.ask(put)
        return self._why_that_waits()

    def _why_that_waits(self) -> str:
        """Why an input that was put just now is not in the journal yet; empty if it is: it outlives this controller."""
        try:
            return self.ask(lambda: self.journal.blocked)  # answered after what was put before it
        except BusyError as error:
            return str(error)

    def down(self) -> None:
        """End the loop; jobs in the system continue when the service is started again."""
        self.world.inbox.end()

    def health(self) -> dict[str, Any]:
        """State of the controller; ``read_only``: why it accepts no jobs, or None."""
        # while a decision waits to be written nobody is answered, but why is known
        jobs = self.kernel.arrived if self.journal.midway else self.ask(lambda: self.kernel.arrived)
        return {
            "policy": self.kernel.policy.name,
            "jobs": jobs,
            "read_only": self.submissions.read_only(),
            "quarantined": [content["job"]["id"] for content in self.journal.aside],
            "forecasts": self.forecaster.calibration(),
            "attached": self.world.trainers.found.alone(),
        }

    # -- answers -------------------------------------------------------------------------------------------------

    def describe(self, job: str, blocker_name: Callable[[str | None], str | None] = as_named) -> dict[str, Any]:
        """Everything known about a job; `blocker_name` as of :meth:`.status.Status.rows`.

        Raises
        ------
        InputError
            If there is no job of that name.
        """
        forecast = self.forecaster.forecast()
        row = self.ask(lambda: self.status.job(self.number_of(job), forecast, blocker_name))
        present = self._present() if row["state"] in WAITING or row["never_completes"] else None
        help_ = find_remedies(present, self.number_of(job)) if present else ()
        return {**row, "help": [asdict(remedy) for remedy in help_], "printed": self.logs.workers(job)}

    def _present(self) -> Present | None:
        """A copy of the present state, if a job is in the system."""
        return self.ask(self.status.present) if self.kernel.engine.n_in_system else None

    def _read(self) -> Read:
        """The metrics that are read when asked."""
        coverage = self.forecaster.calibration()["held"]
        return {
            **self.ask(self.status.read),
            "skedge_forecast_held_ratio": {} if coverage is None else {(): coverage},
            "skedge_journal_blocked": {(): float(bool(self.journal.blocked))},
        }

    def servers(self) -> list[dict[str, Any]]:
        """One row per server."""
        return self.ask(self.status.servers)

    def log(self, job: str, worker: str = "", since: int = 0) -> LogPiece:
        """A piece of the log of a job, or of one of its workers, from byte `since` on.

        Raises
        ------
        InputError
            If there is no job of that name, or its worker has printed nothing.
        """
        self.ask(lambda: self.number_of(job))
        return self.logs.read(job, worker, since)

    def number_of(self, name: str) -> int:
        """The number of a job; for the controller's thread."""
        if name not in self.kernel.scenario.jobs.index:
            raise unknown(name)
        return self.kernel.scenario.jobs.index[name]


def unknown(name: str) -> UnknownError:
    """The error of a question about a job that is not there."""
    return UnknownError(f"job {name!r} is unknown; `skedge queue` lists them")


def recorded(scenario: Scenario, state: Path, run_id: str, checkpoints: str, url: str | None = None) -> Run:
    """The record of a service so far, rebuilt from its journal alone; every decision is taken again.

    The training progress of the jobs is read from their last checkpoints, if those are still kept.

    Parameters
    ----------
    scenario, state
        The cluster without jobs, and the folder of the service's state.
    run_id
        The state's id.
    checkpoints
        URL of its checkpoints.
    url
        URL of its journal, if that is not in the folder.

    Raises
    ------
    InputError
        If there is no journal, or a job is still in the system.
    StateError
        If a decision differs from the one in the journal.
    """
    if url is None and not (state / JOURNAL).exists():
        raise InputError(f"{state}: holds no service's state (there is no {JOURNAL})")
    journal = SqlJournal(journal_url(state, url), run_id=run_id, reading=True)
    try:
        service = Service(scenario, journal.about["policy"], state, NoEngine(len(scenario.cluster.servers)), journal)
        service.run()
    finally:
        journal.close()
    active = service.kernel.active()
    if len(active):
        name = service.kernel.name(active[0])
        raise InputError(f"{state}: job {name!r} is still in the system; a record is complete when all have left")
    record = service.record()
    from skedge.live.worker.sgd import progress_in  # noqa: PLC0415 - imports PyTorch

    store = Checkpoints(checkpoints)
    for job in record.meta["trained"]:
        saved = store.read(job)
        if saved is not None:
            record.meta["trained"][job] = progress_in(saved)
    return record


def open_journal(url: str, about: dict[str, Any], *, own: bool = False) -> SqlJournal:
    """The journal of a service: that of its earlier life, or a new one.

    Parameters
    ----------
    url, about
        URL of the database; and id, policy and cluster of the service, which an earlier life must have had, too.
    own
        The database is that of the state, and has no other runs.

    Raises
    ------
    StateError
        If the earlier life had another policy or cluster, or the journal is damaged.
    """
    try:
        journal = SqlJournal(url, run_id=about["id"])
    except NoRunError as error:
        if own and error.has_others:
            raise StateError(
                f"the journal has a run, and not that of this state, {about['id']}: it is damaged"
            ) from error
        return SqlJournal(url, {**about, "began": host.time()})
    for key, value in about.items():
        if journal.about.get(key) != value:
            was, expected = json.dumps(journal.about.get(key)), json.dumps(value)
            journal.close()
            raise StateError(f"the state is of a service with {key} {was}, not {expected}; name a new --state")
    return journal
