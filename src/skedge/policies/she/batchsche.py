"""BatchSche (Zhang et al., MobiHoc'20), as the edge-cloud papers compare with it.

**Problem.** Total weighted completion time of training jobs on priced workers and parameter servers; all weights are 1
here. Its text was not available; what is known of it, and what was inferred from its sibling, is in the table below.

**Algorithm.** She et al.'s framework, ``policy.py``, of which this one is the parent, with two differences:

==================== ============================ ==========================================================
what                 ``policy.py``               here
==================== ============================ ==========================================================
upload delays        servers whose data are there ignored when choosing: a job waits for its data on its workers
uploads              to every server, on arrival  the same; ``upload=where_placed``: to the servers of its workers, from
                                                  tau_i on
among plans          largest utility, earliest    least cost, then fewest worker-slots: it minimises the cost of
                     completion                   resources; among equals the earliest completion
==================== ============================ ==========================================================

So the run can extend beyond the interval; what it holds is kept to its end, and the next batch finds it there. The
cloud is a server without limit, so of price 0, and is chosen often.

**Deviations.** D1: the original also chooses the types of workers and PSs; here the job names them. D2: workers are
held from tau_i on, also while the data come (M7). D3: ``tie=earliest`` and ``tie=printed`` break ties as ``policy.py``
does.

**Guarantee.** None is claimed for this adaptation. **Complexity.** As ``policy.py``.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from .parameters import PricedParams
from .policy import Batch


class BatchScheParams(PricedParams):
    """Parameters of BatchSche, besides those of :class:`.parameters.PricedParams`.

    Attributes
    ----------
    tie
        Among plans of one cost: ``worker_slots``, the fewest, and of these the earliest completion; ``earliest`` and
        ``printed`` as in :class:`.parameters.BatchParams`.
    upload
        ``copies``: data go to every server with workers of the type from the arrival on; ``where_placed``: to the
        servers of the job's workers when it is placed, so that it pays for what it ignores when choosing.
    """

    tie: Literal["worker_slots", "earliest", "printed"] = "worker_slots"
    upload: Literal["copies", "where_placed"] = "copies"


class BatchSche(Batch):
    """BatchSche of MobiHoc'20."""

    name: ClassVar[str] = "batchsche"
    Parameters = BatchScheParams
    aware_of_uploads: ClassVar[bool] = False

    @property
    def copies(self) -> bool:
        """Unless data go where workers are placed."""
        return bool(self.params.upload == "copies")
