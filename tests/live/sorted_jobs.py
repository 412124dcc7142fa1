"""A job whose data are sorted by label, as sensors at one place after the other give them."""

from __future__ import annotations

from dataclasses import replace

import torch

from skedge.live.examples import digits
from skedge.live.training import Data, Training


def sorted_digits(chunks: int = 4, seed: int = 0, mixed: float = 0.0) -> Training:
    """The digits, chunk 0 with the smallest labels; the share `mixed` of them is anywhere."""
    whole = digits("lenet", 1, seed=seed)
    inputs, targets = whole.chunk(0)
    order = torch.argsort(targets, stable=True)
    generator = torch.Generator().manual_seed(seed)
    moved = torch.randperm(len(order), generator=generator)[: round(mixed * len(order))]
    order[moved] = order[moved[torch.randperm(len(moved), generator=generator)]]

    def chunk(number: int) -> Data:
        first, last = (len(order) * end // chunks for end in (number, number + 1))
        return inputs[order[first:last]], targets[order[first:last]]

    return replace(whole, chunk=chunk)
