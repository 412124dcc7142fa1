"""Actors by which Ray and its model are compared; Ray's processes import them from here."""

from __future__ import annotations

import os
from typing import Any

from skedge.live import host


class NoteError(Exception):
    """An error with an attribute, as those of jobs have."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.printed = "printed"


class Recorder:
    """Notes what it is called with."""

    def __init__(self, first: list[int]) -> None:
        self.seen = list(first)
        self.at_once = self.most = 0

    def add(self, number: int, after_s: float = 0.0) -> int:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        host.sleep(after_s)
        self.seen.append(number)
        self.at_once -= 1
        return number

    def numbers(self) -> list[int]:
        return self.seen

    def widest(self) -> int:
        return self.most

    def pid(self) -> int:
        return os.getpid()

    def health(self) -> str:
        return "well"

    def fail(self) -> None:
        raise NoteError("failed")

    def pair(self, size: int) -> tuple[str, bytes]:
        return "facts", bytes(size)

    def length(self, content: bytes, *others: bytes) -> int:
        return len(content) + sum(map(len, others))

    def change(self, numbers: list[int]) -> None:
        numbers.append(99)


class Grouped:
    """Has a method for a group of threads of its own."""

    def wait(self, seconds: float) -> None:
        host.sleep(seconds)

    def health(self) -> str:
        return "well"


class Caller:
    """Calls other actors, from a process of its own."""

    def __init__(self) -> None:
        self.actor: Any = None

    def pid(self) -> int:
        return os.getpid()

    def add_all(self, actor: Any, numbers: list[int]) -> None:
        host.answer([host.call(actor, "add", number) for number in numbers])

    def begin(self, actor: Any, numbers: list[int]) -> None:
        for number in numbers:
            host.call(actor, "add", number, 0.05)

    def own(self) -> Any:
        """An actor that ends with this process."""
        self.actor = host.start_actor(Recorder, [], on=host.ActorOptions())
        host.answer(host.call(self.actor, "health"))
        return self.actor
