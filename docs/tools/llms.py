"""A hook of MkDocs: ``llms.txt`` at the root of the site, in the form of llmstxt.org, for programs that read it.

What the project is, and a line for each page of the navigation: its title, its address and its first sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_pages: dict[str, tuple[str, str]] = {}
"""Address and first sentence by the page's source."""

_MARKUP = re.compile(r"\[([^\]]+)\]\([^)]*\)|[*`]")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Note the page's address and what it begins with."""
    paragraphs = re.split(r"\n\s*\n", re.sub(r"^```.*?^```$", "", markdown, flags=re.MULTILINE | re.DOTALL))
    text = next((one for one in paragraphs if re.match(r"[A-Z*`\[][^|]", one) and "notebook](" not in one), "")
    plain = _MARKUP.sub(lambda found: found[1] or "", " ".join(text.split()))
    _pages[page.file.src_uri] = page.file.url, re.split(r"(?<=[.:])\s", plain)[0].rstrip(":")
    return markdown


def on_post_build(config: Any) -> None:
    """Write the file."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for section in config.nav:
        for heading, entries in section.items():
            lines += [f"## {heading}", "", *_entries(entries), ""]
    (Path(config.site_dir) / "llms.txt").write_text("\n".join(lines), encoding="utf-8")


def _entries(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        title, of = next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)
        if isinstance(of, list):
            yield from _entries(of)
        else:
            address, text = _pages[of]
            yield f"- [{title or 'Overview'}]({address})" + (f": {text}" if text else "")
