"""Classes are short and have names of their own, and functions have few arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from builders.paths import ROOT

LONGEST_CLASS = 300
"""Lines of a class."""

MOST_ARGUMENTS = 10
"""Arguments of a function that is not compiled; compiled kernels take arrays one by one."""

KERNELS = {"compiled", "lean", "unlocked", "inlined"}


def long_classes(text: str) -> Iterator[str]:
    """The classes of a module that are longer than :data:`LONGEST_CLASS`, with their lengths."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > LONGEST_CLASS:
                yield f"class {node.name}: {lines} lines"


def wide_functions(text: str) -> Iterator[str]:
    """The functions of a module with more than :data:`MOST_ARGUMENTS`, with their numbers; compiled ones excepted."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            count = sum(one is not None for one in every)
            compiled = any(isinstance(one, ast.Name) and one.id in KERNELS for one in node.decorator_list)
            if count > MOST_ARGUMENTS and not compiled:
                yield f"{node.name}: {count} arguments"


def shared_names(texts: dict[str, str]) -> list[str]:
    """The names that several public classes of different modules have, with the modules by name."""
    where: dict[str, list[str]] = {}
    for path, text in texts.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(path)
    return [f"{name}: {', '.join(paths)}" for name, paths in where.items() if len(paths) > 1]


def modules() -> Iterator[tuple[str, str]]:
    """Path and text of each module of the package."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text("utf-8")


def test_no_class_is_long() -> None:
    assert [f"{path}: {found}" for path, text in modules() for found in long_classes(text)] == []


def test_no_function_but_kernels_has_many_arguments() -> None:
    assert [f"{path}: {found}" for path, text in modules() for found in wide_functions(text)] == []


def test_every_public_class_has_a_name_of_its_own() -> None:
    assert shared_names(dict(modules())) == []
    assert shared_names({"a": "class Plan: ...", "b": "class Plan: ...\nclass _P: ...", "c": "class _P: ..."}) == [
        "Plan: a, b"
    ]


def test_a_planted_class_and_a_planted_function_are_seen() -> None:
    lines = "    a = 1\n" * LONGEST_CLASS
    assert list(long_classes(f"class A:\n{lines}")) == ["class A: 301 lines"]
    names = ", ".join(f"a{i}" for i in range(MOST_ARGUMENTS))
    assert list(wide_functions(f"def f({names}, *b): ...")) == ["f: 11 arguments"]
    assert list(wide_functions(f"@lean\ndef f({names}, *b): ...\ndef g({names}): ...")) == []
