"""What a hostile job gets of a service: nothing, on a root's and on an ordinary user's installation.

Each installation makes all attempts of ``intruder.py`` in a run of ``attacked.py``; each test looks at one outcome.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from intruder import ATTEMPTS

from skedge.core.errors import InputError
from skedge.live.confinement.check import check_platform

SERVICE = Path(__file__).with_name("attacked.py")
INSTALLATIONS = ("root", "user")

OPEN = (
    "read_token", "read_journal", "list_the_state", "read_chunks_of_another_job", "write_the_settings",
    "read_a_file_that_everybody_may_read", "steal_the_token_from_environments", "steal_the_token_from_command_lines",
    "write_its_own_chunks", "forge_the_log_of_another_job", "write_the_packages_of_other_jobs", "connect_to_the_api",
    "connect_to_the_socket_of_the_api", "connect_to_an_abstract_socket", "ask_the_process_that_it_was_forked_from",
    "listen_for_the_machine", "keep_memory_in_no_process",
    "signal_the_service",
)  # fmt: skip
"""Attempts that succeed where jobs are trusted: there they are no attack, and here they show that each works."""

HELD = (
    "outlive_its_job",
    "fork_without_end",
    "fill_the_memory",
    "fill_the_memory_at_once",
    "fill_the_disk_with_a_file",
)
"""Attempts that fail even where jobs are trusted: limits hold for all."""

SENTENCES = {
    "fork_without_end": "Resource temporarily unavailable|processes and threads, more than the 24 that a job may have",
    "fill_the_memory": r"its processes use 4\d\d MB of memory, more than the 400 MB that a job may use on a server",
    "fill_the_memory_at_once": "Cannot allocate memory",
    "fill_the_disk_with_a_file": "File too large",
    "fill_the_disk_with_files": "No space left on device",
}
"""What is said where a limit holds."""


@functools.cache
def outcomes(installation: str) -> dict[str, str]:
    names = (*HELD, *OPEN) if installation == "trusted" else tuple(ATTEMPTS)
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, str(SERVICE), installation, *names],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


@functools.cache
def refusal() -> str:
    """Why this machine does not let jobs be confined; empty if it does."""
    with suppress(InputError):
        check_platform()
        return ""
    with pytest.raises(InputError) as refused:
        check_platform()
    return str(refused.value)


def can_be_tried(installation: str) -> bool:
    """Whether this machine has such an installation; if it refuses to confine jobs, that is what is tested."""
    if installation == "root" and os.geteuid():
        pytest.skip("only root can try what a root's installation holds")
    assert not refusal() or "--trust-jobs" in refusal()
    return not refusal()


@pytest.mark.parametrize("installation", INSTALLATIONS)
@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_hostile_job_gets_nothing(attempt: str, installation: str) -> None:
    if can_be_tried(installation):
        assert outcomes(installation)[attempt].startswith("held: ")


@pytest.mark.parametrize("installation", INSTALLATIONS)
@pytest.mark.parametrize("attempt", SENTENCES)
def test_a_limit_is_told(attempt: str, installation: str) -> None:
    if can_be_tried(installation):
        assert re.search(SENTENCES[attempt], outcomes(installation)[attempt])


@pytest.mark.parametrize("attempt", OPEN)
def test_the_attempts_are_real(attempt: str) -> None:
    """A trusted job, which runs as the service's user, gets what the attempt is for."""
    assert outcomes("trusted")[attempt].startswith("got: ")


@pytest.mark.parametrize("attempt", HELD)
def test_limits_hold_for_trusted_jobs(attempt: str) -> None:
    assert outcomes("trusted")[attempt].startswith("held: ")
