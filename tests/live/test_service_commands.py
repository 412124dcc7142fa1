"""Commands of the service that act while it is down, or before it is up."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skedge.cli.state_lock import service_pid, try_lock
from skedge.live.controller.settings import Settings, save_settings
from skedge.live.journal.journal import JOURNAL, SqlJournal
from skedge.live.service.backup import _copy_folder

Skedge = Callable[..., Any]
CLUSTER = "{name: c, slot: 1s, cluster: {servers: [{id: e, workers: {gpu: 1}, ps: {cpu: 1}}]}}"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """State of a service that was ended before it took in two submissions."""
    save_settings(tmp_path, Settings("aonline", id="mine"))
    journal = SqlJournal(f"sqlite:///{tmp_path / JOURNAL}", {"id": "mine"})
    for time_us, job in enumerate(("good", "poison")):
        journal.take(time_us, {"is": "Submitted", "job": {"id": job}})
    journal.close()
    return tmp_path


def test_quarantine_sets_a_submission_aside_and_notes_who_did_it(state: Path, skedge: Skedge) -> None:
    assert skedge("quarantine", "poison", "--json", "--state", str(state)).json == {"quarantined": "poison"}
    kept = SqlJournal(f"sqlite:///{state / JOURNAL}", run_id="mine")
    assert [content["job"]["id"] for _, content in kept.inputs] == ["good"]
    assert [content["job"]["id"] for content in kept.aside] == ["poison"]
    line = json.loads((state / "audit.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert (line["what"], line["of"], line["outcome"]) == ("quarantine", {"job": "poison"}, "done")


def test_quarantine_of_an_unknown_job_or_state_is_refused(state: Path, skedge: Skedge) -> None:
    other = skedge("quarantine", "other", "--state", str(state))
    assert "job 'other': was not submitted; there are good, poison" in other.err
    assert "holds no service's state" in skedge("quarantine", "poison", "--state", str(state / "nowhere")).err
    assert not (state / "nowhere").exists()


def test_a_backup_has_what_the_state_has_and_no_more(state: Path, skedge: Skedge, tmp_path_factory: Any) -> None:
    """Not the token, nor what names processes of the service that runs."""
    out = tmp_path_factory.mktemp("out") / "copy"
    for name in ("checkpoints/a/1.ckpt", "checkpoints/a/2.ckpt.7.partial", "code/x", "token", "service.json", "lock"):
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text(name, encoding="utf-8")
    writing = SqlJournal(f"sqlite:///{state / JOURNAL}", run_id="mine")  # as a controller that is up
    assert skedge("backup", "--out", str(out), "--json", "--state", str(state)).json == {"folder": str(out)}
    writing.take(9, {"is": "Submitted", "job": {"id": "later"}})
    writing.close()
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert found == ["checkpoints/a/1.ckpt", "code/x", JOURNAL, "settings.json"]
    kept = SqlJournal(f"sqlite:///{out / JOURNAL}", run_id="mine")
    assert [content["job"]["id"] for _, content in kept.inputs] == ["good", "poison"]
    assert "exists already" in skedge("backup", "--out", str(out), "--state", str(state)).err


def test_a_checkpoint_that_is_replaced_while_it_is_copied_is_replaced_in_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, copy = tmp_path / "kept", tmp_path / "copy"
    kept.mkdir()
    (kept / "1.ckpt").write_text("old", encoding="utf-8")
    copied = shutil.copy2

    def meanwhile(source: Path, target: Path) -> Any:
        if source.name == "1.ckpt":
            source.rename(kept / "2.ckpt")
        return copied(source, target)

    monkeypatch.setattr("skedge.live.service.backup.shutil.copy2", meanwhile)
    _copy_folder(kept, copy)
    assert [path.name for path in copy.iterdir()] == ["2.ckpt"]


@pytest.mark.parametrize("what", ["journal", "checkpoints"])
def test_a_backup_of_what_is_kept_elsewhere_is_refused(state: Path, skedge: Skedge, what: str) -> None:
    save_settings(state, Settings("aonline", id="mine", **{what: "s3://there"}))  # type: ignore[arg-type]
    refused = skedge("backup", "--out", str(state / "copy"), "--state", str(state))
    assert f"its {what} are kept elsewhere, by URL (`skedge up --{what}`)" in refused.words
    assert not (state / "copy").exists()


def test_quarantine_is_refused_while_the_service_is_up(state: Path, skedge: Skedge) -> None:
    lock = try_lock(state)
    assert lock is not None
    try:
        assert "the service is up; `skedge down" in skedge("quarantine", "poison", "--state", str(state)).err
    finally:
        os.close(lock)
    assert skedge("quarantine", "poison", "--state", str(state)).code == 0


def test_the_controller_imports_no_torch() -> None:
    """It takes seconds to import, at each start; only the jobs' own processes compute."""
    command = [sys.executable, "-c", "import sys, skedge.live.service.controller_process\nprint(*sys.modules)"]
    imported = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert "skedge.live.cluster.engine" in imported
    assert not imported & {"torch", "ray"}


def test_ctrl_c_while_the_service_starts_ends_all_of_it(tmp_path: Path) -> None:
    """It says so, nothing runs on, and the state can be used again."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    state = tmp_path / "state"
    command = [sys.executable, "-m", "skedge", "up", str(tmp_path / "cluster.yaml"), "--state", str(state)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 120
    while not (state / "starting").exists():  # the controller says what it does: Ray is on its way
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted; what was started of the service is ended, its state is kept" in re.sub(r"\s+", " ", said)
    assert service_pid(state) is None
    assert not (state / "service.json").exists()
    found = subprocess.run(["pgrep", "-f", f"control.*{state}"], capture_output=True, text=True, check=False)  # noqa: S607
    assert found.stdout == ""
