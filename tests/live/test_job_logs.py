"""The logs of jobs and workers, and what a service tells of jobs whose processes hang or end; nothing is trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from played import Played, journal_in
from rich.table import Table

from skedge.cli.console import out, print_json
from skedge.core.engine.ledger import WAITING
from skedge.core.errors import InputError
from skedge.core.events import Event
from skedge.live.controller.job_logs import PIECE, JobLogs
from skedge.live.coordinator.messages import ProgressNote
from skedge.live.coordinator.report import Report
from skedge.live.coordinator.teams import Team
from skedge.live.service.tenant_view import TenantView
from skedge.live.world.inputs import from_json, to_json

FORGED = "boom \x1b[31m red \n2026-01-01T00:00:00+0000 finished: a forged line\u202egnp.exe \x00"
HARMFUL = set("\x1b\x00\u202e")


@pytest.fixture
def logs(tmp_path: Path) -> JobLogs:
    return JobLogs(tmp_path / "logs", 0.02, lambda: False)


def read_all(logs: JobLogs, worker: str = "", since: int = 0) -> tuple[str, int]:
    text = ""
    while (piece := logs.read("j", worker, since)).next != since:
        text, since = text + piece.text, piece.next
    return text, since


def test_an_entry_of_several_lines_cannot_be_taken_for_several_entries(logs: JobLogs) -> None:
    logs.line("j", f"failed {FORGED}")
    text, _ = read_all(logs)
    assert not HARMFUL & set(text)
    first, second = text.splitlines()
    assert first.endswith("failed boom \\x1b[31m red ")
    assert second == "    | 2026-01-01T00:00:00+0000 finished: a forged line\\u202egnp.exe \\x00"


def test_output_is_kept_by_worker_and_bytes_keep_their_numbers_when_it_is_rotated(logs: JobLogs) -> None:
    """Of 20 kB at most, in files of 10; a reader that goes on misses nothing that is kept, and is told of the rest."""
    logs.printed("j", "edge-0-1", "é one\n")
    text, at = read_all(logs, "edge-0-1")
    assert (text, at) == ("é one\n", 7)
    for n in range(50):
        logs.printed("j", "edge-0-1", f"{n:02d}" + "x" * 997 + "\n")
    later, end = read_all(logs, "edge-0-1", at)
    assert end == 7 + 50 * 1000
    head, _, kept = later.partition("\n")
    left_out = int(head.removeprefix("… ").removesuffix(" bytes left out …").replace(",", ""))
    assert left_out + len(kept) == 50 * 1000
    assert kept.endswith("49" + "x" * 997 + "\n")
    assert 9000 <= len(kept) <= 20_000
    (row,) = logs.workers("j")
    assert row == {"worker": "edge-0-1", "bytes": len(kept)}
    assert read_all(logs, "edge-0-1", end) == ("", end)


def test_a_worker_that_has_printed_nothing_is_refused_by_name(logs: JobLogs) -> None:
    logs.printed("j", "ps", "a")
    for name in ("edge-0-9", "../j", "ps.log"):
        with pytest.raises(InputError, match="has printed nothing for job 'j'; workers that have: ps"):
            logs.read("j", name)


def test_long_logs_come_in_pieces_that_end_with_a_line(tmp_path: Path) -> None:
    logs = JobLogs(tmp_path / "logs", 100.0, lambda: False)
    logs.printed("j", "w", ("ä" * 50 + "\n") * 30_000)
    piece = logs.read("j", "w")
    assert piece.next <= PIECE
    assert piece.text.endswith("ä\n")
    assert read_all(logs, "w")[0] == ("ä" * 50 + "\n") * 30_000


def test_a_service_that_rebuilds_writes_nothing(tmp_path: Path) -> None:
    logs = JobLogs(tmp_path / "logs", 1.0, lambda: True)
    logs.line("j", "again")
    assert read_all(logs) == ("", 0)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Played]:
    """A service with a job that trains."""
    journal = journal_in(tmp_path, "srtf", "slots")
    one = Played(journal, tmp_path, seed=5, count=30)
    one.run()
    yield one
    journal.close()


def running(service: Played) -> int:
    """A job that has arrived, with a team at work."""
    job = service.kernel.arrived - 1
    service.kernel.status[job] = WAITING
    service.world.trainers.of(job).put(0, Team(0, (0,), 1), service.world.now())
    return job


def take(service: Played, report: Report) -> None:
    service.world._take_in(from_json(to_json(report)))


def asked(service: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller's thread answers at once: it is this one."""
    monkeypatch.setattr(service, "ask", lambda question: question())


def test_a_stalled_job_is_told_in_queue_events_and_metrics_until_a_mini_batch_comes(
    service: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(service, monkeypatch)
    messages = list[Any]()
    monkeypatch.setattr(service.notifier, "_put", messages.append)
    job = running(service)
    orders, name = service.world.trainers[job], service.kernel.scenario.jobs.ids[job]
    monkeypatch.setattr(service.status, "state", lambda _: "RUNNING")
    progress = tuple(service.world.trainers.progress(job))
    take(service, Report("stalled", job, progress=progress, reason="no mini-batch of chunk 0 on e0 for 60 s"))
    (row,) = (row for row in TenantView(service, None).queue() if row["job"] == name)
    assert row["reason"]["token"] == "stalled"
    assert "no mini-batch has come for long" in row["message"]
    assert TenantView(service, None).events()[-1] | {"n": 0, "time_s": 0} == {
        "n": 0, "time_s": 0, "what": "stalled", "job": name, "detail": "no mini-batch of chunk 0 on e0 for 60 s"
    }  # fmt: skip
    assert [(one.what, one.job) for one in messages] == [("stalled", name)]
    assert service._read()["skedge_stalled_jobs"] == {(): 1.0}
    assert 'skedge_restarted_processes_total{why="stalled"} 1.0' in service.metrics.text()
    orders.teams.progress = [done + 1 for done in progress]
    (row,) = (row for row in TenantView(service, None).queue() if row["job"] == name)
    assert row["reason"]["token"] != "stalled"


def test_a_process_that_has_ended_is_told_and_not_notified_of(service: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = list[Any]()
    monkeypatch.setattr(service.notifier, "_put", messages.append)
    job = running(service)
    take(service, Report("restarted", job, reason="its process has ended with status 3"))
    assert service.status.happened[-1]["what"] == "restarted"
    assert (
        "restarted its process has ended with status 3" in service.logs.read(service.kernel.scenario.jobs.ids[job]).text
    )
    assert messages == []


def test_what_a_process_prints_is_in_the_log_of_its_worker(service: Played) -> None:
    job = running(service)
    name = service.kernel.scenario.jobs.ids[job]
    service.world.trainers._note(ProgressNote(job, "", printed=("e0-1", FORGED)))
    text = service.logs.read(name, "e0-1").text
    assert "a forged line" in text
    assert not HARMFUL & set(text)


def test_it_is_told_how_long_no_mini_batch_has_come(service: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    job = running(service)
    inbox: Any = service.world.inbox
    orders = service.world.trainers[job]
    orders.assignment.puts.clear()
    orders.assignment.put(0, Team(0, (0,), 1), inbox.clock)
    monkeypatch.setattr(inbox, "elapsed", lambda: inbox.clock + 7_000_000)
    assert service.world.trainers.pulse(job) == {"idle_s": 7.0, "usual_s": orders.assignment.announced_s}
    service.world.trainers._note(ProgressNote(job, "", (1,), usual_s=0.5))
    assert service.world.trainers.pulse(job) == {"idle_s": 0.0, "usual_s": 0.5}
    orders.teams.working.clear()
    assert service.world.trainers.pulse(job) == {"idle_s": None, "usual_s": None}


def test_a_reason_of_any_source_is_one_escaped_line_in_events_messages_and_log(
    service: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that a journal of an earlier version holds as it came."""
    messages = list[Any]()
    monkeypatch.setattr(service.notifier, "_put", messages.append)
    event = Event(service.kernel.now, failed=((0, FORGED),))
    service.status.note(event, [])
    service.notifier.note(event, [], service.kernel.scenario)
    text = service.logs.read(service.kernel.scenario.jobs.ids[0]).text
    for shown in (service.status.happened[-1]["detail"], messages[0].text, text.splitlines()[-1]):
        assert "boom \\x1b[31m red \\n2026-01-01T00:00:00+0000 finished: a forged line\\u202egnp.exe \\x00" in shown
        assert not HARMFUL & set(shown)


def test_the_commands_print_no_control_character_of_any_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Text, cells of tables, and JSON, which escapes only some itself."""
    table = Table("job", "detail")
    table.add_row("j", FORGED)
    out.print(FORGED, table, soft_wrap=True)
    print_json({"args": {"name": FORGED + "\x9b"}, "list": ["\u2066"]})
    printed = capsys.readouterr().out
    assert printed.count("a forged line") == 3
    assert not (HARMFUL | set("\x9b\u2066")) & set(printed)
