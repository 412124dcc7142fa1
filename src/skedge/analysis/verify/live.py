"""Rule M38: the parameters of a job that was trained live hold all its mini-batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from skedge.analysis.columns import Columns

from .rules import Findings


def check_trained(c: Columns, findings: Findings, trained: Mapping[str, Any]) -> None:
    """Compare the progress in the last checkpoint of each finished job with the job's work.

    `trained`: mini-batches of each chunk, by job id, from a live run's ``run.json``.
    """
    t, jobs = c.jobs, c.scenario.jobs
    for row in np.flatnonzero(t.has("state", "finished")):
        job = int(t["job"][row])
        steps, progress = int(jobs.minibatches[job]), trained.get(jobs.ids[job])
        if not isinstance(progress, list) or len(progress) != jobs.chunks[job]:
            text = f"is finished; its last checkpoint holds {progress!r}, not {jobs.chunks[job]} numbers"
            findings.add("M38", job, int(t["completion"][row]), text)
            continue
        for chunk in [chunk for chunk, n in enumerate(progress) if n != steps]:
            text = f"is finished; its last checkpoint holds {progress[chunk]} of {steps} mini-batches of chunk {chunk}"
            findings.add("M38", job, int(t["completion"][row]), text)
