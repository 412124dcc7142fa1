"""The page of the algorithms beside their references shows code that exists, and each policy's header names its own."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest

from builders.paths import ROOT

DOCS = ROOT / "docs"
PAGE = (DOCS / "reference-algorithms.md").read_text(encoding="utf-8")
POLICIES = sorted(
    path.parent.name for path in (ROOT / "src/skedge/policies").glob("*/__init__.py") if path.parent.name != "common"
)


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("references", DOCS / "tools" / "references.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_function_that_the_page_names_is_shown(hook: ModuleType) -> None:
    """No such line is left, and each block begins with the definition that it names."""
    named = [found["name"] for found in hook.LINE.finditer(PAGE)]
    shown = hook.on_page_markdown(PAGE)
    assert len(named) > 30
    assert hook.LINE.search(shown) is None
    blocks = re.findall(r"^```python\n(.*?)^```$", shown, re.MULTILINE | re.DOTALL)
    defined = [re.search(r"^(?:def|class) (\w+)", block, re.MULTILINE)[1] for block in blocks]  # type: ignore[index]
    assert defined == [name.rpartition(".")[2] for name in named]


def test_the_page_has_every_printed_algorithm() -> None:
    papers = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    algorithms = {section.splitlines()[0]: len(re.findall(r"^### Alg\.", section, re.MULTILINE)) for section in papers}
    titles = ("JSAC'22: A_online", "She et al.: A_online in batches", "PD-ORS", "Okita")
    assert [algorithms[title] for title in titles] == [5, 4, 4, 3]


def test_a_name_that_does_not_exist_fails(hook: ModuleType) -> None:
    with pytest.raises(LookupError, match=r"aonline.py has no no_such_function"):
        hook.on_page_markdown("[`aonline:no_such_function`](../tests/reference/aonline.py)\n")


def test_a_link_within_a_sentence_stays_a_link(hook: ModuleType) -> None:
    sentence = "see [`aonline:a_ps`](../tests/reference/aonline.py).\n"
    assert hook.on_page_markdown(sentence) == sentence


@pytest.mark.parametrize("policy", POLICIES)
def test_the_header_of_a_policy_names_a_reference_that_exists(policy: str) -> None:
    header = (ROOT / "src/skedge/policies" / policy / "__init__.py").read_text(encoding="utf-8")
    line = header[header.index("**Reference.**") :].partition("\n\n")[0]
    paths = re.findall(r"``(tests/[\w/]+\.py)``", line)
    assert paths
    assert [path for path in paths if not (ROOT / path).is_file()] == []
