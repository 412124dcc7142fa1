"""The tutorials as notebooks, which Jupyter opens: ``tutorials/NAME.ipynb`` on the site, one for each page.

    python docs/tools/notebooks.py FOLDER     # writes them into a folder

The pages are the source. Of their fenced blocks

- one with a title becomes a cell that writes a file of that name,
- ``python`` without a title is a cell,
- ``sh`` is a cell of commands,
- ``text`` is the output of the cell before it; ``…`` stands for anything.

A block in any other language, or an output of nothing, is an error: nothing is passed over.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

PAGES = Path(__file__).resolve().parents[1] / "tutorials"

_FENCE = re.compile(
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$\n?", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")

Cell = dict[str, Any]


def notebook(page: str) -> dict[str, Any]:
    """A page as a notebook, with the outputs that it shows.

    Raises
    ------
    ValueError
        If a block is none of those above; gives its line.
    """
    cells: list[Cell] = []
    at = 0
    for block in _FENCE.finditer(page):
        _add_text(cells, page[at : block.start()])
        _add_block(cells, block, page.count("\n", 0, block.start()) + 1)
        at = block.end()
    _add_text(cells, page[at:])
    for number, cell in enumerate(cells):
        cell |= {"id": f"cell-{number}", "metadata": {}}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _add_text(cells: list[Cell], text: str) -> None:
    """Text between blocks; links to other pages lead nowhere from a notebook, and are left out."""
    if text.strip():
        cells.append({"cell_type": "markdown", "source": _LINK.sub(r"\1", text.strip())})


def _add_block(cells: list[Cell], block: re.Match[str], line: int) -> None:
    language, title, text = block["language"], block["title"], block["text"]
    if language == "text" and title is None:
        if not cells or cells[-1].get("outputs") != []:
            raise ValueError(f"line {line}: no block before it prints this")
        cells[-1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}]
        return
    if title is None and language not in ("python", "sh"):
        raise ValueError(f"line {line}: {language or 'a block'}: a block is python, sh or text, or has a title")
    first = f"%%writefile {title}\n" if title else "%%sh\n" if language == "sh" else ""
    source = first + text.rstrip("\n")
    cells.append({"cell_type": "code", "execution_count": None, "outputs": [], "source": source})


def write(folder: Path) -> None:
    """Write all notebooks into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in PAGES.glob("*.md"):
        (folder / page.name).with_suffix(".ipynb").write_text(_text(page), encoding="utf-8")


def _text(page: Path) -> str:
    return json.dumps(notebook(page.read_text(encoding="utf-8")), indent=1, ensure_ascii=False) + "\n"


# -- hooks of MkDocs ---------------------------------------------------------------------------------------------------


def on_files(files: Any, config: Any) -> Any:
    """Add the notebooks to the site."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - the notebooks are made without MkDocs, too

    for page in PAGES.glob("*.md"):
        files.append(File.generated(config, f"tutorials/{page.stem}.ipynb", content=_text(page)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Offer the notebook below the title of a tutorial."""
    if not page.file.src_uri.startswith("tutorials/"):
        return markdown
    title, _, rest = markdown.partition("\n")
    return f"{title}\n\n[This page as a notebook]({Path(page.file.src_uri).stem}.ipynb)\n{rest}"


if __name__ == "__main__":
    write(Path(sys.argv[1]))
