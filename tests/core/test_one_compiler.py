"""Processes that need the same kernel at once: one compiles it, the others wait for its cache."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from skedge.platform import jit


def test_one_at_a_time_compiles_a_function(tmp_path: Path) -> None:
    """The second finds in the cache what the first has made."""
    cache, made = set[str](), []

    def compile_form(signature: object) -> object:
        if str(signature) not in cache:
            time.sleep(0.05)
            made.append(threading.current_thread().name)
            cache.add(str(signature))
        return signature

    locked = jit._one_at_a_time(compile_form, tmp_path / "f.lock")
    threads = [threading.Thread(target=locked, args=("int64",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_without_a_folder_for_the_lock_it_compiles_all_the_same(tmp_path: Path) -> None:
    locked = jit._one_at_a_time(lambda signature: signature, tmp_path / "none" / "f.lock")
    assert locked("int64") == "int64"


def test_an_error_ends_the_lock(tmp_path: Path) -> None:
    def fails(_: object) -> object:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            jit._one_at_a_time(fails, tmp_path / "f.lock")("int64")
