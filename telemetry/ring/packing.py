"""Rows of the record as bytes of the ring.

A row class is packed by one `struct.pack_into` for each run of columns that it has, over a row
whose other columns were set to NULL by one copy. Text, and the own fields of event classes with a
table of their own, travel as one JSON object an event.

Nothing here fails on a value from outside: what does not fit its column becomes NULL, text that is
too long is cut and says so; the caller is told how often.
"""

from __future__ import annotations

import json
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from telemetry.records import Event, columns_of
from telemetry.ring.layout import (
    BLOB_COLUMNS,
    HASHES_BEGIN,
    IN_BLOB,
    Region,
    RingColumn,
    null_of,
)

CODES = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q", "i4": "i", "i8": "q", "f8": "d"}
HASHES_FIELD = "prefix_hashes"
CONTENTS_FIELD = "content_hashes"
CUT_MARK = "… [cut from {} characters]"


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring columns: packed together, `offset` bytes into the row."""

    pack: struct.Struct
    offset: int
    first: int
    last: int


class RowPacker:
    """Writes objects with one set of attributes into rows of one region."""

    def __init__(self, region: Region, names: Sequence[str], extra: Sequence[str] = ()) -> None:
        """Prepares rows with the attributes `names`, followed by the plain values `extra`."""
        by_name = {column.name: column for column in region.columns}
        columns = [by_name[name] for name in (*names, *extra)]
        order = sorted(columns, key=lambda column: column.offset)
        if order != columns:
            raise ValueError(f"columns of {region.name} are not in the order of the ring")
        self._get: Callable[[Any], tuple[Any, ...]] = operator.attrgetter(*names)
        self._nulls = tuple(null_of(column.dtype) for column in columns)
        self._checks = tuple(struct.Struct(f"<{CODES[column.dtype]}") for column in columns)
        self._runs = tuple(_runs(region, columns))
        whole = len(self._runs) == 1 and self._runs[0].pack.size == region.row_bytes
        self._blank = None if whole else blank_row(region)

    def pack_into(
        self, buffer: memoryview, offset: int, row: Any, extra: tuple[int | None, ...] = ()
    ) -> int:
        """Writes `row` and returns how many of its values did not fit and became NULL."""
        values = [
            null if value is None else value
            for value, null in zip(self._get(row) + extra, self._nulls, strict=True)
        ]
        if self._blank is not None:
            buffer[offset : offset + len(self._blank)] = self._blank
        try:
            self._pack(buffer, offset, values)
        except (struct.error, TypeError):
            values, misfits = self._fitted(values)
            self._pack(buffer, offset, values)
            return misfits
        return 0

    def _pack(self, buffer: memoryview, offset: int, values: list[Any]) -> None:
        for run in self._runs:
            run.pack.pack_into(buffer, offset + run.offset, *values[run.first : run.last])

    def _fitted(self, values: list[Any]) -> tuple[list[Any], int]:
        misfits = 0
        for index, (value, check) in enumerate(zip(values, self._checks, strict=True)):
            try:
                check.pack(value)
            except (struct.error, TypeError):
                values[index] = self._nulls[index]
                misfits += 1
        return values, misfits


def blank_row(region: Region) -> bytes:
    """Returns a row in which every column is NULL."""
    pack = struct.Struct("<" + "".join(CODES[column.dtype] for column in region.columns))
    return pack.pack(*(null_of(column.dtype) for column in region.columns))


def _runs(region: Region, columns: Sequence[RingColumn]) -> list[_Run]:
    runs: list[_Run] = []
    first = 0
    for index, column in enumerate(columns):
        end = column.offset + struct.calcsize(f"<{CODES[column.dtype]}")
        if index + 1 < len(columns) and columns[index + 1].offset == end:
            continue
        codes = "".join(CODES[c.dtype] for c in columns[first : index + 1])
        start = columns[first].offset - region.offset
        runs.append(_Run(struct.Struct("<" + codes), start, first, index + 1))
        first = index + 1
    return runs


class EventPacker:
    """Writes events into the region of events, and their text as JSON.

    Args:
        max_hashes_bytes: block hashes of one event beyond it are left out: a shorter prefix.
    """

    def __init__(self, region: Region, max_blob_bytes: int, max_hashes_bytes: int) -> None:
        self._region = region
        self._max_blob_bytes = max_blob_bytes
        self._max_hashes_bytes = max_hashes_bytes
        self._classes: dict[type[Event], tuple[RowPacker, tuple[str, ...]]] = {}
        self._encode = json.JSONEncoder(separators=(",", ":"), default=_plain).encode

    def contents_of(self, event: Event) -> bytes | None:
        """Returns what lies behind an event's text in the blob; None where it has no such field."""
        contents: bytes | None = getattr(event, CONTENTS_FIELD, None)
        return None if contents is None else contents[: self._max_hashes_bytes]

    def text_of(self, event: Event) -> tuple[bytes, bool]:
        """Returns what lies in the blob for an event, and whether text had to be cut."""
        text, was_cut = self._json_of(event)
        hashes: bytes | None = getattr(event, HASHES_FIELD, None)
        if not hashes:
            return text, was_cut
        return text + HASHES_BEGIN + hashes[: self._max_hashes_bytes], was_cut

    def _json_of(self, event: Event) -> tuple[bytes, bool]:
        """Returns the JSON of what has no column of numbers, and whether it had to be cut."""
        names = self._class(type(event))[1]
        found = {name: value for name in names if (value := getattr(event, name)) is not None}
        if not found:
            return b"", False
        data = self._encode(found).encode()
        if len(data) <= self._max_blob_bytes:
            return data, False
        return self._cut(found), True

    def pack_into(
        self, buffer: memoryview, offset: int, event: Event, blob: tuple[int, int, int | None]
    ) -> int:
        """Writes an event whose text lies at `blob`; returns how many values became NULL.

        Args:
            blob: as in `BLOB_COLUMNS`.
        """
        return self._class(type(event))[0].pack_into(buffer, offset, event, blob)

    def _class(self, cls: type[Event]) -> tuple[RowPacker, tuple[str, ...]]:
        known = self._classes.get(cls)
        if known is None:
            known = self._classes[cls] = self._prepare(cls)
        return known

    def _prepare(self, cls: type[Event]) -> tuple[RowPacker, tuple[str, ...]]:
        own_table = cls.TABLE is not None
        base = {f.name for f in fields(Event)}
        numbers = [
            c.name
            for c in columns_of(cls)
            if c.dtype not in IN_BLOB and (c.name in base or not own_table)
        ]
        order = {column.name: column.offset for column in self._region.columns}
        numbers.sort(key=order.__getitem__)
        numbers_and_hashes = {*numbers, HASHES_FIELD, CONTENTS_FIELD}
        texts = tuple(c.name for c in columns_of(cls) if c.name not in numbers_and_hashes)
        return RowPacker(self._region, numbers, [name for name, _ in BLOB_COLUMNS]), texts

    def _cut(self, found: dict[str, Any]) -> bytes:
        """Returns `found` as JSON that fits: longest text first, then lists, are cut."""
        share = max(self._max_blob_bytes // (6 * max(len(found), 1)) - 40, 8)
        short: dict[str, Any] = {}
        for name, value in found.items():
            if isinstance(value, str) and len(value) > share:
                value = value[:share] + CUT_MARK.format(len(value))
            if isinstance(value, list | tuple) and len(value) > share // 2:
                continue
            short[name] = value
        data = self._encode(short).encode()
        return data if len(data) <= self._max_blob_bytes else b""


def _plain(value: Any) -> Any:
    """Returns a numpy scalar as a number, anything else as text."""
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)
