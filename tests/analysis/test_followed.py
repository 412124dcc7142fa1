"""The quick looks of the verifier at gangs: what they let pass, the rules in plain steps have nothing to say about."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from builders.corruptions import corrupt
from skedge.analysis.columns import columns
from skedge.analysis.verify import followed, gangs, orders, ps, same
from skedge.analysis.verify.followed import Followed
from skedge.analysis.verify.verify import Violation, verify
from skedge.core.record.schedule import Schedule
from skedge.recorded_run import Run
from skedge.simulate import run
from skedge.testing import small_scenario

POLICIES = ("srtf", "srtf:placement=literal", "tiresias", "fifo", "preemptive", "drf", "batch")


def found(of: Run, schedule: Schedule) -> list[Violation]:
    """The violations in a copy of a record, sorted: the rules leave the order of some open."""
    violations = verify(of.scenario, Schedule(**schedule.tables()), of.meta, limit=500)
    return sorted(violations, key=lambda one: (one.rule, one.job or "", one.time or 0, one.message))


def without_quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave everything to the rules in plain steps."""
    for module in (gangs, orders, same):
        monkeypatch.setattr(module, "followed", lambda _: Followed(orders=False, begins=False))
    for module in (orders, ps):
        monkeypatch.setattr(module, "served_exactly", lambda _: False)
    monkeypatch.setattr(gangs, "_within_capacity", lambda *_: False)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_violations_are_those_of_the_plain_steps(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On sound records, and on records with one or two changes, most of which break a rule."""
    records = [(of, of.schedule) for of in (run(small_scenario(seed), policy) for seed in range(3))]
    rng = np.random.default_rng(5)
    for of, _ in records[:3]:
        changed = (corrupt(of, rng, 1 + n % 2) for n in range(60))
        records += [(of, one.schedule) for one in changed if one is not None]
    quick = [found(*record) for record in records]
    without_quick_looks(monkeypatch)
    assert quick == [found(*record) for record in records]
    assert quick[:3] == [[], [], []]
    assert sum(map(len, quick)) > len(quick)


@pytest.mark.parametrize("policy", ["srtf", "tiresias", "fifo", "preemptive", "drf"])
def test_a_sound_record_needs_no_plain_steps(policy: str) -> None:
    """Uploads that take time and checkpoints that are restored included."""
    scenario = small_scenario(1)
    physics = replace(scenario.physics, checkpoint_overhead=2 * scenario.physics.step)
    of = run(replace(scenario, physics=physics), policy)
    c = columns(of.scenario, of.schedule)
    assert followed.followed(c) == Followed(orders=True, begins=True)
    assert same.served_exactly(c)
