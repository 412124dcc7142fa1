"""Clusters drawn from a machine list: one worker slot per GPU, PS slots in proportion, a type for each slot.

Machines and types have separate random streams and are drawn machine by machine, so that a larger cluster begins with
the machines of a smaller one (except for slots changed so that each type exists).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, repeat
from pathlib import Path

import numpy as np
from numpy.random import Generator, default_rng

from skedge.core.errors import ScenarioError
from skedge.core.model.cluster import MOST_SERVERS, MOST_SLOTS, PS, WORKER, Ints, Server
from skedge.traces.makers.synthetic import philly_like_machines
from skedge.traces.readers.philly import read_machines

from .schema import DrawForm
from .site_draw import draw_sites

_MACHINES, _WORKER_TYPES, _WORKER_SLOTS, _PS_TYPES, _PS_SLOTS, _PS_COUNT = 3, 4, 5, 6, 7, 8
"""Random streams of a seed."""

_LIST = 552
"""Machines drawn at a time for ``philly-like``: the length of Philly's list."""


def drawn_types(form: DrawForm, seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Draw the numbers of worker types and PS types uniformly, and name the types ``gpu1``, ... and ``cpu1``, ..."""
    workers = int(default_rng([seed, _WORKER_TYPES]).integers(*form.worker_types, endpoint=True))
    ps = int(default_rng([seed, _PS_TYPES]).integers(*form.ps_types, endpoint=True))
    return _type_names("gpu", workers), _type_names("cpu", ps)


def _type_names(name: str, types: int) -> tuple[str, ...]:
    return (name,) if types == 1 else tuple(f"{name}{i + 1}" for i in range(types))


def draw_cluster(form: DrawForm, seed: int, base: Path, lanes: float = 0.0) -> list[Server]:
    """Draw the servers: edge servers ``e0``, ``e1``, ... and then, if requested, ``cloud``.

    A cloud of limited size is an edge server as far away as the cloud, with so many workers and PSs of each type.

    Machines that all have the same resources are ``m0``, ``m1``, ...

    Parameters
    ----------
    form
        What to draw; a path in it is relative to `base`.
    seed
        Source of all randomness.
    base
        Folder of the scenario file.
    lanes
        For `form.load`: the least number of worker slots; as many machines are drawn as have so many.

    Raises
    ------
    ScenarioError
        If the list has too few machines, or the machines have fewer slots than there are types.
    """
    if form.resources is not None:
        return [Server(f"m{i}", capacity=form.resources) for i in range(form.servers or 0)]
    if form.shapes is not None:
        return draw_sites(form.servers or 0, seed, form.instances, largest=form.shapes == "ec2-largest")
    worker_types, ps_types = drawn_types(form, seed)
    gpus = _machines(form, seed, base, lanes)
    # a stream for each column: a longer list of machines extends each without shifting the others
    per_gpu = default_rng([seed, _PS_COUNT]).integers(*form.ps_per_worker, size=len(gpus), endpoint=True)
    workers = _slots_by_type(gpus, len(worker_types), default_rng([seed, _WORKER_SLOTS]), "worker")
    ps = _slots_by_type(gpus * per_gpu, len(ps_types), default_rng([seed, _PS_SLOTS]), "PS")
    edge = [
        Server(f"e{i}", "edge", _named_slots(WORKER, worker_types, w) | _named_slots(PS, ps_types, p), form.storage_mb)
        for i, (w, p) in enumerate(zip(workers, ps, strict=True))
    ]
    return [*edge, *_cloud(form, worker_types, ps_types)]


def _cloud(form: DrawForm, worker_types: tuple[str, ...], ps_types: tuple[str, ...]) -> Iterator[Server]:
    """The cloud: none, without limit, or of limited size."""
    if form.cloud is True:
        yield Server("cloud", "cloud")
    elif form.cloud:
        slots = dict.fromkeys([*(WORKER + t for t in worker_types), *(PS + t for t in ps_types)], form.cloud)
        yield Server("cloud", "edge", slots, upload="cloud")


def _named_slots(prefix: str, types: tuple[str, ...], counts: Ints) -> dict[str, int]:
    return {prefix + name: int(n) for name, n in zip(types, counts, strict=True) if n}


def _machines(form: DrawForm, seed: int, base: Path, lanes: float) -> Ints:
    """Draw the number of GPUs of each machine, shape ``(machines,)``."""
    listed = _machine_gpus(form, base, default_rng([seed, _MACHINES]))
    machines = form.servers or 1
    if lanes > MOST_SLOTS:
        limit = f"there may be {MOST_SLOTS:,}: give a larger load"
        raise ScenarioError(f"cluster.draw.load: {form.load:g} takes {lanes:.3g} GPUs; {limit}")
    gpus: list[int] = []
    while len(gpus) < machines or sum(gpus) < lanes:
        # only a file's machines can run out; the other two sources never end
        n = next(listed, None)
        if n is None or len(gpus) >= MOST_SERVERS:
            need = f"{machines} are asked for" if form.load is None else f"load {form.load:g} takes {lanes:.0f} GPUs"
            raise ScenarioError(f"cluster.draw.machines: {form.machines!r}: ends after {len(gpus)} machines; {need}")
        gpus.append(n)
    return np.array(gpus, np.int64)


def _machine_gpus(form: DrawForm, base: Path, rng: Generator) -> Iterator[int]:
    """Yield the numbers of GPUs of the list's machines in random order; machines without a GPU are omitted."""
    if form.gpus_per_server is not None:
        yield from repeat(form.gpus_per_server)
    if form.machines == "philly-like":
        for _ in count():
            yield from philly_like_machines(_LIST, rng)["gpus"]
    gpus = read_machines(base / form.machines)["gpus"].to_numpy()
    yield from (int(n) for n in rng.permutation(gpus[gpus > 0]))


def _slots_by_type(slots: Ints, types: int, rng: Generator, role: str) -> Ints:
    """Draw a type for each of `slots` slots of each machine: counts, shape ``(machines, types)``.

    JSAC'22's draw does not guarantee a slot of each type, without which some jobs could not run at the edge. A type
    without a slot therefore takes the first slot whose type has another.
    """
    machine = np.repeat(np.arange(len(slots)), slots)
    if len(machine) < types:
        raise ScenarioError(f"cluster.draw: the machines have {len(machine)} {role} slots, fewer than {types} types")
    drawn = rng.integers(types, size=len(machine))
    have = np.bincount(drawn, minlength=types)
    for missing in np.flatnonzero(have == 0):
        # there is one: with as many slots as types, or more, and a type without any, some type has two
        slot = np.flatnonzero(have[drawn] > 1)[0]
        have[drawn[slot]] -= 1
        drawn[slot], have[missing] = missing, 1
    counts = np.zeros((len(slots), types), np.int64)
    np.add.at(counts, (machine, drawn), 1)
    return counts
