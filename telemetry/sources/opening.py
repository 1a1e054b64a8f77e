"""Files that are imported: opened whether they are gzip or not, told apart by their content."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from telemetry.errors import ImportRefused

_GZIP = b"\x1f\x8b"


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Opens a file, which is unpacked as it is read if it is gzip.

    Raises:
        ImportRefused: It cannot be read, now or later; the message says why.
    """
    try:
        with path.open("rb") as file:
            is_gzip = file.read(len(_GZIP)) == _GZIP
        with gzip.open(path, "rb") if is_gzip else path.open("rb") as stream:
            yield cast("BinaryIO", stream)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ImportRefused(f"{path} is no whole gzip: {error}") from None
    except OSError as error:
        raise ImportRefused(f"{path} cannot be read: {error.strerror or error}") from None


def content_digest(paths: Iterable[Path]) -> bytes:
    """Returns a digest of what lies in the files, in whatever order they are named.

    Raises:
        ImportRefused: One of them cannot be read.
    """
    digests = []
    for path in paths:
        try:
            with path.open("rb") as file:
                digests.append(hashlib.file_digest(file, "blake2b").digest())
        except OSError as error:
            raise ImportRefused(f"{path} cannot be read: {error.strerror or error}") from None
    return hashlib.blake2b(b"".join(sorted(digests))).digest()
