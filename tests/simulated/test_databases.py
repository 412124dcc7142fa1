"""A journal in simulated processes: whatever becomes of its transactions, each entry is written once."""

from __future__ import annotations

from pathlib import Path

import pytest

from skedge.live import host as seam
from skedge.live.journal.journal import SqlJournal

from . import host
from .databases import add_faults
from .faults import Fault
from .scheduler import World

ENTRIES = 4


def written(url: str, seed: int, fault: Fault) -> tuple[list[int], set[str]]:
    """The entries of a journal whose controller suffers a fault, and the reasons for which it had to wait."""
    reasons: set[str] = set()

    def program() -> None:
        journal = SqlJournal(url, {"id": str(seed)})

        def wait() -> None:
            reasons.add(journal.blocked.rpartition(": ")[2])
            host.sleep(1.0)

        journal.meanwhile = wait
        for number in range(ENTRIES):
            journal.take(number, {"is": "Due"})
            host.sleep(0.3)
        journal.close()

    with seam.installed(host), World(seed, [fault]) as world:
        add_faults(world)
        world.process("p", program)
        world.run()
        for crash in world.crashes:
            raise crash.error
    journal = SqlJournal(url, run_id=str(seed))
    journal.close()
    return [time for time, _ in journal.inputs], reasons


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("full", "database or disk is full"), ("busy", "database is locked"), ("lost", "the connection is lost")],
)
def test_each_entry_is_written_once(kind: str, reason: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    for seed in range(8):
        fault = Fault(f"sql {kind}", "p", time_s=0.1 + 0.1 * seed, seconds=7.0)
        assert written(url, seed, fault) == (list(range(ENTRIES)), {reason})


def test_a_lock_that_is_soon_free_is_waited_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    assert written(url, 0, Fault("sql busy", "p", time_s=0.1, seconds=3.0)) == (list(range(ENTRIES)), set())


def test_a_lost_commit_has_taken_effect_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that takes each lost commit for one without effect breaks, and so does one that takes none for it."""
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    committed = SqlJournal._committed

    def breaks(seed: int) -> bool:
        try:
            return written(url, seed, Fault("sql lost", "p", time_s=0.1, seconds=7.0))[0] != list(range(ENTRIES))
        except Exception:
            return True

    for start, planted in (
        (0, lambda journal, entry, *, again: committed(journal, entry, is_retry=False)),
        (10, lambda journal, entry, *, again: committed(journal, entry, is_retry=again) or True),
    ):
        monkeypatch.setattr(SqlJournal, "_committed", planted)
        assert any(breaks(seed) for seed in range(start, start + 10))
