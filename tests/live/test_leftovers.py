"""What a job has left on servers goes, also where a server was away or an answer was lost."""

from __future__ import annotations

from typing import Any

import pytest

from skedge.live import host
from skedge.live.cluster.engine import Engine
from skedge.live.coordinator.training_actors import PSPlacement, TrainingActors


class Calls:
    """Calls of actors that answer at once, what `answers` has for (actor, method), or are lost if it has nothing."""

    def __init__(self, answers: dict[tuple[str, str], Any]) -> None:
        self.answers, self.made = answers, list[tuple[Any, ...]]()

    def call(self, actor: str, method: str, *arguments: Any) -> tuple[str, str]:
        self.made.append((actor, method, *arguments))
        return actor, method

    def answer(self, ref: tuple[str, str], _: float | None = None) -> Any:
        if ref not in self.answers:
            raise host.LostError
        return self.answers[ref]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls({("agent 0", "jobs"): ["here", "left"], ("agent 2", "jobs"): ["left"], ("ps 1", "unload"): None})
    monkeypatch.setattr(host, "call", calls.call)
    monkeypatch.setattr(host, "answer", calls.answer)
    monkeypatch.setattr(host, "ready", lambda refs, _: (refs, []))
    return calls


def test_servers_in_service_are_asked_for_jobs_that_have_left(calls: Calls) -> None:
    """One that does not answer is asked at the next sweep; one that is lost is not asked."""
    engine = Engine.__new__(Engine)
    engine.agents, engine.lost = {number: f"agent {number}" for number in range(3)}, {2}
    engine.sweep(lambda job: job == "left")
    asked = [("agent 0", "jobs"), ("agent 0", "forget", "left"), ("agent 1", "jobs")]
    assert calls.made == asked
    engine.lost.clear()
    engine.sweep(lambda job: job == "left")
    assert calls.made == [*asked, *asked, ("agent 2", "jobs"), ("agent 2", "forget", "left")]


def test_a_process_is_unloaded_again_if_the_answer_is_lost_and_after_a_minute(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while it serves the next job."""
    now = 0.0
    monkeypatch.setattr(host, "monotonic", lambda: now)
    monkeypatch.setattr(PSPlacement, "start", lambda _, server, number: f"ps {number}")
    actors = TrainingActors({}, None, PSPlacement(("e0",), (0,), frozenset(), ""))  # type: ignore[arg-type]
    life = actors.life(1)
    for actor in ("ps 0", "ps 1"):
        actors.release(0, actor, life)
    unloaded = [("ps 0", "unload", life), ("ps 1", "unload", life)]
    assert calls.made == unloaded
    actors.tidy(1)
    actors.tidy(1)
    assert calls.made[2:] == [unloaded[0]] * 2, "that of ps 1 was answered"
    now = 61.0
    actors.tidy(1)
    assert [(call[0], call[2] > life) for call in calls.made[4:6]] == [("ps 0", True), ("ps 1", True)]
    assert actors.parameter_server(0) == "ps 1"
    assert actors.parameter_server(0) == "ps 0"
    made = len(calls.made)
    actors.tidy(1)
    assert len(calls.made) == made
