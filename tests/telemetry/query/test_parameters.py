"""Parameters of a query: which it has, and what they are given."""

from __future__ import annotations

import pytest

from telemetry.errors import QueryRefused
from telemetry.query.parameters import parse_engine, used_in, values_for
from telemetry.query.window import Window
from telemetry.sql.documentation import parse_query


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT $a, $b, $a", {"a", "b"}),
        ("SELECT '$a', \"$b\", '''$c'", set()),
        ("SELECT 1 -- $a\n, $b", {"b"}),
        ("SELECT 1 /* $a\n */ + $b", {"b"}),
        ("SELECT '$.path', $1", set()),
    ],
)
def test_names_in_texts_and_comments_are_no_parameters(sql: str, names: set[str]) -> None:
    assert used_in(sql) == names


def test_a_value_has_the_type_that_is_declared() -> None:
    query = parse_query(
        "q",
        "-- Q.\n--$ n [integer] a\n--$ x [number = 0.5] b\n--$ t [text = none] c\n"
        "SELECT $n, $x, $t",
    )
    assert values_for(query, {"n": "3"}, None) == {"n": 3, "x": 0.5, "t": "none"}


def test_the_window_and_the_engine_need_no_declaration() -> None:
    query = parse_query("q", "SELECT $from_ns, $until_ns, $engine")
    assert values_for(query, {}, Window(1, 2)) == {"from_ns": 1, "until_ns": 2, "engine": None}
    given = values_for(query, {"engine": "ffffffffffffffff"}, Window(1, 2))
    assert given["engine"] == (1 << 64) - 1


@pytest.mark.parametrize("text", ["", "xyz", "-1", "0x1", "1" * 17])
def test_an_engine_is_hex_digits(text: str) -> None:
    with pytest.raises(QueryRefused, match="write its hex digits"):
        parse_engine(text)


def test_a_documentation_line_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ValueError, match=r"q.sql: cannot read '--\$ n \[date\] x'"):
        parse_query("q", "-- Q.\n--$ n [date] x\nSELECT $n")
