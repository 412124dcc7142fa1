"""An ordinary training script is a job by a diff of at most ten lines; the page shows both files."""

from __future__ import annotations

import difflib
import subprocess
import sys
from pathlib import Path

import pytest
from script_data import digits

from skedge.live.worker.code_archive import pack
from skedge.live.worker.loader_batches import LoaderBatches
from skedge.live.worker.program import Program
from skedge.live.worker.sgd import ParameterServer, accuracies, gradient, source_of
from skedge.scenario.file import read_spec

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = DOCS / "examples" / "script"
EPOCHS, BATCHES = 6, 8


def changes() -> list[str]:
    before, after = ((SCRIPT / name).read_text(encoding="utf-8").splitlines() for name in ("train.py", "train_job.py"))
    lines = list(difflib.unified_diff(before, after, lineterm="", n=0))[2:]
    return [line for line in lines if not line.startswith("@@")]


def test_the_diff_has_at_most_ten_lines_and_the_page_shows_it() -> None:
    assert 0 < len(changes()) <= 10
    assert "import skedge" not in (SCRIPT / "train.py").read_text(encoding="utf-8")
    assert "\n".join(changes()).strip() in (DOCS / "live.md").read_text(encoding="utf-8")


def test_the_page_s_job_is_the_script_s() -> None:
    """Its mini-batches are those of 240 images a site in mini-batches of 32: 7.5, so 8."""
    spec = read_spec(SCRIPT / "job.yaml")
    assert (spec["epochs"], spec["minibatches"], spec["chunks"]) == (EPOCHS, BATCHES, 2)
    assert spec["train"]["args"]["steps"] == EPOCHS * BATCHES
    assert (DOCS.parent / spec["train"]["code"]).read_bytes() == (SCRIPT / "train_job.py").read_bytes()


def test_both_scripts_run_as_they_are(tmp_path: Path) -> None:
    """The changed one still is an ordinary script, and trains the same model."""
    digits(tmp_path / "digits", 300)
    printed = [
        subprocess.run(
            [sys.executable, str(SCRIPT / name), str(tmp_path / "digits")],
            cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True,
        ).stdout
        for name in ("train.py", "train_job.py")
    ]  # fmt: skip
    assert printed[0] == printed[1]
    assert printed[0].startswith("worst recall ")


def test_the_job_trains_as_the_script_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sites, a round each mini-batch: the worst class of ten is recognised far better than by chance."""
    digits(tmp_path / "digits", 600)
    monkeypatch.syspath_prepend(SCRIPT)
    args = {"folder": str(tmp_path / "digits"), "steps": EPOCHS * BATCHES}
    of = Program("train_job:job", args, 2, EPOCHS, BATCHES)
    server, training = ParameterServer(of), of.make()
    model, sources = training.model(), [source_of(training, of, site, ()) for site in range(2)]
    assert all(isinstance(source, LoaderBatches) for source in sources)
    while min(server.progress) < of.steps:
        state = server.state()
        server.apply(
            server.version,
            [gradient(model, training, of, sources[d], state, d, server.progress[d]) for d in range(2)],
        )
    assert accuracies(of, [server.state()])[0] > 0.6
    assert server.scheduler is not None
    assert server.scheduler.get_last_lr() == [pytest.approx(0.0, abs=1e-12)]
    assert len(pack(SCRIPT / "train_job.py")) < 10**4
