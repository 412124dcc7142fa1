"""Sweeps on a Ray cluster of their own, in another process: this one is connected to the cluster of all live tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_sweeps_on_a_cluster() -> None:
    """The tests of ``sweeps_on_ray.py``."""
    file = Path(__file__).with_name("sweeps_on_ray.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
