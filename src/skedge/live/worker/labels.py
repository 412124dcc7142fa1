"""How much the labels of a job's chunks differ: counted where the chunks are made, compared by the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from .program import Program

UNLIKE = 0.3
"""Total variation distance (0 to 1) between the labels of a chunk and of all chunks above which a warning is given."""

Labels = Mapping[int, Mapping[int, int]]
"""By chunk, how often each label occurs in it."""


def unlike(labels: Labels, chunks: int) -> tuple[int, float] | None:
    """The chunk whose label distribution differs most from that of all chunks, and the distance.

    The distance is the total variation distance: 0 if the shares of all labels are equal, 1 if no label is in both.
    None while the labels of some of the `chunks` are unknown.
    """
    if len(labels) < chunks:
        return None
    totals = Counter[int]()
    for counts in labels.values():
        totals.update(counts)
    total = sum(totals.values())

    def distance(chunk: int) -> float:
        counts = labels[chunk]
        size = sum(counts.values())
        return sum(abs(counts.get(label, 0) / size - n / total) for label, n in totals.items()) / 2

    chunk = max(labels, key=distance)
    return chunk, distance(chunk)


def warning(program: Program, labels: Labels) -> str | None:
    """A warning if the chunks' label distributions differ, once those of all chunks are known; else None."""
    most_unlike = None if program.shuffle else unlike(labels, program.chunks)
    if most_unlike is None or most_unlike[1] <= UNLIKE:
        return None
    return (
        f"warning: the labels of chunk {most_unlike[0]} differ from those of all chunks by {most_unlike[1]:.2f} (total "
        f"variation distance; {UNLIKE:g} is much): preemption can bias the model; leave out shuffle: false, or "
        "give max_lag"
    )
