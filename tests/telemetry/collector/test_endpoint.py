"""The query endpoint reads, within limits, and does nothing else."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from telemetry.collector import find_collector
from telemetry.collector.endpoint import LONGEST_SOCKET_PATH, socket_path
from telemetry.errors import QueryFailed, QueryRefused, QueryTimeout, StepscopeError
from telemetry.store import Log, open_log
from telemetry.store.guard import Limits
from tests.telemetry.collector.builders import (
    collect,
    collector_process,
    record,
    ring_for,
    rows,
    wait_for_collector,
)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    log = tmp_path_factory.mktemp("live") / "log"
    ring = ring_for(log)
    record(ring, 0, 20)
    collect(log, detail="full")
    with collector_process(log):
        wait_for_collector(log)
        yield log
    ring.close()


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = tmp_path_factory.mktemp("closed") / "log"
    ring = ring_for(log)
    record(ring, 0, 20)
    collect(log, detail="full")
    ring.close()
    return log


@pytest.fixture(params=["live", "closed"], scope="module")
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    with open_log(request.getfixturevalue(request.param)) as opened:
        yield opened


FORBIDDEN = [
    "INSERT INTO steps (step) VALUES (1)",
    "UPDATE steps SET step = 1",
    "DELETE FROM steps",
    "DROP VIEW steps",
    "CREATE TABLE t AS SELECT 1",
    "CREATE TEMP TABLE t AS SELECT 1",
    "ATTACH ':memory:' AS other",
    "COPY (SELECT 1) TO '/tmp/never.csv'",
    "SET threads = 1",
    "PRAGMA database_list; SELECT 1",
    "SELECT 1; SELECT 2",
    "CHECKPOINT",
    "INSTALL httpfs",
    "LOAD httpfs",
    "EXPORT DATABASE '/tmp/never'",
    "BEGIN",
    "",
    "-- nothing",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "EXPLAIN ANALYZE INSERT INTO memory.nothing_yet.steps (step) VALUES (1)",
]


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_what_is_no_reading_statement_is_refused(log: Log, sql: str) -> None:
    with pytest.raises(QueryRefused):
        log.query(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "FROM '/etc/passwd'",
        "SELECT nope FROM steps",
        "SELEC 1",
    ],
)
def test_what_reaches_outside_or_is_wrong_fails_with_a_message(log: Log, sql: str) -> None:
    with pytest.raises(QueryFailed, match=r".{10}"):
        log.query(sql)
    assert log.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]


def test_an_error_leaves_the_log_as_it_was(log: Log) -> None:
    assert log.query("SELECT count(*) AS n FROM steps").to_pylist() == [{"n": 20}]
    assert log.query("SELECT count(*) AS n FROM memory.nothing_yet.steps").to_pylist() == [{"n": 0}]


@pytest.mark.parametrize(
    "sql",
    [
        "EXPLAIN SELECT * FROM steps",
        "DESCRIBE steps",
        "SHOW TABLES",
        "FROM steps LIMIT 1",
        "WITH x AS (SELECT 1 AS a) FROM x",
        "VALUES (1)",
        "SELECT 1 -- a comment",
        "SELECT 1;",
        "SUMMARIZE steps",
    ],
)
def test_every_way_of_reading_is_answered(log: Log, sql: str) -> None:
    assert log.query(sql).num_rows > 0


def test_parameters_travel(log: Log) -> None:
    engine = log.query("SELECT engine FROM engines").to_pylist()[0]["engine"]
    table = log.query("SELECT count(*) AS n FROM steps WHERE engine = ? AND step < ?", [engine, 5])
    assert table.to_pylist() == [{"n": 5}]
    table = log.query("SELECT $name AS a, $none AS b", {"name": "é';--", "none": None})
    assert table.to_pylist() == [{"a": "é';--", "b": None}]
    steps = log.query(
        "SELECT step FROM steps WHERE step IN (SELECT unnest(?)) ORDER BY 1", [[3, 4]]
    )
    assert steps.to_pylist() == [{"step": 3}, {"step": 4}]


def test_a_parameter_that_cannot_travel_is_refused(log: Log) -> None:
    with pytest.raises(QueryRefused, match="a query parameter is a object: give"):
        log.query("SELECT ?", [object()])


def test_an_empty_answer_keeps_its_columns(log: Log) -> None:
    table = log.query("SELECT engine, step FROM steps WHERE false")
    assert table.schema.names == ["engine", "step"]
    assert table.schema.field("engine").type == pa.uint64()


@pytest.mark.parametrize("which", ["live", "closed"])
def test_the_row_cap_says_so(request: pytest.FixtureRequest, which: str) -> None:
    with open_log(request.getfixturevalue(which), limits=Limits(max_rows=7)) as log:
        assert log.query("SELECT step FROM steps ORDER BY step").num_rows == 7
        assert log.truncated
        assert log.query("SELECT step FROM steps LIMIT 7").num_rows == 7
        assert not log.truncated


@pytest.mark.parametrize("which", ["live", "closed"])
def test_a_query_that_takes_too_long_is_stopped(request: pytest.FixtureRequest, which: str) -> None:
    with open_log(request.getfixturevalue(which), limits=Limits(timeout_seconds=0.2)) as log:
        with pytest.raises(QueryTimeout, match=r"longer than 0\.2 s"):
            log.query("SELECT sum(a.range * b.range) FROM range(1000000) a, range(10000000) b")
        assert log.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]


def test_the_socket_is_for_this_user_alone(live: Path) -> None:
    notice = find_collector(live)
    assert notice is not None
    assert stat.S_IMODE(Path(notice.socket).stat().st_mode) == 0o600
    assert stat.S_IMODE((live / "collector.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("message", [b"", b"\xff\xff\xff\xff", b"\x02\0\0\0[]", b"\x02\0\0\0{}"])
def test_nonsense_on_the_socket_hurts_nobody(live: Path, message: bytes) -> None:
    notice = find_collector(live)
    assert notice is not None
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(notice.socket)
        client.sendall(message)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b""
    assert rows(live, "SELECT 1") == [(1,)]


def test_a_long_path_puts_the_socket_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * LONGEST_SOCKET_PATH)
    path = socket_path(deep, {"XDG_RUNTIME_DIR": str(tmp_path)})
    assert path.parent.parent == tmp_path
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert socket_path(tmp_path / "short").name == "collector.sock"


def test_errors_of_the_collector_are_the_same_here(live: Path) -> None:
    with open_log(live) as log, pytest.raises(StepscopeError) as caught:
        log.query("DROP TABLE steps")
    assert type(caught.value) is QueryRefused
