"""Waiting for something in a page."""

from __future__ import annotations

import time
from typing import Any


def until(page: Any, true: str, given: object = None) -> None:
    """Wait until an expression, or a function of `given`, is true.

    Playwright's own wait evaluates text in the page, which the page's security policy forbids.
    """
    deadline = time.monotonic() + 30
    while not page.evaluate(true, given):
        assert time.monotonic() < deadline, true
        page.wait_for_timeout(20)
