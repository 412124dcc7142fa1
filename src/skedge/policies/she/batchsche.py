"""BatchSche (Zhang et al., MobiHoc'20), as the edge-cloud papers compare with it.

**Problem.** Total weighted completion time of training jobs on priced workers and parameter servers; all weights are 1
here. Its text was not available; what is known of it, and what was inferred from its sibling, is in the table below.

**Algorithm.** She et al.'s framework, ``policy.py``, of which this one is the parent, with two differences:

==================== ============================ ==========================================================
what                 ``policy.py``               here
==================== ============================ ==========================================================
upload delays        servers whose data are there ignored when choosing: a job waits for its data on its workers
among plans          largest utility, earliest    least cost, then fewest worker-slots: it minimises the cost of
                     completion                   resources; among equals the earliest completion
==================== ============================ ==========================================================

So the run can extend beyond the interval; what it holds is kept to its end, and the next batch finds it there. The
cloud is a server without limit, so of price 0, and is chosen often.

**Deviations.** D1: the original also chooses the types of workers and PSs; here the job names them. D2: workers are
held from tau_i on, also while the data come (M7). D3: ``tie=earliest`` breaks ties as ``policy.py`` does.

**Guarantee.** None is claimed for this adaptation. **Complexity.** As ``policy.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from skedge.core.model.cluster import Cluster, Physics

from .parameters import PricedParams
from .policy import Batch

if TYPE_CHECKING:
    from numpy.random import Generator


class BatchScheParams(PricedParams):
    """Parameters of BatchSche, besides those of :class:`.parameters.PricedParams`.

    Attributes
    ----------
    tie
        Among plans of one cost: ``worker_slots``, the fewest, and of these the earliest completion; ``earliest``, the
        earliest completion.
    """

    tie: Literal["worker_slots", "earliest"] = "worker_slots"


class BatchSche(Batch):
    """BatchSche of MobiHoc'20."""

    name: ClassVar[str] = "batchsche"
    Parameters = BatchScheParams
    aware_of_uploads: ClassVar[bool] = False

    def start(self, cluster: Cluster, physics: Physics, rng: Generator) -> None:
        """Begin a run."""
        self.least_cost = self.params.tie == "worker_slots"
        super().start(cluster, physics, rng)
