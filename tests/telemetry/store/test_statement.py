"""What a statement may ask for: each wall of the guard by itself, and all that people do ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from telemetry.errors import QueryFailed, QueryRefused
from telemetry.sql import create_views
from telemetry.sql.page import page
from telemetry.store import guard
from telemetry.store.guard import Limits, lock_down, run_query
from telemetry.store.statement import (
    MAX_STATEMENT_CHARS,
    REFUSED_FUNCTIONS,
    TABLE_FUNCTIONS,
    checked_statement,
)


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    with duckdb.connect() as opened:
        create_views(opened)
        yield opened


ORDINARY = [
    "SELECT format('{:016x}', engine) AS engine, count(*) FROM steps GROUP BY ALL",
    "SELECT printf('%5.2f %%', 100 * usage_ratio) FROM kv_pressure",
    "SELECT repeat('█', 20), lpad('a', 10, ' '), bar(step, 0, 100, 40) FROM steps",
    "SELECT regexp_replace(request_id, '[0-9]+', 'N'), replace(request_id, 'a', '') FROM requests",
    "SELECT *, row_number() OVER (PARTITION BY engine ORDER BY ts) FROM steps QUALIFY true",
    "PIVOT preemptions ON cause IN ('kv_full', 'priority') USING count(*) GROUP BY engine",
    "FROM token_work UNPIVOT (n FOR work IN (num_recomputed_tokens, num_padding_tokens))",
    "SELECT * FROM steps s ASOF JOIN request_events e ON e.engine = s.engine AND s.ts >= e.ts",
    "SELECT e.engine, t.key FROM engines e, json_each(e.settings) t",
    "SELECT unnest(drafts_placed) FROM requests",
    "SELECT list_transform([1, 2], lambda x: x + 1), [x * 2 FOR x IN [1, 2] IF x > 1]",
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 5) FROM n",
    "SELECT (SELECT max(ts) FROM steps), EXISTS (FROM steps), 1 IN (SELECT step FROM steps)",
    "FROM queue_by_reason_between(1, 2) WHERE wait_reason = 'behind_head'",
    "SELECT * FROM steps WHERE step IN (FROM range(10)) USING SAMPLE 10",
    "SELECT r.*, p.* FROM requests r JOIN preemptions p USING (engine, request)",
    "SELECT COLUMNS('num_.*') FROM steps",
    "EXPLAIN (FORMAT json) SELECT 1",
    "  EXPLAIN\nANALYZE\n SELECT 1",
    "DESCRIBE preemptions",
    "SHOW TABLES",
    "SUMMARIZE steps",
    "FROM duckdb_columns() WHERE table_name = 'steps'",
    "FROM steps UNION ALL BY NAME FROM steps EXCEPT FROM steps",
    "TABLE steps",
    "VALUES (1, 'a;b'), (2, '--')",
]


@pytest.mark.parametrize("sql", ORDINARY)
def test_what_people_ask_is_let_through(connection: Any, sql: str) -> None:
    assert checked_statement(connection, sql) is not None


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT 1; SELECT 2", "2 statements were given"),
        ("DELETE FROM steps", "DELETE is refused"),
        ("FROM checkpoint()", "the table function checkpoint is refused"),
        ("FROM system.main.read_text('x')", "the table function read_text is refused"),
        ("SELECT (SELECT max(content) FROM read_text('x'))", "read_text is refused"),
        ("WITH a AS (FROM glob('*')) FROM a", "the table function glob is refused"),
        ("SELECT write_log('x')", "the function write_log is refused"),
        ("SELECT Sleep_MS(1)", "the function sleep_ms is refused"),
        ("EXPLAIN DELETE FROM steps", "this EXPLAIN is refused"),
        ("EXPLAIN ANALYZE FROM checkpoint()", "checkpoint is refused"),
        ("/* a */ EXPLAIN SELECT 1", "with no comment before it"),
        ("SELECT repeat('x', 10001)", "repeat would make a value of 10,001"),
        ("SELECT repeat(repeat('x', 101), 100)", "would make a value of 10,100"),
        ("SELECT repeat('x', step) FROM steps", "repeat is refused where its length is not"),
        ("SELECT range(step) FROM steps", "use bar() for a bar and FROM range(...) for rows"),
        ("SELECT format('{:99999}', 1)", "format would make a value of 99,999"),
        ("SELECT printf(request_id, 1) FROM requests", "its format is not a plain text"),
        ("SELECT replace('a', 'a', request_id) FROM requests", "what it puts in is not"),
        (f"SELECT '{'x' * MAX_STATEMENT_CHARS}'", "give long lists as parameters"),
        ("SELECT 'a\0'", "a zero byte or half a character"),
        ("SELECT '\udc00'", "a zero byte or half a character"),
        ("SELECT " + ", ".join(["*"] * 400) + " FROM (SELECT " + ", ".join(["*"] * 400)
         + " FROM steps)", "unfold into more than 100,000 columns"),
    ],
)  # fmt: skip
def test_what_is_refused_says_what_and_what_to_do(connection: Any, sql: str, message: str) -> None:
    with pytest.raises(QueryRefused) as caught:
        checked_statement(connection, sql)
    assert message in str(caught.value)


def test_what_cannot_be_parsed_is_told_in_duckdbs_words(connection: Any) -> None:
    with pytest.raises(QueryFailed, match="Parser Error"):
        checked_statement(connection, "SELEC 1")


def test_no_table_function_of_the_list_looks_outside() -> None:
    suspicious = ("read", "scan", "csv", "parquet", "glob", "log", "secret", "query", "checkpoint")
    assert [name for name in TABLE_FUNCTIONS if name.startswith(suspicious)] == []
    assert not TABLE_FUNCTIONS & REFUSED_FUNCTIONS


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "secret.txt").write_text("secret")
    with duckdb.connect() as opened:
        opened.execute("CREATE TABLE t AS SELECT 1 AS a")
        lock_down(opened, tmp_path / "spill")
        yield opened


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{secret}')",
        "SELECT * FROM '{secret}'",
        "ATTACH '{secret}.duckdb' AS x",
        "COPY t TO '{secret}.csv'",
        "SET enable_external_access = true",
        "SET memory_limit = '1TB'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "FROM locked_variable",
    ],
)
def test_a_locked_instance_refuses_without_the_other_walls(
    locked: Any, tmp_path: Path, sql: str
) -> None:
    locked_variable = duckdb.connect().sql("SELECT 1").to_arrow_table()
    assert locked_variable.num_rows == 1
    with pytest.raises(duckdb.Error):
        locked.execute(sql.format(secret=tmp_path / "secret.txt"))


def test_a_reading_transaction_refuses_without_the_other_walls(locked: Any) -> None:
    locked.execute("BEGIN TRANSACTION READ ONLY")
    with pytest.raises(duckdb.Error):
        locked.execute("INSERT INTO t VALUES (2)")
    locked.execute("ROLLBACK")
    assert locked.execute("SELECT count(*) FROM t").fetchone() == (1,)


SORT = (
    "SELECT max(p) AS p FROM (SELECT lag(s) OVER (ORDER BY h) AS p FROM "
    "(SELECT hash(range) AS h, repeat('x', 100) || range AS s FROM range(1000000)))"
)


@pytest.mark.parametrize("may_spill", [True, False])
def test_what_memory_does_not_hold_goes_to_a_folder_within_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may_spill: bool
) -> None:
    if not may_spill:
        monkeypatch.setattr(guard, "MAX_SPILL_BYTES", 0)
    spill = tmp_path / "it's here"
    with duckdb.connect() as opened:
        lock_down(opened, spill, 128 << 20)
        if may_spill:
            assert run_query(opened, SORT, None, Limits()).table.num_rows == 1
        else:
            with pytest.raises(QueryFailed, match="Out of Memory"):
                run_query(opened, SORT, None, Limits())
    assert not spill.exists()


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("67108864\n", "16.0 MiB"), ("max\n", None), (None, None), ("999999999999999\n", None)],
)
def test_memory_is_a_part_of_the_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None, expected: str | None
) -> None:
    path = tmp_path / "memory.max"
    if limit is not None:
        path.write_text(limit)
    monkeypatch.setattr(guard, "_CONTAINER_LIMIT", path)
    with duckdb.connect() as opened:
        lock_down(opened, tmp_path / "spill")
        (row,) = opened.execute("SELECT current_setting('memory_limit')").fetchall()
    if expected is not None:
        assert row == (expected,)
    else:
        assert row != ("16.0 MiB",)


def test_the_library_itself_needs_nothing_that_is_refused(connection: Any) -> None:
    class Checking:
        def query(self, sql: str) -> Any:
            checked_statement(connection, sql)
            return connection.sql(sql).to_arrow_table()

    connection.execute("CREATE OR REPLACE VIEW schema_info AS SELECT 1 AS version")
    assert "## Macros" in page(Checking())
