"""Runs a tutorial: its files are written, its commands and its Python carried out, and what it shows is compared.

Of the fenced blocks of a page

- one with a title is written into a file of that name,
- ``python`` without a title is executed, all blocks of a page in one namespace,
- ``sh`` holds commands, one a line: those of skedge run in this process, others in a shell,
- ``text`` is what the block before it printed; ``…`` stands for anything.

A block in any other language, or any other block of text, is an error: nothing is passed over.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_FENCE = re.compile(
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and the line on which it begins."""

    line: int
    language: str
    title: str | None
    text: str


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for found in _FENCE.finditer(page):
        yield Block(page.count("\n", 0, found.start()) + 1, found["language"], found["title"], found["text"])


def same(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed: trailing spaces do not count, and ``…`` stands for anything."""
    lines = "\n".join(line.rstrip() for line in printed.strip("\n").split("\n")).rstrip()
    return re.fullmatch(".*?".join(map(re.escape, shown.strip("\n").split("…"))), lines, re.DOTALL) is not None


@dataclass
class Tutorial:
    """A page that is carried out in a folder; `skedge` runs one command line and returns what it printed."""

    page: Path
    folder: Path
    skedge: Callable[[list[str]], str]
    printed: str | None = None
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "tutorial"})

    def run(self) -> int:
        """Carry out all blocks; returns how many outputs were compared."""
        compared = 0
        for block in blocks(self.page.read_text(encoding="utf-8")):
            where = f"{self.page.name}, line {block.line}"
            if block.title is not None:
                (self.folder / block.title).write_text(block.text, encoding="utf-8")
                self.printed = None
            elif block.language == "text":
                assert self.printed is not None, f"{where}: no block before it printed anything"
                assert same(block.text, self.printed), f"{where}: it printed\n{self.printed}"
                compared, self.printed = compared + 1, None
            else:
                self.printed = self.carry_out(block, where)
        return compared

    def carry_out(self, block: Block, where: str) -> str:
        """Run a block of code or of commands; what it printed."""
        assert block.language in {"python", "sh"}, f"{where}: a block is python, sh or text, or has a title"
        if block.language == "sh":
            return "".join(self.command(line) for line in block.text.splitlines())
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block.text, where, "exec"), self.names)  # noqa: S102 - our own page
        return printed.getvalue()

    def command(self, line: str) -> str:
        """Run one command line; what it printed."""
        words = line.partition("#")[0].split()
        if words[0] == "skedge":
            return self.skedge(words[1:])
        shell = ["/bin/sh", "-c", line]
        done = subprocess.run(shell, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout
