"""The documentation as pages: it builds without a warning, and needs no network to be read."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest

from builders.paths import ROOT

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        not (find_spec("material") and find_spec("mkdocstrings")), reason="the extra docs is not installed"
    ),
]


def build(folder: Path, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(root / "mkdocs.yml")]
    return subprocess.run([*command, "--site-dir", str(folder)], capture_output=True, text=True, cwd=root, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


class Loaded(HTMLParser):
    """What a browser loads of itself when it opens a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {"link": "href", "script": "src", "img": "src", "iframe": "src"}
        self.addresses += [value for name, value in attrs if value and names.get(tag) == name]


def test_no_page_loads_anything_from_a_server(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    loaded = {address for page in pages for address in Loaded(page).addresses}
    assert len(pages) > 40
    assert any(address.endswith("iframe-worker.js") for address in loaded)
    assert [address for address in loaded if re.match(r"(https?:)?//", address)] == []


def test_llms_txt_leads_to_every_page_of_the_navigation(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# skedge\n\n> ")
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", text, re.MULTILINE)
    named = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2])
    assert len(links) == len(set(links)) == len(named)
    assert all((site / link).is_file() for link in links)


def test_the_site_has_the_schemas_and_a_notebook_for_every_tutorial(site: Path) -> None:
    for path in (ROOT / "src" / "skedge").glob("*.schema.json"):
        assert (site / path.name).read_bytes() == path.read_bytes()
    for page in (ROOT / "docs" / "tutorials").glob("*.md"):
        assert (site / "tutorials" / f"{page.stem}.ipynb").is_file()
        assert f'href="{page.stem}.ipynb"' in (site / "tutorials" / f"{page.stem}.html").read_text("utf-8")


def test_every_name_of_the_papers_leads_to_its_source(site: Path) -> None:
    """The line of Alg. 4 of PD-ORS is two clicks from the table: the name, and the source below it."""
    table = (site / "papers.html").read_text(encoding="utf-8")
    linked = set(re.findall(r'href="(reference/[^"#]+)#(skedge\.[^"]+)"', table))
    named = re.findall(r"`([a-z_]+(?:\.[a-z_0-9]+)+):([\w.]+)`", (ROOT / "docs" / "papers.md").read_text("utf-8"))
    assert {anchor for _, anchor in linked} == {f"skedge.{module}.{name}" for module, name in named}
    for page, anchor in linked:
        assert f'id="{anchor}"' in (site / page).read_text(encoding="utf-8")


def test_the_headers_of_the_policies_are_tables(site: Path) -> None:
    """The tables of symbols, which the docstrings write in reStructuredText, are HTML tables."""
    page = (site / "reference" / "pdors.html").read_text(encoding="utf-8")
    page = re.sub(r"<details.*?</details>", "", page, flags=re.DOTALL)  # the sources
    assert re.search(r"<th>paper</th>\s*<th>here</th>", page)
    assert ":func:" not in page
    assert ":class:" not in page


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    """A page with a link to a file, and to an anchor, that do not exist."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[gone](gone.md) [nowhere](#nowhere)\n", encoding="utf-8")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    validation = settings[settings.index("validation:") : settings.index("not_in_nav:")]
    (tmp_path / "mkdocs.yml").write_text(f"site_name: small\nstrict: true\n{validation}", encoding="utf-8")
    done = build(tmp_path / "site", tmp_path)
    assert done.returncode == 1
    assert "gone.md" in done.stderr
    assert "#nowhere" in done.stderr
