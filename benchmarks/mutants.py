"""Mutation testing of `core` and `policies`: whether the tests notice small changes of the code.

    CALLS=calls.jsonl CALLS_LIMIT=5 PYTHONPATH=benchmarks pytest -m "" -p calls -p no:cacheprovider tests
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
import re
import resource
import shutil
import signal
import subprocess
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
from mutant_sites import planted, sites
from mutant_tests import Callers, Test, chosen, read_tests

ROOT = Path(__file__).parents[1]
REASONS = Path(__file__).with_suffix(".toml")
SKIPPED = {"core/errors.py", "platform/jit.py", "core/__init__.py", "policies/__init__.py"}
"""Texts of errors, and how kernels are compiled."""
SHARE = 0.95
"""Share of mutants that must be killed."""
ROOM = 1000
"""Bytes by which a mutant may be longer than the module; filled with a comment."""
YEAR_2000 = 946_684_800
"""Time of all modules that are mutated [s]."""
UNKNOWN_TEST = 4
"""Exit code of pytest when it is asked for a test that is not there."""
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
    files = [path for name in ("core", "policies") for path in (base / name).rglob("*.py")]
    paths = [path.relative_to(base).as_posix() for path in files]
    return {path: ast.parse(_source(path)) for path in sorted(paths) if path not in SKIPPED}


def drawn(trees: dict[str, ast.Module], count: int, seed: int, only: str = "") -> list[Mutant]:
    """`count` different places of the modules, each equally likely, and a change at each."""
    rng = np.random.default_rng(seed)
    if not any(only in path for path in trees):
        raise SystemExit(f"no module of core and policies has {only!r} in its path")
    every = [(path, site, other) for path, tree in trees.items() for site, other in sites(tree) if only in path]
    found: dict[str, Mutant] = {}
    for i in rng.permutation(len(every)):
        path, site, others = every[i]
        other = others[int(rng.integers(len(others)))]
        source, before, after = planted(_source(path), trees[path], site, other)
        mutant = Mutant(path, site.function, site.line, before, after, source)
        found.setdefault(mutant.key, mutant)
        if len(found) == count:
            break
    return list(found.values())


def _source(path: str) -> str:
    return (ROOT / "src/skedge" / path).read_text(encoding="utf-8")


class Tree:
    """A copy of the tree in which mutants are planted and tests run; it stays where it is, so that kernels are kept."""

    def __init__(self, folder: Path) -> None:
        self.root, self.kernels, self.aside = folder / "tree", folder / "kernels", folder / "aside"
        self.report = folder / "report.json"
        if self.aside.exists():
            self._bring_back()
        shutil.rmtree(self.root, ignore_errors=True)
        leave_out = shutil.ignore_patterns(".git", "__pycache__", ".venv", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, self.root, ignore=leave_out)
        self.kernels.mkdir(exist_ok=True)
        with (self.root / "src/skedge/platform/jit.py").open("a", encoding="utf-8") as jit:
            jit.write('\n\n_cache_folder = lambda given: os.environ["KERNELS"]  # noqa\n')
        for path in parsed():
            self._write(path, _source(path))

    def tests(self) -> set[str]:
        """Names of all tests of the tree: the file of the plug-in may be older."""
        options = ["--collect-only", "-q", "--override-ini", "addopts=--ignore=tests/live", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *options, "tests"]
        paths = {**os.environ, "PYTHONPATH": str(self.root / "src"), "KERNELS": str(self.kernels)}
        listed = subprocess.run(command, cwd=self.root, env=paths, check=True, capture_output=True, text=True)
        return set(listed.stdout.splitlines())

    def test(self, mutant: Mutant | None, tests: list[Test], affected: set[str], *, compiled: bool) -> dict[str, Any]:
        """Run `tests` on the tree with `mutant` in it.

        `affected`: names of the kernels that it may change, as ``lanes.absorb``; those kept of others stay valid.
        """
        if mutant is None:
            return self._forked(tests, compiled=compiled)
        self._put_aside(affected)
        try:
            self._write(mutant.path, mutant.source)
            return self._forked(tests, compiled=compiled)
        finally:
            self._write(mutant.path, _source(mutant.path))
            self._bring_back()

    def _write(self, path: str, source: str) -> None:
        """Give a module `source`, always with the same size and time, by which Numba knows the kernels of a file.

        Python knows its byte code by them too, so that is removed.
        """
        target, size = self.root / "src/skedge" / path, len(_source(path).encode()) + ROOM
        content = source.encode()
        target.write_bytes(content + b"#" * (size - len(content) - 1) + b"\n")
        os.utime(target, (YEAR_2000, YEAR_2000))
        for old in (target.parent / "__pycache__").glob(f"{target.stem}.*"):
            old.unlink()

    def _put_aside(self, affected: set[str]) -> None:
        self.aside.mkdir()
        (self.aside / "affected.json").write_text(json.dumps(sorted(affected)), encoding="utf-8")
        for path in self._kept(affected):
            target = self.aside / path.relative_to(self.kernels)
            target.parent.mkdir(exist_ok=True)
            path.rename(target)

    def _bring_back(self) -> None:
        """Kernels of the mutant go, those put aside come back."""
        for path in self._kept(set(json.loads((self.aside / "affected.json").read_text(encoding="utf-8")))):
            path.unlink()
        for path in self.aside.rglob("*.nb*"):
            path.rename(self.kernels / path.relative_to(self.aside))
        shutil.rmtree(self.aside)

    def _kept(self, affected: set[str]) -> list[Path]:
        return [path for path in self.kernels.rglob("*.nb*") if path.name.rsplit("-", 1)[0] in affected]

    def _forked(self, tests: list[Test], *, compiled: bool) -> dict[str, Any]:
        """In a child process, which has the libraries loaded but nothing of the product."""
        limit = 90 + 3 * sum(test.seconds for test in tests)
        self.report.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            os.setsid()
            os.environ["KERNELS"] = str(self.kernels)
            numba.config.DISABLE_JIT = int(not compiled)
            self._run([test.name for test in tests], limit)
        ended = _wait(child, 10 * limit)
        if self.report.exists():
            outcome = json.loads(self.report.read_text(encoding="utf-8"))
            return self._without_unknown(tests, compiled) if outcome["outcome"] == "unknown tests" else outcome
        return {"outcome": "killed", "by": "time or memory ran out" if ended else "it did not end"}

    def _without_unknown(self, tests: list[Test], compiled: bool) -> dict[str, Any]:
        """Once more without the tests that are not there: a mutant can change the name of a parametrised test."""
        said = self.report.with_suffix(".txt").read_text(encoding="utf-8")
        there = [test for test in tests if not re.search(f"not found: .*{re.escape(test.name)}$", said, re.MULTILINE)]
        if not there:
            return {"outcome": "survived"}
        if len(there) == len(tests):
            raise SystemExit(f"pytest could not be used:\n{said}")
        return self._forked(there, compiled=compiled)

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

            # of all tests, thorough ones too: one that is deselected would count as one that has found the mutant
            options = ["-m", "", "-xq", "--tb=line", "-pno:cacheprovider", "-Wignore", "--hypothesis-seed=0"]
            code = int(pytest.main([*options, *names], plugins=[first]))
        except BaseException as error:
            first.name, code = f"{type(error).__name__} when tests are collected", 1
        outcome = {"outcome": "survived"} if code == 0 else {"outcome": "killed", "by": first.name or f"exit {code}"}
        if code == UNKNOWN_TEST and not first.name:
            outcome = {"outcome": "unknown tests"}
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
        self.callers = Callers(trees, ROOT / "tests")
        self.tree = Tree(asked.folder)
        there = self.tree.tests()
        self.tests = [test for test in read_tests(asked.calls) if test.name in there]
        self.plain = [test for test in read_tests(asked.plain) if test.name in there] if asked.plain else []
        if not self.tests:
            raise SystemExit(f"{asked.calls}: none of its tests is in this tree; run the plug-in `calls` again")
        self.done = {row["key"]: row for row in read_results(self.out)}
        self.kills = Counter(row["by"] for row in self.done.values() if row["outcome"] == "killed")
        self.sound: dict[tuple[str, bool], bool] = {}

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
        """What became of a mutant: first before tests without kernels, if it is part of one."""
        began, name = time.monotonic(), f"{mutant.path}:{mutant.function}"
        result = {"outcome": "survived"}
        if name in self.callers.compiled and self.plain:
            result = self.shown(mutant, self.plain, {name}, self.budget / 3, compiled=False)
        if result["outcome"] == "survived":
            result = self.shown(mutant, self.tests, self.callers.seen(name), self.budget, compiled=True)
        self.kills[result["by"]] += result["outcome"] == "killed"
        about = {key: value for key, value in asdict(mutant).items() if key != "source"}
        return {"key": mutant.key, **about, **result, "seconds": round(time.monotonic() - began, 1)}

    def shown(
        self, mutant: Mutant, tests: list[Test], functions: set[str], budget: float, *, compiled: bool
    ) -> dict[str, str]:
        """Outcome for the tests that call one of `functions`, and by which test."""
        affected = self.callers.affected(mutant.path, mutant.function)
        while True:
            sound = [test for test in tests if self.sound.get((test.name, compiled), True)]
            taken = chosen(f"{mutant.path}:", functions, sound, self.kills, budget)
            result = self.tree.test(mutant, taken, affected, compiled=compiled) if taken else {"outcome": "survived"}
            killer = next((test for test in taken if test.name == result.get("by")), None)
            if killer is None or self.is_sound(killer, compiled=compiled):
                return {"by": f"none of {len(taken)} tests", **result}

    def is_sound(self, test: Test, *, compiled: bool) -> bool:
        """Whether the test passes on the sound tree; tried once."""
        key = test.name, compiled
        if key not in self.sound:
            self.sound[key] = self.tree.test(None, [test], set(), compiled=compiled)["outcome"] == "survived"
        return self.sound[key]

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
