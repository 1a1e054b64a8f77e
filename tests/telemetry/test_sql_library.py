"""The library as a whole: documented to the letter, and at home on any log."""

from __future__ import annotations

import re

import duckdb
import pytest

from telemetry.sql import VIEWS, create_views
from telemetry.sql.documentation import parse_view
from telemetry.sql.library import MACROS
from telemetry.vocabulary import VOCABULARIES, EventKind
from tests.telemetry.log_builder import LogBuilder, connect, create_tables, insert, records


@pytest.mark.parametrize("name", VIEWS)
def test_every_column_is_documented_in_order(name: str) -> None:
    described = [row["column_name"] for row in records(connect(), f"DESCRIBE {name}")]
    assert described == [column.name for column in VIEWS[name].columns]


@pytest.mark.parametrize("name", VIEWS)
def test_a_unit_fits_the_name(name: str) -> None:
    for column in VIEWS[name].columns:
        assert column.name.endswith("_ns") <= (column.unit == "ns"), column
        assert column.name.endswith("_ratio") == (column.unit == "ratio"), column
        assert column.name.startswith("num_") <= (column.unit != "-"), column


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_an_empty_log_is_empty(name: str) -> None:
    assert records(connect(), f"FROM {name}") == []


def test_a_connection_without_any_table_still_gets_every_view() -> None:
    connection = duckdb.connect()
    create_views(connection)
    for name in VIEWS:
        assert connection.execute(f"SELECT count(*) FROM {name}").fetchone() == (0,)


def test_views_can_be_created_again() -> None:
    connection = connect(LogBuilder().arrived(0))
    create_views(connection)
    assert len(records(connection, "FROM requests")) == 1


@pytest.mark.parametrize("enum", VOCABULARIES)
def test_names_and_codes_translate_both_ways(enum: str) -> None:
    connection = connect()
    for member in VOCABULARIES[enum]:
        row = connection.execute(
            f"SELECT {enum}_name({int(member)}), {enum}('{member.name}')"
        ).fetchone()
        assert row == (member.name, int(member))
    assert connection.execute(f"SELECT {enum}_name(250)").fetchone() == (None,)


def test_a_misspelt_name_is_an_error_not_an_empty_answer() -> None:
    with pytest.raises(duckdb.Error, match="event_kind has no preemptd"):
        connect().execute("SELECT event_kind('preemptd')")


def test_a_code_of_a_newer_version_has_the_name_that_its_log_gives() -> None:
    connection = duckdb.connect()
    create_tables(connection)
    connection.execute("INSERT INTO vocabulary VALUES ('stop_reason', 99, 'it''s new')")
    insert(connection, LogBuilder().step(stop_reason=99))
    create_views(connection)
    assert records(connection, "SELECT stop_reason FROM admission_stops") == [
        {"stop_reason": "it's new"}
    ]


def test_every_macro_that_is_named_exists() -> None:
    rows = records(connect(), "SELECT function_name AS name FROM duckdb_functions()")
    assert set(MACROS) <= {row["name"] for row in rows}


def test_sql_names_the_codes_of_the_vocabulary_and_never_writes_them() -> None:
    for view in VIEWS.values():
        body = "\n".join(line for line in view.sql.splitlines() if not line.startswith("--"))
        assert not re.search(r"\b(kind|stop_reason|cause) *(=|<>|IN \() *\d", body), view.name


def test_the_way_out_of_bad_documentation_is_told() -> None:
    with pytest.raises(ValueError, match=r"mine.sql: cannot read '--: ts \[ns\] when'"):
        parse_view("mine", "-- A row.\n--: ts [ns] when\nSELECT 1;")
    with pytest.raises(ValueError, match="begins without documentation"):
        parse_view("mine", "SELECT 1;")


def test_log_ends_says_how_an_engine_ended() -> None:
    log = LogBuilder().step().step().event(EventKind.engine_died)
    (row,) = records(connect(log), "FROM log_ends")
    assert (row["end_kind"], row["end_step"], row["end_ts"]) == ("engine_died", 1, log.now)
    assert row["newest_ts"] == log.rows["steps"][-1]["updated_ts"]
