"""Hooks of MkDocs: the pages that are made from files outside ``docs/``.

README, changelog and contributing guide become pages, as does every file of the repository that a page links to. The
names in ``docs/papers.md`` link to their files; on the site they link to their entries in the reference, with the
source. The Markdown files keep the links that work in the repository; they are rewritten here.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]

FROM_ROOT = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
"""Pages that are files of the repository's root."""

LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".json": "json", ".cff": "yaml"}

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_SHOWN = re.compile(r"^::: (\S+)\n( +options:\n +show_submodules: true)?", re.MULTILINE)
_NAME = re.compile(r"\[`([a-z_]+(?:\.[a-z_0-9]+)+):([\w.]+)`\]\([^)]*\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from the root, those of linked files, and one for each module that docs/papers.md names."""
    for uri, name in FROM_ROOT.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text(encoding="utf-8")))
    for path in (ROOT / "src" / "skedge").glob("*.schema.json"):
        files.append(File.generated(config, path.name, abs_src_path=str(path)))
    pages = [file for file in files if file.is_documentation_page()]
    linked = {target for page in pages for target, _ in _links(_NAME.sub("", page.content_string), page.src_uri)}
    for path in sorted(linked):
        if not path.startswith("docs/") and path not in FROM_ROOT.values() and (ROOT / path).is_file():
            files.append(File.generated(config, _uri(path), content=_shown(path)))
    shown = [one for page in pages for one in _SHOWN.findall(page.content_string)]
    for module in sorted({f"skedge.{name}" for name, _ in _NAME.findall((ROOT / "docs/papers.md").read_text("utf-8"))}):
        if not any(module == of or (inside and module.startswith(f"{of}.")) for of, inside in shown):
            files.append(File.generated(config, f"reference/code/{module}.md", content=f"# {module}\n\n::: {module}\n"))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make links of the repository links of the site."""
    here = page.file.src_uri
    if here == "papers.md":
        markdown = _NAME.sub(r"[`\1:\2`][skedge.\1.\2]", markdown)
    return _LINK.sub(lambda m: relpath(_uri(_target(m[1], here)), PurePosixPath(here).parent) + (m[2] or ""), markdown)


def _links(text: str, here: str) -> list[tuple[str, str]]:
    """(file, anchor) of all links of a page, files as paths in the repository."""
    return [(_target(path, here), anchor) for path, anchor in _LINK.findall(text)]


def _target(path: str, here: str) -> str:
    """The path in the repository that a link on the page `here` names."""
    return normpath(PurePosixPath(FROM_ROOT.get(here, f"docs/{here}")).parent / path)


def _uri(path: str) -> str:
    """The page of a file of the repository."""
    for uri, name in FROM_ROOT.items():
        if path == name:
            return uri
    return path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}.md"


def _shown(path: str) -> str:
    """A page that shows a file."""
    language = LANGUAGES.get(PurePosixPath(path).suffix, "text")
    return f"# {path}\n\n`````{language}\n{(ROOT / path).read_text(encoding='utf-8')}`````\n"
