"""A step log in a directory, or packed into one .tar.xz file, opened for reading."""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from telemetry.store import Log, open_log


@contextmanager
def opened(path: Path) -> Iterator[Log]:
    """Opens a log; a packed one is unpacked for as long as it is read."""
    if path.is_dir():
        with open_log(path) as log:
            yield log
        return
    with tempfile.TemporaryDirectory(prefix="stepscope-") as directory:
        unpack(path, Path(directory))
        with open_log(Path(directory)) as log:
            yield log


def pack(directory: Path, path: Path) -> None:
    """Packs the files of a log, always into the same bytes for the same files."""
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for file in sorted(directory.glob("*.duckdb")):
            entry = tarfile.TarInfo(file.name)
            entry.size = file.stat().st_size
            entry.mode = 0o600
            with file.open("rb") as data:
                archive.addfile(entry, data)


def unpack(path: Path, directory: Path) -> None:
    """Unpacks the files of a packed log into a directory; whatever else is in it is left."""
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None:
                (directory / Path(member.name).name).write_bytes(content.read())
