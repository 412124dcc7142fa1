"""Which tests a mutant is shown to: those that call its function, as the plug-in :mod:`calls` has found them.

A compiled function is not seen by the plug-in. It stands for those of its callers that are not compiled, which follow
from the names in the sources, and for the tests in files that name it or a compiled one that calls it.
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

COMPILERS = {"compiled", "lean", "unlocked", "inlined"}
"""Decorators of `platform/jit.py`."""


@dataclass(frozen=True)
class Test:
    """A test, its CPU time, and the functions that it calls, as ``core/kernel/kernel.py:Kernel.handle``."""

    name: str
    seconds: float
    calls: frozenset[str]

    @property
    def file(self) -> str:
        """Path of its file."""
        return self.name.split("::")[0]


def read_tests(path: Path) -> list[Test]:
    """The tests that the plug-in `calls` has written."""
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [Test(row["test"], row["seconds"], frozenset(row["calls"])) for row in rows]


class Callers:
    """Functions of all modules, which of them are compiled, and by which others a compiled one is called."""

    def __init__(self, trees: dict[str, ast.Module], tests: Path) -> None:
        self.files = {f"tests/{path.relative_to(tests)}": _imported(path) for path in sorted(tests.rglob("test_*.py"))}
        found = [(path, *one) for path, tree in trees.items() for one in _functions(tree, "")]
        self.names = {f"{path}:{name}": _names(node) for path, name, node in found}
        self.compiled = {f"{path}:{name}" for path, name, node in found if _is_compiled(node)}

    def seen(self, function: str) -> set[str]:
        """`function`, or if it is compiled the functions by which it is called that are not, and the test files."""
        up = self._up(function)
        kernels = {one.rsplit("/", 1)[1].replace(".py:", ".") for one in up & self.compiled}
        return (up - self.compiled) | {file for file, names in self.files.items() if kernels & names}

    def affected(self, path: str, function: str) -> set[str]:
        """Kernels that change with `function`, as ``lanes.absorb``; of what is no function but in their files, all."""
        files = {one.split(":")[0] for one in self.compiled}
        name = f"{path}:{function}"
        one_function = name in self.names or path not in files
        found = self._up(name) & self.compiled if one_function else self.compiled
        return {one.rsplit("/", 1)[1].replace(".py:", ".") for one in found}

    def _up(self, function: str) -> set[str]:
        """`function`, and by way of compiled functions all that call it."""
        left, done = [function], {function}
        while left:
            one = left.pop()
            if one in self.compiled:
                name = one.split(":")[1]
                callers = {other for other, names in self.names.items() if name in names} - done
                done |= callers
                left += callers
        return done


def _imported(path: Path) -> set[str]:
    """What a test file imports from modules, as ``marginal.place``, and what it names of a module that it imports."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    froms = [n for n in nodes if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("skedge.")]
    names = {f"{(n.module or '').rsplit('.', 1)[-1]}.{one.name}" for n in froms for one in n.names}
    attributes = [n for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    return names | {f"{n.value.id}.{n.attr}" for n in attributes if isinstance(n.value, ast.Name)}


def _functions(node: ast.AST, inside: str) -> Iterable[tuple[str, ast.FunctionDef]]:
    """Functions and methods with their names; what is nested in a function belongs to it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield f"{inside}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{inside}{child.name}.")


def _names(node: ast.FunctionDef) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _is_compiled(node: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Name) and one.id in COMPILERS for one in node.decorator_list)


def chosen(module: str, functions: set[str], tests: list[Test], kills: Counter[str], budget: float) -> list[Test]:
    """The tests that call one of `functions`, those that have killed before, direct calls and the fast ones first.

    `functions` may also hold paths of test files, whose tests call a kernel directly.

    If there are none, as for a place outside of functions, those that call anything of `module`. At least one test,
    then those whose CPU times add up to no more than `budget` seconds.
    """
    concerned = [test for test in tests if test.file in functions or functions & test.calls]
    if not concerned:
        concerned = [test for test in tests if any(call.startswith(module) for call in test.calls)]
    found, total = [], 0.0
    for test in sorted(concerned, key=lambda test: (-kills[test.name], test.file not in functions, test.seconds)):
        total += test.seconds
        if total > budget and found:
            break
        found.append(test)
    return found
