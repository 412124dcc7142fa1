"""The columns of the record, a row each: unit and meaning.

Made of the rows: the metadata that the Parquet files of a run folder carry (:func:`labels`), and the tables in
``docs/run-folder.md`` (``docs/tools/fields.py``). Types and order: :func:`skedge.core.record.schedule.schema`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from skedge.core.model.job_fields import JOB_FIELDS


class Label(NamedTuple):
    """Unit of a column, empty for one without, and its meaning in a line."""

    unit: str
    about: str


class TableLabels(NamedTuple):
    """Meaning of a row of a table, and its columns."""

    row: str
    columns: Mapping[str, Label]


_JOB = Label("", "row number in the table jobs: jobs by (arrival, id)")
_SERVER = Label("", "the server's name")

RECORD: Mapping[str, TableLabels] = {
    "runs": TableLabels(
        "an uninterrupted run: of one chunk on one lane or in the cloud; of a gang on one server; where the job is no "
        "gang, of those workers on a server that begin together",
        {
            "job": _JOB,
            "chunk": Label("", "number of the chunk within its job; null for a gang"),
            "server": _SERVER,
            "lane": Label("", "number of the lane on its server; null in the cloud and for a gang"),
            "workers": Label("workers", "workers held"),
            "start": Label("µs", "from when the workers are held"),
            "compute_from": Label("µs", "from when they train: data are there, a checkpoint is loaded"),
            "end": Label("µs", "until when they are held"),
            "work": Label("mini-batches", "mini-batches trained in this run"),
            "colocated": Label(
                "", "whether all workers and the PS share a server, so that gradients cost no time [zeta]"
            ),
            "preempted": Label("", "whether the run ended before its chunk or job was finished"),
        },
    ),
    "ps": TableLabels(
        "a time in which a job holds a PS, or several on one server with resources",
        {
            "job": _JOB,
            "server": _SERVER,
            "slot": Label("", "number of the PS slot on its server; null in the cloud and on resources"),
            "count": Label("PSs", "PSs held"),
            "start": Label("µs", "from when it is held"),
            "end": Label("µs", "until when it is held"),
        },
    ),
    "uploads": TableLabels(
        "chunks brought to a server",
        {
            "job": _JOB,
            "from_site": Label("", "the site that they were moved from; null: from where the job's data lie"),
            "to_server": _SERVER,
            "chunks": Label("chunks", "chunks brought"),
            "mb": Label("MB", "their size"),
            "start": Label("µs", "when the upload begins"),
            "end": Label("µs", "when the chunks are there"),
        },
    ),
    "plans": TableLabels(
        "a reservation on one server; those of a job with one `made_at` are one plan",
        {
            "job": _JOB,
            "server": _SERVER,
            "workers": Label("workers", "workers reserved"),
            "ps": Label("PSs", "PSs reserved"),
            "from": Label("µs", "from when they are reserved"),
            "to": Label("µs", "until when they are reserved"),
            "made_at": Label("µs", "when the plan was made"),
            "broken_at": Label("µs", "when the work was found to depart from the plan; null: it held"),
        },
    ),
    "prices": TableLabels(
        "a price that a decision set; what no row covers keeps its initial price (M29)",
        {
            "made_at": Label("µs", "when the decision was made"),
            "job": _JOB,
            "server": _SERVER,
            "resource": Label("", "`worker:TYPE`, `ps:TYPE`, or a resource's name"),
            "from": Label("µs", "from when the price holds"),
            "to": Label("µs", "until when it holds"),
            "price": Label("utility per unit and slot", "the price"),
        },
    ),
    "decisions": TableLabels(
        "an order of the policy, in the order given; one row per chunk of a dispatch, one per server of an order on "
        "workers or data",
        {
            "time": Label("µs", "when it was given"),
            "job": _JOB,
            "verb": Label("", "the kind of order; `fail` is a fact recorded here"),
            "chunk": Label("", "number of the chunk within its job; null but for dispatches"),
            "lane": Label("", "number of the lane on its server; null but for dispatches to the edge"),
            "server": Label("", "the server's name; null where the order names none"),
            "workers": Label("workers", "workers allocated, or supplied with data; of `assign_ps` on resources PSs"),
            "rank": Label("", "place in the lane's order, smaller first; null but for dispatches"),
            "postponed": Label("chunks", "chunks that complete later because of this dispatch"),
            "value": Label(
                "",
                "of a dispatch alpha [s]; of a transfer its cost, Okita (1); else what the best plan was worth: PD-ORS "
                "and OASiS lambda, batch schedulers 1 - cost; null if the policy gives no number",
            ),
            "reason": Label("", "why, as a code or in words"),
        },
    ),
    "jobs": TableLabels(
        "a job, in the order of (arrival, id)",
        {
            "job": _JOB,
            "id": Label("", "the job's id"),
            "arrival": Label("µs", "when it arrived [r_j]"),
            "admitted": Label("µs", "its first dispatch or allocation; null if there was none"),
            "first_start": Label("µs", "when a worker was first held for it; null if none was"),
            "completion": Label("µs", "when it was finished [C_j]; null if it was not"),
            "jct": Label("µs", "completion less arrival; null if it was not finished"),
            "work": Label("mini-batches", "all the work of the job: D_j E_j B_j"),
            "value": Label("", "always null: a utility depends on how the metrics take the completion"),
            "state": Label("", "`finished`, `rejected`, `failed` or `cancelled`"),
            "reason": Label("", "why it was rejected or failed; null otherwise"),
        },
    ),
    "outages": TableLabels(
        "a time in which a server was out of service: lost or cordoned; none in a simulation without faults",
        {
            "server": _SERVER,
            "start": Label("µs", "from when"),
            "end": Label("µs", "until when; null: it still is"),
            "reason": Label("", "why"),
        },
    ),
}
"""The tables of the record."""

KEY = "skedge"
"""Key of the labels in the metadata of a Parquet file; their value is JSON."""


@cache
def labels(table: str) -> dict[str, str]:
    """Parquet metadata of a table of the record: ``{"row": ..., "columns": {name: {"unit": ..., "about": ...}}}``."""
    description = RECORD[table]
    return _metadata(description.row, description.columns)


@cache
def job_labels(*columns: str) -> dict[str, str]:
    """Parquet metadata of a jobs table with these columns (:mod:`skedge.core.model.job_fields`)."""
    about = {name: Label(f.row.unit, f.row.about) for name in columns for f in JOB_FIELDS if f.holds(name)}
    return _metadata("a job, as it is announced", about)


def _metadata(row: str, columns: Mapping[str, Label]) -> dict[str, str]:
    content = {"row": row, "columns": {name: label._asdict() for name, label in columns.items()}}
    return {KEY: json.dumps(content, ensure_ascii=False)}
