"""The SQL page: it answers, refuses, caps, links and downloads; what comes from outside is text."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from dashboard import asking
from dashboard.asking import LONGEST_IN_ADDRESS, Question, frame_of, of_address, parameters_of
from telemetry.query.saved import library_queries
from telemetry.store.guard import Limits
from tests.dashboard import logs
from tests.dashboard.test_views import Show, run, said, sql

SAVED = library_queries()


@pytest.fixture(autouse=True)
def _nobody_s_own_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def asked(show: Show, log: Path, statement: str) -> AppTest:
    show(log)
    return run(sql, sql=statement)


def refusal(test: AppTest) -> str:
    assert "No answer" in said(test)
    return str(test.code[-1].value)


def value_of(test: AppTest) -> Any:
    """The field of the only parameter."""
    (found,) = [field for field in test.text_input if (field.key or "").startswith("p_")]
    return found


# -------------------------------------------------------------------------------------- it answers


def test_nothing_is_asked_before_somebody_does(storm_log: Path, show: Show) -> None:
    show(storm_log)
    test = run(sql)
    assert "FROM preemptions" in test.text_area[0].value
    assert "Download CSV" not in str(test.get("download_button"))


def test_a_statement_of_one_s_own_is_answered(storm_log: Path, show: Show) -> None:
    show(storm_log)
    test = run(sql)
    test.text_area[0].set_value("SELECT count(*) AS n FROM steps").run()
    test.button(key="run").click().run()
    assert not test.exception
    assert test.dataframe[0].value["n"].tolist() == [1170]
    assert "1 row." in said(test)


def test_a_statement_in_the_address_is_answered(storm_log: Path, show: Show) -> None:
    test = asked(show, storm_log, "SELECT 42 AS answer")
    assert test.dataframe[0].value["answer"].tolist() == [42]
    assert test.text_area[0].value == "SELECT 42 AS answer"


@pytest.mark.parametrize("name", [name for name, query in SAVED.items() if not query.parameters])
def test_every_saved_query_runs_from_its_address(name: str, storm_log: Path, show: Show) -> None:
    show(storm_log)
    test = run(sql, q=name)
    assert "No answer" not in said(test)
    assert len(test.dataframe) >= 1


def test_a_saved_query_asks_for_its_values(storm_log: Path, show: Show) -> None:
    show(storm_log)
    test = run(sql, q="request-story")
    assert refusal(test).startswith("request-story needs a value for request_id: the request, as")
    value_of(test).set_value("req-42").run()
    test.button(key="run").click().run()
    assert "No answer" not in said(test)
    assert "admitted" in test.dataframe[0].value["what"].tolist()


def test_choosing_a_saved_query_fills_the_editor_and_asks(storm_log: Path, show: Show) -> None:
    show(storm_log)
    test = run(sql)
    test.selectbox[0].set_value("preemptions-by-minute").run()
    assert not test.exception
    assert test.text_area[0].value == SAVED["preemptions-by-minute"].sql.strip()
    assert len(test.dataframe) >= 1
    assert "No answer" not in said(test)


def test_the_window_is_that_of_the_page(storm_log: Path, show: Show) -> None:
    test = asked(
        show,
        storm_log,
        "SELECT first_ts = $from_ns AND newest_ts = $until_ns AS is_same FROM log_ends",
    )
    assert test.dataframe[0].value["is_same"].tolist() == [True]


# -------------------------------------------------------------------------------------- it refuses


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM steps",
        "SELECT 1; SELECT 2",
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY steps TO '/tmp/x'",
        "ATTACH '/tmp/x.db'",
        "SET memory_limit = '1TB'",
    ],
)
def test_what_does_not_only_read_is_refused(statement: str, storm_log: Path, show: Show) -> None:
    assert refusal(asked(show, storm_log, statement))


def test_an_error_is_shown_as_it_is(storm_log: Path, show: Show) -> None:
    assert "no_such_table" in refusal(asked(show, storm_log, "FROM no_such_table"))


def test_a_text_where_a_number_belongs_is_told(storm_log: Path, show: Show) -> None:
    show(storm_log)
    name, parameter = next(
        (query.name, each.name)
        for query in SAVED.values()
        for each in query.parameters
        if each.type == "integer"
    )
    test = run(sql, q=name, **{f"p_{parameter}": "many"})
    assert f"{parameter} is 'many'" in refusal(test)


def test_rows_beyond_the_cap_are_named(
    storm_log: Path, show: Show, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from dashboard.views import sql as view

    monkeypatch.setattr(view, "LIMITS", Limits(30.0, 7))
    again = logs.write_log(tmp_path / "again", logs.calm().builder())
    test = asked(show, again, "FROM range(8)")
    assert "The first 7 rows; there are more" in said(test)
    assert len(test.dataframe[0].value) == 7


# --------------------------------------------------------------------------------------- the link


def link_of(test: AppTest) -> dict[str, list[str]]:
    return parse_qs(urlsplit(str(test.code[0].value)).query)


def test_a_short_statement_is_in_the_link(storm_log: Path, show: Show) -> None:
    assert link_of(asked(show, storm_log, "SELECT 42 AS answer"))["sql"] == ["SELECT 42 AS answer"]


def test_a_saved_query_is_in_the_link_by_name_with_its_values(storm_log: Path, show: Show) -> None:
    show(storm_log)
    link = link_of(run(sql, q="request-story", p_request_id="req-7"))
    assert (link["q"], link["p_request_id"]) == (["request-story"], ["req-7"])
    assert "sql" not in link


def test_a_long_statement_is_in_no_link(storm_log: Path, show: Show) -> None:
    show(storm_log)
    test = run(sql)
    statement = f"SELECT '{'x' * LONGEST_IN_ADDRESS}' AS long"
    test.text_area[0].set_value(statement).run()
    test.button(key="run").click().run()
    assert len(test.dataframe[0].value) == 1
    assert "sql" not in link_of(test)
    assert "the link above does not carry this statement" in said(test)


def test_a_question_comes_back_from_its_address() -> None:
    for question in (
        Question("SELECT $x", (("x", "1"),)),
        Question("SELECT 1", is_of_engine=False),
        Question(SAVED["request-story"].sql, (("request_id", "a b&c"),), saved="request-story"),
    ):
        assert of_address(question.address(), SAVED) == question


def test_an_unknown_saved_query_is_no_question() -> None:
    assert of_address({"q": "no-such"}, SAVED) is None


def test_show_sql_leads_here(storm_log: Path, show: Show) -> None:
    from tests.dashboard.test_views import steps

    show(storm_log)
    test = run(steps)
    test.button(key="sql-notable").click().run()
    assert test.button(key="open-in-sql").label == "Open in SQL"


# ----------------------------------------------------------------------------------- what is shown


def test_engines_are_hex_and_no_number_is_rounded() -> None:
    exact = (1 << 53) + 1
    table = pa.table({"engine": pa.array([exact], pa.uint64()), "ts": [exact], "n": [7]})
    row = frame_of(table).iloc[0]
    assert (row["engine"], row["ts"], row["n"]) == (f"{exact:016x}", str(exact), 7)


def test_names_that_come_twice_are_told_apart() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert frame_of(table).columns.tolist() == ["a", "a (2)"]


def test_control_characters_are_shown_not_obeyed() -> None:
    table = pa.table({"id": ["a\x1b[2J\u202eb"]})
    assert frame_of(table)["id"].iloc[0] == "a\\x1b[2J\\u202eb"


def test_null_is_no_zero_and_lists_are_text() -> None:
    frame = frame_of(pa.table({"n": pa.array([None, 1]), "l": [[1, 2], None]}))
    assert frame["n"].isna().tolist() == [True, False]
    assert frame["l"].iloc[0] == "[1, 2]"


def test_a_download_is_no_formula(storm_log: Path, show: Show) -> None:
    from telemetry.rendering import csv_text

    test = asked(show, storm_log, "SELECT '=1+1' AS a")
    table = pa.table({"a": ["=1+1"]})
    assert csv_text(table).splitlines()[1] == "'=1+1"
    (button,) = test.get("download_button")
    assert button.proto.label == "Download CSV"


def test_parameters_in_the_text_are_asked_for_too() -> None:
    names = [each.name for each in parameters_of("SELECT $a, $from_ns, $engine, '$no'", None)]
    assert names == ["a"]


def test_the_cap_of_a_visitor_is_below_that_of_the_command() -> None:
    assert asking.LIMITS.max_rows < Limits().max_rows
