"""The audit log: who requested what from the service, and when; one line of JSON per request, appended."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from skedge.core.errors import InputError
from skedge.live import host
from skedge.live.durable import PRIVATE, append

AUDIT = "audit.jsonl"

_LONGEST = 200
"""Most characters of an entry's text."""


class Audit:
    """Writes entries to the audit log.

    Parameters
    ----------
    path
        File of the log, a line of JSON for each entry.
    requester
        Returns who asks now: ``token:`` and the token's name, or ``user:`` and the name of a local user.
    """

    def __init__(self, path: Path, requester: Callable[[], str]) -> None:
        self.path, self.who = path, requester

    def note(self, action: str, arguments: Mapping[str, Any], outcome: Any) -> None:
        """Write an entry; if the disk is full it is dropped, and only the journal records the request."""
        entry = {
            "time": host.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "who": self.who(),
            "what": action,
            "of": {name: str(value)[:_LONGEST] for name, value in arguments.items()},
            "outcome": str(outcome)[:_LONGEST],
        }
        with suppress(OSError):
            # one write: lines of several threads do not mix
            append(self.path, (json.dumps(entry) + "\n").encode(), PRIVATE)

    def of(self, action: str, act: Callable[..., Any]) -> Callable[..., Any]:
        """`act`, wrapped to write an entry for each call: its result, or why it was refused."""

        @functools.wraps(act)
        def noted(**arguments: Any) -> Any:
            try:
                outcome = act(**arguments)
            except InputError as error:
                self.note(action, _told(arguments), f"refused: {error}")
                raise
            self.note(action, _told(arguments), "done" if outcome is None else outcome)
            return outcome

        return noted


def _told(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call as they appear in an entry."""
    spec = arguments.get("spec", {})
    train = spec.get("train")
    of_spec = {"spec": spec["name"]} if "name" in spec else {}
    of_train = {name: train[name] for name in ("factory", "code") if name in train} if isinstance(train, dict) else {}
    return {**{name: value for name, value in arguments.items() if name not in ("spec", "code")}, **of_spec, **of_train}
