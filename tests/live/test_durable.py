"""What a service keeps is whole, and on the disk before anything follows from it."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from skedge.live import host
from skedge.live.controller.settings import SETTINGS, Settings, save_settings
from skedge.live.durable import PRIVATE, append, make_folder, names_in, read, remove, write_piece, write_whole
from skedge.live.host.files import Disk, PathLike
from skedge.live.worker.agent import Agent
from skedge.live.worker.checkpoint import Checkpoints, Life
from skedge.live.worker.code_archive import Codes, digest
from skedge.live.worker.framing import framed
from skedge.live.worker.job_processes import ForkServerClient


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is flushed and renamed, by name, in order; names written aside have that of their file."""
    noted, sync, rename = list[str](), os.fsync, os.replace

    def flushed(handle: int) -> None:
        noted.append(f"flush {Path(os.readlink(f'/proc/self/fd/{handle}')).name}")
        sync(handle)

    def renamed(source: Path, target: Path) -> None:
        noted.append(f"rename to {Path(target).name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    return noted


def settings(folder: Path) -> str:
    save_settings(folder, Settings("fifo"))
    return SETTINGS


def code(folder: Path) -> str:
    Codes(folder / "code").keep(b"archive")
    return f"{digest(b'archive')}.zip"


def checkpoint(folder: Path) -> str:
    Checkpoints(str(folder)).write("job", Life(1, 1), 3, b"state")
    return "000001-000001-000000000003.ckpt"


def chunk(folder: Path) -> str:
    content = framed(b"samples")
    agent = Agent("e0", str(folder))
    assert agent.store("job", 0, 0, content[:9], last=False) == 9
    assert agent.store("job", 0, 9, content[9:], last=True) == len(content)
    return "000000.pt"


@pytest.mark.parametrize("write", [settings, code, checkpoint, chunk])
def test_a_file_is_flushed_then_renamed_and_then_its_folder_is_flushed(
    tmp_path: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], str]
) -> None:
    monkeypatch.setattr(ForkServerClient, "start", lambda _: None)
    name = write(tmp_path)
    (place,) = tmp_path.rglob(name)
    at = steps.index(f"rename to {name}")
    assert (name in steps[at - 1] or "partial" in steps[at - 1], steps[at - 1][:6]) == (True, "flush ")
    assert steps[at + 1] == f"flush {place.parent.name}"


def test_a_new_folder_is_flushed_where_it_is_named(tmp_path: Path, steps: list[str]) -> None:
    code(tmp_path)
    assert steps[0] == f"flush {tmp_path.name}"


def test_each_folder_that_is_made_is_flushed_where_it_is_named(tmp_path: Path, steps: list[str]) -> None:
    make_folder(tmp_path / "a" / "b" / "c", 0o700)
    assert steps == [f"flush {tmp_path.name}", "flush a", "flush b"]
    (tmp_path / "plain").mkdir()
    modes = [stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("plain", "a", "a/b", "a/b/c")]
    assert modes == [modes[0]] * 3 + [0o700]
    make_folder(tmp_path / "a" / "b" / "c")
    assert len(steps) == 3, "all are there"


def test_a_disk_that_says_nothing_of_its_uppermost_folder_is_an_error_and_no_endless_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by seed 1531: all of a disk fails for a moment, and `/` is no folder then."""

    class Away(Disk):
        def size(self, path: PathLike) -> int | None:
            raise OSError(5, "Input/output error", str(path))

        def mkdir(self, path: PathLike, mode: int = 0o777) -> None:
            raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(host, "disk", Away())
    with pytest.raises(OSError, match="Input/output error"):
        make_folder(tmp_path / "a")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "")
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        with pytest.raises((FileExistsError, NotADirectoryError)):
            make_folder(path)


def test_what_is_appended_comes_after_what_is_there(tmp_path: Path) -> None:
    for content in (b"1", b"", b"2" * 10):
        append(tmp_path / "a", content, PRIVATE)
    assert read(tmp_path / "a") == b"1" + b"2" * 10
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == PRIVATE


def test_a_disk_that_writes_parts_gets_all(tmp_path: Path) -> None:
    class Parts(Disk):
        def open(self, path: PathLike, mode: str = "r", permissions: int = 0o666) -> io.RawIOBase:
            file = super().open(path, mode, permissions)
            whole_write = file.write
            file.write = lambda content: whole_write(content[:3])
            return file

    with host.installed(SimpleNamespace(**{**vars(host), "disk": Parts()})):
        write_whole(tmp_path / "a", "1234567890")
        write_piece(tmp_path / "a", 8, b"abcdef")
    assert read(tmp_path / "a") == b"12345678abcdef"


def test_what_is_missing_has_no_names_and_is_removed_already(tmp_path: Path) -> None:
    assert names_in(tmp_path / "a") == []
    remove(tmp_path / "a")


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    write_whole(tmp_path / "file", "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "file", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "old"}
