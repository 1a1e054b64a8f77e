"""`stepscope import otlp`, from the files of a real vLLM to answers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from stepscope import main
from telemetry.store import open_log
from tests.telemetry.sources.otlp.builders import CAPTURED, export
from tests.telemetry.sources.otlp.test_decoding import as_otlp_json

FILES = sorted(str(path) for path in CAPTURED.glob("*.pb"))


def run(log: Path, *files: str | Path) -> int:
    return main(["import", "otlp", *map(str, files), "--log", str(log)])


def count(log: Path, sql: str) -> list[dict[str, object]]:
    with open_log(log) as opened:
        return list(opened.query(sql).to_pylist())


def test_captured_files_are_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, *FILES) == 0
    assert count(tmp_path, "SELECT service, count(*) AS n FROM engine_spans GROUP BY ALL") == [
        {"service": "unknown_service:python3", "n": 9},
        {"service": "vllm-lab", "n": 12},
    ]
    assert count(tmp_path, "SELECT count(DISTINCT engine) AS n FROM engines") == [{"n": 2}]
    told = capsys.readouterr().out
    assert f"{FILES[0]} and 4 more: 21 rows of 21 spans\n" in told
    assert "14 start-up, 7 request" in told
    assert "spans know nothing of preemptions" in told


def test_traces_can_be_asked_for_where_nothing_was_recorded(tmp_path: Path) -> None:
    run(tmp_path, *FILES)
    rows = count(
        tmp_path, "SELECT request_id, request, joined_by, queue_ns, span_queue_ns FROM "
        "request_traces ORDER BY ts LIMIT 1"
    )  # fmt: skip
    assert rows == [
        {
            "request_id": "cmpl-load-8-0-0",
            "request": None,
            "joined_by": None,
            "queue_ns": None,
            "span_queue_ns": 31_437,
        }
    ]


def test_json_lines_give_the_same_rows_as_protobuf(tmp_path: Path) -> None:
    lines = [json.dumps(as_otlp_json(Path(file).read_bytes())) for file in FILES]
    packed = tmp_path / "traces.jsonl.gz"
    packed.write_bytes(gzip.compress("\n".join(lines).encode()))
    run(tmp_path / "protobuf", *FILES)
    run(tmp_path / "json", packed)
    rows = "SELECT * EXCLUDE (import_id) FROM engine_spans ORDER BY ts, span_id"
    assert count(tmp_path / "protobuf", rows) == count(tmp_path / "json", rows)


def test_what_is_not_understood_is_counted_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "a.jsonl"
    late = as_otlp_json(export(end_ns=1).SerializeToString())
    good = as_otlp_json(export().SerializeToString())
    lines.write_text("\n".join([json.dumps(late), '{"x": "\x1b[31m"}', json.dumps(good)]))
    assert run(tmp_path / "log", lines) == 0
    told = capsys.readouterr().out
    assert "1 rows of 1 spans" in told
    assert "not read  2\n" in told
    assert "a.jsonl:1: it ended at a time that cannot be" in told
    assert "a.jsonl:2: no JSON of a trace export request" in told
    assert "\x1b" not in told


def test_replicas_that_cannot_be_told_apart_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = "35efc6e7-7b66-4c04-b1a9-d5a0e61b34f"
    for number in range(2):
        who = {"service.name": "chat", "service.instance.id": f"{drawn}{number}"}
        (tmp_path / f"{number}.pb").write_bytes(export(resource=who).SerializeToString())
    assert run(tmp_path / "log", *sorted(tmp_path.glob("*.pb"))) == 0
    assert "2 processes of the service chat" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"\x00garbage", "no protobuf of a trace export request"),
        (b"{}", "no JSON of a trace export request: it has no resourceSpans"),
        (export(scope="other", num_spans=3).SerializeToString(), "no span of vLLM's (3 of others)"),
        (gzip.compress(b"\n" * 99)[:-3], "is no whole gzip"),
    ],
    ids=range(5),
)
def test_a_file_without_spans_of_vllm_leaves_nothing(
    tmp_path: Path, content: bytes, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert run(tmp_path / "log", file) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
    assert list((tmp_path / "log").glob("*.duckdb")) == []


def test_the_same_files_are_refused_in_any_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, *FILES)
    assert run(tmp_path, *reversed(FILES)) == 2
    assert "already" in capsys.readouterr().err
