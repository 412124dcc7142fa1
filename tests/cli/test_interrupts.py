"""The command line as a program of its own: signals, encodings and devices end it in order, with one sentence."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from builders.commands import every_command
from skedge.simulate import run
from skedge.testing import small_scenario

SKEDGE = [sys.executable, "-m", "skedge"]
WORDS = ("compare", "s1", "--policies", "aonline,srtf", "--seeds", "40", "--processes", "2", "--out", "mine")


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    """The command in a group of its own, which Ctrl-C reaches as a whole."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*SKEDGE, *words], cwd=folder, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )  # fmt: skip


def of_group(group: int) -> list[int]:
    """Processes that still run in a process group."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if fields[0] != "Z" and int(fields[2]) == group:
            found.append(int(entry.parent.name))
    return found


def until(what, seconds: float) -> bool:  # type: ignore[no-untyped-def]
    """Whether `what()` comes true in time."""
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(what())


LOST = """
import sys, time
from skedge.__main__ import _resend_lost_signal
sys.unraisablehook = _resend_lost_signal
class Lost:
    def __del__(self):
        raise KeyboardInterrupt
Lost()
print("lost", flush=True)
time.sleep(60)
"""


def test_an_interrupt_that_was_lost_in_a_callback_comes_again() -> None:
    """The exception of a signal that arrives in a callback of the garbage collection goes nowhere."""
    told = subprocess.run([sys.executable, "-c", LOST], check=False, capture_output=True, text=True, timeout=30)
    assert (told.stdout, told.stderr.splitlines()[-1]) == ("lost\n", "KeyboardInterrupt")


@pytest.mark.usefixtures("_heeding_hangups")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
        (signal.SIGHUP, 129, "ended by SIGHUP"),
    ],
)
def test_a_signal_to_a_comparison_ends_it_in_one_line_and_leaves_nothing(
    number: signal.Signals, code: int, said: str, tmp_path: Path
) -> None:
    """Sent to all of its processes as the workers start, when an interrupted worker would dump its modules."""
    command = started(tmp_path, *WORDS)
    try:
        assert until(lambda: len(of_group(command.pid)) >= 3, 120)  # the first ones beside it, at least
        os.killpg(command.pid, number)
        out, err = command.communicate(timeout=60)
        assert (command.returncode, out) == (code, "")
        assert [line for line in err.splitlines() if not line.startswith("comparing: ")] == [
            f"skedge: {said}; nothing was written"
        ]
        assert list(tmp_path.iterdir()) == []
        assert until(lambda: not of_group(command.pid), 20)
    finally:
        for process in of_group(command.pid):
            os.kill(process, signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
def test_the_processes_of_a_killed_comparison_end(tmp_path: Path) -> None:
    """As the machine may kill the one that holds most memory."""
    command = started(tmp_path, *WORDS)
    try:
        assert until(lambda: len(of_group(command.pid)) >= 4, 120)  # another process and two trackers beside it
        command.kill()
        assert until(lambda: not of_group(command.pid), 20)
    finally:
        for process in of_group(command.pid):
            os.kill(process, signal.SIGKILL)
        command.communicate(timeout=20)


def ended(folder: Path, *words: object, out: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, its output to a file or captured."""
    target = subprocess.PIPE if out is None else open(out, "w")  # noqa: SIM115
    return subprocess.run(
        [*SKEDGE, *map(str, words)],
        cwd=folder, stdout=target, stderr=subprocess.PIPE, text=True, check=False, timeout=120,
        env={**os.environ, **environment},
    )  # fmt: skip


def test_output_that_the_encoding_cannot_hold_is_one_sentence(tmp_path: Path) -> None:
    """FIFO has no dual values: its table shows a dash."""
    run(small_scenario(0), "fifo").save(tmp_path / "r")
    told = ended(tmp_path, "metrics", "r", PYTHONIOENCODING="ascii")
    assert told.returncode == 1
    assert told.stderr == "skedge: the output cannot be written in ascii; set PYTHONIOENCODING=utf-8\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_output_to_a_full_device_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    told = ended(tmp_path, "metrics", folder, out="/dev/full")
    assert (told.returncode, told.stderr) == (1, "skedge: input or output: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [("run",), ("trace", "describe", "--format", "swf")])
def test_a_device_without_an_end_is_not_read(words: tuple[str, ...], skedge) -> None:  # type: ignore[no-untyped-def]
    """/dev/full gives zeros for ever, which filled the memory."""
    told = skedge(*words, "/dev/full")
    assert (told.code, told.out) == (1, "")
    assert told.err == "skedge: /dev/full: cannot be read: it is a device, not a file\n"


# --- help


EVERY = every_command()


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[" ".join(path) or "skedge" for path, _ in EVERY])
def test_help_shows_every_word_of_every_option(path: tuple[str, ...], command: Any, skedge) -> None:  # type: ignore[no-untyped-def]
    """Brackets too, such as `[s]`, which are no markup."""
    shown = "".join(skedge(*path, "--help").out.split())
    for parameter in command.params:
        text = getattr(parameter, "help", None) or ""
        assert "".join(text.split()) in shown, f"{path} {parameter.name}: {text}"


def test_units_in_brackets_are_in_the_help(skedge) -> None:  # type: ignore[no-untyped-def]
    told = re.sub(r"\s+", " ", skedge("trace", "convert", "--help").out)
    assert "horizon [slots of 1 h]" in told
    assert "from this time on [s]" in re.sub(r"\s+", " ", skedge("explain", "--help").out)
