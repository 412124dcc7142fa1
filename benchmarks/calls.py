"""A pytest plugin: CPU time of each test, and the functions of `core` and `policies` that it calls, as JSON lines.

    CALLS=FILE CALLS_LIMIT=4 pytest -m "" -p calls

Only tests that pass, and take at most `CALLS_LIMIT` seconds of CPU, are written. Calls of compiled functions are not
seen. :mod:`mutants` chooses tests by this file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import pytest

FOLDERS = tuple(f"{os.sep}skedge{os.sep}{name}{os.sep}" for name in ("core", "policies"))
_PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Trace set-up, call and tear-down of one test."""
    codes: dict[int, CodeType] = {}

    def trace(frame: FrameType, *_: Any) -> None:  # returns None, so that no line of the function is traced
        codes[id(frame.f_code)] = frame.f_code

    began = time.process_time()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)
    seconds = time.process_time() - began
    if item.stash.get(_PASSED, False) and seconds <= float(os.environ["CALLS_LIMIT"]):
        _write(item.nodeid, seconds, codes)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    """Note whether every phase has passed."""
    outcome = yield
    item.stash[_PASSED] = item.stash.get(_PASSED, True) and outcome.get_result().passed


def _write(test: str, seconds: float, codes: dict[int, CodeType]) -> None:
    called = {name for code in codes.values() if (name := function_name(code)) is not None}
    with open(os.environ["CALLS"], "a", encoding="utf-8") as out:
        out.write(json.dumps({"test": test, "seconds": round(seconds, 3), "calls": sorted(called)}) + "\n")


def function_name(code: CodeType) -> str | None:
    """``core/kernel/kernel.py:Kernel.handle`` of a function, or of what is nested in it; None of other files."""
    if not any(folder in code.co_filename for folder in FOLDERS):
        return None
    path = code.co_filename.rpartition(f"{os.sep}skedge{os.sep}")[2].replace(os.sep, "/")
    return f"{path}:{code.co_qualname.split('.<locals>')[0]}"
