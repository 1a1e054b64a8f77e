"""The collector's hand in the step log."""

from __future__ import annotations

from pathlib import Path

from telemetry.store import open_log
from telemetry.store.writer import LogWriter

DAY = "2026-11-29"


def test_a_text_among_thousands_of_nulls_is_written(tmp_path: Path) -> None:
    """DuckDB would guess the type of a text column from a sample, and fail on a sample of NULLs."""
    events = [{"engine": 1, "seq": n, "kind": 3, "step": n, "ts": n} for n in range(5_000)]
    events[-1]["text"] = "the only one"
    writer = LogWriter(tmp_path, [DAY], dense=False)
    rows = writer.new_rows(dense=False)
    rows.add_rows("request_events", events)
    writer.write(DAY, rows, dense=False)
    writer.close()
    with open_log(tmp_path) as log:
        texts = log.query("SELECT text, count(*) AS n FROM request_events GROUP BY text ORDER BY n")
    assert texts.to_pylist() == [{"text": "the only one", "n": 1}, {"text": None, "n": 4_999}]
