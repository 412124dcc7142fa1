"""What starting costs: CPU time of commands beside that of ``python -c 'import numpy'``.

    python benchmarks/startup.py              # 5 repeats; the cold demo once
    python benchmarks/startup.py --repeats 9 --cold 3

Each repeat runs every command once, so that all see the same machine. A row says the median of the CPU time of the
command and its child processes, the range, the median wall time, and the ratio of the median CPU times to numpy's,
with the range of the ratios by repeat. *cold*: with an empty cache of compiled kernels. Python keeps its bytecode, as
it does by default.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

SKEDGE = (sys.executable, "-m", "skedge")
NUMPY = "import numpy"


@dataclass(frozen=True)
class Cost:
    """CPU and wall time of a command [s]."""

    cpu: float
    wall: float


def cost(command: tuple[str, ...], folder: Path, kernels: Path) -> Cost:
    """Run the command in `folder` with the cache of compiled kernels in `kernels`."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(kernels)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or the modules are compiled anew each time
    before, begun = os.times(), time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    wall, after = time.perf_counter() - begun, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(cpu, wall)


def commands(folder: Path) -> dict[str, tuple[str, ...]]:
    """The commands by what a row calls them; run folders are new ones, the demo's is replaced."""
    new = Path(tempfile.mkdtemp(dir=folder))
    return {
        NUMPY: (sys.executable, "-c", NUMPY),
        "skedge --help": (*SKEDGE, "--help"),
        "skedge policies": (*SKEDGE, "policies"),
        "skedge run demo": (*SKEDGE, "run", "demo", "--out", str(new / "run")),
        "skedge demo": (*SKEDGE, "demo", "--out", str(new / "demo")),
    }


def row(name: str, costs: list[Cost], base: list[Cost]) -> str:
    """A line of the table."""
    cpu, numpy = [c.cpu for c in costs], [c.cpu for c in base]
    ratios = [one / by for one, by in zip(cpu, numpy, strict=False)]
    ratio = f"{median(cpu) / median(numpy):6.2f}  ({min(ratios):.2f} to {max(ratios):.2f})"
    spread = f"{median(cpu):7.2f}  ({min(cpu):.2f} to {max(cpu):.2f})"
    return f"{name:24} {spread}  {median(c.wall for c in costs):7.2f}  {ratio}"


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cold", type=int, default=1, help="repeats of the cold demo")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="skedge-startup-") as name:
        folder = Path(name)
        kernels = folder / "kernels"
        cold = [cost(commands(folder)["skedge demo"], folder, folder / f"cold-{i}") for i in range(given.cold)]
        for command in commands(folder).values():  # kernels compiled, files in memory
            cost(command, folder, kernels)
        costs: dict[str, list[Cost]] = {}
        for _ in range(given.repeats):
            for label, command in commands(folder).items():
                costs.setdefault(label, []).append(cost(command, folder, kernels))
    print(f"{'':24} CPU s                 wall s    ratio of CPU")
    for label, found in costs.items():
        print(row(label, found, costs[NUMPY]))
    print(row("skedge demo, cold", cold, costs[NUMPY]))


if __name__ == "__main__":
    main()
