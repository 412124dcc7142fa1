"""Drawn sites: EC2 shapes as resources, and transfer costs that are uniform or follow distances or round trips."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import polars as pl
from numpy.random import Generator, default_rng

from skedge.core.errors import ScenarioError, TraceError
from skedge.core.model.cluster import Floats, Server
from skedge.platform.files import no_device
from skedge.traces.csv_lines import check_rows

from .schema import CostDrawForm, Costs

_SHAPES, _COSTS = 9, 10
"""Random streams of a seed."""

STORAGE_GB = 1000.0
"""Storage of a site [GB], not given in Okita's paper; at 5 to 10 GB per worker it is never the first limit."""

EC2 = {
    "p3.2xlarge": (1, 8, 61), "p3.8xlarge": (4, 32, 244), "p3.16xlarge": (8, 64, 488), "p3dn.24xlarge": (8, 96, 768),
    "p2.xlarge": (1, 4, 61), "p2.8xlarge": (8, 32, 488), "p2.16xlarge": (16, 64, 732),
    "g3s.xlarge": (1, 4, 30.5), "g3.4xlarge": (1, 16, 122), "g3.8xlarge": (2, 32, 244), "g3.16xlarge": (4, 64, 488),
}  # fmt: skip
"""GPUs, vCPUs and GiB of memory of Amazon's P3, P2 and G3 instances (Okita, Sec. V-B)."""

LARGEST = ("p3dn.24xlarge", "p2.16xlarge", "g3.16xlarge")
"""The largest instance of each of the three."""

_EARTH_KM = 6371.0
_DEGREES = {"LATITUDE": pl.Float64, "LONGITUDE": pl.Float64}


def draw_sites(count: int, seed: int, instances: int = 1, *, largest: bool = False) -> list[Server]:
    """Sites ``m0``, ``m1``, ..., each with random EC2 instances; more sites extend the same sequence.

    Parameters
    ----------
    count
        Number of sites.
    seed
        Source of all randomness.
    instances
        Of each site, drawn one by one.
    largest
        True: only the :data:`LARGEST` are drawn.
    """
    shapes = np.array([EC2[name] for name in (LARGEST if largest else EC2)], np.float64)
    drawn = default_rng([seed, _SHAPES]).integers(len(shapes), size=(count, instances))
    return [
        Server(f"m{i}", capacity={"gpu": gpu, "cpu": cpu, "memory": memory, "storage": STORAGE_GB * instances})
        for i, (gpu, cpu, memory) in enumerate(shapes[drawn].sum(axis=1).tolist())
    ]


def transfer_costs(form: Costs | CostDrawForm | str, servers: list[Server], seed: int, base: Path) -> Floats:
    """Cost per MB between the servers: given as rows, read from a CSV, or drawn.

    Parameters
    ----------
    form
        The rows; the path of a CSV whose header names the servers; or a draw.
    servers
        The servers, in order.
    seed
        Of the draw, >= 0.
    base
        Folder for relative paths.

    Returns
    -------
    numpy.ndarray
        Cost per MB from the row's server to the column's, >= 0, shape ``(servers, servers)``.

    Raises
    ------
    ScenarioError
        If rows have the wrong length, or a file cannot be read.
    """
    if isinstance(form, CostDrawForm):
        return draw_costs(form, len(servers), seed, base)
    return _cost_table(base / form, servers) if isinstance(form, str) else _cost_rows(form, len(servers))


def draw_costs(form: CostDrawForm, sites: int, seed: int, base: Path) -> Floats:
    """Draw the cost per MB between sites, symmetric, 0 from a site to itself.

    Parameters
    ----------
    form
        The range; without a file the costs are uniform in it. With a file of distances or round trips they are in
        proportion to these: 0 gets the low end, and the largest value among the sites used the high end.
    sites
        Number of sites: the first ones of the file.
    seed
        Source of all randomness, >= 0.
    base
        Folder for relative paths.

    Returns
    -------
    numpy.ndarray
        Shape ``(sites, sites)``.

    Raises
    ------
    ScenarioError
        If the file cannot be read, or has too few sites.
    """
    low, high = form.range
    if form.by is None:
        drawn = _uniform(sites, default_rng([seed, _COSTS]))
    else:
        distance = _site_distances(base / form.by, form.by, sites)
        # sites that are all in one place: no division by 0
        drawn = distance / max(float(distance.max()), 1e-300)
    cost = low + (high - low) * drawn
    # a MB that stays must cost 0, also where the range begins above it
    np.fill_diagonal(cost, 0.0)
    return cost


def _uniform(sites: int, rng: Generator) -> Floats:
    """A symmetric uniform matrix; more sites extend the matrix of fewer."""
    drawn = np.zeros((sites, sites))
    for i in range(1, sites):
        # row by row, not as one matrix: the numbers of the first sites must not depend on how many follow
        drawn[i, :i] = rng.random(i)
    return drawn + drawn.T


def _site_distances(path: Path, name: str, sites: int) -> Floats:
    """Distances [km] or mean round trips between the first sites of a file."""
    try:
        distance = _distances(path, name) if path.suffix == ".csv" else _round_trips(path, name)
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"cluster.transfer_cost.by: {name!r}: cannot be read: {error}") from error
    if len(distance) < sites:
        raise ScenarioError(f"cluster.transfer_cost.by: {name!r}: has {len(distance)} sites; the cluster has {sites}")
    return distance[:sites, :sites]


def _distances(path: Path, name: str) -> Floats:
    """Great-circle distances [km] of positions in degrees, columns LATITUDE and LONGITUDE."""
    try:
        table = pl.read_csv(path, columns=list(_DEGREES), schema_overrides=_DEGREES)
    except pl.exceptions.PolarsError as error:
        raise ScenarioError(
            f"cluster.transfer_cost.by: {name!r}: must have columns LATITUDE and LONGITUDE of numbers: "
            f"{str(error).splitlines()[0]}"
        ) from error
    lat, lon = np.radians(table["LATITUDE"].to_numpy()), np.radians(table["LONGITUDE"].to_numpy())
    # the haversine formula, which is accurate for near points, where the arc cosine of the cosine rule loses all digits
    half = (
        np.sin((lat[:, None] - lat) / 2) ** 2
        + np.cos(lat[:, None]) * np.cos(lat) * np.sin((lon[:, None] - lon) / 2) ** 2
    )
    # clipped, as rounding may put opposite points of the globe above 1
    return np.asarray(2 * _EARTH_KM * np.arcsin(np.sqrt(np.clip(half, 0, 1))))


def _round_trips(path: Path, name: str) -> Floats:
    """Mean of both directions of a square matrix of numbers, one row per line, in text or gzip."""
    content = no_device(path).read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    rows = [line.split() for line in text.decode().splitlines() if line.strip()]
    try:
        table = np.array(rows, np.float64)
    except ValueError as error:
        raise ScenarioError(f"cluster.transfer_cost.by: {name!r}: must be a square matrix of numbers") from error
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not np.isfinite(table).all() or table.min() < 0:
        raise ScenarioError(
            f"cluster.transfer_cost.by: {name!r}: must be a square matrix of numbers, 0 or more; its shape is "
            f"{table.shape}"
        )
    # measured trips differ by direction, and drawn costs are symmetric
    return np.asarray((table + table.T) / 2)


def _cost_rows(rows: list[list[float]], servers: int) -> Floats:
    for i, row in enumerate(rows):
        if len(row) != servers:
            raise ScenarioError(f"cluster.transfer_cost[{i}]: has {len(row)} numbers; there are {servers} servers")
    return np.array(rows, np.float64)


def _cost_table(path: Path, servers: list[Server]) -> Floats:
    """Read a CSV whose header names the servers in order, with one row of numbers per server."""
    try:
        check_rows(path)
        table = pl.read_csv(path, glob=False, infer_schema=False)
        cost = table.cast(pl.Float64).to_numpy()
    except (OSError, pl.exceptions.PolarsError, TraceError) as error:
        raise ScenarioError(f"cluster.transfer_cost: {path}: cannot be read: {str(error).splitlines()[0]}") from error
    if table.columns != [s.id for s in servers]:
        raise ScenarioError(
            f"cluster.transfer_cost: {path}: its header must name the servers in their order, from {servers[0].id!r} on"
        )
    return np.asarray(cost, np.float64)
