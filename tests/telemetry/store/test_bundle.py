"""A bundle of a stranger: nothing in it is trusted."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from telemetry.bundle.making import make_bundle
from telemetry.errors import LogDamaged, LogNotFound, QueryFailed, QueryRefused
from telemetry.query.window import choose_window
from telemetry.sql import VIEWS
from telemetry.sql.packed_log import opened
from telemetry.sql.schema import BASE_TABLES
from telemetry.store import open_log

PACKED = Path(__file__).parents[2] / "data" / "step_logs" / "v4.tar.xz"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("honest") / "bundle"
    with opened(PACKED) as log:
        make_bundle(log, choose_window(log, None, None), out)
    return out


@pytest.fixture
def hostile(honest: Path, tmp_path: Path) -> Path:
    """The honest bundle, rewritten by somebody who means harm."""
    path = tmp_path / "hostile"
    path.write_bytes(honest.read_bytes())
    (tmp_path / "secret.txt").write_text("the secret")
    with duckdb.connect(str(path)) as file:
        for statement in (
            "DROP TABLE heartbeats",
            f"CREATE VIEW heartbeats AS SELECT content FROM read_text('{tmp_path}/secret.txt')",
            f"CREATE VIEW preemptions AS SELECT content FROM read_text('{tmp_path}/secret.txt')",
            "CREATE VIEW evil AS SELECT 1 AS one",
            "CREATE MACRO utc(ts) AS 'not a time'",
            "CREATE MACRO finish_reason_name(code) AS 'nobody'",
            "ALTER TABLE steps DROP num_waiting",
            "ALTER TABLE steps ADD COLUMN num_waiting VARCHAR DEFAULT 'many'",
            "ALTER TABLE steps ADD COLUMN further VARCHAR DEFAULT 'more'",
            "DROP TABLE clock_anchors",
            "CREATE TABLE clock_anchors (engine UBIGINT, ts BIGINT, "
            "wall_ns BIGINT GENERATED ALWAYS AS (ts * 2))",
            "INSERT INTO clock_anchors VALUES (1, 2)",
            "UPDATE lean_step_requests SET num_more_blocks = 9000000000000000000",
            "INSERT INTO vocabulary VALUES ('finish_reason', 200, '''); DROP VIEW steps; --')",
        ):
            file.execute(statement)
    return path


@pytest.mark.parametrize("name", [*BASE_TABLES, *VIEWS])
def test_every_table_and_view_of_ours_answers(hostile: Path, name: str) -> None:
    with open_log(hostile) as log:
        assert log.query(f"SELECT count(*) AS n FROM {name}").num_rows == 1


def test_views_and_macros_in_it_are_ignored(honest: Path, hostile: Path) -> None:
    sql = (
        "SELECT (SELECT count(*) FROM preemptions) AS preemptions, utc(0) AS ts_utc, "
        "(SELECT count(DISTINCT finish_reason_name(reason)) FROM request_finishes) AS reasons"
    )
    with open_log(honest) as log, open_log(hostile) as other:
        assert other.query(sql).to_pylist() == log.query(sql).to_pylist()
        assert other.query("SELECT count(*) AS n FROM heartbeats").to_pylist() == [{"n": 0}]
        with pytest.raises(QueryFailed, match="evil"):
            other.query("FROM evil")


def test_columns_of_another_type_and_further_ones_are_not_read(hostile: Path) -> None:
    with open_log(hostile) as log:
        assert log.query("SELECT max(num_waiting) AS n FROM steps").to_pylist() == [{"n": None}]
        with pytest.raises(QueryFailed, match="further"):
            log.query("SELECT further FROM steps")


def test_a_generated_column_is_not_computed(hostile: Path) -> None:
    with open_log(hostile) as log:
        assert log.query("SELECT engine, wall_ns FROM clock_anchors").to_pylist() == [
            {"engine": 1, "wall_ns": None}
        ]


def test_a_number_that_does_not_fit_is_null(hostile: Path) -> None:
    with open_log(hostile) as log:
        (row,) = log.query(
            "SELECT count(*) AS n, max(num_blocks) AS m FROM step_requests"
        ).to_pylist()
    assert row["n"] > 0
    assert row["m"] is None


def test_other_files_stay_closed(hostile: Path, tmp_path: Path) -> None:
    with open_log(hostile) as log:
        for sql in (
            f"SELECT * FROM read_text('{tmp_path}/secret.txt')",
            "FROM bundle.main.preemptions",
            "FROM bundle.preemptions",
        ):
            with pytest.raises((QueryRefused, QueryFailed)):
                log.query(sql)


def test_reading_changes_nothing(hostile: Path) -> None:
    before = hostile.read_bytes()
    with open_log(hostile) as log:
        log.query("FROM steps LIMIT 1")
    assert hostile.read_bytes() == before
    assert sorted(path.name for path in hostile.parent.iterdir()) == ["hostile", "secret.txt"]


def test_two_readers_open_it_at_once(honest: Path) -> None:
    with open_log(honest) as one, open_log(honest) as other:
        sql = "SELECT count(*) AS n FROM steps"
        assert one.query(sql).to_pylist() == other.query(sql).to_pylist()


@pytest.mark.parametrize(
    "content", [b"", b"garbage" * 5_000, b"SQLite format 3\x00" + b"\0" * 9_000]
)
def test_a_file_that_is_no_bundle_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(LogDamaged):
        open_log(tmp_path / "file")


def test_a_database_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "file")) as file:
        file.execute("CREATE TABLE mine (a INTEGER)")
    with pytest.raises(LogDamaged, match="no bundle"):
        open_log(tmp_path / "file")


def test_a_name_with_quotes_is_a_name(honest: Path, tmp_path: Path) -> None:
    path = tmp_path / "o'clock, ]['.stepscope"
    path.write_bytes(honest.read_bytes())
    with open_log(path) as log:
        assert log.query("SELECT count(*) AS n FROM steps").to_pylist() == [{"n": 648}]


def test_a_file_that_is_not_there_is_missed(tmp_path: Path) -> None:
    with pytest.raises(LogNotFound):
        open_log(tmp_path / "nothing")
