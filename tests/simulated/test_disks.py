"""A simulated disk is used as a real one, and loses by a power cut what a real one may lose, no less."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from skedge.live import durable
from skedge.live import host as seam
from skedge.live.host.files import Disk as Real

from . import host
from .disks import DISK_KINDS, PAGE, Disk, disk
from .faults import Fault
from .scheduler import World, running_world

SEEDS = 60
"""Seeds on which a property must hold, and within which a planted bug must be found."""


class RealDisk:
    """The disk of this machine from a folder on, and what the live part writes there durably."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def free(self) -> int:
        return Real().free(self._root)

    def replace(self, source: str, target: str) -> None:
        Real().replace(self._path(source), self._path(target))

    def __getattr__(self, name: str) -> Any:
        operation = getattr(durable if name in {"read", "write_whole", "make_folder"} else Real(), name)
        return lambda path, *args: operation(self._path(path), *args)

    def _path(self, path: str) -> Path:
        return self._root / path.lstrip("/")


def simulate(program: Callable[[Disk], object], seed: int = 0, faults: Sequence[Fault] = ()) -> World:
    """Run a program as the only process of a machine, with its disk; what it raises is raised."""
    with World(seed, faults) as world:
        world.process("p", partial(program, disk("machine")))
        world.run()
        for crash in world.crashes:
            raise crash.error
    return world


def after_power_cut(program: Callable[[Disk], object], look: Callable[[Disk], object], seed: int, fault: Fault) -> bool:
    """Run a program until a fault, then another on the same disk; False if the fault came too late."""
    with World(seed, [fault]) as world:
        process, files = world.process("p", partial(program, disk("machine"))), disk("machine")
        world.run()
        cut = fault.operation is not None and process.operations >= fault.operation
        world.process("q", partial(look, files))
        world.run()
        for crash in world.crashes:
            raise crash.error
    return cut


# --- as the operating system has it

CONTRACTS: list[Callable[[Any], None]] = []


def contract(program: Callable[[Any], None]) -> Callable[[Any], None]:
    """Mark a program that must run without error on both disks."""
    CONTRACTS.append(program)
    return program


@contract
def a_file_is_written_and_read(files: Any) -> None:
    with files.open("/a", "w") as file:
        assert file.write(b"hello") == 5
        assert file.write(b"") == 0
        assert file.writable()
        assert file.seek(1) == 1
        file.write(b"E")
        assert file.seek(2, io.SEEK_CUR) == 4
        assert file.seek(0, io.SEEK_END) == 5
    assert files.read("/a") == b"hEllo"
    with files.open("/a") as file:
        assert (file.read(2), file.read(), file.read()) == (b"hE", b"llo", b"")
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
    with pytest.raises(ValueError, match="closed file"):
        file.read()
    assert files.size("/a") == 5


@contract
def a_mode_says_what_becomes_of_the_content(files: Any) -> None:
    for mode, content in (("x", b"12345"), ("r+", b"ab345"), ("a", b"ab345ab"), ("w", b"ab")):
        with files.open("/a", mode) as file:
            file.write(b"12345" if mode == "x" else b"ab")
        assert files.read("/a") == content
    with files.open("/a", "w") as file, pytest.raises(io.UnsupportedOperation):
        file.read()
    with pytest.raises(FileExistsError):
        files.open("/a", "x")
    for mode in ("r", "r+"):
        with pytest.raises(FileNotFoundError):
            files.open("/absent", mode)


@contract
def a_gap_is_of_zeros_and_a_file_can_be_cut(files: Any) -> None:
    with files.open("/a", "w") as file:
        file.write(b"1" * 5000)
        file.truncate(2)
        file.seek(4)
        file.write(b"5")
    assert files.read("/a") == b"11\0\x005"


@contract
def an_open_file_keeps_its_content_when_its_name_goes(files: Any) -> None:
    with files.open("/a", "w") as file:
        files.replace("/a", "/b")
        file.write(b"1")
        assert files.read("/b") == b"1"
        files.remove("/b")
        file.write(b"2")
    assert files.names("/") == []


@contract
def a_rename_takes_the_place_of_a_file(files: Any) -> None:
    for name in "ab":
        with files.open(f"/{name}", "w") as file:
            file.write(name.encode())
    files.replace("/a", "/b")
    assert files.names("/") == ["b"]
    assert files.read("/b") == b"a"
    files.replace("/b", "/b")
    assert files.read("/b") == b"a"
    with pytest.raises(FileNotFoundError):
        files.replace("/a", "/b")
    files.mkdir("/folder")
    with pytest.raises(IsADirectoryError):
        files.replace("/b", "/folder")


@contract
def folders_hold_files_and_folders(files: Any) -> None:
    files.mkdir("/f")
    files.mkdir("/f/g")
    files.open("/f/a", "w").close()
    assert files.names("/f") == ["a", "g"]
    assert files.size("/f") is None
    for path in ("/f", "/f/a", "/"):
        assert files.exists(path)
        files.flush(path)
    assert not files.exists("/f/b")
    assert not files.exists("/f/a/b")
    with pytest.raises(FileExistsError):
        files.mkdir("/f")
    with pytest.raises(IsADirectoryError):
        files.open("/f", "w")
    for act in (files.open, files.mkdir, files.names, files.size, files.flush):
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            act("/f/a/b/c")
    with pytest.raises(NotADirectoryError):
        files.names("/f/a")
    with pytest.raises(OSError, match="not empty"):
        files.remove("/f")
    for path in ("/f/a", "/f/g", "/f"):
        files.remove(path)
    with pytest.raises(FileNotFoundError):
        files.remove("/f")
    assert files.names("/") == []


@contract
def a_stamp_tells_files_apart(files: Any) -> None:
    for path in ("/a", "/b"):
        files.write_whole(path, b"1")
    first = files.stamp("/a")
    assert files.stamp("/a") == first
    assert files.stamp("/b")[:2] != first[:2]
    files.write_whole("/a", b"1")
    assert files.stamp("/a")[:2] != first[:2]
    files.mkdir("/f")
    assert files.stamp("/f")[:2] == files.stamp("/f/")[:2]
    with pytest.raises(FileNotFoundError):
        files.stamp("/c")


@contract
def a_folder_is_renamed(files: Any) -> None:
    files.make_folder("/f/g")
    files.write_whole("/f/g/a", b"1")
    files.replace("/f/g", "/f/h")
    assert files.read("/f/h/a") == b"1"
    assert files.names("/f") == ["h"]


@contract
def a_file_is_written_whole(files: Any) -> None:
    files.make_folder("/f/g")
    files.make_folder("/f/g")
    for content in (b"", b"1" * 3 * PAGE, b"2"):
        files.write_whole("/f/g/a", content)
        assert files.read("/f/g/a") == content
        assert files.names("/f/g") == ["a"]
    assert files.free() > 0


@pytest.mark.parametrize("kind", ["real", "virtual"])
@pytest.mark.parametrize("program", CONTRACTS, ids=lambda program: program.__name__)
def test_contract(program: Callable[[Any], None], kind: str, tmp_path: Path) -> None:
    if kind == "real":
        program(RealDisk(tmp_path))
    else:
        for seed in range(5):
            simulate(program, seed)


def test_operations_are_switch_points() -> None:
    """Flushes and renames have one before their effect and one after it; a write of many pages has one within it."""

    def program(files: Disk) -> None:
        files.make_folder("/f")
        files.write_whole("/f/a", b"1")
        files.read("/f/a")
        files.open("/f/a", "a").truncate(0)
        for act in (files.names, files.size, files.remove):
            act("/f/a" if act != files.names else "/f")
        files.free()

    steps = [step.operation.replace("machine:", "") for step in simulate(program).history if step.thread == "main"]
    aside = "/f/.a.1.partial"
    assert steps == [
        *("exists /f", "exists ", "mkdir /f", "flush /", "flushed /"),
        *(f"open {aside}", f"write {aside}", f"flush {aside}", f"flushed {aside}"),
        *(f"replace {aside} /f/a", "replaced /f/a", f"remove {aside}", "flush /f", "flushed /f"),
        *("open /f/a", "read /f/a", "read /f/a", "open /f/a", "truncate /f/a"),
        *("names /f", "size /f/a", "remove /f/a", "free /"),
        "ended",
    ]


# --- power cuts

OLD, NEW = b"1" * (3 * PAGE + 7), b"2" * (5 * PAGE + 9)


def replaced(files: Disk, path: str = "/a", *, flush_file: bool = True, flush_folder: bool = True) -> None:
    """A file written aside and renamed, as the live part writes, with a flush left out or not."""
    folder = path.rpartition("/")[0]
    files.make_folder(folder)
    files.write_whole(path, OLD)
    with files.open(f"{folder}/aside", "w") as file:
        file.write_all(NEW)
    if flush_file:
        files.flush(f"{folder}/aside")
    files.replace(f"{folder}/aside", path)
    if flush_folder:
        files.flush(folder or "/")
    host.sleep(10.0)


def contents_after_a_cut(program: Callable[[Disk], None], path: str = "/a") -> set[bytes]:
    """What is in a file after a power cut at 5 s, when the program sleeps, on each seed."""
    contents: set[bytes] = set()
    for seed in range(SEEDS):
        fault = Fault("power", "p", time_s=5.0)
        after_power_cut(program, lambda files: contents.add(files.read(path)), seed, fault)
    return contents


def test_what_was_flushed_outlives_a_power_cut() -> None:
    assert contents_after_a_cut(replaced) == {NEW}
    assert contents_after_a_cut(partial(replaced, flush_folder=False)) == {OLD, NEW}
    assert contents_after_a_cut(partial(replaced, path="/f/g/a", flush_folder=False), "/f/g/a") == {OLD, NEW}


def test_what_a_power_cut_took_does_not_come_back() -> None:
    """Not with a later flush, nor with a later power cut."""
    contents: list[bytes] = []

    def look(files: Disk) -> None:
        contents.append(files.read("/a"))
        files.flush("/a")
        files.flush("/")

    for seed in range(SEEDS):
        with World(seed, [Fault("power", "p", time_s=5.0)]) as world:
            world.process("p", partial(replaced, disk("machine"), flush_folder=False))
            world.run()
            for _ in range(2):
                world.process("q", partial(look, disk("machine")))
                world.run()
                world.cut_power(world.machine("machine"))
            assert world.crashes == []
    assert contents[::2] == contents[1::2]
    assert set(contents) == {OLD, NEW}


def test_a_rename_without_a_flush_before_tears_the_file() -> None:
    """Each page is there or is zeros, the length is the new one or 0; no page is mixed."""
    contents = contents_after_a_cut(partial(replaced, flush_file=False))
    assert b"" in contents
    assert len(contents) > 10
    for content in contents:
        assert len(content) in {0, len(NEW)}
        pages = [content[start : start + PAGE] for start in range(0, len(content), PAGE)]
        assert all(set(page) in ({0}, set(b"2")) for page in pages)


def test_an_overwritten_page_is_the_old_or_the_new_one() -> None:
    def program(files: Disk) -> None:
        files.write_whole("/a", OLD)
        with files.open("/a", "r+") as file:
            file.seek(PAGE)
            file.write_all(b"2" * PAGE)
        host.sleep(10.0)

    new = OLD[:PAGE] + b"2" * PAGE + OLD[2 * PAGE :]
    assert contents_after_a_cut(program) == {OLD, new}


def test_a_file_written_anew_in_place_is_the_old_one_the_new_one_or_zeros() -> None:
    def program(files: Disk) -> None:
        files.write_whole("/a", OLD)
        with files.open("/a", "w") as file:
            file.write_all(b"2")
        host.sleep(10.0)

    assert contents_after_a_cut(program) == {OLD, b"2", b"\0"}

    def flushed(files: Disk) -> None:
        files.write_whole("/a", OLD)
        with files.open("/a", "w") as file:
            file.write_all(b"2")
            files.flush("/a")
            file.write_all(b"3")
        host.sleep(10.0)

    assert contents_after_a_cut(flushed) == {b"2", b"23", b"2\0"}


def test_a_power_cut_at_any_operation_leaves_the_old_file_or_the_new_one() -> None:
    """And the new one if the write has returned; beside it at most what was being written aside."""

    def cut_at(number: int, seed: int) -> bool:
        returned: list[bytes] = []

        def program(files: Disk) -> None:
            files.make_folder("/f")
            for content in (OLD, NEW):
                files.write_whole("/f/a", content)
                returned.append(content)

        def look(files: Disk) -> None:
            if not returned:
                assert not files.exists("/f/a") or files.read("/f/a") == OLD
            else:
                assert files.read("/f/a") in {returned[-1], NEW}
                assert set(files.names("/f")) <= {"a", ".a.1.partial"}

        return after_power_cut(program, look, seed, Fault("power", "p", operation=number))

    lengths = [next(number for number in range(1, 200) if not cut_at(number, seed)) for seed in range(10)]
    assert min(lengths) > 20


def test_what_the_live_part_writes_outlives_a_power_cut_at_any_operation() -> None:
    """Its folders once they were made, and its file once the write has returned."""
    folder, file = Path("/f/g/h"), Path("/f/g/h/a")

    def cut_at(number: int, seed: int) -> bool:
        returned: list[bytes] = []

        def program(_: Disk) -> None:
            durable.make_folder(folder)
            returned.append(b"")
            for content in (OLD, NEW):
                durable.write_whole(file, content)
                returned.append(content)

        def look(files: Disk) -> None:
            last = returned[-1] if returned else None
            assert last is None or files.exists(folder)
            assert last or not files.exists(file) or durable.read(file) == OLD
            assert not last or durable.read(file) in {last, NEW}

        with seam.installed(host):
            return after_power_cut(program, look, seed, Fault("power", "p", operation=number))

    lengths = [next(number for number in range(1, 200) if not cut_at(number, seed)) for seed in range(10)]
    assert min(lengths) > 30


def test_a_folder_that_was_not_flushed_is_lost_with_all_in_it() -> None:
    outcomes: set[bool] = set()

    def program(files: Disk) -> None:
        files.mkdir("/f")
        files.write_whole("/f/a", NEW)
        host.sleep(10.0)

    for seed in range(SEEDS):
        fault = Fault("power", "p", time_s=5.0)
        after_power_cut(program, lambda files: outcomes.add(files.exists("/f/a")), seed, fault)
    assert outcomes == {False, True}


# --- other faults


def test_a_full_disk_writes_what_it_can() -> None:
    def program(files: Disk) -> None:
        files.capacity = 10
        with files.open("/a", "w") as file:
            assert file.write(b"1" * 7) == 7
            assert files.free() == 3
            assert file.write(b"2" * 7) == 3
            with pytest.raises(OSError, match="No space left") as error:
                file.write(b"3")
            assert error.value.errno == errno.ENOSPC
            file.seek(0)
            assert file.write(b"4" * 20) == 10
        with pytest.raises(OSError, match="No space left"):
            files.write_whole("/b", b"5")
        assert files.names("/") == ["a"]
        files.remove("/a")
        files.make_folder("/f/g")
        files.write_whole("/f/g/b", b"5")
        assert files.free() == 9

    simulate(program)


def test_a_disk_is_full_broken_and_slow_for_some_time() -> None:
    def program(files: Disk) -> None:
        files.write_whole("/a", b"1")
        host.sleep(10.5 - running_world().now)
        assert files.free() == 0
        with pytest.raises(OSError, match="No space left"):
            files.write_whole("/b", b"2")
        assert files.read("/a") == b"1"
        host.sleep(20.5 - running_world().now)
        for act in (partial(files.read, "/a"), partial(files.write_whole, "/a", b"2"), files.free):
            with pytest.raises(OSError, match="Input/output error"):
                act()
        host.sleep(30.5 - running_world().now)
        began = host.monotonic()
        for _ in range(10):
            files.size("/a")
        assert 1.0 < host.monotonic() - began < 20.0
        host.sleep(100.0)
        began = host.monotonic()
        files.write_whole("/b", b"2")
        assert host.monotonic() - began < 0.1

    faults = [
        Fault("full", "p", time_s=10.0, seconds=5.0),
        Fault("broken", "p", time_s=20.0, seconds=5.0),
        Fault("slow", "p", time_s=30.0, seconds=60.0),
        Fault("full", "no process of this machine", time_s=90.0, seconds=1000.0),
    ]
    assert {fault.kind for fault in faults} < set(DISK_KINDS)
    simulate(program, faults=faults)


def test_what_could_not_be_flushed_is_lost_although_a_later_flush_succeeds() -> None:
    def program(files: Disk) -> None:
        files.write_whole("/a", b"1")
        with files.open("/a", "r+") as file:
            file.write(b"2")
        files.suffer("broken", 1.0)
        with pytest.raises(OSError, match="Input/output error"):
            files.flush("/a")
        host.sleep(2.0)
        files.flush("/a")
        assert files.read("/a") == b"2"
        host.sleep(10.0)

    assert contents_after_a_cut(program) == {b"1"}


def test_a_flipped_bit_is_one_and_stays() -> None:
    def program(files: Disk) -> None:
        files.write_whole("/a", OLD)
        files.write_whole("/empty", b"")
        host.sleep(10.0)

    def look(files: Disk) -> None:
        content = files.read("/a")
        assert len(content) == len(OLD)
        assert sum((x ^ y).bit_count() for x, y in zip(content, OLD, strict=True)) == 1

    for seed in range(5):
        with World(seed, [Fault("flip", "p", time_s=1.0), Fault("power", "p", time_s=2.0)]) as world:
            world.process("p", partial(program, disk("machine")))
            world.run()
            world.process("q", partial(look, disk("machine")))
            world.run()
            assert world.crashes == []


def test_a_kill_within_a_write_leaves_pages_of_it() -> None:
    """Without a power cut nothing else is lost."""
    sizes: set[int] = set()

    def program(files: Disk) -> None:
        with files.open("/a", "w") as file:
            file.write_all(NEW)

    for seed in range(SEEDS):
        for number in range(1, 6):
            fault = Fault("kill", "p", operation=number)
            after_power_cut(program, lambda files: sizes.update(map(len, contents_if_there(files))), seed, fault)
    assert sizes == {*range(0, 6 * PAGE, PAGE), len(NEW)}


def contents_if_there(files: Disk) -> list[bytes]:
    return [files.read("/a")] if files.exists("/a") else []


def test_two_machines_have_two_disks() -> None:
    with World(0, [Fault("power", "a", time_s=1.0)]) as world:
        for name in "ab":

            def program(name: str = name) -> None:
                with disk(name).open("/file", "w") as file:
                    file.write(name.encode())
                host.sleep(2.0)

            world.process(name, program, machine=name)
        world.run()
        presence: list[bool] = []
        world.process("q", lambda: presence.extend(disk(name).exists("/file") for name in "ab"))
        world.run()
    assert presence[1]
    assert world.crashes == []


# --- the object store


def as_object_store(files: Any, base: str) -> None:
    """What checkpoints need of an fsspec file system."""
    files.makedirs(f"{base}/jobs/a", exist_ok=True)
    files.makedirs(f"{base}/jobs/a", exist_ok=True)
    with pytest.raises(FileExistsError):
        files.makedirs(f"{base}/jobs/a")
    for content in (b"1", b"22"):
        files.pipe_file(f"{base}/jobs/a/1.ckpt", content)
        assert files.cat_file(f"{base}/jobs/a/1.ckpt") == content
    assert files.cat_file(f"{base}/jobs/a/1.ckpt", 1, 2) == b"2"
    names = [str(path).rsplit("/", 1)[-1] for path in files.ls(f"{base}/jobs/a", detail=False)]
    assert names == ["1.ckpt"]
    assert files.info(f"{base}/jobs/a/1.ckpt")["size"] == 2
    assert files.info(f"{base}/jobs/a")["type"] == "directory"
    assert files.isdir(f"{base}/jobs/a")
    assert files.isfile(f"{base}/jobs/a/1.ckpt")
    assert files.exists(f"{base}/jobs/a")
    assert not files.exists(f"{base}/jobs/b")
    with files.open(f"{base}/jobs/a/2.ckpt", "wb") as file:
        file.write(b"3")
    assert sorted(path.rsplit("/", 1)[-1] for path in files.find(base)) == ["1.ckpt", "2.ckpt"]
    files.rm_file(f"{base}/jobs/a/1.ckpt")
    for act in (files.cat_file, files.rm_file, files.info):
        with pytest.raises(FileNotFoundError):
            act(f"{base}/jobs/a/1.ckpt")
    files.rm(f"{base}/jobs", recursive=True)
    assert not files.exists(f"{base}/jobs")


@pytest.mark.parametrize("protocol", ["disk", "file", "memory"])
def test_an_object_store_is_used_as_any_file_system(protocol: str, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    if protocol == "disk":
        pytest.importorskip("simulated.object_store")
        simulate(lambda _: as_object_store(fsspec.filesystem("disk"), "disk://store"))
    else:
        base = str(tmp_path)
        as_object_store(fsspec.filesystem(protocol), base if protocol == "file" else f"memory:/{base}")


def test_an_object_is_put_as_a_whole_and_stays() -> None:
    """It outlives a power cut of its store at any later time, and of the machine that put it."""
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("simulated.object_store")
    files, base = fsspec.core.url_to_fs("disk://store/checkpoints")
    contents: list[bytes] = []
    for seed in range(10):
        with World(seed) as world:
            world.process("p", lambda: files.pipe_file(f"{base}/a/b", NEW))
            world.run()
            world.cut_power(world.machine("store"))
            world.cut_power(world.machine("machine"))
            world.process("q", lambda: contents.append(files.cat_file(f"{base}/a/b")))
            world.run()
    assert contents == [NEW] * 10
