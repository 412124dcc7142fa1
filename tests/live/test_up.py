"""``skedge up`` says that a service is up when its controller has taken its journal in again, and not before."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from played import LIMITS, Played, Up, journal_in

from skedge.cli import service as command
from skedge.core.errors import SkedgeError, StateError
from skedge.live.controller import address
from skedge.live.controller.settings import ADDRESS, CLUSTER, Settings, save_settings
from skedge.live.coordinator.trainer import Trainer
from skedge.live.journal.chain import DECISION
from skedge.live.journal.journal import JOURNAL, SqlJournal, UnreachableError
from skedge.live.journal.tables import ENTRIES
from skedge.live.service import controller_process
from skedge.live.world.upload_thread import UploadThread

TWO = """
name: two
slot: 1s
cluster: {servers: [{id: e0, workers: {gpu: 2}, ps: {cpu: 2}}, {id: e1, workers: {gpu: 1}, ps: {cpu: 1}},
                    {id: cloud, kind: cloud}]}
"""


class Stand(Up):
    """An engine whose servers do nothing, in place of a controller's."""

    def __init__(self, cluster: Any, *_: Any, **__: Any) -> None:
        super().__init__(len(cluster.servers))

    def stop(self) -> None:
        """Does nothing."""

    leave = stop


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state of a service that has had some jobs."""
    for kind in (UploadThread, Trainer):
        monkeypatch.setattr(kind, "start", lambda _: None)
    monkeypatch.setattr(controller_process, "Engine", Stand)
    monkeypatch.setattr(controller_process, "_embedded_address", lambda _: "here")
    (tmp_path / CLUSTER).write_text(TWO, encoding="utf-8")
    save_settings(tmp_path, Settings("srtf", id="played", limits=LIMITS))
    about = {
        "id": "played",
        "policy": "srtf",
        "kind": "slots",
        "cluster": ["e0", "e1", "cloud"],
        "seed": 0,
        "began": 0.0,
    }
    journal = SqlJournal(f"sqlite:///{tmp_path / JOURNAL}", about)
    Played(journal, tmp_path, 1, 40).run()
    journal.close()
    return tmp_path


@pytest.fixture
def said(state: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What the controller says of being ready, in order."""
    heard, write = list[bool](), address.write_aside

    def heeded(path: Path, content: Any) -> None:
        if path.name == ADDRESS:
            heard.append(json.loads(content)["ready"])
        write(path, content)

    monkeypatch.setattr(address, "write_aside", heeded)
    return heard


def differ(state: Path) -> None:
    """Let the last decision of a journal be another one, with right checksums, as another version may have taken."""
    journal = journal_in(state)
    entries = journal.entries(0, journal.number)
    last = max(entry.number for entry in entries if entry.kind == DECISION and '"orders": [{' in entry.content)
    checksum = journal.before(last)
    with journal.engine.begin() as at:
        for entry in entries[last:]:
            content = (
                entry.content.replace('"orders": [{', '"orders": [{"more": 1}, {')
                if entry.number == last
                else entry.content
            )
            checksum = entry._replace(content=content).after(checksum)
            own = ENTRIES.c.number == entry.number
            at.execute(ENTRIES.update().where(own).values(content=content, checksum=checksum))
    journal.close()


def test_a_controller_is_ready_once_it_has_taken_its_journal_in_again(
    state: Path, said: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed = list[int]()

    class Ending(controller_process.Service):
        """A service that ends when it is ready."""

        def run(self) -> None:
            self.world.inbox.waiting.put(lambda: replayed.append(len(self.journal.decided)))
            self.world.inbox.end()
            super().run()

    monkeypatch.setattr(controller_process, "Service", Ending)
    assert controller_process.control(state) == 0
    assert (said, replayed) == ([False, True], [0])


def test_a_controller_whose_decision_differs_was_never_ready(state: Path, said: list[bool]) -> None:
    differ(state)
    with pytest.raises(StateError, match=r"replay: the decision at \d+ µs is not the one in the journal"):
        controller_process.control(state)
    assert said == [False]


def test_a_controller_waits_for_a_database_that_is_away(
    state: Path, said: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than five controllers live that give up at once."""
    left, steps, opened = [UnreachableError("it is away")] * 20, list[str](), controller_process.open_journal

    def open_later(*given: Any, **more: Any) -> SqlJournal:
        if left:
            raise left.pop()
        return opened(*given, **more)

    monkeypatch.setattr(controller_process, "open_journal", open_later)
    monkeypatch.setattr(controller_process.machine, "sleep", lambda _: None)
    about = {"id": "played", "policy": "srtf", "cluster": ["e0", "e1", "cloud"], "seed": 0}
    controller_process._journal(Settings("srtf", id="played"), state, about, steps.append).close()
    assert steps == ["the database is away: it is away"] * 20
    assert said == []


def started(state: Path, code: str) -> dict[str, Any]:
    """The address that `up` gives of a service whose process runs `code`."""
    with (state / "controller.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-c", code, str(state / ADDRESS)], stdout=log, stderr=log)
        return command._wait_up(process, state, 0, quiet=True)


SAYS = "import json, sys, time; say = lambda ready: json.dump({'pid': 1, 'ready': ready}, open(sys.argv[1], 'w')); "


def test_up_fails_with_the_sentence_of_a_controller_that_ends_before_it_is_ready(tmp_path: Path) -> None:
    (tmp_path / ADDRESS).write_text('{"pid": 1, "ready": false}', encoding="utf-8")
    with pytest.raises(SkedgeError, match="the service did not start: replay: the decision at 5 µs is not the one"):
        started(
            tmp_path, SAYS + "time.sleep(1); sys.exit('replay: the decision at 5 µs is not the one in the journal')"
        )


def test_up_waits_until_the_controller_is_ready(tmp_path: Path) -> None:
    (tmp_path / ADDRESS).write_text('{"pid": 1, "ready": false}', encoding="utf-8")
    assert started(tmp_path, SAYS + "time.sleep(1); say(True); time.sleep(30)")["ready"]
