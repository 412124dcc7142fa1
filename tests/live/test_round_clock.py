"""What a job's clock reports of the speed of its rounds."""

from __future__ import annotations

from skedge.live.coordinator.round_clock import RoundClock


def test_a_slow_first_round_is_no_speed() -> None:
    """It includes starting: a decision that took 60 rounds to be as slow would send the next job far away."""
    clock = RoundClock(pace=0.1)
    assert [clock.measure(took_s) for took_s in (0.7, 0.1, 0.1, 0.1)] == [None] * 4


def test_a_slow_job_is_reported_from_its_second_round_on() -> None:
    clock = RoundClock(pace=0.1)
    assert [clock.measure(0.3) for _ in range(4)] == [None, 0.3, None, None]
    assert clock.measure(0.3) is None, "it has not changed by a fifth"
