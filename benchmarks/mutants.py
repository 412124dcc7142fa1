"""Mutation testing of `core` and `policies`: whether the tests notice small changes of the code.

    CALLS=calls.jsonl CALLS_LIMIT=5 PYTHONPATH=benchmarks pytest -p calls -p no:cacheprovider tests
    NUMBA_DISABLE_JIT=1 CALLS=plain.jsonl CALLS_LIMIT=2 PYTHONPATH=benchmarks pytest -p calls -p no:cacheprovider FILES
    python benchmarks/mutants.py --calls calls.jsonl [--plain plain.jsonl] [--count 200] [--seed 0] [--out mutants.json]
    python benchmarks/mutants.py --show mutants.json

The first command, once, notes which functions each test calls, and its CPU time; the second, which may be left out,
does so for tests that are quick where kernels are not compiled. Then `count` mutants are drawn, each a change of one
place (:mod:`mutant_sites`), and planted one after the other in a copy of the tree. A mutant is shown to the tests that
call its function (:mod:`mutant_tests`) until one fails or their times add up to `--budget` seconds of CPU: for mutants
of kernels the uncompiled tests come first, for which nothing has to be compiled. A mutant that runs out of time or
memory is killed too. A test that kills is run on the sound tree once: if it fails there it kills nothing.

`--out` keeps every finished mutant: started again, the command does the rest. `mutants.toml` says of survivors why they
are equivalent. Exit code 1 if fewer than 95 % are killed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import resource
import shutil
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numba
import numpy as np
from mutant_sites import Site, planted, sites
from mutant_tests import Callers, Test, chosen, read_tests

ROOT = Path(__file__).parents[1]
REASONS = Path(__file__).with_suffix(".toml")
SKIPPED = {"core/errors.py", "core/jit.py", "core/__init__.py", "policies/__init__.py"}
"""Texts of errors, and how kernels are compiled."""
SHARE = 0.95
"""Share of mutants that must be killed."""
LIBRARIES = ("numba", "polars", "pydantic", "pytest", "hypothesis", "yaml", "rich", "scipy.optimize", "typer")
"""Loaded once; every mutant is tested in a process forked after that."""


@dataclass(frozen=True)
class Mutant:
    """A change of one place."""

    path: str
    function: str
    line: int
    before: str
    after: str
    source: str = field(repr=False, compare=False)

    @property
    def key(self) -> str:
        """Names the mutant, whatever the line number."""
        return f"{self.path}:{self.function}: {self.before}  ->  {self.after}"


def parsed() -> dict[str, ast.Module]:
    """The modules that are mutated, by path."""
    base = ROOT / "src/skedge"
    paths = [f"{name}/{path.name}" for name in ("core", "policies") for path in (base / name).glob("*.py")]
    return {path: ast.parse((base / path).read_text(encoding="utf-8")) for path in sorted(paths) if path not in SKIPPED}


def drawn(trees: dict[str, ast.Module], count: int, seed: int, only: str = "") -> list[Mutant]:
    """`count` different places of the modules, each equally likely, and a change at each."""
    rng = np.random.default_rng(seed)
    every = [(path, site, other) for path, tree in trees.items() for site, other in sites(tree) if only in path]
    found: dict[str, Mutant] = {}
    for i in rng.permutation(len(every)):
        path, site, other = every[i]
        mutant = _mutant(trees[path], path, site, other[int(rng.integers(len(other)))])
        found.setdefault(mutant.key, mutant)
        if len(found) == count:
            break
    return list(found.values())


def _mutant(tree: ast.Module, path: str, site: Site, other: ast.AST) -> Mutant:
    source, before, after = planted(tree, site, other)
    return Mutant(path, site.function, site.line, before, after, source)


class Tree:
    """A copy of the tree in which mutants are planted and tests run; it stays where it is, so that kernels are kept."""

    def __init__(self, folder: Path) -> None:
        self.root, self.kernels, self.spare = folder / "tree", folder / "kernels", folder / "spare"
        self.report = folder / "report.json"
        shutil.rmtree(self.root, ignore_errors=True)
        leave_out = shutil.ignore_patterns(".git", "__pycache__", ".venv", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, self.root, ignore=leave_out)
        self.kernels.mkdir(exist_ok=True)
        with (self.root / "src/skedge/core/jit.py").open("a", encoding="utf-8") as jit:
            jit.write('\n\n_cache_folder = lambda given: os.environ["KERNELS"]  # noqa\n')

    def test(self, mutant: Mutant | None, tests: list[Test], kernels: str) -> dict[str, Any]:
        """Run `tests` on the tree with `mutant` in it.

        `kernels`: those kept are "valid" with it, "partly" so or not at all ("void"); "uncompiled": none are used.
        """
        if mutant is None:
            return self._forked(tests, self.kernels, compiled=kernels != "uncompiled")
        path = self.root / "src/skedge" / mutant.path
        sound, times = path.read_bytes(), path.stat()
        try:
            path.write_text(mutant.source, encoding="utf-8")
            folder = self.kernels if kernels in {"valid", "uncompiled"} else self._spare(kernels)
            return self._forked(tests, folder, compiled=kernels != "uncompiled")
        finally:
            path.write_bytes(sound)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            shutil.rmtree(self.spare, ignore_errors=True)

    def _spare(self, kernels: str) -> Path:
        """A folder for kernels of one mutant: empty, or with links to those kept."""
        shutil.rmtree(self.spare, ignore_errors=True)
        if kernels == "partly":
            shutil.copytree(self.kernels, self.spare, copy_function=os.link)
        else:
            self.spare.mkdir()
        return self.spare

    def _forked(self, tests: list[Test], kernels: Path, *, compiled: bool) -> dict[str, Any]:
        """In a child process, which has the libraries loaded but nothing of the product."""
        limit = 90 + 3 * sum(test.seconds for test in tests)
        self.report.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            os.setsid()
            os.environ["KERNELS"] = str(kernels)
            numba.config.DISABLE_JIT = int(not compiled)
            self._run([test.name for test in tests], limit)
        ended = _wait(child, 6 * limit)
        if self.report.exists():
            return json.loads(self.report.read_text(encoding="utf-8"))
        return {"outcome": "killed", "by": "time or memory ran out" if ended else "it did not end"}

    def _run(self, names: list[str], limit: float) -> None:
        """Run pytest and never return."""
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
        resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
        out = os.open(self.report.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(self.root)
        sys.path[:0] = [str(self.root / "src"), str(self.root / "tests")]
        first = FirstFailure()
        try:
            import pytest  # noqa: PLC0415 - loaded before the fork

            options = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-W", "ignore", "--hypothesis-seed=0"]
            code = int(pytest.main([*options, *names], plugins=[first]))
        except BaseException as error:
            first.name, code = f"{type(error).__name__} when tests are collected", 1
        outcome = {"outcome": "survived"} if code == 0 else {"outcome": "killed", "by": first.name or f"exit {code}"}
        self.report.write_text(json.dumps(outcome), encoding="utf-8")
        os._exit(0)


class FirstFailure:
    """A pytest plug-in that keeps the name of the first test, or file, that fails."""

    name = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called for each phase of each test."""
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        """Called for each file."""
        if report.failed and not self.name:
            self.name = f"{report.nodeid} (collecting)"


def _wait(child: int, wall: float) -> bool:
    """Wait for `child` and end its group after `wall` seconds; whether it has ended by itself."""
    until = time.monotonic() + wall
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            return True
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


class Campaign:
    """All mutants, one after the other; what is finished is kept in a file."""

    def __init__(self, asked: argparse.Namespace, trees: dict[str, ast.Module]) -> None:
        self.out, self.budget = asked.out, asked.budget
        self.callers = Callers(trees)
        self.tests = read_tests(asked.calls)
        self.plain = read_tests(asked.plain) if asked.plain else []
        self.done = {row["key"]: row for row in read_results(self.out)}
        self.kills = Counter(row["by"] for row in self.done.values() if row["outcome"] == "killed")
        self.sound: dict[tuple[str, bool], bool] = {}
        self.tree = Tree(asked.folder)

    def run(self, mutants: list[Mutant]) -> None:
        """Test what is not done yet, with a line for each and the time that is left."""
        left = [mutant for mutant in mutants if mutant.key not in self.done]
        began = time.monotonic()
        for number, mutant in enumerate(left, 1):
            row = self.row(mutant)
            self.done[mutant.key] = row
            self.keep()
            to_go = (time.monotonic() - began) / number * (len(left) - number) / 60
            print(f"{len(self.done)}: {row['outcome']}, {mutant.key} | {row['by']} | {row['seconds']} s, "
                  f"{to_go:.0f} min left", flush=True)  # fmt: skip

    def row(self, mutant: Mutant) -> dict[str, Any]:
        """What became of a mutant."""
        began, name, kernels = time.monotonic(), f"{mutant.path}:{mutant.function}", self.kernels(mutant)
        result = {"outcome": "survived"}
        if name in self.callers.compiled and self.plain:
            result = self.shown(mutant, self.plain, {name}, "uncompiled", self.budget / 3)
        if result["outcome"] == "survived":
            result = self.shown(mutant, self.tests, self.callers.seen(name), kernels, self.budget)
        self.kills[result["by"]] += result["outcome"] == "killed"
        about = {key: value for key, value in asdict(mutant).items() if key != "source"}
        return {"key": mutant.key, **about, **result, "seconds": round(time.monotonic() - began, 1)}

    def shown(
        self, mutant: Mutant, tests: list[Test], functions: set[str], kernels: str, budget: float
    ) -> dict[str, str]:
        """Outcome for the tests that call one of `functions`, and by which test."""
        while True:
            sound = [test for test in tests if self.sound.get((test.name, kernels == "uncompiled"), True)]
            taken = chosen(f"{mutant.path}:", functions, sound, self.kills, budget)
            result = self.tree.test(mutant, taken, kernels) if taken else {"outcome": "survived"}
            killer = next((test for test in taken if test.name == result.get("by")), None)
            if killer is None or self.is_sound(killer, kernels):
                return {"by": f"none of {len(taken)} tests", **result}

    def is_sound(self, test: Test, kernels: str) -> bool:
        """Whether the test passes on the sound tree; tried once."""
        key = (test.name, kernels == "uncompiled")
        if key not in self.sound:
            how = "uncompiled" if key[1] else "valid"
            self.sound[key] = self.tree.test(None, [test], how)["outcome"] == "survived"
        return self.sound[key]

    def kernels(self, mutant: Mutant) -> str:
        """Whether the kernels kept are valid with this mutant, or those of other files only, or none."""
        if mutant.path not in {name.split(":")[0] for name in self.callers.compiled}:
            return "valid"
        name = f"{mutant.path}:{mutant.function}"
        return "void" if name in self.callers.compiled or name not in self.callers.names else "partly"

    def keep(self) -> None:
        """Write all that is done; the file is whole at any time."""
        aside = self.out.with_suffix(".partial")
        aside.write_text(json.dumps(list(self.done.values()), indent=1, ensure_ascii=False), encoding="utf-8")
        aside.replace(self.out)


def read_results(path: Path) -> list[dict[str, Any]]:
    """What an earlier run has kept; nothing if there was none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Lines: how many are killed, and every survivor with its reason."""
    reasons = tomllib.loads(REASONS.read_text(encoding="utf-8"))["equivalent"] if REASONS.exists() else {}
    alive = [row for row in rows if row["outcome"] == "survived"]
    for row in sorted(alive, key=lambda row: (row["path"], row["line"])):
        yield f"survived: {row['path']}:{row['line']} {row['function']}: {row['before']}  ->  {row['after']}"
        yield f"    {reasons.get(row['key'], 'NO REASON: a missing test?')}"
    yield f"{len(rows) - len(alive)} of {len(rows)} mutants killed; {len(alive)} survived"


def main() -> int:
    """Run or show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=Path)
    parser.add_argument("--plain", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=30.0, help="CPU seconds of tests per mutant")
    parser.add_argument("--only", default="", help="part of the path of the modules to draw from")
    parser.add_argument("--out", type=Path, default=Path("mutants.json"))
    parser.add_argument("--folder", type=Path, default=Path("/tmp/skedge-mutants"), help="where the copy is made")  # noqa: S108
    parser.add_argument("--show", type=Path, help="print what such a file holds")
    asked = parser.parse_args()
    if asked.show:
        rows = read_results(asked.show)
    else:
        for name in LIBRARIES:
            __import__(name)
        asked.folder.mkdir(parents=True, exist_ok=True)
        trees = parsed()
        mutants = drawn(trees, asked.count, asked.seed, asked.only)
        Campaign(asked, trees).run(mutants)
        keys = {mutant.key for mutant in mutants}
        rows = [row for row in read_results(asked.out) if row["key"] in keys]
    print("\n".join(summary(rows)))
    killed = sum(row["outcome"] == "killed" for row in rows)
    return int(killed < SHARE * len(rows))


if __name__ == "__main__":
    sys.exit(main())
