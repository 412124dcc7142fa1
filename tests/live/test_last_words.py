"""What a service that did not start says of itself, out of its log."""

from __future__ import annotations

import pytest

from skedge.cli.service import _last_log_line

RAY = "2026-11-25 03:10:26,421\tINFO node.py:698 -- Node a35b received SIGTERM. Draining for up to 30.0 seconds."


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["the API cannot listen: give another --port", RAY], "the API cannot listen: give another --port"),
        (
            ["cluster: wrong", f"\x1b[36m(Agent pid=7)\x1b[0m {RAY}", "the controller, process 7, ended with status 2"],
            "cluster: wrong",
        ),
        ([RAY], RAY),
        ([], "its log is empty"),
    ],
)
def test_the_last_informative_line_is_told(lines: list[str], says: str) -> None:
    """Neither Ray's lines nor those of the supervisor about how a process ended, unless there is nothing else."""
    assert _last_log_line(lines) == says
