"""A script that states its own job spec as inline metadata."""

from __future__ import annotations

from pathlib import Path

import pytest

from skedge.core.errors import ScenarioError
from skedge.scenario.file import read_spec

LINE = Path(__file__).parents[2] / "docs" / "examples" / "script" / "line.py"
TABLE = """# [tool.skedge]
# epochs = 2
# chunks = 2
# minibatches = 3
# minibatch_s = 0.1
# upload_edge_s = [0.2, 0.4]
# resources = {workers = 1, worker_type = "gpu"}
"""


def script(folder: Path, block: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(f"#!/usr/bin/env python\n# /// script\n{block}# ///\nimport torch\n", encoding="utf-8")
    return path


def test_a_script_is_its_own_spec(tmp_path: Path) -> None:
    """Name, code and factory follow from the file; what it imports from the standard's field."""
    path = script(tmp_path, '# dependencies = ["einops==0.8.0"]\n#\n' + TABLE)
    spec = read_spec(path)
    assert (spec["name"], spec["epochs"], spec["resources"]) == ("mine", 2, {"workers": 1, "worker_type": "gpu"})
    assert spec["train"] == {"factory": "mine:job", "code": str(path), "pip": ["einops==0.8.0"]}


def test_what_the_table_states_comes_first(tmp_path: Path) -> None:
    stated = '# name = "other"\n# train = {factory = "mine:fit", seed = 3}\n'
    spec = read_spec(script(tmp_path, TABLE + stated))
    assert (spec["name"], spec["train"]["factory"], spec["train"]["seed"]) == ("other", "mine:fit", 3)
    assert "pip" not in spec["train"]


@pytest.mark.parametrize(
    ("block", "sentence"),
    [
        ("# epochs = 2\n", r"mine.py: its block of inline metadata has no table \[tool.skedge\]"),
        ("# tool = 3\n", r"mine.py: its block of inline metadata has no table \[tool.skedge\]"),
        ("# [tool.skedge\n# a = 1\n", r"mine.py: its block .* is not TOML: .* \(at line 3, column 13\)"),
        (TABLE + "# train = 7\n", "mine.py: tool.skedge.train: must be a table, not 7"),
        (TABLE + "# epoch = 7\n", "mine.py: epoch: "),
        (TABLE.replace("chunks = 2", "chunks = -2"), "mine.py: chunks"),
        (f"{TABLE}# ///\n# /// script\n{TABLE}", "mine.py: has 2 blocks of inline metadata"),
        ('# dependencies = ["--pre"]\n' + TABLE, r"mine.py: train.pip"),
        ('# dependencies = "einops"\n' + TABLE, r"mine.py: train.pip"),
    ],
)
def test_a_wrong_block_is_one_sentence(tmp_path: Path, block: str, sentence: str) -> None:
    with pytest.raises(ScenarioError, match=sentence):
        read_spec(script(tmp_path, block))


def test_a_script_without_a_block_and_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text("import torch\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"bare.py: has 0 blocks of inline metadata; .* states its job spec in one"):
        read_spec(tmp_path / "bare.py")
    with pytest.raises(ScenarioError, match=r"none.py: cannot be read: No such file"):
        read_spec(tmp_path / "none.py")


def test_the_example_states_a_whole_spec() -> None:
    spec = read_spec(LINE)
    assert spec["name"] == "line"
    assert spec["train"] == {"factory": "line:job", "code": str(LINE), "pip": ["torch"]}
