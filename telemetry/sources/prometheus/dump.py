"""Imports one file of metrics whose lines have times: OpenMetrics text, a federated page.

`promtool tsdb dump-openmetrics` and `promtool tsdb dump` write such files, `/federate` of a
Prometheus shows such a page. Times are in seconds, or in milliseconds: their size tells. The file
is read twice and never held: once for its digest, its engines and its extent, then for its samples.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import cast

from telemetry.errors import ImportRefused
from telemetry.sources.importing import Import
from telemetry.sources.prometheus.engines import SOURCE, Engines
from telemetry.sources.prometheus.notes import add_notes, names_text
from telemetry.sources.prometheus.page import LONGEST_LINE, PageReader
from telemetry.sources.prometheus.series import Series
from telemetry.sources.prometheus.storing import Storing
from telemetry.sources.telling import ImportTold

LATEST_SECONDS = 1e11
"""A larger time is in milliseconds: as seconds it would lie in the year 5138."""
SAMPLES_AT_ONCE = 5_000
_BLOCK = 1 << 20
_LATEST_NS = 9e18


@dataclass(slots=True)
class _Extent:
    """What the first reading of a file finds."""

    engines: Engines
    digest: bytes = b""
    first_ns: int | None = None
    last_ns: int = 0
    num_untimed: int = 0
    """Samples of an engine without a time."""
    num_server: int = 0
    """Samples of processes, those without an engine too."""
    others: str = ""
    """What there is instead, in words."""


def import_dump(log: Path, path: Path, name: str, moved: Callable[[int, int], None]) -> ImportTold:
    """Imports a file; returns what was read.

    Args:
        log: directory of the step log.
        path: the file; gzip if it ends in `.gz`.
        name: the target of series without a label `instance`.
        moved: is told how many bytes are done, and how many there are, over both readings.

    Raises:
        ImportRefused: It cannot be read, holds no engine's metrics, or none with a time.
    """
    extent = _look_through(path, name, moved)
    if extent.first_ns is None:
        raise ImportRefused(_why_nothing(path, extent))
    with Import(log, source=SOURCE, name=str(path), digest=extent.digest, unit="samples") as job:
        there = job.moments(SOURCE, extent.first_ns, extent.last_ns)
        storing = Storing(job, extent.engines, there)
        reader = PageReader()
        _store(path, reader, extent, storing, job.told, moved)
        if storing.num_there:
            job.told.notes.append(
                f"samples that the log had already, and that are not in it twice: "
                f"{storing.num_there:,}"
            )
        add_notes(job.told, reader)
    return job.told


def _look_through(path: Path, name: str, moved: Callable[[int, int], None]) -> _Extent:
    """Reads a file for all but its samples."""
    extent, reader = _Extent(Engines(name)), PageReader()
    whole = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16)
    size = path.stat().st_size
    for series, value, time in reader.read(
        _lines(path, lambda block: whole.update(block), lambda done: moved(done, 2 * size))
    ):
        extent.engines.learn(series, value)
        if series.is_of_server:
            extent.num_server += 1
        elif (ts := ns_of(time)) is None:
            extent.num_untimed += 1
        else:
            extent.first_ns = ts if extent.first_ns is None else min(extent.first_ns, ts)
            extent.last_ns = max(extent.last_ns, ts)
    extent.digest = whole.digest()
    if reader.left_out:
        extent.others = f"it has {names_text(reader.left_out)}"
    elif unread := reader.take_unread():
        extent.others = f"it begins with {unread[0][:60]!r}"
    return extent


def _store(
    path: Path,
    reader: PageReader,
    extent: _Extent,
    storing: Storing,
    told: ImportTold,
    moved: Callable[[int, int], None],
) -> None:
    size = path.stat().st_size
    samples = reader.read(_lines(path, lambda _: None, lambda done: moved(size + done, 2 * size)))
    num_untimed = 0
    while batch := list(islice(samples, SAMPLES_AT_ONCE)):
        by_time: dict[int, list[tuple[Series, float]]] = {}
        for series, value, time in batch:
            if (ts := ns_of(time)) is None:
                num_untimed += 1
            elif not series.is_of_server or extent.engines.has_engine(series):
                by_time.setdefault(ts, []).append((series, value))
        for ts in sorted(by_time):
            storing.put(ts, by_time[ts])
            told.read("samples", len(by_time[ts]))
    if num_untimed:
        told.unread("lines without a time", num_untimed)


def ns_of(time: float | None) -> int | None:
    """Returns a time of a line in ns since the Unix epoch; None where there is none, or no such."""
    if time is None:
        return None
    ms = time if abs(time) >= LATEST_SECONDS else time * 1000
    # Prometheus keeps milliseconds; more digits than a double has would make two moments of one.
    return round(ms) * 1_000_000 if 0 < ms * 1e6 < _LATEST_NS else None


def _lines(path: Path, seen: Callable[[bytes], None], done: Callable[[int], None]) -> Iterator[str]:
    """Yields the lines of a file; one that is far too long in pieces.

    Raises:
        ImportRefused: The file cannot be read to its end.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    with path.open("rb") as raw:
        file = cast("BufferedReader", gzip.GzipFile(fileobj=raw)) if path.suffix == ".gz" else raw
        try:
            while block := file.read(_BLOCK):
                seen(block)
                done(raw.tell())
                *lines, rest = (rest + decoder.decode(block)).split("\n")
                yield from lines
                if len(rest) > LONGEST_LINE:
                    yield rest
                    rest = ""
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ImportRefused(
                f"{path} is damaged or cut off after {raw.tell():,} bytes ({error}): nothing of it "
                "was imported. Unpack what is left of it, and import that"
            ) from None
    if rest:
        yield rest


def _why_nothing(path: Path, extent: _Extent) -> str:
    if extent.num_untimed:
        return (
            f"{path} has {extent.num_untimed:,} samples of an engine and no times: name it "
            "metrics_<unix seconds>.prom after the time at which it was scraped, or write it with "
            "promtool tsdb dump-openmetrics"
        )
    if not path.stat().st_size:
        return f"{path} is empty: save there what an engine's /metrics shows"
    return (
        f"{path} has no metric of a vLLM or an SGLang{': ' if extent.others else ''}"
        f"{extent.others}. Save there what their /metrics shows"
    )
