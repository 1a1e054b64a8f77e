"""`stepscope import kv-events`, from the capture of a real vLLM to answers."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from stepscope import main
from telemetry.query.saved import library_queries
from telemetry.sql.cookbook import ask
from telemetry.store import open_log
from tests.telemetry.sources.kv_events.builders import CAPTURED, payload, raw, removed, stored

STORM = CAPTURED / "storm.raw.gz"


def run(log: Path, *arguments: str | Path) -> int:
    return main(["import", "kv-events", *map(str, arguments), "--log", str(log)])


def count(log: Path, sql: str) -> list[dict[str, object]]:
    with open_log(log) as opened:
        return list(opened.query(sql).to_pylist())


def answer(log: Path, name: str) -> list[dict[str, object]]:
    with open_log(log) as opened:
        return list(ask(opened, library_queries()[name]).to_pylist())


BLOCKS = (
    "SELECT kind, count(*) AS num_rows, sum(num_blocks)::BIGINT AS num_blocks, any_value(medium) "
    "AS medium, count(block_hashes) AS num_hashes FROM kv_events GROUP BY kind ORDER BY kind"
)


def test_a_capture_is_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, STORM) == 0
    (removed_row, stored_row) = count(tmp_path, BLOCKS)
    assert removed_row["kind"] == "removed"
    assert stored_row["num_hashes"] == stored_row["num_rows"]
    assert count(tmp_path, "SELECT dp_rank, block_size, source FROM engines") == [
        {"dp_rank": 0, "block_size": 32, "source": "vllm"}
    ]
    told = capsys.readouterr().out
    assert "rows of 60 messages\n" in told
    assert "KV events name no request" in told


def test_a_list_of_sizes_counts_the_same_blocks(tmp_path: Path) -> None:
    run(tmp_path / "raw", STORM)
    run(tmp_path / "sizes", CAPTURED / "storm.jsonl.gz")
    raw_rows, sizes = count(tmp_path / "raw", BLOCKS), count(tmp_path / "sizes", BLOCKS)
    assert [row | {"num_hashes": 0} for row in raw_rows] == sizes


def test_no_token_id_reaches_the_log(tmp_path: Path) -> None:
    tokens = [1_234_567_891] * 16
    capture = tmp_path / "a.raw"
    capture.write_bytes(raw((0, payload(stored(b"block-of-secret", token_ids=tokens)))))
    run(tmp_path / "log", capture)
    files = [path for path in (tmp_path / "log").iterdir() if path.is_file()]
    content = b"".join(path.read_bytes() for path in files)
    assert b"stored" in content
    assert b"block-of-secret" not in content
    assert (1_234_567_891).to_bytes(4, "little") not in content
    assert b"1234567891" not in content


def test_hashes_compare_between_imports_into_one_log(tmp_path: Path) -> None:
    for number in range(2):
        capture = tmp_path / f"engine.{number}"
        capture.write_bytes(raw((number, payload(stored(b"same"), ts=1.7e9 + number))))
        run(tmp_path / "log", capture)
    (row,) = count(
        tmp_path / "log",
        "SELECT count(DISTINCT block_hashes) AS hashes, count(DISTINCT engine) AS engines, "
        "count(*) AS n FROM kv_events",
    )
    assert row == {"hashes": 1, "engines": 1, "n": 2}


def test_a_name_of_ones_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        capture = tmp_path / name
        capture.write_bytes(raw((0, payload(stored(b"a"), ts=1.7e9, rank=ord(name[0])))))
        run(tmp_path / "log", capture, "--name", "vllm-0")
    names = count(tmp_path / "log", "SELECT DISTINCT api_url FROM engines")
    assert names == [{"api_url": "vllm-0"}]


def test_lost_messages_and_restarts_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = tmp_path / "a"
    numbers = (3, 4, 9, 0)
    capture.write_bytes(
        raw(
            *(
                (n, payload(stored(b"a"), {"type": "New"}, ts=1.7e9 + i))
                for i, n in enumerate(numbers)
            )
        )
    )
    run(tmp_path / "log", capture)
    told = capsys.readouterr().out
    assert "4 messages are missing" in told
    assert "the numbers start over 1 times" in told
    assert "4 events are of kinds not known here" in told
    (row,) = answer(tmp_path / "log", "kv-blocks-by-minute")
    assert (row["num_stored_blocks"], row["num_told_again_blocks"]) == (2, 2)
    assert row["num_lost_messages"] == 4


def test_blocks_that_come_back_are_told_apart(tmp_path: Path) -> None:
    capture = tmp_path / "a"
    moments = [
        stored(b"back", b"gone"),
        removed(b"back", b"gone", group_idx=0),
        stored(b"new", b"back"),
        {"type": "AllBlocksCleared"},
        stored(b"new"),
    ]
    capture.write_bytes(
        raw(*((n, payload(event, ts=1.7e9 + n / 4)) for n, event in enumerate(moments)))
    )
    run(tmp_path / "log", capture)
    (row,) = answer(tmp_path / "log", "kv-blocks-stored-again")
    assert {key: value for key, value in row.items() if key != "engine"} == {
        "num_removed_blocks": 2,
        "num_stored_again_blocks": 1,
        "num_stored_again_tokens": 16,
        "came_back_ratio": 0.5,
        "p50_away_ms": 250.0,
    }


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"garbage that is long enough", "this is no capture of KV events"),
        (b"{}", "no message of KV events: KeyError"),
        (b'{"ev": 7, "ts": 1, "dp": 0, "seq": 0, "topic": ""}', "no message of KV events"),
        (raw((0, b"garbage")), "message 0: no message of KV events"),
        (raw((0, payload(stored(b"a"), ts=5.0))), "its time or number cannot be"),
        (raw((1 << 60, payload(stored(b"a")))), "its time or number cannot be"),
        (gzip.compress(raw((0, payload(stored(b"a")))))[:-3], "is no whole gzip"),
    ],
    ids=range(8),
)
def test_a_file_without_events_leaves_nothing(
    tmp_path: Path, content: bytes, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert run(tmp_path / "log", file) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
    log = tmp_path / "log"
    assert not list(log.glob("*.duckdb")) or count(log, "FROM kv_events") == []


def test_a_capture_that_is_cut_off_is_read_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = raw((0, payload(stored(b"a"))), (1, payload(stored(b"b"))))
    for name, content in (("in-payload", whole[:-5]), ("in-head", whole + b"\x05\x00")):
        file = tmp_path / name
        file.write_bytes(content)
        assert run(tmp_path / f"{name}.log", file) == 0
        assert "is cut off" in capsys.readouterr().out
