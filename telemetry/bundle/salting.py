"""Replaces what names people, machines and requests by something that only tells them apart.

A name becomes digits of a keyed hash. The key is drawn for each bundle and kept nowhere, so equal
names stay equal inside a bundle, and nobody can try out which name it was.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

SALTED: dict[str, int] = {
    "request_id": 16,
    "session": 16,
    "trace_id": 32,
    "span_id": 16,
    "parent_span_id": 16,
    "host": 16,
    "boot_id": 16,
    "peer": 16,
}
"""Columns whose texts are replaced, and by how many hexadecimal digits."""

DROPPED: dict[str, frozenset[str]] = {
    "engines": frozenset({"api_url"}),
    "request_finishes": frozenset({"text"}),
    "log_lines": frozenset({"process", "text"}),
    "imports": frozenset({"name", "detail"}),
    "findings": frozenset({"author", "note"}),
}
"""Columns that are emptied, per table."""

_WORD = re.compile(r"[^\s\"'`,;()\[\]{}<>]+")


class Salt:
    """The names of one bundle."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._known: dict[str, str] = {}

    def apply(self, table: str, rows: pa.Table) -> pa.Table:
        """Returns rows of a table without the names that were in them."""
        for name in rows.column_names:
            if name in DROPPED.get(table, ()):
                rows = _with(rows, name, pa.nulls(len(rows), rows.schema.field(name).type))
            elif name in SALTED:
                rows = _with(rows, name, self._column(rows[name], SALTED[name]))
        if table == "request_events":
            # What an engine says of itself stays; of a request it may quote what was asked.
            of_engine = pc.is_null(rows["request"])
            text = pc.if_else(of_engine, rows["text"], pa.scalar(None, rows["text"].type))
            rows = _with(rows, "text", text)
        if table == "findings":
            rows = _with(rows, "body", _mapped(rows["body"], self._body))
        return rows

    def _column(self, values: pa.ChunkedArray, num_digits: int) -> pa.Array:
        return _mapped(values, lambda text: self.name(text, num_digits))

    def name(self, text: str, num_digits: int = 16) -> str:
        """Returns what stands for a name."""
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), key=self._key, digest_size=32)
        salted = digest.hexdigest()[:num_digits]
        self._known.setdefault(text, salted)
        return salted

    def _body(self, text: str) -> str:
        """Returns a finding's JSON in which every known name is replaced."""
        try:
            return json.dumps(self._without_names(json.loads(text)))
        except ValueError:
            return json.dumps({})

    def _without_names(self, value: Any) -> Any:
        match value:
            case str():
                if value in self._known:
                    return self._known[value]
                return _WORD.sub(lambda m: self._known.get(m[0], m[0]), value)
            case dict():
                return {self._without_names(k): self._without_names(v) for k, v in value.items()}
            case list():
                return [self._without_names(each) for each in value]
        return value


def _with(rows: pa.Table, name: str, values: Any) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, values)


def _mapped(values: pa.ChunkedArray, replace: Callable[[str], str]) -> pa.Array:
    """Returns a text column with every text replaced; each different one is asked for once."""
    found: dict[str, str] = {}
    texts = values.to_pylist()
    for text in texts:
        if text is not None and text not in found:
            found[text] = replace(text)
    return pa.array([None if text is None else found[text] for text in texts], pa.string())
