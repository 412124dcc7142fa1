"""Export of a job's trained parameters to a file that PyTorch reads without skedge."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from skedge.core.errors import InputError
from skedge.live.durable import write_whole
from skedge.live.worker.checkpoint import Checkpoints


@dataclass(frozen=True)
class FetchedParameters:
    """The result of :func:`fetch`.

    Attributes
    ----------
    file
        The state dict: ``torch.load(file, weights_only=True)`` reads it.
    sha256
        Digest of the file.
    version
        Number of updates in the parameters.
    progress
        Mini-batches of each chunk in the parameters.
    """

    job: str
    file: str
    sha256: str
    version: int
    progress: list[int]


def fetch(url: str, job: str, folder: Path) -> FetchedParameters:
    """Write the parameters of a job's newest whole checkpoint to ``JOB.pt``, and a description to ``JOB.json``.

    Parameters
    ----------
    url
        fsspec URL of the checkpoints.
    job
        The job's name.
    folder
        Created if it does not exist. Each file is written atomically.

    Raises
    ------
    InputError
        If the job has no whole checkpoint, or the files cannot be written.
    """
    saved = Checkpoints(url).read(job)
    if saved is None:
        raise InputError(f"job {job!r}: has no whole checkpoint at {url}; one is written after its first mini-batches")
    checkpoint = torch.load(io.BytesIO(saved), weights_only=True)
    buffer = io.BytesIO()
    torch.save(checkpoint["model"], buffer)
    content, path = buffer.getvalue(), folder / f"{job}.pt"
    progress = [int(count) for count in checkpoint["progress"]]
    fetched = FetchedParameters(
        job, str(path), hashlib.sha256(content).hexdigest(), int(checkpoint["version"]), progress
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
        write_whole(path.with_suffix(".json"), (json.dumps(asdict(fetched), indent=2) + "\n").encode())
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    return fetched
