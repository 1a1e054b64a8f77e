"""A directory of scrapes: pages saved one by one, with the time of each in its name.

`metrics_017_1795953167.514.prom`: what stands last before `.prom` (or `.prom.gz`) is the time, in
seconds since the Unix epoch; of thirteen digits, in milliseconds. Pages of several targets lie in
directories below, which are named after them. `config.json` beside the pages, or above, holds the
launch flags (`flags`).
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from telemetry.errors import ImportRefused
from telemetry.sources.prometheus.flags import FILE_NAME, read_flags

MOST_PAGE_BYTES = 64 << 20
"""Unpacked. A real page of one engine has 62 KB, one of 64 ranks 4 MB."""

_NAME = re.compile(r".*?(?:^|[_.-])(\d{9,13}(?:\.\d{1,9})?)\.prom(?:\.gz)?", re.DOTALL)
_PAGE = re.compile(r".*\.prom(?:\.gz)?", re.DOTALL)
_LATEST_SECONDS = Decimal(10) ** 11
"""Beyond that a time is in milliseconds: as seconds it would lie in the year 5138."""
_LATEST_NS = 9 * 10**18
"""Beyond what a column holds."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A page in a file. `ts` is ns since the Unix epoch."""

    path: Path
    target: str
    ts: int


class UnreadPageError(ValueError):
    """A page that cannot be read; the message says why."""


@dataclass(slots=True)
class Scrapes:
    """What lies in a directory."""

    pages: list[PageFile] = field(default_factory=list)
    """In the order of their times."""
    unread: list[str] = field(default_factory=list)
    """Pages that are not read, and why."""
    others: list[str] = field(default_factory=list)
    """Names of files that are no pages."""
    flags: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Launch flags by target."""

    def add(self, folder: Path, names: Iterable[str], target: str) -> bool:
        """Takes the pages among the files of one folder; returns whether there are any."""
        has_pages = False
        for name in names:
            if not _PAGE.fullmatch(name):
                if name != FILE_NAME:
                    self.others.append(name)
            elif (ts := time_in(name)) is None:
                self.unread.append(f"{name}: no time in its name (like metrics_1795953167.prom)")
            else:
                has_pages = True
                self.pages.append(PageFile(folder / name, target, ts))
        return has_pages

    def add_flags(self, directory: Path, folder: Path, target: str) -> None:
        """Takes the launch flags that lie nearest: in the folder, or above it in the directory.

        Raises:
            ImportRefused: They cannot be read.
        """
        while not (folder / FILE_NAME).is_file():
            if folder == directory:
                return
            folder = folder.parent
        self.flags[target] = read_flags(folder / FILE_NAME)

    def digest(self) -> bytes:
        """Returns the digest of all pages: what they hold, of what, and when."""
        whole = hashlib.blake2b(digest_size=16)
        for page in self.pages:
            whole.update(f"{page.target}\0{page.ts}\0".encode("utf-8", "surrogateescape"))
            with page.path.open("rb") as file:
                whole.update(hashlib.file_digest(file, "blake2b").digest())
        return whole.digest()


def find_scrapes(directory: Path, name: str) -> Scrapes:
    """Returns the pages in a directory and below; `name` is the target of those on its top.

    Raises:
        ImportRefused: There is none, or the launch flags cannot be read.
    """
    found = Scrapes()
    for folder, names in _walk(directory):
        target = folder.relative_to(directory).as_posix()
        if found.add(folder, names, name if target == "." else target):
            found.add_flags(directory, folder, name if target == "." else target)
    found.pages.sort(key=lambda page: (page.ts, page.target, page.path))
    if not found.pages and not found.unread:
        there = f"{len(found.others)} other files, like {found.others[0]}" if found.others else ""
        raise ImportRefused(
            f"{directory} holds no pages: {there or 'it is empty'}. Save each scrape there as "
            "metrics_<unix seconds>.prom (or .prom.gz)"
        )
    if not found.pages:
        raise ImportRefused(
            f"none of the {len(found.unread)} pages in {directory} can be placed in time: "
            f"{found.unread[0]}"
        )
    _drop_repeated(found)
    return found


def _walk(directory: Path) -> Iterator[tuple[Path, list[str]]]:
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        yield Path(folder), sorted(each for each in names if not each.startswith("."))


def _drop_repeated(found: Scrapes) -> None:
    """Leaves out pages of a moment that another page has already."""
    kept: dict[tuple[str, int], PageFile] = {}
    for page in found.pages:
        first = kept.setdefault((page.target, page.ts), page)
        if first is not page:
            found.unread.append(f"{page.path.name}: of the same moment as {first.path.name}")
    found.pages = list(kept.values())


def time_in(name: str) -> int | None:
    """Returns the time in a page's name, ns since the Unix epoch; None where there is none."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    seconds = Decimal(match[1])
    ns = int((seconds / 1000 if seconds > _LATEST_SECONDS else seconds) * 10**9)
    return ns if ns < _LATEST_NS else None


def read_page_file(path: Path) -> str:
    """Returns the text of a page.

    Raises:
        UnreadPageError: It is cut off, too large, or no text.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MOST_PAGE_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UnreadPageError("its compressed data are damaged or cut off") from None
    except OSError as error:
        raise UnreadPageError(error.strerror or str(error)) from None
    if len(content) > MOST_PAGE_BYTES:
        raise UnreadPageError(f"larger than {MOST_PAGE_BYTES >> 20} MiB")
    if not content.strip():
        raise UnreadPageError("empty")
    if b"\0" in content:
        raise UnreadPageError("no text")
    return content.decode("utf-8", "replace")
