"""Names are nouns, comments say why, and functions of many parameters explain them: measured, each with a bar.

``pytest -s tests/docs/test_names.py`` prints the figures. A bar is lowered when the figure has fallen, and not raised.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from builders.commands import every_command
from builders.paths import ROOT

SOURCES = ROOT / "src" / "skedge"

NO_NOUNS = frozenset(
    re.findall(
        r"\w+",
        """
        found given made kept taken told said asked seen shown known gone done got put held lent sent began begun
        ended meant wanted at of one ones other others whole those these this that them they it its each both some none
        mine ours theirs there here apart beside ahead ready late then once again still yet so far near more most less
        few many enough asks takes gives says knows what which who whose how why where when
        """,
    )
)
"""Participles, pronouns, adverbs and question words: as names of variables they leave the noun to be guessed."""

MOST_WITHOUT_NOUN = 0.04
"""Largest share of functions that have a variable or a parameter of such a name."""

LEAST_COMMENTS = 0.025
"""Smallest share of comments in the lines, outside ``live``."""

MOST_UNEXPLAINED = 0
"""Most public functions of :data:`MANY` parameters or more that do not explain them: a command in the help texts of its
options, another in the section Parameters of its docstring."""

MANY = 4

MOST_PARAMETERS = 12
"""Parameters of a function, compiled ones too; more are a named tuple or a dataclass."""

MOST_WIDE = 0
"""Most functions with more of them."""

SECTION = re.compile(r"^Parameters\n-{3,}\n(.*?)(?=^[^\n]+\n-{3,}$|\Z)", re.MULTILINE | re.DOTALL)
"""The section Parameters of a docstring, up to the next section."""

DIRECTIVE = re.compile(r"#\s*(noqa|type:|fmt:|pragma|mypy|ruff)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Measured(NamedTuple):
    """A function: its place, and the class around it, if there is one."""

    place: str
    node: Function
    owner: ast.ClassDef | None

    @property
    def parameters(self) -> list[str]:
        """Its parameters, without the object or class of a method."""
        a = self.node.args
        names = [arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if arg]
        return names[1:] if self.owner and names[:1] in (["self"], ["cls"]) else names

    @property
    def public(self) -> bool:
        """Whether users of its module may call it."""
        hidden = self.owner is not None and self.owner.name.startswith("_")
        return not hidden and (self.node.name == "__init__" or not self.node.name.startswith("_"))

    @property
    def docstrings(self) -> list[str]:
        """Its docstring, and that of the class that it initialises."""
        nodes = [self.node, self.owner] if self.node.name == "__init__" and self.owner else [self.node]
        return [ast.get_docstring(node) or "" for node in nodes]

    @property
    def explained(self) -> bool:
        """Whether its docstring, or that of the class that it initialises, has a section Parameters."""
        return any(re.search(r"^\s*(Parameters|Attributes)\n\s*-+$", text, re.MULTILINE) for text in self.docstrings)

    @property
    def left_out(self) -> list[str]:
        """The parameters that its section Parameters does not name, if it has one."""
        sections = [section for text in self.docstrings for section in SECTION.findall(text)]
        entries = re.findall(r"^(\S.*)$", "\n".join(sections), re.MULTILINE)
        names = {name.strip(" *") for entry in entries for name in entry.split(",")}
        return [name for name in self.parameters if name not in names] if sections else []


def functions(text: str, path: str = "") -> Iterator[Measured]:
    """All functions of a module but overloads, which have no body."""
    tree = ast.parse(text)
    owners = {child: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for child in node.body}
    for node in ast.walk(tree):
        if isinstance(node, Function) and "overload" not in map(ast.unparse, node.decorator_list):
            yield Measured(f"{path}:{node.lineno} {node.name}", node, owners.get(node))


def without_noun(node: Function) -> set[str]:
    """The parameters and variables of a function, and of those within it, that are no nouns."""
    names = {child.arg for child in ast.walk(node) if isinstance(child, ast.arg)}
    names |= {child.id for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)}
    return {name for name in names if name.strip("_") in NO_NOUNS}


def comments(text: str) -> int:
    """Number of comments that are no directives to a tool."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string) for token in tokens)


def modules(*, live: bool) -> Iterator[tuple[str, str]]:
    """Path and text of each module, with those of ``live`` or without."""
    for path in sorted(SOURCES.rglob("*.py")):
        if live or "live" not in path.relative_to(SOURCES).parts:
            yield str(path.relative_to(ROOT)), path.read_text("utf-8")


@cache
def everything(*, live: bool) -> list[Measured]:
    """All functions of the package, read once."""
    return [function for path, text in modules(live=live) for function in functions(text, path)]


def explains_options(command: Any) -> bool:
    """Whether each option and argument of a command has a help text: ``--help`` prints them in place of a section."""
    return all((getattr(option, "help", None) or "").strip() for option in command.params)


@cache
def explained_commands() -> set[tuple[str, str]]:
    """(path, function) of the commands whose options all have a help text, those of shared groups of options too."""
    functions = (inspect.unwrap(command.callback) for _, command in every_command() if explains_options(command))
    return {(_path(function), function.__name__) for function in functions if inspect.isfunction(function)}


def _path(function: Any) -> str:
    file = inspect.getsourcefile(function)
    assert file is not None
    return str(Path(file).relative_to(ROOT)) if Path(file).is_relative_to(ROOT) else file


def is_explained(function: Measured) -> bool:
    """Whether a function explains its parameters, as a command or in its docstring."""
    return function.explained or (function.place.partition(":")[0], function.node.name) in explained_commands()


def report(*lines: str) -> None:
    print("", *lines, sep="\n")  # noqa: T201 - the figures are what these tests are for


def test_few_functions_have_a_name_without_a_noun() -> None:
    every = everything(live=True)
    wrong = [function for function in every if without_noun(function.node)]
    share = len(wrong) / len(every)
    report(f"{share:.1%} of {len(every)} functions have a name without a noun; the bar is {MOST_WITHOUT_NOUN:.1%}")
    assert share <= MOST_WITHOUT_NOUN, [
        f"{function.place}: {', '.join(sorted(without_noun(function.node)))}" for function in wrong[:30]
    ]


def test_comments_are_not_rare() -> None:
    texts = [text for _, text in modules(live=False)]
    share = sum(map(comments, texts)) / sum(text.count("\n") for text in texts)
    report(f"{share:.1%} of the lines have a comment; the bar is {LEAST_COMMENTS:.1%}")
    assert share >= LEAST_COMMENTS


def test_public_functions_of_many_parameters_explain_them() -> None:
    every = [function for function in everything(live=True) if function.public and len(function.parameters) >= MANY]
    silent = [function.place for function in every if not is_explained(function)]
    report(
        f"{len(silent)} of {len(every)} public functions do not explain their parameters; the bar is {MOST_UNEXPLAINED}"
    )
    assert len(silent) <= MOST_UNEXPLAINED, silent[:30]


def test_a_section_of_parameters_names_all_of_them() -> None:
    assert [
        f"{function.place}: {', '.join(function.left_out)}" for function in everything(live=True) if function.left_out
    ] == []


def test_no_function_has_more_parameters_than_a_reader_can_keep() -> None:
    wide = [function.place for function in everything(live=True) if len(function.parameters) > MOST_PARAMETERS]
    report(f"{len(wide)} functions have more than {MOST_PARAMETERS} parameters; the bar is {MOST_WIDE}")
    assert len(wide) <= MOST_WIDE, wide[:30]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(found, job): ...", {"found"}),
        ("def f(job):\n    other = _kept = job", {"other", "_kept"}),
        ("def f(jobs):\n    return [it for it in jobs]", {"it"}),
        ("def f(jobs):\n    with open(jobs) as at, x: ...", {"at"}),
        ("def f(jobs):\n    jobs.found = jobs\n    return dict(given=jobs)", set()),
    ],
)
def test_planted_names_are_seen(text: str, names: set[str]) -> None:
    (function,) = functions(text)
    assert without_noun(function.node) == names


def test_planted_functions_without_an_explanation_are_seen() -> None:
    text = '''
class A:
    """A thing."""
    def __init__(self, a, b, c, d): ...
    def f(self, a, b, *, c, **d): ...
    def g(self, a, b, c): ...
    def _h(self, a, b, c, d): ...
    def k(self, a, b, c, d):
        """K.

        Parameters
        ----------
        a, b, c, d
            Numbers.
        """
'''
    silent = [
        function.node.name
        for function in functions(text)
        if function.public and len(function.parameters) >= MANY and not function.explained
    ]
    assert silent == ["__init__", "f"]


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("a, b\n    Numbers.\n*c\n    Others: a, d.", ["d"]),
        ("a, b, c, d\n    Numbers.\n\nReturns\n-------\nd", []),
        ("a\n    It is\n    b.\n\nReturns\n-------\nc, d", ["b", "c", "d"]),
    ],
)
def test_a_planted_section_that_leaves_parameters_out_is_seen(section: str, names: list[str]) -> None:
    docstring = "\n".join(["F.", "", "Parameters", "----------", *section.split("\n")]).replace("\n", "\n    ")
    (function,) = functions(f'def f(a, b, *c, d):\n    """{docstring}\n    """')
    assert sorted(function.left_out) == names


@pytest.mark.parametrize(
    ("help_texts", "explained"),
    [(("A name.", "A number."), True), (("A name.", " "), False), ((None, "A number."), False)],
)
def test_a_planted_option_without_help_is_seen(help_texts: tuple[str | None, str | None], *, explained: bool) -> None:
    app = typer.Typer(add_completion=False)
    name, number = help_texts

    @app.command()
    def command(
        a: str = typer.Argument(help=name),
        b: int = typer.Option(0, help=number),
    ) -> None: ...

    assert explains_options(typer.main.get_command(app)) == explained


def test_the_commands_of_the_package_are_among_the_explained() -> None:
    every = {(function.place.partition(":")[0], function.node.name) for function in everything(live=True)}
    assert len(explained_commands()) > 40
    assert explained_commands() <= every


def test_directives_are_no_comments() -> None:
    assert comments("x = 1  # noqa: E501\ny = 2  # type: ignore[misc]\n# why\nz = '# no'\n") == 1


def test_the_measure_is_of_the_whole_package() -> None:
    assert len(everything(live=True)) > len(everything(live=False)) > 1000
    assert Path(next(iter(modules(live=True)))[0]).parts[:2] == ("src", "skedge")
