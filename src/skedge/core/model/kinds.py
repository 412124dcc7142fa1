"""Rules that depend on the kind of cluster: a job's maximum of workers, a gang's work, checks of a scenario.

Code that differs by kind is a method here, chosen once, instead of a question asked in many places (ADR 23).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from skedge.core.errors import InputError, ScenarioError

from .cluster import Cluster, Physics, Server
from .job_checks import check_at_sites, check_on_resources, check_on_slots
from .job_fields import Floats, Ints, Kind
from .speed import work_ticks
from .time import seconds

if TYPE_CHECKING:
    import polars as pl

    from skedge.core.policy import Need

    from .scenario import Scenario


MOST_SLOTS_OF_PRICES = 100_000
"""Maximum number of slots of a horizon on servers with resources: policies have prices of each."""


MOST_SLOTS_OF_A_JOB = 1_000_000
"""Maximum number of slots that a job takes there with all its workers: policies decide in each."""


class SlotCluster:
    """Rules of servers with typed slots (JSAC'22, She et al.).

    Attributes
    ----------
    most_workers
        The column with the maximum number of workers: D_j here.
    share
        Factor of communication, as text for messages.
    """

    most_workers: ClassVar[Literal["chunks", "batch"]] = "chunks"
    share: ClassVar[str] = ""

    def offers(self, scenario: Scenario) -> set[Need]:
        """The needs of policies that the scenario meets (:data:`~skedge.core.policy.Need`)."""
        usable = scenario.cluster.lanes > 0 or scenario.cluster.cloud is not None
        return {"typed slots", "typed slots, resources or sites"} if usable else set()

    def size(self, cluster: Cluster) -> tuple[int, str]:
        """Size of the cluster, for readers: a number and its unit."""
        return cluster.lanes, "lanes"

    def workers(self, cluster: Cluster) -> str:
        """Place of the workers, in words."""
        return f"{cluster.lanes:,} lanes"

    def ps_slots(self, cluster: Cluster, server: int) -> int | None:
        """Number of PSs that a server can have; None: no limit but its resources."""
        return None if server == cluster.cloud else int((cluster.ps_server == server).sum())

    def shuffles(self, requested: bool) -> bool:
        """Whether the samples of a live job are shuffled over its chunks, if a job asks for it."""
        return requested

    def overrun_problem(self, overrun_s: float) -> str:
        """The problem if slots of a live run took so much longer than their length [s]; empty if there is none."""
        return (
            f"slot_overrun_s is {overrun_s:g} s; only at sites time stops until a slot is done" if overrun_s > 0 else ""
        )

    def keeps_data(self, physics: Physics) -> bool:
        """Whether data stay on every server that received them (M7)."""
        return physics.data == "kept"

    def check_jobs(self, frame: pl.DataFrame, cluster: Cluster) -> None:
        """Check a jobs table against the cluster."""
        check_on_slots(frame, cluster)

    def check_live(self, scenario: Scenario) -> None:
        """Reject a scenario that cannot be run live.

        Raises
        ------
        InputError
            If time is slotted: only at sites does it stop until a slot is done.
        """
        if scenario.physics.slotted:
            raise InputError("physics.slotted: a live run goes in continuous time, but at sites; leave it out")

    def check(self, scenario: Scenario) -> None:
        """Reject physics that do not go with the cluster."""

    def with_server(self, cluster: Cluster, server: Server) -> Cluster:
        """The cluster with one server more."""
        return Cluster([*cluster.servers, server], sharing=cluster.sharing)

    def work(self, scenario: Scenario, factor: Floats) -> Ints:
        """Work of a gang [worker-µs], D p, by job and zeta, for durations of `factor` times the announced."""
        return scenario.jobs.chunks[:, None] * scenario.chunk_times(factor, to_slots=False)


class ResourceCluster(SlotCluster):
    """Rules of servers with resources (PD-ORS): a job has at most F_i workers and work V x; chunks play no role."""

    most_workers: ClassVar[Literal["chunks", "batch"]] = "batch"
    share: ClassVar[str] = " x ratio / batch"

    def offers(self, scenario: Scenario) -> set[Need]:
        """The needs of policies that the scenario meets (:data:`~skedge.core.policy.Need`)."""
        offered: set[Need] = {"resources", "typed slots, resources or sites"}
        if scenario.has_utilities():
            offered.add("resources with a utility of every job, or sites")
        return offered

    def size(self, cluster: Cluster) -> tuple[int, str]:
        """Number of servers."""
        return len(cluster.servers), "servers"

    def check_jobs(self, frame: pl.DataFrame, cluster: Cluster) -> None:
        """Check a jobs table against the cluster."""
        _refuse_sharing(cluster)
        check_on_resources(frame, cluster)

    def check(self, scenario: Scenario) -> None:
        """Reject failures of servers, which are simulated on slots only, and tables of prices that are too long."""
        if scenario.physics.mtbf is not None:
            raise ScenarioError("physics.mtbf: goes with servers that have slots; leave it out")
        slot, slots = seconds(scenario.physics.slot), scenario.physics.slots or 0
        if slots > MOST_SLOTS_OF_PRICES:
            raise ScenarioError(
                f"physics.horizon: has {slots:,} slots of {slot:g} s; it may have {MOST_SLOTS_OF_PRICES:,}, each "
                "with its prices: give a shorter horizon or longer slots"
            )
        # with all its workers, co-located (zeta = 1): no run of the job is shorter
        alone = scenario.chunk_time[:, 1] * scenario.jobs.chunks / scenario.jobs.most_workers
        trained = float(alone.max(initial=0.0)) / scenario.physics.slot
        if trained > MOST_SLOTS_OF_A_JOB:
            raise ScenarioError(f"slot = {slot:g} s: a job takes {trained:.2g}; it may take {MOST_SLOTS_OF_A_JOB:,}")

    def workers(self, cluster: Cluster) -> str:
        """The resources."""
        return f"with {', '.join(cluster.resources)}"

    def ps_slots(self, cluster: Cluster, server: int) -> int | None:  # noqa: ARG002
        """No limit but the server's resources."""
        return None

    def work(self, scenario: Scenario, factor: Floats) -> Ints:
        """Work of a gang [worker-µs]: :func:`~skedge.core.model.speed.work_ticks`."""
        jobs = scenario.jobs
        minibatch_s = [jobs.minibatch_seconds(colocated=zeta) * factor for zeta in (False, True)]
        samples = jobs.chunks * jobs.minibatches
        return np.stack([work_ticks(samples, x, speedup=scenario.physics.speedup) for x in minibatch_s], axis=1)


class SiteCluster(ResourceCluster):
    """Rules of sites with resources (Okita): time is slotted, and data are trained where they are stored."""

    most_workers: ClassVar[Literal["chunks", "batch"]] = "chunks"

    def offers(self, scenario: Scenario) -> set[Need]:  # noqa: ARG002
        """The needs of policies that the scenario meets (:data:`~skedge.core.policy.Need`)."""
        return {"sites", "typed slots, resources or sites", "resources with a utility of every job, or sites"}

    def check_jobs(self, frame: pl.DataFrame, cluster: Cluster) -> None:
        """Check a jobs table against the cluster."""
        _refuse_sharing(cluster)
        check_at_sites(frame, cluster)

    def shuffles(self, requested: bool) -> bool:  # noqa: ARG002
        """No: data stay at the site where they originate."""
        return False

    def overrun_problem(self, overrun_s: float) -> str:  # noqa: ARG002
        """No problem: time stops until a slot is done."""
        return ""

    def keeps_data(self, physics: Physics) -> bool:  # noqa: ARG002
        """No server receives data; an order is compared with the one before."""
        return False

    def check_live(self, scenario: Scenario) -> None:
        """Every scenario can be run live."""

    def with_server(self, cluster: Cluster, server: Server) -> Cluster:  # noqa: ARG002 - refused
        """Refuse it: a server alone has no transfer costs.

        Raises
        ------
        InputError
            Always.
        """
        raise InputError("add: at sites a server needs transfer costs to all others; change the cluster file instead")

    def check(self, scenario: Scenario) -> None:
        """Check that time is slotted and each worker trains a chunk per slot, or rounding down leaves no work (O11)."""
        if not scenario.physics.slotted:
            raise ScenarioError("physics.slotted: is false; a cluster with transfer_cost works slot by slot")
        if scenario.jobs.fixed_delays:
            first = next(iter(scenario.jobs.fixed_delays))
            raise ScenarioError(f"job {first!r}: upload: at sites data move at once; leave it out")
        if scenario.physics.estimate_error > 0:
            raise ScenarioError("physics.estimate_error: does not go with a cluster that has transfer_cost")
        super().check(scenario)
        for job in np.flatnonzero(scenario.slot_chunks < 1 - 1e-9):
            raise ScenarioError(
                f"job {scenario.jobs.ids[job]!r}: a worker trains {scenario.slot_chunks[job]:.3g} chunks in a slot; it "
                "must be at least 1: give a longer slot, or smaller chunks"
            )


def _refuse_sharing(cluster: Cluster) -> None:
    if cluster.sharing is not None:
        raise ScenarioError("cluster.sharing: goes with servers that have slots; leave it out")


_RULES: dict[Kind, SlotCluster] = {"slots": SlotCluster(), "resources": ResourceCluster(), "sites": SiteCluster()}


def kind_of(cluster: Cluster) -> SlotCluster:
    """The rules of the kind of `cluster`."""
    return _RULES[cluster.kind]
