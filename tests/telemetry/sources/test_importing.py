"""An import is in the log once and whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from telemetry.errors import ImportRefused
from telemetry.records import EngineRow
from telemetry.sources.identity import content_number, engine_number
from telemetry.sources.importing import Import
from telemetry.store import open_log
from telemetry.store.lock import take_lock

DAY_NS = 86_400 * 10**9
ENGINE = engine_number("prometheus", "http://a:8000", "0")


def one_import(log: Path, digest: bytes = b"12345678") -> Import:
    return Import(log, source="prometheus", name="pages", digest=digest, unit="pages")


def sample(ts: int, value: float = 1.0) -> dict[str, object]:
    return {
        "engine": ENGINE,
        "ts": ts,
        "source": "prometheus",
        "metric": "vllm:num_requests_running",
        "value": value,
    }


def fail_after(log: Path, *rows: dict[str, object]) -> None:
    with one_import(log) as job:
        for row in rows:
            job.add("samples", [row])
        raise KeyError


def count(log: Path, sql: str) -> list[dict[str, object]]:
    with open_log(log) as opened:
        return list(opened.query(sql).to_pylist())


def test_rows_lie_in_their_days_and_the_engine_in_each(tmp_path: Path) -> None:
    with one_import(tmp_path) as job:
        job.describe(ENGINE, EngineRow(source="vllm", model="m"))
        job.add("samples", [sample(0), sample(DAY_NS)])
    names = {path.name for path in tmp_path.glob("*.duckdb")}
    assert {"1970-01-01.duckdb", "1970-01-02.duckdb"} <= names
    assert count(tmp_path, "SELECT count(*) AS n FROM samples") == [{"n": 2}]
    assert count(tmp_path, "SELECT model FROM engines") == [{"model": "m"}]


def test_it_says_what_it_brought(tmp_path: Path) -> None:
    with one_import(tmp_path) as job:
        job.told.read("page", 2)
        job.told.unread("\x1b[31mno page")
        job.add("samples", [sample(5), sample(7)])
    row = count(tmp_path, "SELECT * EXCLUDE (ts, detail) FROM imports")[0]
    assert row == {
        "import_id": content_number(b"12345678"),
        "source": "prometheus",
        "name": "pages",
        "from_ts": 5,
        "until_ts": 7,
        "num_rows": 2,
        "unit": "pages",
        "num_read": 2,
        "num_unread": 1,
    }
    assert "\x1b" not in str(count(tmp_path, "SELECT detail FROM imports")[0]["detail"])


def test_the_same_content_is_refused(tmp_path: Path) -> None:
    with one_import(tmp_path) as job:
        job.add("samples", [sample(5)])
    with (
        pytest.raises(ImportRefused, match="already: imported from pages at"),
        one_import(tmp_path),
    ):
        pass
    with one_import(tmp_path, b"other content") as job:
        job.add("samples", [sample(6)])
    assert count(tmp_path, "SELECT count(*) AS n FROM samples") == [{"n": 2}]


def test_an_error_undoes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telemetry.sources.importing.ROWS_PER_FLUSH", 1)
    with pytest.raises(KeyError):
        fail_after(tmp_path, sample(5), sample(DAY_NS))
    assert count(tmp_path, "SELECT count(*) AS n FROM samples") == [{"n": 0}]


def test_what_a_killed_one_left_is_removed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telemetry.sources.importing.ROWS_PER_FLUSH", 1)
    monkeypatch.setattr(Import, "_undo", lambda job: None)
    with pytest.raises(KeyError):
        fail_after(tmp_path, sample(5), sample(6))
    assert count(tmp_path, "SELECT count(*) AS n FROM samples") == [{"n": 2}]
    with one_import(tmp_path) as job:
        job.add("samples", [sample(5), sample(6)])
    assert count(tmp_path, "SELECT count(*) AS n FROM samples") == [{"n": 2}]


def test_a_log_with_a_collector_is_refused(tmp_path: Path) -> None:
    held = take_lock(tmp_path)
    with (
        open(held),
        pytest.raises(ImportRefused, match="name another directory with --log"),
        one_import(tmp_path),
    ):
        pass
