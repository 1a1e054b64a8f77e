"""A bundle holds a window of a log, and no names."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope import main
from telemetry.bundle.making import make_bundle
from telemetry.errors import StepscopeError
from telemetry.query.window import Window, choose_window
from telemetry.sql import VIEWS
from telemetry.sql.packed_log import opened
from telemetry.sql.schema import BASE_TABLES
from telemetry.store import Log, open_log
from telemetry.store.guard import Limits
from telemetry.store.presence import find_collector
from tests.telemetry.collector.builders import (
    collector_process,
    record,
    ring_for,
    wait_for_collector,
    wait_until,
)
from tests.telemetry.collector.builders import rows as rows_of

PACKED = Path(__file__).parents[2] / "data" / "step_logs" / "v4.tar.xz"
WITH_TIMES_OF_THE_LOG = [t for t in BASE_TABLES if t not in ("exports", "clock_anchors")]
"""The collector's clock was another one than the engine's when the log was made."""
SALTED = {
    *("request_id", "session", "trace_id", "span_id", "parent_span_id"),
    *("host", "boot_id", "peer"),
}


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    with opened(PACKED) as recorded:
        yield recorded


@pytest.fixture(scope="module")
def whole(log: Log, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    out = tmp_path_factory.mktemp("bundle") / "whole.stepscope"
    make_bundle(log, choose_window(log, None, None), out)
    with open_log(out) as bundle:
        yield bundle


def rows(log: Log, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = log.query(sql).to_pylist()
    return found


@pytest.mark.parametrize("table", WITH_TIMES_OF_THE_LOG)
def test_the_whole_window_holds_every_row_and_number(log: Log, whole: Log, table: str) -> None:
    """Names aside, and the texts that may hold some."""
    emptied = {"text", "api_url"} | SALTED
    names = [c.name for c in BASE_TABLES[table] if c.name not in emptied]
    sql = f"SELECT {', '.join(names)} FROM {table} ORDER BY ALL"
    assert rows(whole, sql) == rows(log, sql)


def test_spans_find_their_requests_in_a_bundle_too(log: Log, whole: Log) -> None:
    joined = "SELECT engine, request FROM request_traces WHERE request IS NOT NULL ORDER BY ALL"
    assert rows(whole, joined) == rows(log, joined) != []


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_has_as_many_rows(log: Log, whole: Log, view: str) -> None:
    sql = f"SELECT count(*) AS n FROM {view}"
    assert rows(whole, sql) == rows(log, sql)


def test_no_name_of_a_request_or_host_is_in_the_file(log: Log, whole: Log) -> None:
    content = whole.target.read_bytes()
    (host,) = {row["host"] for row in rows(log, "SELECT host FROM engines")}
    ids = [row["request_id"] for row in rows(log, "SELECT request_id FROM request_arrivals")]
    assert len(ids) == 48
    assert [name for name in [host, *ids] if name.encode() in content] == []


def test_a_name_stays_one_name(log: Log, whole: Log) -> None:
    sql = "SELECT count(DISTINCT request_id) AS n FROM requests"
    assert rows(whole, sql) == rows(log, sql)


def test_another_bundle_has_other_names(log: Log, whole: Log, tmp_path: Path) -> None:
    make_bundle(log, choose_window(log, None, None), tmp_path / "other")
    sql = "SELECT request_id FROM request_arrivals"
    with open_log(tmp_path / "other") as other:
        assert not set(map(str, rows(other, sql))) & set(map(str, rows(whole, sql)))


def test_names_stay_where_that_is_wished(log: Log, tmp_path: Path) -> None:
    make_bundle(log, choose_window(log, None, None), tmp_path / "plain", salted=False)
    sql = "SELECT request_id FROM request_arrivals ORDER BY engine, request"
    with open_log(tmp_path / "plain") as plain:
        assert rows(plain, sql) == rows(log, sql)


def middle(log: Log) -> Window:
    window = choose_window(log, None, None)
    quarter = (window.until_ns - window.from_ns) // 4
    return Window(window.from_ns + quarter, window.until_ns - quarter)


def test_a_part_holds_its_steps_and_the_story_of_who_lived_in_it(log: Log, tmp_path: Path) -> None:
    window = middle(log)
    report = make_bundle(log, window, tmp_path / "part")
    between = f"ts BETWEEN {window.from_ns} AND {window.until_ns}"
    (steps,) = rows(log, f"SELECT count(*) AS n FROM steps WHERE {between}")
    assert 0 < report.num_rows["steps"] == steps["n"] < 648
    with open_log(tmp_path / "part") as part:
        (newest,) = rows(part, "SELECT max(ts) AS ts FROM request_events")
        (strangers,) = rows(
            part,
            "SELECT count(*) AS n FROM step_requests WHERE (engine, request) NOT IN "
            "(SELECT (engine, request) FROM request_arrivals)",
        )
        (told,) = rows(part, "SELECT count(*) AS n FROM request_events WHERE kind = 1")
        (arrived,) = rows(part, "SELECT count(*) AS n FROM request_arrivals")
    assert newest["ts"] <= window.until_ns
    assert strangers == {"n": 0}
    assert told == arrived


def test_a_small_limit_of_rows_gives_the_same_bundle(log: Log, tmp_path: Path) -> None:
    window = choose_window(log, None, None)
    expected = make_bundle(log, window, tmp_path / "large").num_rows
    with open_log(log.target, limits=Limits(max_rows=500)) as small:
        assert make_bundle(small, window, tmp_path / "small").num_rows == expected


def test_it_is_one_file_for_its_owner_alone(log: Log, tmp_path: Path) -> None:
    make_bundle(log, middle(log), tmp_path / "part")
    assert [path.name for path in tmp_path.iterdir()] == ["part"]
    assert stat.S_IMODE((tmp_path / "part").stat().st_mode) == 0o600


def test_a_file_that_is_there_is_left_alone(log: Log, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("dear diary")
    with pytest.raises(StepscopeError, match="exists: name another"):
        make_bundle(log, middle(log), tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "dear diary"


def test_a_window_without_an_engine_leaves_no_file(log: Log, tmp_path: Path) -> None:
    with pytest.raises(StepscopeError, match="no engine ran in that window"):
        make_bundle(log, Window(1, 2), tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_the_commands_read_a_bundle_like_a_log(
    log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "incident.stepscope"
    assert main(["bundle", "--log", str(log.target), "--out", str(out)]) == 0
    assert "648 steps of 2 engines, 48 requests" in capsys.readouterr().out
    assert main(["query", "--log", str(out), "SELECT count(*) AS n FROM preemptions"]) == 0
    assert "24" in capsys.readouterr().out
    assert main(["step", "--log", str(out), "5"]) == 0
    assert main(["diagnose", "--log", str(out)]) in (0, 1)
    assert main(["doctor", "--log", str(out)]) == 0
    assert "bundle" in capsys.readouterr().out


def test_a_live_log_is_bundled_through_its_collector(tmp_path: Path) -> None:
    live = tmp_path / "log"
    ring = ring_for(live)
    with collector_process(live):
        wait_for_collector(live)
        record(ring, 0, 30)
        wait_until(lambda: rows_of(live, "SELECT count(*) FROM steps") == [(30,)])
        assert main(["bundle", "--log", str(live), "--out", str(tmp_path / "bundle")]) == 0
        assert find_collector(live) is not None
    ring.close()
    assert rows_of(tmp_path / "bundle", "SELECT count(*) FROM steps") == [(30,)]
    assert rows_of(tmp_path / "bundle", "SELECT count(*) FROM step_requests") == [(60,)]
