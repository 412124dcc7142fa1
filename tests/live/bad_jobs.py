"""Jobs whose code does what it should not."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from torch import Tensor

from skedge.live.examples import images
from skedge.live.training import Training


def ends_its_process(**given: Any) -> Training:
    """Its data can be made; its loss ends whatever process computes it."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        os._exit(3)

    return replace(images(**given), loss=loss)


def has_no_test(**given: Any) -> Training:
    """It is trained like any other; its test data cannot be had."""

    def test() -> Any:
        raise FileNotFoundError("no test data")

    return replace(images(**given), test=test)
