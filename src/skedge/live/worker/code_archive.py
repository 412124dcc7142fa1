"""A job's own code, shipped with it: a deterministic archive of Python files, named by its SHA-256.

The archive of a job is kept in the state folder and sent to every process that runs the job's code, which imports it
from memory. A process serves one job only, so two versions of a module never meet in one process.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import os
import shutil
import sys
import zipfile
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from pathlib import Path, PurePosixPath

from skedge.core.errors import InputError, TrainingError
from skedge.live import host
from skedge.live.durable import make_folder, read, write_whole

CODE = "code"
"""Name of the archives' folder in a state folder and in a run folder."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
_MOST_FILES = 1000


def pack(path: Path) -> bytes:
    """The archive of a Python file, or of all Python files below a folder except hidden ones.

    Raises
    ------
    InputError
        If there are none, or too many, or one cannot be read.
    """
    base = path.parent if path.is_file() else path
    try:
        paths = [path] if path.is_file() else sorted(path.rglob("*.py"))
        names = [file.relative_to(base).as_posix() for file in paths]
        files = {name: base / name for name in names if not any(part[0] == "." for part in PurePosixPath(name).parts)}
        if not files or len(files) > _MOST_FILES:
            raise InputError(f"train.code: {path}: has {len(files)} Python files; there must be 1 to {_MOST_FILES}")
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for name in sorted(files):
                # one fixed date: equal files make equal archives, and so one name
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), files[name].read_bytes())
    except OSError as error:
        raise InputError(f"train.code: {path}: cannot be read: {error.strerror}") from error
    return buffer.getvalue()


def digest(code: bytes) -> str:
    """The name of an archive: its SHA-256."""
    return hashlib.sha256(code).hexdigest()


def files_in(code: bytes) -> dict[str, bytes]:
    """The files of an archive by name.

    Raises
    ------
    InputError
        If it is not as :func:`pack` makes it: an archive of uncompressed Python files, so that it takes no more memory
        than was sent.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(code)) as archive:
            infos = archive.infolist()
            wrong = next((info.filename for info in infos if not _is_plain(info)), None)
            if wrong is not None or len(infos) > _MOST_FILES or sum(info.file_size for info in infos) > len(code):
                raise InputError(f"code: {wrong or 'the archive'}: is not what `skedge submit` packs")
            return {info.filename: archive.read(info) for info in infos}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        raise InputError(f"code: is no archive of Python files: {error}") from error


def _is_plain(info: zipfile.ZipInfo) -> bool:
    path = PurePosixPath(info.filename)
    plain = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1
    return plain and path.suffix == ".py" and not path.is_absolute() and ".." not in path.parts


def modules_in(code: bytes) -> set[str]:
    """Names of the modules of an archive."""
    parts = [PurePosixPath(name).with_suffix("").parts for name in files_in(code)]
    return {".".join(part[:-1] if part[-1] == "__init__" else part) for part in parts}


def changes(before: bytes, after: bytes) -> dict[str, list[str]]:
    """Names of the files that were ``added``, ``removed`` and ``changed`` from one archive to another.

    Raises
    ------
    InputError
        If one of them is no archive.
    """
    old, new = files_in(before), files_in(after)
    return {
        "added": sorted(new.keys() - old.keys()),
        "removed": sorted(old.keys() - new.keys()),
        "changed": sorted(name for name in old.keys() & new.keys() if old[name] != new[name]),
    }


class Codes:
    """The archives of a run's jobs, in a folder of the run's state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, code: bytes) -> str:
        """Store an archive, whole and durably; returns its name."""
        name = digest(code)
        path = self._path(name)
        if not host.disk.exists(path):
            make_folder(self.folder)
            write_whole(path, code)
        return name

    def read(self, name: str) -> bytes:
        """An archive by its name.

        Raises
        ------
        InputError
            If it is missing or damaged.
        """
        path = self._path(name)
        try:
            code = read(path)
        except OSError as error:
            raise InputError(f"train.code: {name}: is not kept at {path}: {error.strerror}") from error
        if digest(code) != name:
            raise InputError(f"train.code: {path}: is damaged: its SHA-256 is {digest(code)}")
        return code

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.zip"


def lost() -> bytes:
    """A placeholder for an archive that is lost: importing it fails."""
    return b"lost"


def copy_codes(state: Path, folder: Path) -> None:
    """Copy the code of a run's jobs to its record."""
    if (state / CODE).is_dir():
        shutil.copytree(state / CODE, folder / CODE)


class _ArchiveImporter(MetaPathFinder, SourceLoader):  # type: ignore[misc] # of typeshed
    """Imports the modules of an archive from memory, ahead of all installed modules."""

    def __init__(self, code: bytes) -> None:
        self.name, self.files = digest(code), files_in(code)

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """The spec of a module of the archive; None if it has none of that name."""
        file = self._file(fullname)
        if file is None:
            return None
        package = file.endswith("/__init__.py")
        return importlib.util.spec_from_loader(fullname, self, origin=f"<{self.name[:12]}>/{file}", is_package=package)

    def _file(self, fullname: str) -> str | None:
        stem = fullname.replace(".", "/")
        return next((file for file in (f"{stem}/__init__.py", f"{stem}.py") if file in self.files), None)

    def get_filename(self, fullname: str) -> str:
        """The location of a module, for tracebacks."""
        return f"<{self.name[:12]}>/{self._file(fullname)}"

    def get_data(self, path: str | bytes) -> bytes:
        """The content of a file of the archive."""
        name = os.fsdecode(path).partition(">/")[2]
        if name not in self.files:
            raise OSError(path)
        return self.files[name]


def install(code: bytes, module: str) -> None:
    """Let this process import the modules of an archive, `module` among them.

    Raises
    ------
    TrainingError
        If it has another archive already: a process serves one job.
    InputError
        If `code` is no archive, or has no such module.
    """
    name = digest(code)
    if module not in modules_in(code):
        raise InputError(f"the job's code has no module {module}")
    present = next((finder.name for finder in sys.meta_path if isinstance(finder, _ArchiveImporter)), name)
    if present != name:
        raise TrainingError(f"this process has the code {present[:12]}, it cannot have {name[:12]} too")
    if not any(isinstance(finder, _ArchiveImporter) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ArchiveImporter(code))


@functools.cache
def installed(module: str) -> str:
    """SHA-256 of an installed module's file, as of the first call in this process; empty if there is none."""
    try:
        spec = importlib.util.find_spec(module)
        content = Path(spec.origin).read_bytes() if spec is not None and spec.origin is not None else b""
    except (ImportError, ValueError, OSError):
        return ""
    return hashlib.sha256(content).hexdigest() if content else ""
