"""The parameters of the batch schedulers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from skedge.core.policy import Params


class PricedParams(Params):
    """Parameters of both batch schedulers.

    Attributes
    ----------
    T
        Slots of the papers' horizon; it only scales the prices.
    F1, F2
        Price per slot of a worker, and of a PS, when all of its type on a server are taken.
    price_norm
        ``2TSU``: prices from 0 to F; ``none``: as printed, 2TSU times as high.
    literal_cost_d
        True: Alg. 4 as printed.
    cloud_capacity
        Workers, and PSs, of every type in the cloud; None: without limit, so free of charge.
    order
        Order of the jobs in a batch: by ``arrival``, or by the ``shortest`` training with D_j workers on one server.
    """

    T: int = Field(300, ge=1)
    F1: float = Field(1.0, gt=0)
    F2: float = Field(1.0, gt=0)
    price_norm: Literal["2TSU", "none"] = "2TSU"
    literal_cost_d: bool = False
    cloud_capacity: int | None = Field(None, ge=0)
    order: Literal["arrival", "shortest"] = "arrival"


class BatchParams(PricedParams):
    """Parameters of A_online, besides those of :class:`PricedParams`.

    Attributes
    ----------
    strict_upload
        True: data must be on a server before tau_i, as printed; False: by tau_i.
    tie
        Among plans of equal utility: ``earliest``, the earliest completion, then one server, then fewer workers;
        ``printed``, the fewest workers, then one server, as the loop from D_u = 1 up with its ">" has it.
    """

    strict_upload: bool = True
    tie: Literal["earliest", "printed"] = "earliest"
