"""Statements that mean harm are refused or harmless, live and closed, and a good one follows.

Runs on either major of DuckDB, and needs only duckdb, numpy, pyarrow, hypothesis and pytest:

    python -m venv duck2 && duck2/bin/pip install 'duckdb>=2,<3' numpy pyarrow \
        pytest pytest-timeout hypothesis
    duck2/bin/python -m pytest tests/telemetry/store/test_hostile_sql.py
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from telemetry.errors import QueryFailed, QueryRefused, QueryTimeout, StepscopeError
from telemetry.store import Log, open_log
from telemetry.store.guard import Limits
from telemetry.store.statement import MAX_STATEMENT_CHARS
from tests.telemetry.collector.builders import (
    collect,
    collector_process,
    record,
    ring_for,
    wait_for_collector,
)

IS_DUCKDB_2 = duckdb.__version__.startswith("2.")
SECRET = "not for readers"
LIMITS = Limits(timeout_seconds=1.0, max_rows=1_000)
PATIENCE_SECONDS = 15.0
"""A hostile statement has to be over by then, on a machine that is busy with other things."""


@pytest.fixture(scope="module", params=["live", "closed"])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    directory = tmp_path_factory.mktemp(request.param)
    (directory / "secret.csv").write_text(f"a,b\n1,{SECRET}\n")
    ring = ring_for(directory / "log")
    record(ring, 0, 20)
    collect(directory / "log", detail="full")
    if request.param == "closed":
        ring.close()
        with open_log(directory / "log", limits=LIMITS) as opened:
            yield opened
        return
    with collector_process(directory / "log"):
        wait_for_collector(directory / "log")
        with open_log(directory / "log", limits=LIMITS) as opened:
            yield opened
    ring.close()


@pytest.fixture(autouse=True)
def unharmed(log: Log) -> Iterator[None]:
    """The log answers as before, whatever was asked; nothing was written beside it."""
    before = files_around(log)
    yield
    assert log.query("SELECT count(*) AS n, max(step) AS s FROM steps").to_pylist() == [
        {"n": 20, "s": 19}
    ]
    assert files_around(log) == before


def files_around(log: Log) -> set[Path]:
    """Returns what lies beside the log, and where the statements below would write."""
    return {*log.target.parent.iterdir(), *Path("/tmp").glob("never*")}


WRITES = {
    "insert": "INSERT INTO steps (step) VALUES (1)",
    "insert in a CTE": (
        "WITH x AS (INSERT INTO memory.nothing_yet.steps (step) VALUES (99) RETURNING step) "
        "SELECT * FROM x"
    ),
    "delete in a CTE": (
        "WITH x AS (DELETE FROM memory.nothing_yet.steps RETURNING step) SELECT * FROM x"
    ),
    "update in a CTE below": (
        "SELECT * FROM (WITH x AS (UPDATE memory.nothing_yet.steps SET step = 1 RETURNING step) "
        "FROM x)"
    ),
    "update": "UPDATE steps SET step = 1",
    "delete": "DELETE FROM memory.nothing_yet.steps",
    "truncate": "TRUNCATE memory.nothing_yet.steps",
    "merge": (
        "MERGE INTO memory.nothing_yet.steps t USING steps s ON t.step = s.step "
        "WHEN MATCHED THEN DELETE"
    ),
    "copy to a file": "COPY (SELECT 1) TO '/tmp/never.csv'",
    "copy from a file": "COPY memory.nothing_yet.steps FROM '/etc/passwd'",
    "export": "EXPORT DATABASE '/tmp/never'",
    "import": "IMPORT DATABASE '/tmp/never'",
    "attach": "ATTACH '/tmp/never.duckdb' AS other",
    "attach memory": "ATTACH ':memory:' AS other",
    "detach": "DETACH memory",
    "use": "USE memory.nothing_yet",
    "install": "INSTALL httpfs",
    "load": "LOAD httpfs",
    "update extensions": "UPDATE EXTENSIONS",
    "create a table": "CREATE TABLE t AS SELECT 1",
    "create a temporary table": "CREATE TEMP TABLE steps AS SELECT 7 AS step",
    "create a temporary view": "CREATE TEMP VIEW steps AS SELECT 7 AS step",
    "shadow a macro": "CREATE OR REPLACE MACRO utc(ts) AS 0",
    "shadow a macro for a while": "CREATE TEMP MACRO event_kind(name) AS 0",
    "create a secret": "CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')",
    "create a sequence": "CREATE SEQUENCE s",
    "drop a view": "DROP VIEW preemptions",
    "alter": "ALTER VIEW preemptions RENAME TO lost",
    "checkpoint": "CHECKPOINT",
    "checkpoint as a table": "SELECT * FROM checkpoint()",
    "forced checkpoint": "FROM force_checkpoint()",
    "checkpoint by call": "CALL checkpoint()",
    "checkpoint as a scalar": "SELECT checkpoint()",
    "logging": "SELECT * FROM enable_logging(storage := 'file', storage_path := '/tmp/never')",
    "logging by call": "CALL enable_logging()",
    "write to DuckDB's log": "SELECT write_log('x')",
    "truncate DuckDB's log": "FROM truncate_duckdb_logs()",
    "profiling": "FROM enable_profiling(format := 'json', save_location := '/tmp/never')",
    "set": "SET threads = 1",
    "set a variable": "SET VARIABLE x = 1",
    "reset": "RESET threads",
    "pragma": "PRAGMA threads = 1",
    "pragma that writes": "PRAGMA enable_checkpoint_on_shutdown",
    "begin": "BEGIN TRANSACTION",
    "commit": "COMMIT",
    "rollback": "ROLLBACK",
    "prepare": "PREPARE p AS DELETE FROM steps",
    "execute": "EXECUTE p",
    "deallocate": "DEALLOCATE p",
    "vacuum": "VACUUM ANALYZE",
    "explain a write": "EXPLAIN DELETE FROM memory.nothing_yet.steps",
    "explain analyze a write": "EXPLAIN ANALYZE DELETE FROM memory.nothing_yet.steps",
    "explain analyze a temporary table": "EXPLAIN ANALYZE CREATE TEMP TABLE steps AS SELECT 1 AS a",
    "explain behind a comment": (
        "EXPLAIN /* /* */ SELECT 1 -- */ ANALYZE DELETE FROM memory.nothing_yet.steps"
    ),
    "explain analyze a checkpoint": "EXPLAIN ANALYZE SELECT * FROM checkpoint()",
}

SEVERAL = {
    "two": "SELECT 1; DELETE FROM steps",
    "two behind a comment": "SELECT 1 /* ; */ ; -- harmless\nDELETE FROM steps",
    "two with a text between": "SELECT ';'; DROP VIEW steps",
    "two with dollars": "SELECT $$;$$; DROP VIEW steps",
    "none": "",
    "a comment": "-- nothing",
    "a semicolon": ";",
    "pivot that makes a type": "PIVOT steps ON step USING count(*)",
}

OUTSIDE = {
    "read_csv": "SELECT * FROM read_csv('{secret}')",
    "read_text": "SELECT * FROM read_text('{secret}')",
    "read_blob": "SELECT * FROM read_blob('/proc/self/environ')",
    "read_json": "SELECT * FROM read_json('{secret}')",
    "read_parquet": "SELECT * FROM read_parquet('{secret}')",
    "parquet_scan": "SELECT * FROM parquet_scan('{secret}')",
    "read_duckdb": "SELECT * FROM read_duckdb('{secret}')",
    "sniff_csv": "SELECT * FROM sniff_csv('{secret}')",
    "glob": "SELECT * FROM glob('{folder}/*')",
    "parquet_metadata": "SELECT * FROM parquet_metadata('{secret}')",
    "parquet_schema": "SELECT * FROM parquet_schema('{secret}')",
    "which_secret": "SELECT * FROM which_secret('s3://x', 's3')",
    "duckdb_secrets": "SELECT * FROM duckdb_secrets(redact := false)",
    "duckdb_settings": "SELECT * FROM duckdb_settings()",
    "duckdb_logs": "SELECT * FROM duckdb_logs()",
    "a file as a table": "FROM '{secret}'",
    "a file as a table, quoted": 'FROM "{secret}"',
    "a file in a subquery": "SELECT (SELECT count(*) FROM read_text('{secret}'))",
    "a file in a CTE": "WITH x AS (FROM read_csv('{secret}')) SELECT * FROM x",
    "a file in EXISTS": "SELECT 1 WHERE EXISTS (FROM glob('{folder}/*'))",
    "a file in a set operation": "SELECT '1' UNION ALL SELECT content FROM read_text('{secret}')",
    "a file laterally": "SELECT * FROM steps, LATERAL (SELECT * FROM read_text('{secret}'))",
    "a file in a qualified call": "SELECT * FROM system.main.read_text('{secret}')",
    "a file in capital letters": "SELECT * FROM READ_TEXT('{secret}')",
    "a remote file": "FROM 'https://127.0.0.1:1/x.csv'",
    "a bucket": "FROM 's3://bucket/x.parquet'",
    "a variable of the program": "SELECT * FROM params",
    "query()": "SELECT * FROM query('SELECT content FROM read_text(''{secret}'')')",
    "query_table()": "SELECT * FROM query_table('{secret}')",
    "a table macro over query_table": "FROM histogram('{secret}', a)",
    "a serialised statement": (
        "FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1 FROM checkpoint()'))"
    ),
    "getenv": "SELECT getenv('HOME')",
    "getvariable": "SELECT getvariable('x')",
    "seq_scan": "SELECT * FROM seq_scan('steps')",
    "arrow_scan": "SELECT * FROM arrow_scan(1, 2, 3)",
    "pandas_scan": "SELECT * FROM pandas_scan(1)",
    "python_map_function": "SELECT * FROM python_map_function(1)",
    "describe a file": "DESCRIBE FROM read_csv('{secret}')",
    "summarize a file": "SUMMARIZE FROM '{secret}'",
}

_CTES = ", ".join(
    f"c{n} AS (SELECT * FROM c{n - 1} a, c{n - 1} b)" if n else "c0 AS (SELECT 1 AS a)"
    for n in range(30)
)
_STARS = "SELECT *, * FROM (" * 40 + "SELECT 1 AS a" + ")" * 40

GREEDY = {
    "a huge text": "SELECT length(repeat('x', 2000000000))",
    "a huge text of huge texts": "SELECT repeat(repeat(repeat('x', 9999), 9999), 9999)",
    "a huge text by steps": (
        "WITH a AS (SELECT repeat('x', 9999) AS s), b AS (SELECT repeat(s, 9999) AS s FROM a) "
        "SELECT length(repeat(s, 9999)) FROM b"
    ),
    "a length worked out": "SELECT repeat('x', (SELECT 2000000000))",
    "a padding": "SELECT lpad('x', 2000000000, 'y')",
    "a list of numbers": "SELECT length(range(2000000000))",
    "a longer list": "SELECT list_resize([1], 2000000000)",
    "a width of printf": "SELECT length(printf('%2000000000d', 1))",
    "a width of format": "SELECT length(format('{:>2000000000}', 'x'))",
    "a width given beside": "SELECT length(format('{:>{}}', 'x', 2000000000))",
    "a text put into itself": "SELECT length(replace(s, 'a', s)) FROM (SELECT repeat('a', 9000) s)",
    "bits": "SELECT bitstring('1', 2000000000)",
    "a sum over a product": (
        "SELECT sum(a.range + b.range) FROM range(10000000) a, range(1000000) b"
    ),
    "a recursion without an end": (
        "WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM t) SELECT count(*) FROM t"
    ),
    "a recursion that doubles": (
        "WITH RECURSIVE t AS (SELECT 'x' AS a UNION ALL SELECT a || a FROM t) "
        "SELECT max(length(a)) FROM t"
    ),
    "a huge sort": "SELECT a FROM range(3000000000) t(a) ORDER BY hash(a) OFFSET 2000000000",
    "a huge list": "SELECT length(list(a)) FROM range(3000000000) t(a)",
    "a huge group": "SELECT count(DISTINCT uuid()) FROM range(3000000000)",
    "CTEs that multiply": f"WITH {_CTES} SELECT count(*) FROM c29",
    "stars that multiply": _STARS,
    "parentheses": "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
    "a long sum": "SELECT " + "1 + " * 10_000 + "1",
    "negations": "SELECT " + "NOT " * 15_000 + "true",
    "lists in lists": "SELECT " + "[" * 20_000 + "]" * 20_000,
    "queries in queries": "SELECT * FROM " + "(SELECT * FROM " * 3_000 + "range(1)" + ")" * 3_000,
    "a regular expression": "SELECT regexp_matches(repeat('a', 9999), '(a+)+$b')",
    "repetitions in repetitions": "SELECT regexp_matches('a', '(((a{100}){100}){100}){100}')",
    "a pattern": "SELECT repeat('a', 9999) LIKE repeat('%a', 1000) || 'b'",
    "an edit distance": "SELECT levenshtein(repeat('a', 9999), repeat('b', 9999))",
    "JSON in JSON": "SELECT json_valid(repeat('[', 9999))",
    "sleep": "SELECT sleep_ms(100000)",
    "an endless statement": "SELECT " + "1, " * MAX_STATEMENT_CHARS + "1",
    "a text that is no text": "SELECT '\ud800'",
    "a zero byte": "SELECT 'a\0b' FROM steps; DROP VIEW steps",
}

HARMLESS = {
    "an error on purpose": "SELECT error('a\x1b[31m' || engine) FROM engines",
    "internal tables": "SELECT * FROM duckdb_functions() LIMIT 1",
    "another schema": "SELECT * FROM information_schema.tables",
    "the empty tables": "SELECT * FROM memory.nothing_yet.steps",
}


def ask(log: Log, sql: str) -> pa.Table | StepscopeError:
    """Returns the answer, or the error that a person is told."""
    started = time.monotonic()
    try:
        answer = log.query(sql)
    except StepscopeError as error:
        answer = error
    assert time.monotonic() - started < PATIENCE_SECONDS
    return answer


@pytest.mark.parametrize("sql", WRITES.values(), ids=WRITES)
def test_what_writes_or_changes_anything_is_refused(log: Log, sql: str) -> None:
    assert isinstance(ask(log, sql), QueryRefused | QueryFailed)


@pytest.mark.parametrize("sql", SEVERAL.values(), ids=SEVERAL)
def test_anything_but_one_statement_is_refused(log: Log, sql: str) -> None:
    assert isinstance(ask(log, sql), QueryRefused)


@pytest.mark.parametrize("sql", OUTSIDE.values(), ids=OUTSIDE)
def test_nothing_outside_the_log_is_read(log: Log, sql: str) -> None:
    folder = log.target.parent
    answer = ask(log, sql.format(secret=folder / "secret.csv", folder=folder))
    assert isinstance(answer, QueryRefused | QueryFailed)
    assert SECRET not in str(answer)


@pytest.mark.parametrize("sql", GREEDY.values(), ids=GREEDY)
def test_what_would_take_all_time_or_memory_is_stopped(log: Log, sql: str) -> None:
    answer = ask(log, sql)
    if isinstance(answer, pa.Table):
        assert answer.num_rows <= LIMITS.max_rows
        assert answer.nbytes < 1 << 20
    else:
        assert isinstance(answer, QueryRefused | QueryFailed | QueryTimeout)


@pytest.mark.parametrize("sql", HARMLESS.values(), ids=HARMLESS)
def test_what_is_odd_but_reads_gets_its_answer(log: Log, sql: str) -> None:
    assert isinstance(ask(log, sql), pa.Table | QueryFailed)


def test_a_write_in_a_cte_is_refused_by_name(log: Log) -> None:
    answer = ask(log, WRITES["insert in a CTE"])
    if not IS_DUCKDB_2:
        pytest.skip(f"DuckDB {duckdb.__version__} does not parse a write inside a CTE")
    assert str(answer) == "INSERT inside a statement is refused: a step log is only read"


def test_an_answer_too_large_to_send_is_refused_with_a_way_out(log: Log) -> None:
    columns = ", ".join(f"repeat('x', 9999) AS c{n}" for n in range(60))
    answer = ask(log, f"SELECT {columns} FROM range(1000)")
    assert isinstance(answer, QueryRefused | QueryTimeout)


def test_the_instance_cannot_be_opened_up_again(log: Log) -> None:
    settings = log.query(
        "SELECT current_setting('enable_external_access') AS access, "
        "current_setting('lock_configuration') AS locked"
    )
    assert settings.to_pylist() == [{"access": False, "locked": True}]
