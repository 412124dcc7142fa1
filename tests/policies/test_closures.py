"""How many files of ``skedge.policies`` a reader of one policy opens: at most eight, on any kind of cluster.

The files are those that the policy's module imports, directly or not, at module level and within functions. Where a
policy has a method for each kind of cluster (``on_slots``, ``on_resources``, ``at_sites``), only that of the kind at
hand counts: its name says which file to open. A package's ``__init__`` counts if it imports anything.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import skedge.policies
from skedge.core.registry import make_policy, registered

MOST = 8
PACKAGE = "skedge.policies"
HERE = Path(skedge.policies.__path__[0])
KINDS = ("slots", "resources", "sites")
READINGS = [
    (name, kind)
    for name, point in registered().items()
    if point.value.startswith(PACKAGE)
    for kind in KINDS
    if any(kind in need for need in make_policy(name).needs)
]


def imports(block: list[ast.stmt], kind: str) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements that are reached on a cluster of `kind`."""
    for statement in block:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield statement
        if kind_of(statement) not in (None, kind):
            continue
        for name in ("body", "orelse", "finalbody"):
            yield from imports(getattr(statement, name, []), kind)
        for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
            yield from imports(part.body, kind)


def kind_of(statement: ast.stmt) -> str | None:
    """The kind of cluster in the name of a method, ``on_slots``, ``constants_at_sites``; None for any other."""
    if not isinstance(statement, ast.FunctionDef):
        return None
    ends = {"on_slots": "slots", "on_resources": "resources", "at_sites": "sites"}
    return next((kind for end, kind in ends.items() if statement.name.endswith(end)), None)


def named(statement: ast.Import | ast.ImportFrom, package: str) -> list[str]:
    """Modules, and names that may be modules, that an import in `package` asks for."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    parents = package.split(".")
    base = parents[: len(parents) - statement.level + 1] if statement.level else []
    module = ".".join([*base, *([statement.module] if statement.module else [])])
    return [module, *(f"{module}.{alias.name}" for alias in statement.names)]


def file_of(module: str, root: Path) -> Path | None:
    """The file of a module of the package at `root`; None for a module elsewhere, or a name that is none."""
    if not f"{module}.".startswith(f"{PACKAGE}."):
        return None
    path = root.joinpath(*module.split(".")[2:])
    found = [one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()]
    return found[0] if found else None


def opened(module: str, kind: str, root: Path = HERE) -> list[str]:
    """Files that a reader of `module` opens, relative to `root`."""
    seen, left = dict[Path, None](), [module]
    while left:
        name = left.pop()
        path = file_of(name, root)
        if path is None or path in seen:
            continue
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        found = [
            one for statement in imports(ast.parse(path.read_text()).body, kind) for one in named(statement, package)
        ]
        if path.name != "__init__.py" or found:
            seen[path] = None
        left += found
        left += [package] if package != name else []
    return sorted(path.relative_to(root).as_posix() for path in seen)


def module_of(policy: str) -> str:
    return registered()[policy].value.partition(":")[0]


@pytest.mark.parametrize(("policy", "kind"), READINGS)
def test_a_reader_of_a_policy_opens_at_most_eight_files(policy: str, kind: str) -> None:
    """``pytest -s`` prints them."""
    files = opened(module_of(policy), kind)
    print(f"\n{policy:10} on {kind:9} {len(files)}  {' '.join(files)}")  # noqa: T201 - the table is what this test is for
    assert len(files) <= MOST


@pytest.mark.parametrize(
    "planted",
    [
        "from skedge.policies.pdors.alg4 import PdorsAdmission\n",
        "def late():\n    from skedge.policies.pdors.alg4 import PdorsAdmission\n",
        "class A:\n    def on_slots(self):\n        from skedge.policies.pdors.alg4 import PdorsAdmission\n",
        "def of(cluster):\n    if cluster.kind == 'sites':\n        return 1\n    from ..pdors import alg4\n",
        "import skedge.policies.pdors.alg4\n",
        "def of(cluster):\n    match cluster.kind:\n        case 'slots':\n            from ..pdors import alg4\n",
    ],
)
def test_an_import_that_makes_the_way_longer_is_seen(planted: str, tmp_path: Path) -> None:
    """SRTF with PD-ORS's rounding, imported in every way, is above the limit."""
    root = tmp_path / "policies"
    shutil.copytree(HERE, root, ignore=shutil.ignore_patterns("__pycache__"))
    srtf = root / "gangs" / "srtf.py"
    before = opened("skedge.policies.gangs.srtf", "slots", root)
    srtf.write_text(srtf.read_text() + planted)
    after = opened("skedge.policies.gangs.srtf", "slots", root)
    assert len(before) <= MOST < len(after)
    assert "pdors/rounding.py" in after


def test_the_files_of_another_kind_of_cluster_do_not_count() -> None:
    """FIFO at sites opens no gang's file, and on slots none of Okita's."""
    at_sites, on_slots = (opened(module_of("fifo"), kind) for kind in ("sites", "slots"))
    assert "okita/slots.py" in at_sites
    assert not any(path.startswith("gangs/") for path in at_sites)
    assert "gangs/placement.py" in on_slots
    assert not any(path.startswith("okita/") for path in on_slots)


def test_an_init_that_imports_counts(tmp_path: Path) -> None:
    """An empty one does not."""
    root = tmp_path / "policies"
    shutil.copytree(HERE, root, ignore=shutil.ignore_patterns("__pycache__"))
    init = root / "gangs" / "__init__.py"
    assert "gangs/__init__.py" not in opened("skedge.policies.gangs.srtf", "slots", root)
    init.write_text("from .base import GangPolicy\n")
    assert "gangs/__init__.py" in opened("skedge.policies.gangs.srtf", "slots", root)
