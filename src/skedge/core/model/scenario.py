"""A scenario in memory: cluster, jobs and physics, and what the worlds and the verifier derive from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.random import Generator, default_rng

from skedge.core.errors import ScenarioError

from .cluster import Cluster, Floats, Ints, Job, Physics, job_table
from .fields import Number, Rule, cast_fields, instance_of, text
from .job_checks import (
    UTILITY,
    checked_table,
    data_of,
    floats,
    labels_of,
    needs,
    numeric,
    schema_of,
    sorted_jobs,
    tenants_of,
)
from .job_fields import EXTRA_SCHEMA, JOB_SCHEMA, PS_NEEDS, WORKER_NEEDS, JobColumns
from .jobs_file import FileIds, JobsFile
from .kinds import kind_of
from .latency import LatencyCost, latency_from
from .network import Delays
from .size import whole_bytes
from .speed import chunk_ticks, minibatch_seconds
from .time import LONGEST_S, SECOND, seconds, ticks, whole_slots
from .value import Sigmoid

_MOST_WORK_S = 1e12
"""Maximum total work of the jobs [worker-seconds]: times must stay well within 62 bits of µs."""

_MOST_MINIBATCHES = 1e18
"""Maximum total number of mini-batches: they are counted in 64 bits."""

_MOST_CHUNKS = 1e8
"""Maximum total number of chunks: each takes at least one row of the record."""

_MOST_FAILURES = 1e7
"""Maximum number of failures of servers in the shortest run that there can be."""

_MOST_TIMES = 1e6
"""Maximum number of times that a waiting job ages while one job is trained."""

Rows = slice | Ints
"""Some of the jobs, by number."""


class Jobs(JobColumns):
    """The announced jobs: the columns that policies may see, and what the worlds and the verifier need besides.

    Parameters
    ----------
    frame
        A jobs table (:data:`~skedge.core.model.job_fields.JOB_SCHEMA`).
    cluster
        The cluster that the jobs must fit.
    fixed_delays
        Upload delays fixed in advance [s], by job id and server id, in place of a draw.
    ordered
        Whether the rows are known to be in order of arrival and id.

    Attributes
    ----------
    frame
        The checked table: columns :data:`~skedge.core.model.job_fields.JOB_SCHEMA`, and optional ones of any value.
    ids
        Names of the jobs.
    most_workers
        Maximum number of workers: D_j, or F_i on servers with resources.
    max_lag
        Maximum number of epochs by which a chunk may lead the job's slowest; 0 for no limit.
    names
        The users and GPU types, by the numbers in `user` and `gpu_type`.
    fixed_delays
        Upload delays fixed in advance [s], by job id and server id.
    """

    def __init__(
        self,
        frame: pl.DataFrame,
        cluster: Cluster,
        fixed_delays: Mapping[str, Mapping[str, float]] | None = None,
        *,
        ordered: bool = False,
    ) -> None:
        """Check the rows of `frame`, and put them in order unless they are `ordered`."""
        frame, kind = checked_table(frame, cluster), kind_of(cluster)
        kind.check_jobs(frame, cluster)
        self.frame = f = frame if ordered else sorted_jobs(frame)
        self.ids: list[str] = f["id"].to_list()
        as_announced = {name: numeric(f, name) for name in _AS_ANNOUNCED}
        most_workers = as_announced[kind.most_workers]
        labels = {name: labels_of(f, name) for name in LABELS}
        super().__init__(
            **as_announced
            | {name: numbers for name, (_, numbers) in labels.items()}
            | {
                "arrival": ticks(floats(f, "arrival_s")),
                # E_j B_j: the columns count mini-batches over all epochs, the table those of one
                "minibatches": numeric(f, "epochs") * numeric(f, "minibatches"),
                # k_j is at most D_j, or F_i: more workers would have nothing to train
                "workers": np.minimum(numeric(f, "workers"), most_workers),
                "worker_type": _type_index(f["worker_type"], cluster.worker_types),
                "ps_type": _type_index(f["ps_type"], cluster.ps_types),
                "tenant": tenants_of(f, cluster),
                "chunk_bytes": whole_bytes(as_announced["chunk_mb"]),
                "worker_needs": needs(f, WORKER_NEEDS, cluster.resources),
                "ps_needs": needs(f, PS_NEEDS, cluster.resources),
                "data": data_of(f, cluster),
            }
        )
        self.names = {name: texts for name, (texts, _) in labels.items()}
        self.most_workers: Ints = most_workers
        self.max_lag: Ints = numeric(f, "max_lag")
        self.fixed_delays = dict(fixed_delays or {})

    def __len__(self) -> int:
        return len(self.ids)

    def followed_by(self, later: Jobs) -> Jobs:
        """These jobs and then `later` ones of the same cluster; both have been checked, and nothing is checked again.

        Raises
        ------
        ScenarioError
            If a job of `later` has the id of an earlier one, or does not arrive after all others.
        """
        _check_later(self, later)
        jobs = self.concat_unchecked(later)
        # in place of the cached property, which would go through all jobs again
        vars(jobs)["index"] = self.index | {name: len(self) + i for name, i in later.index.items()}
        return jobs

    def concat_unchecked(self, later: Jobs) -> Jobs:
        """As :meth:`followed_by`, without checks: for jobs that are known to fit."""
        # past __init__, which would check all rows again
        jobs = object.__new__(Jobs)
        attributes = {name: value for name, value in vars(self).items() if name != "index"}
        vars(jobs).update({name: _concatenated(value, getattr(later, name)) for name, value in attributes.items()})
        for label in LABELS:
            _renumber_labels(jobs, label, self, later)
        return jobs

    def only(self, rows: Rows) -> Jobs:
        """The jobs of these rows, in order; nothing is checked again."""
        part = object.__new__(Jobs)
        vars(part).update({name: _selected(value, rows) for name, value in vars(self).items() if name != "index"})
        return part

    def arriving(self, time_s: float) -> Jobs:
        """These jobs, all arriving at this time [s]."""
        moved = object.__new__(Jobs)
        frame = self.frame.with_columns(arrival_s=pl.lit(time_s))
        vars(moved).update(vars(self) | {"frame": frame, "arrival": ticks(floats(frame, "arrival_s"))})
        return moved

    @cached_property
    def index(self) -> dict[str, int]:
        """Index of each job by its id."""
        return {name: i for i, name in enumerate(self.ids)}

    @cached_property
    def utility(self) -> list[Sigmoid | None]:
        """Value of each job as a function of its training time in slots; None where not specified."""
        if "utility_height" not in self.frame.columns:
            return [None] * len(self)
        rows = self.frame.select(UTILITY).rows()
        return [None if row[0] is None else Sigmoid(*row) for row in rows]

    @cached_property
    def latency(self) -> list[LatencyCost | None]:
        """Cost of each job's response time; None where not specified."""
        names = [name for name in self.frame.columns if name.startswith("latency")]
        if not names:
            return [None] * len(self)
        return [latency_from(row) for row in self.frame.select(names).iter_rows(named=True)]

    def minibatch_seconds(self, *, colocated: bool) -> Floats:
        """1 / n_j [s], Eq. (1)."""
        rate = self.internal_mbps if colocated else self.bandwidth_mbps
        share = self.ratio / self.batch
        return minibatch_seconds(self.minibatch_s, self.ps_update_s, self.gradient_mb, rate, share=share)


LABELS = ("user", "gpu_type")
"""Columns of texts without a meaning of their own, which policies see as numbers."""

_SCHEMA = JOB_SCHEMA | EXTRA_SCHEMA
_AS_ANNOUNCED = [f.name for f in fields(JobColumns) if _SCHEMA.get(f.name, str) is not str]
"""The columns that are numbers of the jobs table."""


def _check_later(jobs: Jobs, later: Jobs) -> None:
    for name in later.ids:
        if name in jobs.index:
            raise ScenarioError(f"job {name!r}: id = {name!r}; it must be unique; it is used twice")
    if len(jobs) and len(later) and later.arrival[0] <= jobs.arrival[-1]:
        arrival = later.frame["arrival_s"][0]
        raise ScenarioError(f"job {later.ids[0]!r}: arrival_s = {arrival}; it must be after all other jobs'")


def _renumber_labels(jobs: Jobs, label: str, first: Jobs, later: Jobs) -> None:
    """Give the texts of `later` the numbers that they have in `first`, and new ones after those."""
    place = {text: i for i, text in enumerate(first.names[label])} if len(first) else {}
    of_later = [place.setdefault(text, len(place)) for text in later.names[label]]
    numbers = np.array(of_later, np.int64)[getattr(later, label)] if len(later) else np.empty(0, np.int64)
    jobs.names = jobs.names | {label: tuple(place)}
    vars(jobs)[label] = np.concatenate([getattr(first, label), numbers])


def _concatenated(first: Any, later: Any) -> Any:
    """One table, array, list or mapping after the other."""
    match first:
        case pl.DataFrame():
            table = pl.concat([first, later], how="diagonal", rechunk=True)
            # columns that only `later` has come last after the concatenation; a table made at once has them in schema
            # order
            return table.select(list(schema_of(table)))
        case np.ndarray():
            return np.concatenate([first, later])
        case Delays():
            return first.followed_by(later)
        case dict():
            return first | later
        case _:
            return first + later


def _selected(value: Any, rows: Rows) -> Any:
    """The part of a table, array or list that belongs to these rows; a mapping is by id, and is not cut."""
    match value:
        case Delays():
            return value.only(rows)
        case dict():
            return value
        case list() if not isinstance(rows, slice):
            return [value[row] for row in rows.tolist()]
        case _:
            return value[rows]


def _type_index(column: pl.Series, types: tuple[str, ...]) -> Ints:
    place = {t: i for i, t in enumerate(types)}
    return np.array([place.get(t, -1) for t in column.to_list()], np.int64)


@dataclass(frozen=True)
class Scenario:
    """Cluster, jobs, physics and seed; everything derived from them is computed once.

    The seed drives the upload delays, the true durations (``estimate_error``) and the policies' generators. Each has
    its own stream, so that adding a consumer does not change the others.

    `source` describes the origin of the jobs: the number of trace rows taken, omitted and changed. Nothing is computed
    from it.

    Many jobs stay in their `file` (:meth:`in_file`) and are read in parts, or all at once as soon as `jobs` is asked
    for. Jobs in memory are one part.
    """

    cluster: Cluster
    jobs: Jobs
    physics: Physics = field(default_factory=Physics)
    seed: int = 0
    name: str = "scenario"
    source: Mapping[str, Any] = field(default_factory=dict)
    file: JobsFile | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Reject more work or chunks than times and tables can hold; the error names the job that exceeds the limit."""
        cast_fields(self, _SCENARIO, "scenario")
        f, jobs, physics = self.jobs.frame, self.jobs, self.physics
        # the longest that a mini-batch can take, so that the limits hold for any run
        minibatch_s = jobs.minibatch_seconds(colocated=False) * (1 + physics.estimate_error) / physics.speedup
        chunks = floats(f, "chunks")
        _check_total(jobs, "chunks", chunks, _MOST_CHUNKS)
        minibatches = chunks * floats(f, "epochs") * floats(f, "minibatches")
        _check_total(jobs, "chunks x epochs x minibatches", minibatches, _MOST_MINIBATCHES)
        work = minibatches * minibatch_s
        parts = "minibatch_s + ps_update_s + 2 gradient_mb / bandwidth_mbps"
        kind = kind_of(self.cluster)
        _check_total(jobs, f"chunks x epochs x minibatches x ({parts}{kind.share})", work, _MOST_WORK_S)
        kind.check(self)
        _check_frequencies(self, minibatches)
        if jobs.max_lag.any():
            _check_lag(physics, jobs.ids[int(np.flatnonzero(jobs.max_lag)[0])])

    def in_file(self, file: JobsFile) -> Scenario:
        """The scenario with the jobs of a file instead of its own; they are checked as they are read."""
        scenario = object.__new__(Scenario)
        names = {f.name for f in fields(self)} - {"jobs"}
        vars(scenario).update({name: getattr(self, name) for name in names} | {"file": file})
        return scenario

    if not TYPE_CHECKING:  # a type checker would allow any name

        def __getattr__(self, name: str) -> Any:
            """Read all jobs of the file."""
            if name != "jobs" or self.file is None:
                raise AttributeError(name)
            vars(self)["jobs"] = self._read(0, self.file.count).jobs
            return vars(self)["jobs"]

    def __getstate__(self) -> Mapping[str, Any]:
        """Pickle the jobs, not the path of their file, which another machine does not have."""
        return vars(self) | {"jobs": self.jobs, "file": None}

    @property
    def unread(self) -> JobsFile | None:
        """The file of the jobs; None as soon as all are in memory."""
        return None if "jobs" in vars(self) else self.file

    @property
    def count(self) -> int:
        """Number of jobs."""
        return len(self.jobs) if self.unread is None else self.unread.count

    @property
    def chunks(self) -> int:
        """Number of chunks of all jobs."""
        return int(self.jobs.chunks.sum()) if self.unread is None else self.unread.chunks

    @property
    def ids(self) -> Sequence[str] | FileIds:
        """Names of the jobs."""
        return self.jobs.ids if self.unread is None else self.unread.ids

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The parts of the jobs: first one, and the one after the last."""
        return [(0, len(self.jobs))] if self.unread is None else self.unread.ranges

    def parts(self) -> Iterator[tuple[int, Scenario]]:
        """The scenario with the jobs of each part alone, and the number of the first of them."""
        for first, end in self.ranges:
            yield first, self.part(first, end)

    def part(self, first: int, end: int) -> Scenario:
        """The scenario with its jobs from `first` to before `end` alone; itself if these are all.

        Raises
        ------
        ScenarioError
            If one of them is wrong.
        """
        if (first, end) == (0, self.count):
            return self
        return self.only(slice(first, end)) if self.unread is None else self._read(first, end)

    def _read(self, first: int, end: int) -> Scenario:
        assert self.file is not None  # noqa: S101 - the jobs are in it
        with self.file.named_in_errors(first):
            rows, fixed_delays = self.file.rows(first, end)
            return replace(self, jobs=Jobs(rows, self.cluster, fixed_delays, ordered=True))

    def table(self) -> pl.LazyFrame:
        """The jobs table, to be read lazily."""
        return self.jobs.frame.lazy() if self.unread is None else self.unread.scan()

    def any(self, name: str) -> bool:
        """Whether some job has a value other than 0 in a column of numbers; the column may be missing."""
        table = self.table()
        if name not in table.collect_schema():
            return False
        return bool(table.select((pl.col(name).cast(pl.Float64) != 0).any()).collect(engine="streaming").item())

    def has_utilities(self) -> bool:
        """Whether each job has a utility."""
        table, name = self.table(), UTILITY[0]
        if name not in table.collect_schema():
            return self.count == 0
        return not table.select(pl.col(name).is_null().any()).collect(engine="streaming").item()

    def without_jobs(self) -> Scenario:
        """The scenario with no jobs."""
        return self.of_rows(*job_table([]))

    def with_job(self, job: Job) -> Scenario:
        """The scenario with one more job, after the others.

        Raises
        ------
        ScenarioError
            If the job does not fit the cluster, its id is already used, or it does not arrive after all others.
        """
        return self.with_rows(*job_table([job]))

    def with_rows(self, frame: pl.DataFrame, fixed_delays: Mapping[str, Mapping[str, float]]) -> Scenario:
        """The scenario with the jobs of a table, and their upload delays, after the others (:meth:`with_job`)."""
        return self.followed_by(self.of_rows(frame, fixed_delays))

    def of_rows(self, frame: pl.DataFrame, fixed_delays: Mapping[str, Mapping[str, float]]) -> Scenario:
        """The scenario with the jobs of a table, and their upload delays, instead of its own."""
        return replace(self, jobs=Jobs(frame, self.cluster, fixed_delays))

    def followed_by(self, later: Scenario) -> Scenario:
        """The scenario with the jobs of `later`, which is the same otherwise, after its own.

        Raises
        ------
        ScenarioError
            If a job's id is already used, it does not arrive after all others, or all together are too much work.
        """
        if not len(self.jobs):
            return later
        scenario = replace(self, jobs=self.jobs.followed_by(later.jobs))
        vars(scenario).update(self._derived_with(later))
        return scenario

    def concat_unchecked(self, later: Scenario) -> Scenario:
        """As :meth:`followed_by`, without checks: for jobs that are known to fit."""
        scenario = object.__new__(Scenario)
        vars(scenario).update(vars(self) | self._derived_with(later) | {"jobs": self.jobs.concat_unchecked(later.jobs)})
        return scenario

    def _derived_with(self, later: Scenario) -> dict[str, Any]:
        """The derived values, which are per job, of these jobs and `later` ones."""
        return {name: _concatenated(vars(self)[name], getattr(later, name)) for name in self._derived()}

    def _derived(self) -> set[str]:
        """The names of the derived values that there are so far."""
        return vars(self).keys() - {f.name for f in fields(self)}

    def arriving(self, time_s: float) -> Scenario:
        """The scenario with all jobs arriving at this time [s]; nothing is checked again."""
        moved = object.__new__(Scenario)
        vars(moved).update(vars(self) | {"jobs": self.jobs.arriving(time_s)})  # nothing derived depends on arrivals
        return moved

    def with_next_job(self, full: Scenario) -> Scenario:
        """The scenario with one more job of `full`, of whose jobs it has the first ones; nothing is checked again."""
        scenario, first = object.__new__(Scenario), slice(0, len(self.jobs) + 1)
        vars(scenario).update(vars(self) | {name: _selected(getattr(full, name), first) for name in self._derived()})
        vars(scenario)["jobs"] = full.jobs.only(first)
        return scenario

    def only(self, rows: Rows) -> Scenario:
        """The scenario with the jobs of these rows alone, in order; nothing is checked again."""
        part = object.__new__(Scenario)
        vars(part).update(vars(self) | {name: _selected(getattr(self, name), rows) for name in self._derived()})
        vars(part)["jobs"] = self.jobs.only(rows)
        return part

    @cached_property
    def chunk_time(self) -> Ints:
        """Announced time to train a chunk, p [µs], by job and zeta, shape ``(jobs, 2)``."""
        return self.chunk_times(np.ones(len(self.jobs)))

    @cached_property
    def true_chunk_time(self) -> Ints:
        """True time to train a chunk [µs], by job and zeta, shape ``(jobs, 2)``; for the world and the verifier."""
        return self.chunk_time if (self.true_factor == 1).all() else self.chunk_times(self.true_factor)

    @cached_property
    def exact_chunk_time(self) -> Ints:
        """True time to train a chunk before rounding to slots [µs], by job and zeta, shape ``(jobs, 2)``."""
        return self.chunk_times(self.true_factor, to_slots=False)

    @cached_property
    def slot_chunks(self) -> Floats:
        """Chunks that one worker trains per slot, for all epochs: rho / E of Okita, shape ``(jobs,)``."""
        minibatch_s = self.jobs.minibatches * self.jobs.minibatch_seconds(colocated=False) / self.physics.speedup
        return self.physics.slot / SECOND / minibatch_s

    @cached_property
    def announced_work(self) -> Ints:
        """Announced work of a gang, D p before rounding to slots [worker-µs], by job and zeta, shape ``(jobs, 2)``.

        On servers with resources it is V x, where chunks play no role: :func:`~skedge.core.model.speed.work_ticks`.
        """
        return kind_of(self.cluster).work(self, np.ones(len(self.jobs)))

    @cached_property
    def true_work(self) -> Ints:
        """True work of a gang [worker-µs], by job and zeta, shape ``(jobs, 2)``."""
        return kind_of(self.cluster).work(self, self.true_factor)

    @cached_property
    def true_factor(self) -> Floats:
        """Ratio of true to announced duration, by job."""
        error = self.physics.estimate_error
        if error == 0:
            return np.ones(len(self.jobs))
        unit = np.array([_unit(f"duration:{self.seed}:{name}") for name in self.jobs.ids])
        # log-uniform over [1 / (1 + e), 1 + e], by a hash of the id, so that other jobs do not change it
        return (1 + error) ** (2 * unit - 1)

    def chunk_times(self, factor: Floats, *, to_slots: bool = True) -> Ints:
        """Time to train a chunk [µs], by job and zeta, for durations of `factor` times the announced.

        `to_slots`: rounded up to slots if time is slotted.
        """
        jobs, physics = self.jobs, self.physics
        return np.stack(
            [
                chunk_ticks(
                    jobs.minibatches,
                    jobs.minibatch_seconds(colocated=zeta) * factor,
                    speedup=physics.speedup,
                    slot=physics.slot,
                    slotted=physics.slotted and to_slots,
                )
                for zeta in (False, True)
            ],
            axis=1,
        )

    @cached_property
    def delays(self) -> Delays:
        """Upload delays, for :func:`~skedge.core.model.network.upload_delay`."""
        f, physics = self.jobs.frame, self.physics
        # low or high end, job, edge or cloud
        ranges = np.zeros((2, len(self.jobs), 2), np.int64)
        if physics.charge_upload:
            for i, end in enumerate(("lo", "hi")):
                for k, kind in enumerate(("edge", "cloud")):
                    ranges[i, :, k] = whole_slots(ticks(floats(f, f"upload_{kind}_{end}_s")), physics.step)
        cloud = np.array([s.far for s in self.cluster.servers], np.int64)
        key = _keys(f"upload:{self.seed}:{name}" for name in self.jobs.ids)
        servers = _keys(f"server:{s.id}" for s in self.cluster.servers)
        return Delays(ranges[0], ranges[1], key, servers, cloud, physics.step, _fixed_delay_table(self))

    def rng(self, purpose: str) -> Generator:
        """A separate random generator for `purpose`, derived from the scenario's seed."""
        return default_rng([self.seed, _bits(purpose) % 2**32])


_SCENARIO: dict[str, Rule] = {
    "cluster": instance_of(Cluster),
    "jobs": instance_of(Jobs),
    "physics": instance_of(Physics),
    "seed": Number("a whole number, at least 0 and below 2**53", 0, 2**53, whole=True),
    "name": text,
}


def _check_frequencies(scenario: Scenario, minibatches: Floats) -> None:
    """Reject failures or ageing that come far more often than a run of these jobs can need."""
    physics, jobs, cluster = scenario.physics, scenario.jobs, scenario.cluster
    sharing = cluster.sharing
    if not len(jobs):
        return
    # the shortest: what comes too often in the shortest run does so in all
    minibatch_s = jobs.minibatch_seconds(colocated=True) / (1 + physics.estimate_error) / physics.speedup
    work, alone = minibatches * minibatch_s, minibatches * minibatch_s / jobs.most_workers
    # of one job, as those of a service's life may be of any number
    longest = float(alone.max())
    if sharing is not None and sharing.ageing_s is not None:
        _check_frequency(
            f"cluster.sharing.ageing_s = {sharing.ageing_s:g}", "a waiting job ages", longest / sharing.ageing_s
        )
    if physics.mtbf is not None:
        # the least time that edge servers have to be in service; none where all can be trained in the cloud
        needed = 0.0 if cluster.cloud is not None else max(float(work.sum()) / max(cluster.lanes, 1), longest)
        ends = max(float((floats(jobs.frame, "arrival_s") + alone).max()), needed)
        edge, up, out = len(cluster.servers), max(physics.mtbf, physics.step), max(physics.mttr, physics.step)
        failures = edge * max(ends / (up + out), needed / up) * SECOND
        _check_frequency(
            f"physics.mtbf = {physics.mtbf / SECOND:g} s", f"the servers ({edge}) fail", failures, _MOST_FAILURES
        )


def _check_lag(physics: Physics, job: str) -> None:
    """Check that time is continuous and restoring free: a chunk that is ahead stops between epochs, at no cost."""
    if physics.slotted:
        raise ScenarioError(f"physics.slotted: is true; max_lag (job {job!r}) goes with continuous time")
    if physics.checkpoint_overhead:
        overhead = seconds(physics.checkpoint_overhead)
        raise ScenarioError(f"physics.checkpoint_overhead: {overhead:g} s; it must be 0 with max_lag (job {job!r})")


def _check_frequency(field: str, event: str, times: float, limit: float = _MOST_TIMES) -> None:
    """Reject a field by which something happens too many times."""
    if times > limit:
        raise ScenarioError(
            f"{field}: {event} {times:.2g} times while the jobs are trained; give a longer time, with which it is "
            f"{limit:g} times at most"
        )


def _check_total(jobs: Jobs, name: str, of_job: Floats, limit: float) -> None:
    # a running sum, to name the job that exceeds the limit; of floats, which do not wrap around
    total = np.cumsum(of_job)
    if len(total) and total[-1] > limit:
        job = int(np.argmax(total > limit))
        raise ScenarioError(
            f"job {jobs.ids[job]!r}: {name} = {of_job[job]:g}; with the jobs before it, it must be at most {limit:g}"
        )


def _fixed_delay_table(scenario: Scenario) -> Ints:
    fixed = scenario.jobs.fixed_delays
    if not fixed or not scenario.physics.charge_upload:
        return np.empty((0, 0), np.int64)
    table = np.full((len(scenario.jobs), len(scenario.cluster.servers)), -1, np.int64)
    place = {name: i for i, name in enumerate(scenario.cluster.server_ids)}
    for job, by_server in fixed.items():
        for server, delay in by_server.items():
            if server not in place:
                raise ScenarioError(f"job {job!r}: upload_s names server {server!r}, which the cluster does not have")
            if not 0 <= delay <= LONGEST_S:
                raise ScenarioError(f"job {job!r}: upload_s[{server}] = {delay}; it must be from 0 to {LONGEST_S:g}")
            table[scenario.jobs.index[job], place[server]] = ticks(delay)
    # -1, where no delay is fixed, must not be rounded to 0
    return np.where(table > 0, whole_slots(table, scenario.physics.step), table)


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def _keys(texts: Iterable[str]) -> Ints:
    """64 bits of each text."""
    # little-endian on every machine, so that a seed means the same
    return np.frombuffer(b"".join(map(_hash, texts)), "<i8").astype(np.int64)


def _bits(text: str) -> int:
    return int.from_bytes(_hash(text), "little")


def _unit(text: str) -> float:
    # 53 bits, all that a float in [0, 1) can hold
    return (_bits(text) >> 11) / 2**53
