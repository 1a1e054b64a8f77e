"""Which files of a directory are pages, of what, and when."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from telemetry.errors import ImportRefused
from telemetry.sources.prometheus.directory import (
    UnreadPageError,
    find_scrapes,
    read_page_file,
    time_in,
)

NS = 10**9


@pytest.mark.parametrize(
    ("name", "ts"),
    [
        ("metrics_017_1795953167.514.prom", 1795953167514 * 10**6),
        ("1795953167.prom", 1795953167 * NS),
        ("vllm-0_1795953167.prom.gz", 1795953167 * NS),
        ("a-1795953167514.prom", 1795953167514 * 10**6),
        ("m_1795953167.123456789.prom", 1795953167123456789),
        ("metrics_17.prom", None),
        ("metrics_99999999999.prom", None),
        ("metrics.prom", None),
        ("metrics_1795953167.txt", None),
    ],
)
def test_the_time_in_a_name(name: str, ts: int | None) -> None:
    assert time_in(name) == ts


def put(path: Path, text: str = "vllm:a 1\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_pages_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    put(tmp_path / "b_1790000000.prom")
    put(tmp_path / "a_1790000002.prom")
    put(tmp_path / "c_1790000001.prom")
    assert [page.path.name[0] for page in find_scrapes(tmp_path, "t").pages] == ["b", "c", "a"]


def test_directories_below_are_targets_with_flags_of_their_own(tmp_path: Path) -> None:
    put(tmp_path / "a" / "m_1790000000.prom")
    put(tmp_path / "b" / "c" / "m_1790000000.prom")
    put(tmp_path / "m_1790000000.prom")
    put(tmp_path / "config.json", '{"max_num_seqs": 1}')
    put(tmp_path / "b" / "config.json", '{"max_num_seqs": 2}')
    found = find_scrapes(tmp_path, "top")
    assert {page.target for page in found.pages} == {"top", "a", "b/c"}
    assert {target: flags["max_num_seqs"] for target, flags in found.flags.items()} == {
        "top": 1, "a": 1, "b/c": 2,
    }  # fmt: skip


def test_flags_above_the_directory_are_somebody_elses(tmp_path: Path) -> None:
    put(tmp_path / "config.json", '{"max_num_seqs": 1}')
    put(tmp_path / "pages" / "m_1790000000.prom")
    assert find_scrapes(tmp_path / "pages", "t").flags == {}


def test_what_is_no_page_and_what_has_no_time_is_told(tmp_path: Path) -> None:
    put(tmp_path / "m_1790000000.prom")
    put(tmp_path / "late.prom")
    put(tmp_path / "notes.txt")
    put(tmp_path / ".hidden" / "m_1790000000.prom")
    found = find_scrapes(tmp_path, "t")
    assert len(found.pages) == 1
    assert found.unread == ["late.prom: no time in its name (like metrics_1795953167.prom)"]
    assert found.others == ["notes.txt"]


def test_two_pages_of_one_moment_are_one(tmp_path: Path) -> None:
    put(tmp_path / "a_1790000000.prom")
    put(tmp_path / "b_1790000000.000.prom")
    found = find_scrapes(tmp_path, "t")
    assert [page.path.name for page in found.pages] == ["a_1790000000.prom"]
    assert found.unread == ["b_1790000000.000.prom: of the same moment as a_1790000000.prom"]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ((), "holds no pages: it is empty"),
        (("a.log", "b.log"), "2 other files, like a.log"),
        (("a.prom",), "none of the 1 pages in .* can be placed in time: a.prom: no time"),
    ],
)
def test_a_directory_without_pages_is_refused(
    tmp_path: Path, names: tuple[str, ...], told: str
) -> None:
    for name in names:
        put(tmp_path / name)
    with pytest.raises(ImportRefused, match=told):
        find_scrapes(tmp_path, "t")


def test_the_digest_is_of_content_time_and_target_but_not_of_the_place(tmp_path: Path) -> None:
    for place in ("one", "two"):
        put(tmp_path / place / "m_1790000000.prom")
    put(tmp_path / "later" / "m_1790000001.prom")
    put(tmp_path / "other" / "m_1790000000.prom", "vllm:a 2\n")
    first = find_scrapes(tmp_path / "one", "t").digest()
    assert find_scrapes(tmp_path / "two", "t").digest() == first
    others = [("later", "t"), ("other", "t"), ("one", "u")]
    assert all(find_scrapes(tmp_path / place, t).digest() != first for place, t in others)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (gzip.compress(b"vllm:a 1\n" * 100)[:-20], "damaged or cut off"),
        (b"\x1f\x8b garbage", "damaged or cut off"),
        (b"no gzip", "damaged or cut off"),
        (gzip.compress(b"\0\1\2"), "no text"),
        (gzip.compress(b" \n"), "empty"),
        (gzip.compress(b"x" * 300), "larger than"),
    ],
)
def test_a_page_that_cannot_be_read_says_why(
    tmp_path: Path, content: bytes, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telemetry.sources.prometheus.directory.MOST_PAGE_BYTES", 250)
    path = tmp_path / "m_1790000000.prom.gz"
    path.write_bytes(content)
    with pytest.raises(UnreadPageError, match=told):
        read_page_file(path)
