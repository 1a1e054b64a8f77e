"""The lines of a log file: numbered, bounded, from plain files, gzip files and standard input.

A file is read twice, first for its digest: the same content is not imported twice. Standard input
is therefore kept in a temporary file. Memory is bounded whatever the file: a line is cut at
`LONGEST_LINE`, and a gzip file is unpacked piece by piece.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from telemetry.errors import ImportRefused

LONGEST_LINE = 64 * 1024
"""Bytes of a line that are looked at. The longest that matters, the engine's configuration, has
some 8,000."""
CHUNK = 256 * 1024

_PACKED = {b"\xfd7zXZ\x00": "xz -dc", b"BZh": "bzip2 -dc", b"\x28\xb5\x2f\xfd": "zstd -dc"}
_GZIP = b"\x1f\x8b"

Advance = Callable[[int], None]
"""Is told how many more bytes of the file have been read."""


class LogFile:
    """A log file that can be read more than once. Use as a context manager."""

    def __init__(self, path: Path | None) -> None:
        """Opens a file, or keeps standard input where `path` is None.

        Raises:
            ImportRefused: It is empty, no file, or packed in a way that is not read here.
            OSError: It cannot be read.
        """
        self.name = "standard input" if path is None else str(path)
        self.damage: str | None = None
        """Why a gzip file could not be read to its end; None if it could, or was not read yet."""
        if path is not None and path.is_dir():
            raise ImportRefused(f"{path} is a directory: name the log files in it (DIR/*.log)")
        self._raw = _kept(sys.stdin.buffer) if path is None else path.open("rb")
        try:
            self._begin()
        except BaseException:
            self._raw.close()
            raise

    def _begin(self) -> None:
        status = os.fstat(self._raw.fileno())
        self.size, self.modified_ns = status.st_size, status.st_mtime_ns
        start = self._raw.read(6)
        self._is_gzip = start.startswith(_GZIP)
        if not start:
            raise ImportRefused(f"{self.name} is empty: there is nothing to import")
        for magic, command in _PACKED.items():
            if start.startswith(magic):
                raise ImportRefused(
                    f"{self.name} is packed in a way that is not read here, only gzip is: "
                    f"{command} FILE | stepscope import vllm-log --name NAME -"
                )

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def chunks(self, advance: Advance) -> Iterator[bytes]:
        """Yields the content from its start, unpacked; sets `damage` where it ends too early."""
        self._raw.seek(0)
        raw = _raw_chunks(self._raw, advance)
        return self._unpacked(raw) if self._is_gzip else raw

    def _unpacked(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yields a gzip file's content, at most `CHUNK` at once, over all of its members."""
        member: zlib._Decompress | None = None
        for chunk in chunks:
            while chunk:
                if member is None:
                    chunk = chunk.lstrip(b"\0")  # tapes and block devices pad with zeros
                    if not chunk:
                        break
                    member = zlib.decompressobj(wbits=31)
                try:
                    content = member.decompress(chunk, CHUNK)
                except zlib.error:
                    self.damage = "is damaged"
                    return
                if content:
                    yield content
                chunk = member.unconsumed_tail
                if member.eof:
                    chunk, member = member.unused_data, None
        if member is not None:
            self.damage = "is cut off"


class Digesting:
    """Chunks that pass through, and their digest: what is not taken is read by `digest`."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._digest = hashlib.blake2b(digest_size=16)

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self._digest.update(chunk)
            yield chunk

    def digest(self) -> bytes:
        """Reads the rest; returns the digest of the whole content."""
        for chunk in self._chunks:
            self._digest.update(chunk)
        return self._digest.digest()


def lines_of(chunks: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Yields each line's number, from 1, and text; what is beyond `LONGEST_LINE` is left out."""
    number, rest, is_over = 0, b"", False
    for chunk in chunks:
        if is_over:
            end = chunk.find(b"\n")
            if end < 0:
                continue
            chunk, is_over = chunk[end:], False
        parts = (rest + chunk).split(b"\n")
        rest = parts.pop()
        for part in parts:
            number += 1
            yield number, _text(part)
        if len(rest) > LONGEST_LINE:
            rest, is_over = rest[:LONGEST_LINE], True
    if rest:
        yield number + 1, _text(rest)


def _text(line: bytes) -> str:
    text = line[:LONGEST_LINE].decode("utf-8", "replace").rstrip("\r")
    return text if "\r" not in text else text.rpartition("\r")[2]  # the last state of a bar


def _raw_chunks(file: BinaryIO, advance: Advance) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        advance(len(chunk))
        yield chunk


def _kept(stream: BinaryIO) -> BinaryIO:
    kept = tempfile.TemporaryFile(prefix="stepscope-")  # noqa: SIM115 - closed by its LogFile
    shutil.copyfileobj(stream, kept, CHUNK)
    kept.flush()
    kept.seek(0)
    return kept
