"""A_online: Alg. 1, one decision, and Alg. 5, a parameter server for every job that begins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from skedge.core.engine.lanes import Lanes
from skedge.core.engine.ledger import NO_PS
from skedge.core.engine.projection import EQ5, FRACTIONAL, MARGINAL, common_scale, weight_table
from skedge.core.errors import PolicyError
from skedge.core.events import CLOUD, AssignPS, Dispatch, Event, Order, Reject
from skedge.core.model.cluster import Cluster, Ints, Physics
from skedge.core.model.size import UNLIMITED
from skedge.core.model.time import SECOND
from skedge.core.policy import BasePolicy, Guarantees, LaneRule, Params, View

from .a_greedy import CostHeap, JobChunks, count_postponed, greedy, make_cost_heap, take_storage
from .a_ps import choose_ps
from .explain import Candidates
from .waiting import StorageDemand, StorageQueue

if TYPE_CHECKING:
    from numpy.random import Generator

_common_scale: Any = common_scale.py_func  # type: ignore[attr-defined]

DispatchRequest = tuple[int, tuple[int, ...] | None]
"""A job to dispatch whole (None), or lost chunks of it to dispatch again."""

_N_SHOWN = 4
"""Candidate lanes that an explanation shows for a chunk."""

MODES = {"marginal": MARGINAL, "eq5": EQ5, "fractional": FRACTIONAL}


NO_WORKER = "never_fits: no edge server has a worker of its type, and the cloud is not used"


def no_ps_left(job: str, now: int) -> PolicyError:
    """The error of a job that begins to run at `now` [µs] where no PS can serve it."""
    return PolicyError(
        f"aonline: job {job!r} runs from {now / SECOND} s on and no PS of its type is free; "
        "A_ps then takes one in the cloud, and this cluster has none: add a cloud server, or PS slots"
    )


class AOnlineParams(Params):
    """Parameters of A_online.

    Attributes
    ----------
    q_mode
        Reading of Q: ``marginal`` increase, ``eq5`` as printed, ``fractional`` (the repaired dual).
    preempt_running
        False: the chunk in service is finished first (the reproduction notes' reading).
    cloud
        False: A_online-E, no worker in the cloud; the cloud's PSs remain the fallback.
    ps_choice
        ``lowest``: the free qualified PS of lowest (server, slot); ``random`` as in Alg. 5. It changes nothing else.
    """

    q_mode: Literal["marginal", "eq5", "fractional"] = "marginal"
    preempt_running: bool = True
    cloud: bool = True
    ps_choice: Literal["lowest", "random"] = "lowest"


class AOnline(BasePolicy):
    """A_online of JSAC'22."""

    name: ClassVar[str] = "aonline"
    Parameters = AOnlineParams

    @property
    def lanes(self) -> LaneRule:
        """Lanes preempt unless ``preempt_running=false``; highest average processing rate first."""
        return LaneRule(preemptive=self.params.preempt_running)

    @property
    def guarantees(self) -> Guarantees:
        """Alpha is Q in its reading; a PS is taken in the cloud only where the edge has none."""
        return Guarantees(alpha=self.params.q_mode, ps="edge_first")

    @property
    def may_use_cloud(self) -> bool:
        """Unless ``cloud=false``."""
        return bool(self.params.cloud)

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        super().start(cluster, physics, rng)
        self.weights = weight_table(1, 1)
        self.without_ps: list[int] = []
        self.rank: dict[int, int] = {}
        self.limited_storage = bool((cluster.storage_bytes != UNLIMITED).any())
        self.qualified = [cluster.lanes_of(k) for k in range(len(cluster.worker_types))]
        self.waiting = StorageQueue([np.unique(cluster.lane_server[lanes]) for lanes in self.qualified])
        self.ps_slots = [np.flatnonzero(cluster.ps_type == k) for k in range(len(cluster.ps_types))]
        self.costs = make_cost_heap(0, 0)

    def decide(self, event: Event, view: View) -> Iterator[Order]:
        """Alg. 1: dispatch the arrivals, in order, then give the jobs that begin to run a PS."""
        for job in event.left:
            self.rank.pop(job, None)  # frozen from the first dispatch on, so that chunks of a job stay alike
        # room appears only when a job leaves or a server returns; who waits was there before the arrivals
        if len(self.waiting) and (event.left or event.servers):
            self.waiting.remove_jobs(event.left)
            yield from self._dispatch_waiting(view)
        # lost chunks were dispatched before any arrival of now, and keep their turn
        yield from self._dispatch_all(list(event.lost), view)
        yield from self._dispatch_all([(job, None) for job in event.arrived], view)
        yield from self.assign_ps(event, view)

    # -- A_greedy ------------------------------------------------------------------------------------------------

    def _dispatch_all(self, requests: list[DispatchRequest], view: View) -> Iterator[Order]:
        """Dispatch whole jobs, or lost chunks of them, one after the other; those that do not fit wait."""
        for job, lost in requests:
            order = self._dispatch(job, lost, view)
            if order is None:
                self.waiting.add(self.storage_demand(job, lost, view))
            else:
                yield order

    def _dispatch_waiting(self, view: View) -> Iterator[Order]:
        """Dispatch, in order, the waiting jobs that now fit; the others stay in the queue."""
        entry = -1
        cloud = self.may_send_to_cloud(view)
        while (entry := self.waiting.next_fit(self.free_storage(view), entry + 1, cloud_available=cloud)) >= 0:
            demand = self.waiting.remove(entry)
            yield from self._dispatch_all([(demand.job, demand.lost)], view)
        self.waiting.compact()

    def storage_demand(self, job: int, lost: tuple[int, ...] | None, view: View) -> StorageDemand:
        """What a job, or the lost chunks of it, waits for."""
        jobs = view.jobs
        count = int(jobs.chunks[job]) if lost is None else len(lost)
        return StorageDemand(job, lost, int(jobs.worker_type[job]), int(jobs.chunk_bytes[job]), count)

    @staticmethod
    def free_storage(view: View) -> Ints:
        """Storage left on every server [bytes], below 0 where it is out of service."""
        return np.where(view.in_service, view.free_bytes, -1)

    def _dispatch(self, job: int, lost: tuple[int, ...] | None, view: View) -> Dispatch | Reject | None:
        # lost chunks fitted when their job was dispatched, so only whole jobs can be impossible
        rejection = self.rejection(job, view) if lost is None else None
        if rejection is not None:
            return rejection
        candidates = self.candidates(job, view)
        chunks = self.chunks_of(job, view)
        if lost is not None:
            chunks = chunks._replace(to_place=len(lost))
        count = chunks.to_place
        lane_of, alpha, postponed = np.zeros(count, np.int64), np.zeros(count), np.zeros(count, np.int64)
        servers, delays, weights = self.cluster.lane_server, view.delays(), self.weights_with(chunks.chunks)
        lanes = view.belief(candidates, weights)
        costs = self.costs_for(len(candidates), lanes)
        storage = view.free_bytes.copy()
        if not greedy(lanes, chunks, candidates, servers, delays, weights, storage, costs, lane_of, alpha, postponed):
            return None
        # these counts go into the record and decide nothing, so they are made for the chosen lanes alone
        if (postponed < 0).any():
            count_postponed(lanes, chunks, servers, delays, weights, costs.scratch, lane_of, postponed)
        reason = "least_marginal_increase" if lost is None else "server_out"
        rank = self.rank.setdefault(job, chunks.chunks * chunks.chunk_time)
        return Dispatch(job, lane_of, rank, alpha / SECOND, postponed, reason, lost)

    def rejection(self, job: int, view: View) -> Reject | None:
        """The rejection of a job that can never be dispatched."""
        qualified = self.qualified_lanes(job, view)
        if len(qualified) == 0 and not self._may_use_cloud():
            return Reject(job, NO_WORKER)
        if not self._fits_empty_storage(job, qualified, view):
            return Reject(job, "never_fits: its chunks exceed the storage of all qualified servers")
        return None

    def terms(self, job: int, view: View) -> dict[str, Any]:
        """The candidates of A_greedy for each chunk of `job`, with the four terms of Eq. (5); see :mod:`.explain`."""
        lanes, c = self.candidates(job, view), self.chunks_of(job, view)
        rows: list[dict[str, Any]] = []
        candidates = Candidates(view, self.cluster, c, lanes, self.weights_with(c.chunks))
        storage = view.free_bytes.copy()
        for d in range(c.chunks):
            candidates.drop(storage)
            options = [candidates.terms(lane) for lane in candidates.best(_N_SHOWN)]
            if c.cloud_delay >= 0:
                # zeta = 1 only while no chunk is on the edge (J4)
                cloud = candidates.cloud(colocated=int(d == 0))
                if not options or candidates.cloud_wins(int(d == 0), options[0]["lane"]):
                    rows.append({"chunk": d, "and_all_after": True, "chosen": cloud, "others": options})
                    break
                options.insert(max(1, sum(option["q_s"] <= cloud["q_s"] for option in options)), cloud)
            if not options:
                break
            rows.append({"chunk": d, "chosen": options[0], "others": options[1:]})
            take_storage(storage, self.cluster.lane_server[options[0]["lane"]], c.chunk_bytes)
            candidates.place_chunk(options[0]["lane"])
        return {"compares": "Q of Eq. (5), " + self.params.q_mode, "candidates": len(lanes), "chunks": rows}

    def qualified_lanes(self, job: int, view: View) -> Ints:
        """Qualified lanes of `job` (v_jsw = 1), in order of (server, worker)."""
        kind = int(view.jobs.worker_type[job])
        return self.qualified[kind] if kind >= 0 else np.empty(0, np.int64)

    def candidates(self, job: int, view: View) -> Ints:
        """Qualified lanes of `job` whose servers are in service."""
        lanes, in_service = self.qualified_lanes(job, view), view.in_service
        return lanes if in_service.all() else lanes[in_service[self.cluster.lane_server[lanes]]]

    def _may_use_cloud(self) -> bool:
        return bool(self.params.cloud and self.cluster.cloud is not None)

    def may_send_to_cloud(self, view: View) -> bool:
        """Whether chunks may go to the cloud now."""
        return self._may_use_cloud() and bool(view.in_service[self.cluster.cloud])

    def _fits_empty_storage(self, job: int, candidates: Ints, view: View) -> bool:
        size, chunks = int(view.jobs.chunk_bytes[job]), int(view.jobs.chunks[job])
        if self._may_use_cloud() or size == 0 or not self.limited_storage:
            return True
        servers = np.unique(self.cluster.lane_server[candidates])
        return bool(np.minimum(self.cluster.storage_bytes[servers] // size, chunks).sum() >= chunks)

    def chunks_of(self, job: int, view: View) -> JobChunks:
        """The data of `job` for :func:`greedy`."""
        count = int(view.jobs.chunks[job])
        cloud = self.cluster.cloud
        p = view.chunk_time[job]
        return JobChunks(
            job=job,
            seq=view.next_seq(),
            chunks=count,
            to_place=count,
            now=view.now,
            release=int(view.jobs.arrival[job]),
            chunk_time=int(p[0]),
            chunk_bytes=int(view.jobs.chunk_bytes[job]),
            cloud_delay=view.upload_delay(job, cloud) if self.may_send_to_cloud(view) and cloud is not None else -1,
            cloud_chunk_time=(int(p[0]), int(p[1])),
            mode=MODES[self.params.q_mode],
        )

    def weights_with(self, count: int) -> Ints:
        """Weights 1/D over a common multiple of all D seen, this `count` included."""
        scale = _common_scale(int(self.weights[0]), count)
        # 1/D in units of 1/scale is an integer: sums of weights are exact, and ties are ties
        if scale != self.weights[0] or count >= len(self.weights):
            self.weights = weight_table(scale, max(count, len(self.weights) - 1))
        return self.weights

    def costs_for(self, candidates: int, lanes: Lanes) -> CostHeap:
        """A heap for `candidates` lanes, with room for the longest queues of the kernel."""
        groups = 2 * lanes.rows.shape[1] + 1
        if len(self.costs.heap) < candidates or self.costs.scratch.shape[1] < groups:
            self.costs = make_cost_heap(max(candidates, len(self.costs.heap)), groups)
        return self.costs

    def incompatibility(self, cluster: Cluster) -> str | None:
        """Why a run on this cluster could get stuck, for some jobs; None if it cannot."""
        scarce = [k for k, name in enumerate(cluster.ps_types) if (cluster.ps_type == k).sum() < cluster.lanes]
        if cluster.cloud is not None or not scarce:
            return None
        n_ps, name = int((cluster.ps_type == scarce[0]).sum()), cluster.ps_types[scarce[0]]
        return f"{cluster.lanes} jobs may run at once and there are {n_ps} PSs of type {name}: add PSs, or a cloud"

    # -- A_ps ----------------------------------------------------------------------------------------------------

    def assign_ps(self, event: Event, view: View) -> Iterator[AssignPS]:
        """Alg. 5, A_ps. First pass: jobs that run on keep their PS, so there is nothing to do.

        Second pass: jobs that begin to run choose one (:meth:`free_ps`).
        """
        # a PS is held only while a chunk is in service, so `paused` jobs have returned theirs
        beginning = {*event.started, *event.without_ps, *self.without_ps} - {*event.paused, *event.left}
        self.without_ps = []
        if event.settling:  # a job that lost its last chunk in service returns its PS before others take one
            self.without_ps = sorted(beginning)
            return
        # by number of the job, the order of line 1 of Alg. 5
        for job in sorted(beginning):
            ps = self.free_ps(job, view)
            if ps is None:
                self.without_ps.append(job)
            else:
                yield AssignPS(job, ps)

    def free_ps(self, job: int, view: View) -> int | None:
        """A free PS slot of the job's type (o_jsp = 1), lowest first, else the cloud's.

        None if servers out of service leave none.

        Raises
        ------
        PolicyError
            If there is none, all servers are in service, and there is no cloud (J10).
        """
        has_cloud = self.cluster.cloud is not None and bool(view.in_service[self.cluster.cloud])
        kind = int(view.jobs.ps_type[job])
        slots = self.ps_slots[kind] if kind >= 0 else np.empty(0, np.int64)
        ps = int(choose_ps(slots, view.ps_job, view.wholly_in_cloud(job), has_cloud))
        if ps == NO_PS:
            if not view.in_service.all():
                return None
            raise no_ps_left(view.job_id(job), view.now)
        if ps == CLOUD or self.params.ps_choice == "lowest":
            return ps
        return int(self.rng.choice(slots[view.ps_job[slots] < 0]))
