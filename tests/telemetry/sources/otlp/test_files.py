"""Messages in files: by name or by their first byte, packed or not, never more than one at once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from telemetry.errors import ImportRefused
from telemetry.sources.opening import content_digest
from telemetry.sources.otlp import files
from telemetry.sources.otlp.decoding import from_json, from_protobuf
from telemetry.sources.otlp.files import Message, messages_in

DOCUMENT = {"resourceSpans": [{"scopeSpans": []}]}
LINE = json.dumps(DOCUMENT).encode()


def read(path: Path, content: bytes) -> list[Message]:
    path.write_bytes(content)
    return list(messages_in(path))


@pytest.mark.parametrize("name", ["a.pb", "a", "export.2025-11-29", "a.BIN"])
def test_protobuf_is_one_message_a_file(tmp_path: Path, name: str) -> None:
    assert read(tmp_path / name, b"\n\x00") == [Message(name, b"\n\x00", from_protobuf)]


@pytest.mark.parametrize("name", ["a.json", "a", "traces.jsonl", "traces.log", "a.ndjson"])
def test_json_lines_are_a_message_each(tmp_path: Path, name: str) -> None:
    found = read(tmp_path / name, LINE + b"\n\n" + LINE)
    assert [(each.place, each.decode) for each in found] == [
        (f"{name}:1", from_json),
        (f"{name}:3", from_json),
    ]


def test_json_over_many_lines_is_one_message(tmp_path: Path) -> None:
    (found,) = read(tmp_path / "a.json", json.dumps(DOCUMENT, indent=2).encode())
    assert json.loads(found.payload) == DOCUMENT


def test_a_protobuf_that_begins_like_json_is_what_its_name_says(tmp_path: Path) -> None:
    (found,) = read(tmp_path / "a.pb", b"{}")
    assert found.decode is from_protobuf


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.gz", "a"])
def test_gzip_is_unpacked(tmp_path: Path, name: str) -> None:
    found = read(tmp_path / name, gzip.compress(LINE + b"\n" + LINE))
    assert [each.payload.strip() for each in found] == [LINE, LINE]


@pytest.mark.parametrize("content", [b"", gzip.compress(b"")], ids=["plain", "gzip"])
def test_an_empty_file_has_none(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path / "a", content) == []


def test_a_gzip_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="is no whole gzip"):
        read(tmp_path / "a.gz", gzip.compress(LINE * 100)[:-9])


@pytest.mark.parametrize("content", [b"\n" * 9, b"{" * 9, b"{}\n{" + b" " * 9], ids=range(3))
def test_one_message_has_a_size(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 8)
    with pytest.raises(ImportRefused, match="is one message of more than"):
        read(tmp_path / "a", content)


def test_a_bomb_is_not_unfolded(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="of more than 64 MiB"):
        read(tmp_path / "a.pb", gzip.compress(bytes(100 << 20)))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    for what in (lambda p: list(messages_in(p)), lambda p: content_digest([p])):
        with pytest.raises(ImportRefused, match="cannot be read: No such file"):
            what(tmp_path / "none")


def test_the_digest_is_of_the_content_in_any_order(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    assert content_digest([one, two]) == content_digest([two, one]) != content_digest([one])
