"""Of a job that has left one checkpoint is kept, for as long as the service is told to."""

from __future__ import annotations

from pathlib import Path

from skedge.core.model.time import SECOND
from skedge.live.controller.retention import Retention
from skedge.live.worker.checkpoint import Checkpoints, Life

DAY = 86_400 * SECOND


def test_jobs_that_left_long_ago_have_no_checkpoint_and_the_others_one(tmp_path: Path) -> None:
    kept, now = Checkpoints(str(tmp_path)), [0]
    for job in ("old", "new", "running"):
        kept.write(job, Life(), 1, b"first")
        kept.write(job, Life(), 2, b"second")
    retention = Retention(kept, lambda: now[0], keep_days=3)
    retention.note("old", 0)
    retention.note("new", 2 * DAY)
    now[0] = 4 * DAY
    retention.sweep()
    assert {job: len(list((tmp_path / job).glob("*"))) for job in ("new", "running")} == {"new": 1, "running": 2}
    assert kept.read("new") == b"second"
    assert not (tmp_path / "old").exists()


def test_the_newest_that_is_whole_is_the_one_that_is_kept(tmp_path: Path) -> None:
    kept = Checkpoints(str(tmp_path))
    kept.write("job", Life(), 1, b"first")
    kept.write("job", Life(), 2, b"second")
    newest = max((tmp_path / "job").iterdir())
    newest.write_bytes(b"damaged")
    kept.thin("job")
    assert kept.read("job") == b"first"
    assert len(list((tmp_path / "job").iterdir())) == 1
