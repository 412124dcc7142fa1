"""A_online's candidates for one job with the four terms of Eq. (5), for ``skedge explain``; not on the hot path."""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

import numpy as np

from skedge.core.engine.lanes import CHUNKS, COUNT, EACH, FIELDS, HEAD, JOB, LEFT, RANK, Lanes
from skedge.core.engine.projection import (
    EQ5,
    FRACTIONAL,
    chunks_on,
    delayed,
    load,
    number_chunks,
    place,
    run_queue,
)
from skedge.core.model.cluster import Cluster, Ints
from skedge.core.model.network import upload_delay
from skedge.core.model.ties import NOISE, SAME
from skedge.core.model.time import SECOND
from skedge.core.policy import View

from .a_greedy import JobChunks, cloud_cost, edge_cost, fill_group, is_better


class Candidates:
    """The candidate lanes of one job, updated while its chunks are placed one by one.

    Parameters
    ----------
    view, cluster
        The run when the job arrives.
    chunks
        The job.
    lanes, weights
        The lanes of its worker type; weights of the jobs in Q.
    """

    def __init__(self, view: View, cluster: Cluster, chunks: JobChunks, lanes: Ints, weights: Ints) -> None:
        self.view, self.cluster, self.chunks, self.weights = view, cluster, chunks, weights
        self.belief: Lanes = view.belief(lanes)
        self.scratch = np.zeros((2, 2 * self.belief.rows.shape[1] + 1, FIELDS), np.int64)
        servers = cluster.lane_server[lanes]
        delays = view.delays()
        self.arrive = {
            int(lane): chunks.now + int(upload_delay(delays, chunks.job, server))
            for lane, server in zip(lanes, servers, strict=True)
        }
        self.compared: dict[int, tuple[int, float]] = {}
        self.q = {lane: self.cost(lane, 1) for lane in self.arrive}
        self.placed: dict[int, int] = {}

    def group(self, lane: int, count: int) -> Ints:
        """The job's group of `count` chunks on `lane`."""
        group = np.zeros(FIELDS, np.int64)
        fill_group(group, self.chunks, self.arrive[lane], count)
        return group

    def cost(self, lane: int, count: int) -> float:
        """Q [s] of the `count`-th chunk on `lane`; also keeps the exact numbers that the search compares."""
        group = self.group(lane, count)
        exact, value, _ = edge_cost(self.belief, lane, group, self.chunks, self.weights, self.scratch)
        self.compared[lane] = int(exact), float(value)
        return float(value) / int(self.weights[0]) / SECOND

    def place_chunk(self, lane: int) -> None:
        """Place a chunk on `lane`."""
        self.placed[lane] = self.placed.get(lane, 0) + 1
        self.q[lane] = self.cost(lane, self.placed[lane] + 1)

    def drop(self, free_bytes: Ints) -> None:
        """Drop lanes whose server has no room for another chunk."""
        size, server = self.chunks.chunk_bytes, self.cluster.lane_server
        self.q = {lane: q for lane, q in self.q.items() if free_bytes[server[lane]] >= size}

    def best(self, count: int) -> list[int]:
        """The `count` lanes of least Q, ties as the search breaks them: by lane."""
        return sorted(sorted(self.q), key=cmp_to_key(self._order))[:count]

    def _order(self, a: int, b: int) -> int:
        fractional = self.chunks.mode == FRACTIONAL
        if is_better(*self.compared[a], *self.compared[b], fractional):
            return -1
        return int(is_better(*self.compared[b], *self.compared[a], fractional))

    def terms(self, lane: int) -> dict[str, Any]:
        """The four terms [s] of the next chunk on `lane`, and the jobs that it would delay."""
        c, count = self.chunks, self.placed.get(lane, 0) + 1
        group = self.group(lane, count)
        delay = (self.arrive[lane] - c.release) / c.chunks / SECOND
        processing = c.chunk_time / c.chunks / SECOND
        completion, delayed_jobs = self._projection(lane, group)
        waiting = (completion - self.arrive[lane] - c.chunk_time) / c.chunks / SECOND
        if c.mode == FRACTIONAL:
            # p weighs 1/2 in a fractional flow, as the remaining part falls from 1 to 0 while the chunk is served
            processing, waiting = processing / 2, self._own_flow(lane, count) / SECOND - processing / 2
        elif c.mode == EQ5:
            waiting = self._pending_before(lane, count) / c.chunks / SECOND
        q = self.q[lane]
        # what the three terms of the chunk itself do not explain is harm to the others
        harm = q - delay - waiting - processing
        server = self.cluster.label(int(self.cluster.lane_server[lane]))
        return {
            "server": server,
            "lane": lane,
            "q_s": q,
            "delay_s": delay,
            "waiting_s": _without_noise(waiting, q),
            "processing_s": processing,
            "others_s": 0.0 if abs(harm) <= NOISE * q else harm,
            "delays": delayed_jobs,
        }

    def _projection(self, lane: int, group: Ints) -> tuple[int, list[dict[str, Any]]]:
        """When the chunk would complete, and the jobs whose chunks it would delay."""
        now, count = self.chunks.now, int(group[COUNT])
        # completions with the new chunk, and without it
        times = np.zeros((2, chunks_on(self.belief, lane) + count), np.int64)
        delayed(self.belief, lane, group, now, self.weights, self.scratch, times)
        n = load(self.belief, lane, self.scratch[0])
        own_row = place(self.scratch[0], n, group)
        number_chunks(self.scratch[0], n + 1)
        head, counts = self.scratch[0, : n + 1, HEAD].copy(), self.scratch[0, : n + 1, COUNT].copy()
        jobs = self.scratch[0, : n + 1, JOB].copy()
        delayed_jobs = []
        for i in range(n + 1):
            later = times[0, head[i] : head[i] + counts[i]] - times[1, head[i] : head[i] + counts[i]]
            if i != own_row and (later > 0).any():
                delayed_jobs.append(
                    {
                        "job": self.view.job_id(int(jobs[i])),
                        "chunks": int((later > 0).sum()),
                        "by_s": float(later.max()) / SECOND,
                    }
                )
        return int(times[0, head[own_row] + count - 1]), delayed_jobs

    def _own_flow(self, lane: int, count: int) -> float:
        """The chunk's own fractional flow after its arrival over D [µs]: with the others' weights at 0."""
        flows = []
        # with the chunk and without it: the difference is its own
        for chunks in (count, count - 1):
            n = load(self.belief, lane, self.scratch[0])
            # a weight of 1 / 2^62: what the other chunks add to the flow vanishes
            self.scratch[0, :n, CHUNKS] = 2**62
            place(self.scratch[0], n, self.group(lane, chunks))
            _, flow, _ = run_queue(
                self.scratch[0], n + 1, self.belief, self.belief.serving[lane], self.chunks.now, 2**62,
                self.arrive[lane], self.weights, True, np.zeros(0, np.int64),
            )  # fmt: skip
            flows.append(flow)
        return (flows[0] - flows[1]) / int(self.weights[0])

    def _pending_before(self, lane: int, count: int) -> float:
        """Waiting of Eq. (5) as printed [µs]: remaining time at t0 of all that is assigned and ranks before."""
        n = load(self.belief, lane, self.scratch[0])
        rank = self.chunks.chunks * self.chunks.chunk_time
        run_queue(
            self.scratch[0], n, self.belief, self.belief.serving[lane], self.chunks.now, self.arrive[lane], 0,
            self.weights, False, np.zeros(0, np.int64),
        )  # fmt: skip
        queue = self.scratch[0, :n]
        groups_before = queue[(queue[:, COUNT] > 0) & (queue[:, RANK] <= rank)]
        pending_us = (groups_before[:, LEFT] + (groups_before[:, COUNT] - 1) * groups_before[:, EACH]).sum()
        return float(pending_us) + (count - 1) * self.chunks.chunk_time

    def cloud_wins(self, colocated: int, lane: int) -> bool:
        """Whether the search prefers the cloud to `lane`."""
        exact, value = cloud_cost(self.chunks, colocated, self.weights)
        return is_better(exact, value, *self.compared[lane], self.chunks.mode == FRACTIONAL)

    def cloud(self, colocated: int) -> dict[str, Any]:
        """Q of the cloud and its terms [s]."""
        c = self.chunks
        _, value = cloud_cost(c, colocated, self.weights)
        p = c.cloud_chunk_time[colocated] / (2 if c.mode == FRACTIONAL else 1)
        return {
            "server": "cloud" if self.cluster.cloud is None else self.cluster.label(self.cluster.cloud),
            "lane": None,
            "q_s": float(value) / int(self.weights[0]) / SECOND,
            "delay_s": (c.now - c.release + c.cloud_delay) / c.chunks / SECOND,
            "waiting_s": 0.0,
            "processing_s": p / c.chunks / SECOND,
            "others_s": 0.0,
            "zeta": colocated,
            "delays": [],
        }


def _without_noise(value: float, scale: float) -> float:
    """`value`, or 0 if it is within the rounding error of `scale`."""
    return 0.0 if abs(value) <= SAME * abs(scale) else value
