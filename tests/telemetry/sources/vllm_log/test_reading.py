"""Lines come out of a file whole, numbered and bounded, whatever the file is."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from telemetry.errors import ImportRefused
from telemetry.sources.vllm_log.reading import CHUNK, LONGEST_LINE, Digesting, LogFile, lines_of


def texts(*chunks: bytes) -> list[str]:
    return [text for _, text in lines_of(chunks)]


def nothing(_: int) -> None:
    """Takes no notice of progress."""


def content_of(path: Path) -> tuple[bytes, str | None]:
    with LogFile(path) as file:
        return b"".join(file.chunks(nothing)), file.damage


def test_lines_are_numbered_from_one() -> None:
    assert list(lines_of([b"a\nb\n"])) == [(1, "a"), (2, "b")]


def test_a_line_over_two_chunks_is_one() -> None:
    assert texts(b"one li", b"ne\ntwo\n") == ["one line", "two"]


def test_a_last_line_without_an_end_counts() -> None:
    assert texts(b"a\nb") == ["a", "b"]


def test_a_long_line_is_cut_and_the_next_one_is_whole() -> None:
    long = [b"x" * CHUNK] * 8
    lines = list(lines_of([*long, b"tail\nnext\n"]))
    assert [(number, len(text)) for number, text in lines] == [(1, LONGEST_LINE), (2, 4)]


def test_of_a_bar_of_progress_the_last_state_counts() -> None:
    assert texts(b"10%\r50%\r\n") == ["50%"]


def test_bytes_that_are_no_text_do_not_stop_it() -> None:
    assert texts(b"\xff\xfe ok\n") == ["\ufffd\ufffd ok"]


def test_gzip_files_of_several_members_are_read_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n") + b"\0" * 512)
    assert content_of(path) == (b"one\ntwo\n", None)


def test_a_truncated_gzip_file_gives_what_is_there(tmp_path: Path) -> None:
    lines = b"".join(b"line %d %d\n" % (number, number * 7919) for number in range(20_000))
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(lines)[:20_000])
    content, damage = content_of(path)
    assert damage == "is cut off"
    assert content
    assert lines.startswith(content)


def test_a_damaged_gzip_file_says_so(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"a line\n" * 1000))
    packed[-8] ^= 0xFF  # the checksum
    path = tmp_path / "log.gz"
    path.write_bytes(packed)
    assert content_of(path)[1] == "is damaged"


def test_a_gzip_bomb_is_unpacked_piece_by_piece(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"\0" * (64 * CHUNK)))
    with LogFile(path) as file:
        assert max(len(chunk) for chunk in file.chunks(nothing)) <= CHUNK


@pytest.mark.parametrize(
    ("magic", "command"), [(b"\xfd7zXZ\x00", "xz -dc"), (b"\x28\xb5\x2f\xfd", "zstd -dc")]
)
def test_other_packings_are_refused_with_the_way_to_do_it(
    tmp_path: Path, magic: bytes, command: str
) -> None:
    path = tmp_path / "log.xz"
    path.write_bytes(magic + b"more")
    with pytest.raises(ImportRefused, match=command):
        LogFile(path)


def test_progress_is_told_in_bytes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"a line\n" * 100_000))
    seen: list[int] = []
    with LogFile(path) as file:
        for _ in file.chunks(seen.append):
            pass
        assert sum(seen) == file.size == path.stat().st_size


def test_the_digest_is_of_all_of_it_also_where_reading_stopped() -> None:
    whole, half = Digesting([b"a", b"b", b"c"]), Digesting([b"a", b"b", b"c"])
    next(iter(half))
    assert whole.digest() == half.digest() != Digesting([b"a", b"b"]).digest()
