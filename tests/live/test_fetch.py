"""A trained model leaves skedge as a file that PyTorch reads without skedge."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

from skedge.core.errors import InputError
from skedge.live.service.fetch import fetch
from skedge.live.worker.checkpoint import Checkpoints, Life
from skedge.live.worker.program import Program
from skedge.live.worker.sgd import ParameterServer

OF = Program("skedge.live.examples:images", {"model": "lenet", "chunks": 2, "samples": 40, "size": 8}, 2, 1, 4)


def test_the_file_holds_the_newest_parameters_and_its_digest_stands_beside(tmp_path: Path) -> None:
    server = ParameterServer(OF)
    kept = Checkpoints(str(tmp_path / "checkpoints"))
    kept.write("net", Life(), 0, server.dump())
    found = fetch(kept.url, "net", tmp_path / "out")
    read = torch.load(tmp_path / "out" / "net.pt", weights_only=True)
    assert read.keys() == server.state().keys()
    assert all(torch.equal(read[name], value) for name, value in server.state().items())
    assert found.sha256 == hashlib.sha256((tmp_path / "out" / "net.pt").read_bytes()).hexdigest()
    said = json.loads((tmp_path / "out" / "net.json").read_text(encoding="utf-8"))
    assert (said["sha256"], said["progress"], said["version"]) == (found.sha256, [0, 0], 0)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["net.json", "net.pt"]


def test_a_job_without_a_whole_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="job 'net': has no whole checkpoint"):
        fetch(str(tmp_path), "net", tmp_path / "out")
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "000000-000001-000000000001.ckpt").write_bytes(b"cut short")
    with pytest.raises(InputError, match="has no whole checkpoint"):
        fetch(str(tmp_path), "net", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    kept = Checkpoints(str(tmp_path / "checkpoints"))
    kept.write("net", Life(), 0, ParameterServer(OF).dump())
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="cannot be written"):
        fetch(kept.url, "net", tmp_path / "file" / "out")
