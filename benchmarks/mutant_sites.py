"""Where a module can be mutated, and how: small changes of its syntax tree.

Left alone: docstrings and other texts, annotations, decorators, imports, raised errors, `strict=` of `zip`, and what
only describes an object (`__repr__`, `__reduce__`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import TypeVar

N = TypeVar("N", bound=ast.AST)

COMPARISONS: dict[type, list[type]] = {
    ast.Lt: [ast.LtE, ast.Gt],
    ast.LtE: [ast.Lt, ast.GtE],
    ast.Gt: [ast.GtE, ast.Lt],
    ast.GtE: [ast.Gt, ast.LtE],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
OPERATORS: dict[type, list[type]] = {
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Add, ast.FloorDiv],
    ast.Div: [ast.Mult],
    ast.FloorDiv: [ast.Mult],
    ast.Mod: [ast.Mult],
    ast.Pow: [ast.Mult],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
    ast.LShift: [ast.RShift],
    ast.RShift: [ast.LShift],
}
_PAIRS = (("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("any", "all"), ("floor", "ceil"))
NAMES = {a: b for one, other in _PAIRS for a, b in ((one, other), (other, one))}
SYMMETRIC = {"min", "max", "minimum", "maximum", "gcd", "lcm", "isclose"}
"""Their arguments can change places."""
UNTOUCHED = (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.arg, ast.Assert)
UNTOUCHED_FIELDS = {"annotation", "returns", "decorator_list", "bases"}
DESCRIPTIONS = {"__repr__", "__reduce__", "__str__"}


@dataclass(frozen=True)
class Site:
    """A child of a syntax tree that can be changed: the parent's number in :func:`ast.walk`, and where it has it."""

    parent: int
    field: str
    index: int | None
    function: str
    line: int


def sites(tree: ast.Module) -> list[tuple[Site, list[ast.AST]]]:
    """Every site with what may stand there instead, in order of the source."""
    numbers = {id(node): i for i, node in enumerate(ast.walk(tree))}
    found = [
        (Site(numbers[id(parent)], field, index, function, child.lineno), variants)
        for parent, field, index, child, function in _children(tree, "")
        if (variants := _variants(child, parent, field))
    ]
    return sorted(found, key=lambda one: (one[0].line, one[0].parent, one[0].field, one[0].index or 0))


def _children(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str, int | None, ast.expr | ast.stmt, str]]:
    """(parent, field, index, child, function) below `node`, without what is left alone."""
    for field, value in ast.iter_fields(node):
        if field in UNTOUCHED_FIELDS:
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, UNTOUCHED) or _described(child):
                continue
            inner = _inner(child, function)
            if isinstance(child, ast.expr | ast.stmt):
                yield node, field, index, child, function
            yield from _children(child, inner)


def _described(node: ast.AST) -> bool:
    """Whether `node` is there for a reader only: texts, `strict=`, `if TYPE_CHECKING`, descriptions."""
    return (
        (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.keyword) and node.arg == "strict")
        or (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
        or (isinstance(node, ast.FunctionDef) and node.name in DESCRIPTIONS)
    )


def _inner(node: ast.AST, function: str) -> str:
    """Name of the outermost function, or of class and method, in which the children of `node` are."""
    if isinstance(node, ast.ClassDef):
        return f"{function}{node.name}."
    if isinstance(node, ast.FunctionDef) and (not function or function.endswith(".")):
        return f"{function}{node.name}"
    return function


def _variants(node: ast.AST, parent: ast.AST, field: str) -> list[ast.AST]:
    """What may stand in place of `node`, the child of `parent` in `field`."""
    found = [changed for rule in _RULES if isinstance(node, rule[0]) for changed in rule[1](node)]
    if field == "test" and isinstance(parent, ast.If | ast.While | ast.IfExp):
        found.append(ast.UnaryOp(ast.Not(), node))
    return found


def _changed(node: N, change: Callable[[N], object]) -> N:
    copy = deepcopy(node)
    change(copy)
    return copy


def _compare(node: ast.Compare) -> Iterator[ast.AST]:
    if len(node.ops) == 1:
        for other in COMPARISONS[type(node.ops[0])]:
            yield _changed(node, lambda copy, other=other: copy.ops.__setitem__(0, other()))
    else:
        yield _changed(node, lambda copy: copy.ops.__setitem__(0, COMPARISONS[type(node.ops[0])][0]()))
        yield _changed(node, lambda copy: copy.ops.__setitem__(-1, COMPARISONS[type(node.ops[-1])][0]()))


def _operator(node: ast.BinOp | ast.AugAssign) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and any(map(_is_text_or_none, (node.left, node.right))):
        return
    for other in OPERATORS.get(type(node.op), []):
        yield _changed(node, lambda copy, other=other: setattr(copy, "op", other()))


def _is_text_or_none(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str))
    )


def _bool(node: ast.BoolOp) -> Iterator[ast.AST]:
    yield _changed(node, lambda copy: setattr(copy, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And()))


def _unary(node: ast.UnaryOp) -> Iterator[ast.AST]:
    if isinstance(node.op, ast.Not | ast.USub):
        yield deepcopy(node.operand)


def _constant(node: ast.Constant) -> Iterator[ast.AST]:
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
        yield ast.Constant(node.value - 1)


def _call(node: ast.Call) -> Iterator[ast.AST]:
    function, (first, second) = node.func, (*node.args, None, None)[:2]
    if isinstance(function, ast.Name | ast.Attribute) and (other := NAMES.get(_name(function))):
        part = "id" if isinstance(function, ast.Name) else "attr"
        yield _changed(node, lambda copy: setattr(copy.func, part, other))
    simple = first and second and not any(isinstance(a, ast.Starred) for a in (first, second))
    symmetric = isinstance(function, ast.Name | ast.Attribute) and _name(function) in SYMMETRIC
    if simple and not symmetric and ast.dump(first) != ast.dump(second) and not isinstance(second, ast.JoinedStr):
        yield _changed(node, lambda copy: copy.args.__setitem__(slice(0, 2), copy.args[1::-1]))


def _name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _dropped(node: ast.stmt) -> Iterator[ast.AST]:
    kept = isinstance(node, ast.Assign) and not all(
        isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets
    )
    if not kept:
        yield ast.Pass()


def _jump(node: ast.stmt) -> Iterator[ast.AST]:
    yield ast.Break() if isinstance(node, ast.Continue) else ast.Continue()


_RULES: tuple[tuple[type | tuple[type, ...], Callable[..., Iterator[ast.AST]]], ...] = (
    (ast.Compare, _compare),
    ((ast.BinOp, ast.AugAssign), _operator),
    (ast.BoolOp, _bool),
    (ast.UnaryOp, _unary),
    (ast.Constant, _constant),
    (ast.Call, _call),
    ((ast.Expr, ast.AugAssign, ast.Assign), _dropped),
    ((ast.Continue, ast.Break), _jump),
)


def planted(source: str, tree: ast.Module, site: Site, other: ast.AST) -> tuple[str, str, str]:
    """`source` with `other` at the site, and what stood there and stands there now.

    Lines before the site stay where they are, so that kernels compiled of them stay valid.
    """
    parent = next(node for i, node in enumerate(ast.walk(tree)) if i == site.parent)
    held = getattr(parent, site.field)
    before = held if site.index is None else held[site.index]
    start = _offset(source, before.lineno, before.col_offset)
    end = _offset(source, before.end_lineno, before.end_col_offset)
    text = ast.unparse(other)
    lost = source.count("\n", start, end)
    placed = text + "\n" * lost if isinstance(other, ast.stmt) else f"({text}" + "\n" * lost + ")"
    return source[:start] + placed + source[end:], _first(ast.unparse(before)), _first(text)


def _offset(source: str, line: int, column: int) -> int:
    """Where in `source` a place of the syntax tree is; columns are of UTF-8."""
    lines = source.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def _first(text: str) -> str:
    return text.splitlines()[0]
