"""The status that a service reports: its event log, and the state of every job and server."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

import numpy as np

from skedge.core.engine.ledger import REJECTED
from skedge.core.events import CANCELLED, CLOUD, EndAt, Event, Order, Transfer
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Floats, Placement
from skedge.core.model.escape import one_line
from skedge.core.model.sharing import share_of
from skedge.core.model.time import SECOND
from skedge.explanation.wait_reason import WaitReason, wait_reason
from skedge.live.world.ray_world import RayWorld
from skedge.sim.trained import believe_trained
from skedge.sim.what_if import Present

from .forecaster import Forecast
from .metrics import Read, by_label
from .states import ACTIVE, STATES
from .tracking import JobTraining


def _everything(_: int) -> bool:
    """Sees every job."""
    return True


def as_named(name: str | None) -> str | None:
    """A name as it is."""
    return name


class Status:
    """Reads kernel and world, and keeps the event log; used by the controller's thread only.

    Parameters
    ----------
    kernel, world
        Of the run.
    log_line
        Called with (job id, line) for everything that happens to a job.
    """

    def __init__(self, kernel: Kernel, world: RayWorld, log_line: Callable[[str, str], None]) -> None:
        self.kernel, self.world, self._log_line = kernel, world, log_line
        self.happened: list[dict[str, Any]] = []
        self.history: dict[str, list[dict[str, Any]]] = {}
        self.ran: set[int] = set()
        self.began: dict[int, int] = {}

    def note(self, event: Event, orders: list[Order]) -> None:
        """Append an event and its orders to the event log."""
        time_s = event.time / SECOND
        servers = self.kernel.scenario.cluster.server_ids
        for server, reason in event.servers:
            self._happened(time_s, "server", None, f"{servers[server]} {reason or 'is back in service'}")
        groups = [("arrived", event.arrived), ("started", event.started), ("paused", event.paused)]
        groups += [("finished", event.finished), ("interrupted", event.interrupted)]
        for kind, jobs in groups:
            for job in jobs:
                self._happened(time_s, kind, job, "")
        for job, reason in event.failed:
            self._happened(time_s, *(("cancelled", job, "") if reason == CANCELLED else ("failed", job, reason)))
        for order in orders:
            if hasattr(order, "job") and not isinstance(order, EndAt):
                self._happened(time_s, type(order).__name__.lower(), order.job, self._said(order))
        self.ran.update(event.started)
        for job in self.kernel.running:
            self.began.setdefault(job, event.time)

    def _said(self, order: Any) -> str:
        servers = self.kernel.scenario.cluster.server_ids
        placement = ""
        if hasattr(order, "lane"):
            cloud = self.kernel.scenario.cluster.cloud
            lanes = self.kernel.scenario.cluster.lane_server
            on = [servers[int(lanes[lane])] if lane != CLOUD else servers[int(cloud or 0)] for lane in order.lane]
            placement = ", ".join(f"{on.count(name)} on {name}" for name in dict.fromkeys(on))
        elif isinstance(order, Transfer):
            placement = f"{order.chunks} chunks from {servers[order.source]} to {servers[order.target]}"
        elif hasattr(order, "where"):
            placement = ", ".join(f"{n} on {servers[server]}" for server, n in order.where)
        return " ".join(part for part in (placement, getattr(order, "reason", "")) if part)

    def tell(self, job: int, kind: str, sentence: str) -> None:
        """Append to the event log what has happened to a process of a job now."""
        self._happened(self.world.now() / SECOND, kind, job, sentence)

    def _happened(self, time_s: float, kind: str, job: int | None, detail: str) -> None:
        name = None if job is None else self.kernel.scenario.jobs.ids[job]
        entry = {"n": len(self.happened), "time_s": time_s, "what": kind, "job": name, "detail": one_line(detail)}
        self.happened.append(entry)
        if name is not None:
            self.history.setdefault(name, []).append(entry)
            self._log_line(name, f"{kind} {entry['detail']}".rstrip())

    # -- answers -------------------------------------------------------------------------------------------------

    def rows(
        self,
        forecast: Forecast,
        states: Collection[str],
        since: int,
        limit: int,
        sees: Callable[[int], bool] = _everything,
        blocker_name: Callable[[str | None], str | None] = as_named,
    ) -> list[dict[str, Any]]:
        """One row for each job that is asked for, by number.

        Parameters
        ----------
        forecast
            The forecast, for the expected completions.
        states
            States of the jobs.
        since, limit
            Number of the first job that may be listed, and the most rows.
        sees
            Whether whoever asks sees a job, by its number.
        blocker_name
            What is said in place of the name of a job that another waits for.
        """
        among = self.kernel.active().tolist() if ACTIVE.issuperset(states) else range(self.kernel.arrived)
        chosen = (job for job in among if since <= job < self.kernel.arrived and self.state(job) in states)
        return [self._row(job, forecast, blocker_name) for job in islice(filter(sees, chosen), limit)]

    def job(
        self, job: int, forecast: Forecast, blocker_name: Callable[[str | None], str | None] = as_named
    ) -> dict[str, Any]:  # fmt: skip
        """Everything known about a job, with its forecast; `blocker_name` as of :meth:`rows`."""
        world, name = self.world, self.kernel.scenario.jobs.ids[job]
        program = world.program(job)
        return {
            **self._row(job, forecast, blocker_name),
            "announced": self.kernel.scenario.jobs.frame.row(job, named=True),
            "train": {"factory": program.factory, "args": dict(program.args), "code": world.facts.modules.get(job)},
            "progress_by_chunk": world.trainers.progress(job),
            "minibatches_per_chunk": program.steps,
            "devices": world.facts.devices_of(job, self.kernel.scenario.cluster.server_ids),
            "late_s": world.facts.late_s.get(job, 0.0),
            "recovery_s": world.facts.recovery_s.get(job, 0.0),
            "accuracy": (world.facts.results.get(job) or {}).get("accuracy"),
            "metric": (world.facts.results.get(job) or {}).get("metric"),
            "unmeasured": (world.facts.results.get(job) or {}).get("unmeasured"),
            "history": self.history.get(name, []),
        }

    def trained(self, left: Collection[str]) -> list[JobTraining]:
        """What is known of the training of the jobs in the system, and of those of `left`."""
        index = self.kernel.scenario.jobs.index
        return [self._trained(job) for job in sorted({*self.kernel.active().tolist(), *(index[name] for name in left)})]

    def _trained(self, job: int) -> JobTraining:
        world, program, state = self.world, self.world.program(job), self.state(job)
        result, announced = world.trainers.result(job), self.kernel.scenario.jobs.frame.row(job, named=True)
        losses = [(int(update), float(loss)) for update, loss in result["losses"]]
        spec = {name: announced[name] for name in ("epochs", "chunks", "minibatches", "workers")}
        return JobTraining(
            self.kernel.scenario.jobs.ids[job],
            {"factory": program.factory, **spec, **{f"args.{name}": value for name, value in program.args.items()}},
            state,
            losses[-1][0] if losses else 0,
            sum(world.trainers.progress(job)) / (program.steps * program.chunks),
            sum(n for _, n in self._placed(job)),
            losses,
            result.get("accuracy"),
            state not in ACTIVE and (state != "COMPLETED" or job in world.facts.results),
        )

    def _placed(self, job: int) -> Placement:
        """(server, workers) pairs that train a job now: its allocation, or its teams on lanes and in the cloud."""
        return self.kernel.engine.placement(job) or self.world.lanes.teams_of(job)

    def servers(self) -> list[dict[str, Any]]:
        """One row per server."""
        cluster, kernel = self.kernel.scenario.cluster, self.kernel
        workers = [0] * len(cluster.servers)
        for server, n in (part for holder in kernel.engine.holders() for part in kernel.engine.placement(holder)):
            workers[server] += n
        jobs = [set[str]() for _ in cluster.servers]
        for job in kernel.active().tolist():
            for server, _ in self._placed(job):
                jobs[server].add(kernel.scenario.jobs.ids[job])
        return [
            {
                "server": server.id,
                "kind": server.kind,
                "state": "+".join(sorted(self.world.out.get(i, ()))) or "up",
                "slots": dict(server.capacity),
                "workers_of_gangs": workers[i],
                "jobs": sorted(jobs[i]),
            }
            for i, server in enumerate(cluster.servers)
        ]

    def read(self) -> Read:
        """The metrics that are read when asked."""
        kernel, servers = self.kernel, self.servers()
        active = kernel.active().tolist()
        reasons = (self._wait_reason(job).token for job in active if not kernel.is_running(job))
        names = [(row["server"],) for row in servers]
        return {
            "skedge_jobs": by_label((self.state(job) for job in range(kernel.arrived)), STATES),
            "skedge_pending_jobs": by_label(reasons),
            "skedge_stalled_jobs": {(): float(sum(map(self._is_stalled, active)))},
            "skedge_tenant_workers": self._tenants(),
            "skedge_server_busy_ratio": dict(zip(names, self._busy(), strict=True)),
            "skedge_server_up": {name: float(row["state"] == "up") for name, row in zip(names, servers, strict=True)},
        }

    def _tenants(self) -> dict[tuple[str, ...], float]:
        """Edge workers that each tenant's jobs hold."""
        cluster = self.kernel.scenario.cluster
        by_tenant = dict.fromkeys(() if cluster.sharing is None else cluster.sharing.names, 0)
        if by_tenant:
            for job, placement in ((job, self.kernel.engine.placement(job)) for job in self.kernel.engine.holders()):
                name = share_of(self.kernel.scenario, job)["tenant"]
                by_tenant[name] += sum(workers for server, workers in placement if server != cluster.cloud)
        return {(name,): float(workers) for name, workers in by_tenant.items()}

    def _busy(self) -> list[float]:
        """Share of each server that is in use: of its worker slots, or of its scarcest resource."""
        kernel, cluster = self.kernel, self.kernel.scenario.cluster
        lanes, used = np.bincount(cluster.lane_server, minlength=len(cluster.servers)), np.zeros(len(cluster.servers))
        for job in kernel.active().tolist():
            for server, n in self._placed(job):
                used[server] += n
        slots = np.divide(used, lanes, out=np.zeros(len(used)), where=lanes > 0)
        amounts, free = kernel.books.amounts, kernel.books.free
        shares = np.divide(amounts - free, amounts, out=np.zeros(amounts.shape), where=amounts > 0)
        return [float(share) for share in np.maximum(slots, shares.max(axis=1, initial=0.0))]

    def present(self) -> Present:
        """A copy of the present state, which forecasts are made from in other threads."""
        now = self._now()
        in_cloud = self.world.lanes.in_the_cloud(now)
        present = Present(self.kernel, now, in_cloud, self.world.agenda.wakes).copy()
        believe_trained(present.kernel, {job: self._trained_shares(job) for job in self.kernel.active().tolist()}, now)
        return present

    def _trained_shares(self, job: int) -> Floats:
        """The share of each chunk of a job that is trained."""
        return np.array(self.world.trainers.progress(job)) / self.world.program(job).steps

    def _row(self, job: int, forecast: Forecast, blocker_name: Callable[[str | None], str | None]) -> dict[str, Any]:
        kernel, world = self.kernel, self.world
        program, state, n_trained = world.program(job), self.state(job), sum(world.trainers.progress(job))
        reason = self._running_reason(job) if state == "RUNNING" else self._wait_reason(job)
        reason = replace(reason, blocker=blocker_name(reason.blocker))
        history, in_system = self.history.get(kernel.scenario.jobs.ids[job]), kernel.in_system(job)
        return {
            "n": job,
            "job": kernel.scenario.jobs.ids[job],
            "state": state,
            **share_of(kernel.scenario, job),
            "submitted_s": int(kernel.scenario.jobs.arrival[job]) / SECOND,
            "ended_s": history[-1]["time_s"] if history and not in_system else None,
            "progress": n_trained / (program.steps * program.chunks),
            "servers": sorted(kernel.scenario.cluster.server_ids[server] for server, _ in self._placed(job)),
            **self._times(job, forecast),
            "never_completes": in_system and job in forecast.never,
            "now_s": world.real_now() / SECOND,
            **world.trainers.pulse(job),
            "reason": {**asdict(reason), "on": list(reason.on)},
            "message": str(reason) if in_system else self._left(job),
        }

    def _times(self, job: int, forecast: Forecast) -> dict[str, float | None]:
        """When a job started, or a waiting one starts; when it completes, and within what [s]; None: not foreseen."""
        waits = self.kernel.in_system(job) and not self.kernel.is_running(job)
        start = forecast.starts.get(job) if waits else self.began.get(job)
        low, high = forecast.intervals.get(job) or (None, None)
        times = {
            "start_s": start,
            "forecast_s": forecast.completions.get(job),
            "forecast_from_s": low,
            "forecast_to_s": high,
        }
        return {name: None if time is None else time / SECOND for name, time in times.items()}

    def _running_reason(self, job: int) -> WaitReason:
        """Why a job that runs makes no progress, or that it runs."""
        if job in self.world.facts.without_storage:
            return WaitReason("storage_away")
        if self._is_stalled(job):
            return WaitReason("stalled")
        return self._wait_reason(job)

    def _wait_reason(self, job: int) -> WaitReason:
        """Why a job waits, as far as kernel and uploads know."""
        now = self._now()
        return wait_reason(self.kernel, job, now, self.world.uploads.behind(job, now))

    def _now(self) -> int:
        """The present [µs]: the kernel's clock has not passed it."""
        return max(self.world.real_now(), self.kernel.now)

    def _is_stalled(self, job: int) -> bool:
        """Whether no mini-batch of a job in the system is in its parameters since it was last reported as stalled."""
        return self.world.facts.stalled.get(job) == sum(self.world.trainers.progress(job))

    def _left(self, job: int) -> str:
        record = self.kernel.record
        return one_line(record.rejected.get(job) or record.failed.get(job) or "completed")

    def state(self, job: int) -> str:
        """One of :data:`.states.STATES`."""
        record = self.kernel.record
        if self.kernel.status[job] == REJECTED:
            return "FAILED"
        if job in record.failed:
            return "CANCELLED" if record.state(job) == "cancelled" else "FAILED"
        if not self.kernel.in_system(job):
            return "COMPLETED"
        if self.kernel.is_running(job):
            return "RUNNING"
        return "SUSPENDED" if job in self.ran or self.kernel.engine.has_run(job) else "PENDING"
