"""Starting: what a command imports, the table of commands, Ctrl-C, and the public names."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import skedge
from skedge.cli.lazy import LazyCommand
from skedge.cli.main import COMMANDS
from skedge.core.model.network import Delays, upload_delay, upload_row
from skedge.platform.jit import CompiledFunction
from skedge.testing import small_scenario


def python(code: str) -> subprocess.CompletedProcess[str]:
    """The code in a process of its own."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)


def imported_by(*words: str) -> set[str]:
    """The modules that a command has imported when it ends."""
    begin = f"import sys; sys.argv = ['skedge', *{words!r}]\nfrom skedge.__main__ import main\n"
    end = "try:\n    main()\nexcept SystemExit:\n    pass\nsys.stderr.write('\\n'.join(sys.modules))"
    ended = python(begin + end)
    assert ended.returncode == 0, ended.stderr
    return set(ended.stderr.splitlines())


def test_help_imports_no_library_of_numbers() -> None:
    imported = imported_by("--help")
    assert "typer" in imported
    assert not imported & {"numpy", "scipy", "numba", "polars", "pydantic", "rich", "yaml", "joblib"}


def test_the_list_of_policies_imports_neither_solvers_nor_numba_nor_polars() -> None:
    """Reading the parameters of a policy needs numpy and pydantic alone."""
    imported = imported_by("policies")
    assert "skedge.policies.pdors.policy" in imported
    assert not imported & {"scipy", "scipy.optimize", "ortools", "highspy", "ray", "torch", "numba", "polars"}


def test_the_supervisor_of_a_service_imports_no_library() -> None:
    """It lives as long as the service, in a few megabytes."""
    ended = python("import sys, skedge.live.service.supervisor\nprint(*sys.modules)")
    assert not set(ended.stdout.split()) & {"numpy", "scipy", "numba", "polars", "pydantic", "ray", "torch", "uvicorn"}
    assert "skedge.live.controller.settings" in ended.stdout


@pytest.mark.parametrize(
    "words", [("up", "c.yaml"), ("record",), ("backup",), ("fetch", "a"), ("live", "live-demo"), ("profile", "a")]
)
def test_without_the_extra_what_trains_for_real_is_refused(
    words: tuple[str, ...], skedge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skedge.cli.extra.find_spec", lambda name: None if name == "ray" else name)
    said = skedge(*words)
    assert said.code != 0
    assert "this needs the extra `live`: pip install 'skedge[live]' (there is no module ray)" in said.words


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_that_is_shown_before_a_command_is_imported_is_its_own(name: str) -> None:
    command = LazyCommand(name, *COMMANDS[name])
    assert command.help == command.command.help
    assert command.command.name in {name, ""}  # a group has the name that it is called by


def test_trace_convert_is_imported_only_when_it_is_called() -> None:
    group = LazyCommand("trace", *COMMANDS["trace"]).command
    convert = group.commands["convert"]
    assert list(group.commands) == ["describe", "convert"]
    assert convert.help == convert.command.help
    assert "skedge.scenario.file" not in imported_by("trace", "--help")


def test_ctrl_c_waits_for_the_function_that_is_compiled() -> None:
    """An exception in the midst of it would leave numba with half a function."""
    ended = python("""
import os, signal
from skedge.platform import jit
twice = jit.compiled(lambda x: 2 * x)
jit.watchers.append(lambda begins: begins and os.kill(os.getpid(), signal.SIGINT))
try:
    print(twice(1))
except KeyboardInterrupt:
    jit.watchers.clear()
    print("interrupted", twice(2))
""")
    assert (ended.stdout, ended.stderr) == ("interrupted 4\n", "")


def test_ctrl_c_while_python_imports_is_one_line_and_130() -> None:
    ended = python("""
import sys
from skedge.__main__ import main

class Interrupted:
    def find_spec(self, name, path, target=None):
        if name == "skedge.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
main()
""")
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr == "skedge: interrupted; nothing was written\n"


def test_ctrl_c_while_a_command_is_imported_is_one_line_and_130() -> None:
    ended = python("""
import sys
from skedge.__main__ import main

class Interrupted:
    def find_spec(self, name, path, target=None):
        if name == "polars":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
sys.argv = ["skedge", "metrics", "nowhere"]
main()
""")
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr == "skedge: interrupted; nothing was written\n"


# --- public names


@pytest.mark.parametrize("name", ["run", "compare", "explain"])
def test_a_function_is_public_and_no_module_has_its_name(name: str) -> None:
    """A module of the name would hide it once it is imported."""
    module = import_module(f"skedge.{skedge._MODULES[name]}")
    assert isinstance(getattr(skedge, name), FunctionType)
    assert getattr(skedge, name) is getattr(module, name)
    with pytest.raises(ModuleNotFoundError):
        import_module(f"skedge.{name}")


def test_every_public_name_is_there_and_no_other() -> None:
    assert all(getattr(skedge, name) is not None for name in skedge.__all__)
    assert set(skedge.__all__) <= set(dir(skedge))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        skedge.nothing  # noqa: B018


# --- kernels


def test_importing_the_package_imports_nothing_else() -> None:
    ended = python("import sys, skedge; print('numpy' in sys.modules, 'polars' in sys.modules)")
    assert ended.stdout == "False False\n"


def test_a_kernel_is_pickled_by_its_name() -> None:
    """Work goes to other processes."""
    assert pickle.loads(pickle.dumps(upload_row)) is upload_row  # noqa: S301


def test_a_step_is_the_same_called_from_python_and_from_a_kernel() -> None:
    delays: Delays = small_scenario(0).delays
    row = upload_row(delays, 3)
    assert isinstance(upload_delay, CompiledFunction)
    np.testing.assert_array_equal(row, [upload_delay(delays, 3, server) for server in range(len(row))])
    np.testing.assert_array_equal(row, [upload_delay.py_func(delays, 3, server) for server in range(len(row))])


def test_no_kernel_uses_a_name_of_a_source_that_the_key_of_the_cache_leaves_out() -> None:
    """A constant from elsewhere could change, and the compiled kernel would keep the old one."""
    package = Path(skedge.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    folders = {package / "core", package / "loops"}
    in_key = {path for path, text in texts.items() if folders & {*path.parents} or "jit import" in text}
    kernels = 0
    for path in in_key:
        tree = ast.parse(texts[path])
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        marked = [f for f in functions if KERNELS & set(map(_name, f.decorator_list))]
        kernels += len(marked)
        used = set().union(*map(_global_names, marked))
        for n in tree.body:
            if isinstance(n, ast.ImportFrom) and used & {one.asname or one.name for one in n.names}:
                source = _source(n, path, package)
                assert source is None or source in in_key, f"{path}: {ast.unparse(n)}"
    assert kernels > 100


KERNELS = {"compiled", "lean", "unlocked", "inlined"}


def _global_names(function: ast.FunctionDef) -> set[str]:
    """Names that a function takes from its module."""
    names = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
    own = {n.arg for n in ast.walk(function.args) if isinstance(n, ast.arg)}
    return {n.id for n in names} - own - {n.id for n in names if isinstance(n.ctx, ast.Store)}


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _source(node: ast.ImportFrom, path: Path, package: Path) -> Path | None:
    """The file that names of a module of ours are imported from; None of other packages, and of whole modules."""
    module = node.module or ""
    if not node.level and not module.startswith("skedge."):
        return None
    folder = path.parents[node.level - 1] if node.level else package.parent
    source = folder.joinpath(*filter(None, module.split(".")))
    # the names of a package are modules, each of which is looked at by itself
    return None if source.is_dir() else source.with_suffix(".py")
